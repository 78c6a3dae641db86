// A model served by this process: file, tokenizer, chat template, and one in-process worker behind
// an engine. Loaded in one go; then used from any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "app/model_grammars.h"
#include "app/model_text.h"
#include "app/serve_options.h"
#include "engine/engine.h"
#include "model/config.h"
#include "staffel/backend.h"
#include "staffel/clock.h"
#include "staffel/model_file.h"
#include "transport/inproc/inproc_transport.h"
#include "worker/worker.h"

namespace staffel {

class Replica {
 public:
  struct Callbacks {
    std::function<void(double)> progress;  // with the share that is loaded
    // Engine thread, see EngineOptions.
    std::function<void(const Status&)> on_loss;
    std::function<void()> on_delivered;
  };
  // Reads, checks and packs the model. Errors are sentences for the operator: what is wrong with
  // file, options or memory, and what to do.
  static Result<std::shared_ptr<Replica>> Load(const ServeOptions& options, Callbacks callbacks);
  ~Replica();
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  Engine& engine() const { return *engine_; }
  const ModelText& text() const { return text_; }
  // Shared by the front and the worker, so that what one compiles the other has.
  const std::shared_ptr<grammar::Grammars>& grammars() const { return grammars_; }
  // "llama, 134.5 M parameters ...", for the log.
  const std::string& description() const { return description_; }

 private:
  Replica() = default;
  Status LoadWeights(const ModelFile& file, const ModelConfig& config, const ServeOptions& options,
                     std::function<void(double)> progress);
  Status StartEngine(const ModelConfig& config, const ServeOptions& options, Callbacks callbacks);

  SystemClock clock_;
  ModelText text_;
  std::shared_ptr<grammar::Grammars> grammars_;
  std::string description_;
  // In the order of their lives: each uses the ones before it.
  std::unique_ptr<Backend> backend_;
  BackendOptions backend_options_;
  Worker worker_{clock_};
  std::unique_ptr<InprocTransport> transport_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace staffel
