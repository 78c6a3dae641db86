// Where a worker's weights come from: a file of its own with the right content, else the master's,
// through a cache on this worker's disk. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/config.h"
#include "source/shard_cache.h"
#include "staffel/cluster.h"
#include "staffel/model_file.h"
#include "staffel/status.h"

namespace staffel {

// A model of known content, open. Kept while its shard is resident, so that the next epoch need
// not look again.
struct StoredModel {
  std::string digest;
  std::unique_ptr<ModelFile> file;
  ModelConfig config;
  // Not null: only the headers of `file` are there, and what ModelStore::Provide has provided.
  std::unique_ptr<ShardCache> cache;
};

class ModelStore {
 public:
  struct Options {
    std::string model_dir;          // looked through by file name; "": none
    std::string cache_dir;          // "": no cache, own files only
    int64_t cache_limit_bytes = 0;  // 0: none
  };
  explicit ModelStore(Options options) : options_(std::move(options)) {}

  // Looks for a file with the reference's digest: at its path, then by its name in the folder for
  // models; else opens the cache, for which the master is asked for the headers if they are not
  // there. Errors say what was looked at, and what was wrong with each.
  Result<std::shared_ptr<const StoredModel>> Find(const ModelRef& model, MasterLink& master,
                                                  const std::function<bool()>& cancelled);

  // Makes these ranges of the model readable; returns the bytes that came from the master. See
  // ShardCache::Provide.
  static Result<int64_t> Provide(const StoredModel& model, const std::vector<ModelRange>& ranges,
                                 MasterLink& master, const std::function<void(double)>& progress,
                                 const std::function<bool()>& cancelled);

 private:
  // What a path led to when its digest was taken last.
  struct Seen {
    int64_t size = 0, modified_ns = 0;
    uint64_t inode = 0, device = 0;
    bool operator==(const Seen&) const = default;
  };
  struct Known {
    Seen seen;
    std::string digest;
  };
  Result<std::shared_ptr<const StoredModel>> Open(const std::string& path, const ModelRef& model);
  Result<std::shared_ptr<const StoredModel>> OpenCache(const ModelRef& model, MasterLink& master,
                                                       const std::function<bool()>& cancelled);

  const Options options_;
  std::map<std::string, Known> digests_;  // by path
  std::weak_ptr<const StoredModel> last_;
};

}  // namespace staffel
