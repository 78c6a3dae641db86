// The numbers that every architecture here states under the same keys, with their ranges.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "model/config.h"
#include "staffel/model_file.h"
#include "staffel/status.h"

namespace staffel {

// Reads "<architecture>.<key>". Errors name the full key and the value.
class ConfigReader {
 public:
  ConfigReader(const Metadata& metadata, std::string architecture)
      : metadata_(metadata), prefix_(std::move(architecture) + ".") {}

  std::string Name(std::string_view key) const { return prefix_ + std::string(key); }
  bool Has(std::string_view key) const { return metadata_.Has(Name(key)); }
  Result<int> Int(std::string_view key, int min, int max) const;
  Result<int> IntOr(std::string_view key, int min, int max, int fallback) const;
  // In [min, max].
  Result<double> Float(std::string_view key, double min, double max) const;
  Result<double> FloatOr(std::string_view key, double min, double max, double fallback) const;

  // Sizes, heads, norm epsilon, rope and its scaling, attention scale.
  Status ReadCommon(ModelConfig& config) const;
  // windows[layer] from attention.sliding_window. `global_every`: every n-th layer sees everything
  // (0: none does); attention.sliding_window_pattern (a period, or a flag for each layer) wins.
  Status ReadWindows(ModelConfig& config, int global_every) const;
  // Keys that change the computation in a way that no program here expresses: refused unless they
  // have the value that means "off". Also any key under attention., rope. or expert that is not
  // known: what it asks for would be ignored.
  Status RefuseUnsupported() const;

 private:
  Status ReadHeads(ModelShape& shape) const;
  Status ReadRope(ModelConfig& config) const;
  Status RefuseUnlessNeutral(std::string_view key, double neutral) const;

  const Metadata& metadata_;
  std::string prefix_;
};

}  // namespace staffel
