#include "app/model_store.h"

#include <sys/stat.h>

#include <filesystem>
#include <utility>

#include "base/strings.h"
#include "modelfile/model_digest.h"
#include "modelfile/open.h"

namespace staffel {

Result<std::shared_ptr<const StoredModel>> ModelStore::Open(const std::string& path,
                                                            const ModelRef& model) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) {
    return absl::NotFoundError(StrCat("'", path, "' does not exist"));
  }
  const Seen seen{.size = info.st_size,
                  .modified_ns = info.st_mtim.tv_sec * int64_t{1000000000} + info.st_mtim.tv_nsec,
                  .inode = info.st_ino,
                  .device = info.st_dev};
  const auto known = digests_.find(path);
  const bool same = known != digests_.end() && known->second.seen == seen;
  const auto differs = [&](const std::string& digest) {
    return absl::NotFoundError(StrCat("'", path, "' has other content (digest ",
                                      digest.substr(0, 12), "..., not ", model.digest.substr(0, 12),
                                      "...)"));
  };
  if (same && known->second.digest != model.digest) return differs(known->second.digest);
  auto stored = std::make_shared<StoredModel>();
  STAFFEL_ASSIGN_OR_RETURN(stored->file, OpenModelFile(path));
  if (!same) {
    STAFFEL_ASSIGN_OR_RETURN(std::string digest, ModelDigest(*stored->file));
    digests_[path] = {seen, digest};
    if (digest != model.digest) return differs(digest);
  }
  stored->digest = model.digest;
  STAFFEL_ASSIGN_OR_RETURN(stored->config, ReadConfig(*stored->file));
  return stored;
}

Result<std::shared_ptr<const StoredModel>> ModelStore::OpenCache(
    const ModelRef& model, MasterLink& master, const std::function<bool()>& cancelled) {
  ShardCacheOptions options{.folder = options_.cache_dir,
                            .digest = model.digest,
                            .file_bytes = {},
                            .limit_bytes = options_.cache_limit_bytes};
  std::vector<ModelRange> headers;
  int64_t begin = 0;
  for (const ModelPartSize& part : model.parts) {
    options.file_bytes.push_back(part.bytes);
    headers.push_back({begin, part.header_bytes});
    begin += part.bytes;
  }
  auto stored = std::make_shared<StoredModel>();
  stored->digest = model.digest;
  STAFFEL_ASSIGN_OR_RETURN(stored->cache, ShardCache::Open(std::move(options)));
  const Result<int64_t> fetched = Provide(*stored, headers, master, nullptr, cancelled);
  if (!fetched.ok()) return fetched.status();
  STAFFEL_ASSIGN_OR_RETURN(stored->file, OpenModelFile(stored->cache->path()));
  STAFFEL_ASSIGN_OR_RETURN(stored->config, ReadConfig(*stored->file));
  return stored;
}

Result<int64_t> ModelStore::Provide(const StoredModel& model, const std::vector<ModelRange>& ranges,
                                    MasterLink& master, const std::function<void(double)>& progress,
                                    const std::function<bool()>& cancelled) {
  if (model.cache == nullptr) return 0;
  return model.cache->Provide(
      ranges,
      [&](absl::Span<const ModelRange> wanted, const ShardCache::Sink& sink) {
        return master.ReadModel(model.digest, wanted, sink);
      },
      progress, cancelled);
}

Result<std::shared_ptr<const StoredModel>> ModelStore::Find(
    const ModelRef& model, MasterLink& master, const std::function<bool()>& cancelled) {
  if (auto last = last_.lock(); last != nullptr && last->digest == model.digest) return last;
  std::vector<std::string> paths = {model.path};
  const std::filesystem::path name = std::filesystem::path(model.path).filename();
  if (!options_.model_dir.empty()) {
    paths.push_back((std::filesystem::path(options_.model_dir) / name).string());
  }
  std::string tried;
  for (const std::string& path : paths) {
    Result<std::shared_ptr<const StoredModel>> found = Open(path, model);
    if (found.ok()) {
      last_ = *found;
      return found;
    }
    StrAppend(tried, tried.empty() ? "" : "; ", std::string(found.status().message()));
  }
  if (options_.cache_dir.empty()) {
    return absl::NotFoundError(StrCat("this worker has no file of the model '", model.name, "': ",
                                      tried, "; give the folder with a copy as --model-dir"));
  }
  Result<std::shared_ptr<const StoredModel>> cached = OpenCache(model, master, cancelled);
  if (cached.ok()) {
    last_ = *cached;
    return cached;
  }
  return Status(
      cached.status().code(),
      StrCat("this worker has no file of the model '", model.name, "' (", tried,
             "), and it cannot be had from the master: ", std::string(cached.status().message())));
}

}  // namespace staffel
