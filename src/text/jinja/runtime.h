// What one render may use and how much of it: limits, the memory meter, makers of values, the line
// that is being run. Handed to every filter, test, method and global function.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <string_view>
#include <vector>

#include "text/jinja/error.h"
#include "text/jinja/value.h"

namespace staffel::jinja {

// Bounds of one render; whatever exceeds one ends with an error that names it. The defaults leave
// two orders of magnitude above long real chats.
struct Limits {
  // One for every node run, item visited and 64 bytes copied; some seconds at most.
  int64_t steps = 20'000'000;
  size_t memory_bytes = 256 << 20;  // beside the caller's data
  size_t output_bytes = 128 << 20;
  int depth = 400;                // nested statements, expressions and macro calls
  int64_t range_items = 100'000;  // as Jinja's sandbox
};

class Runtime {
 public:
  // input_bytes: size of the caller's data, for which memory and steps are added to the limits.
  Runtime(const Limits& limits, size_t input_bytes, const std::tm& now)
      : meter_(limits.memory_bytes + 8 * input_bytes),
        limits_(limits),
        steps_left_(limits.steps + static_cast<int64_t>(input_bytes)),
        now_(now) {}
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const Limits& limits() const { return limits_; }
  const std::tm& now() const { return now_; }
  MemoryMeter& meter() { return meter_; }

  // Line of the template that is being run, for messages.
  int line = 1;

  void Step(int64_t count = 1) {
    steps_left_ -= count;
    if (steps_left_ < 0) FailSteps();
  }
  void Work(size_t bytes) { Step(static_cast<int64_t>(bytes / 64)); }

  // Counts one level of nesting while it lives.
  class Nesting {
   public:
    explicit Nesting(Runtime& runtime) : runtime_(runtime) {
      if (++runtime_.depth_ > runtime_.limits_.depth) {
        --runtime_.depth_;
        FailDepth();
      }
    }
    ~Nesting() { --runtime_.depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    Runtime& runtime_;
  };

  Value MakeString(Text text);
  Value MakeString(std::string_view bytes) { return MakeString(TemplateText(bytes)); }
  Value MakeSequence(SequenceType type, std::vector<Value> items);
  Value MakeList(std::vector<Value> items) {
    return MakeSequence(SequenceType::kList, std::move(items));
  }
  Value MakeTuple(std::vector<Value> items) {
    return MakeSequence(SequenceType::kTuple, std::move(items));
  }
  // Keys must be unique; see DictBuilder in operators.h otherwise.
  Value MakeDict(std::vector<Dict::Entry> entries);

  // Keeps an object that others may refer to in a circle until the render is over, then clears it.
  void Keep(std::shared_ptr<Object> object) { kept_.push_back(std::move(object)); }

 private:
  [[noreturn]] void FailSteps() const;
  [[noreturn]] static void FailDepth();

  MemoryMeter meter_;  // first: outlives every value
  const Limits limits_;
  int64_t steps_left_;
  const std::tm now_;
  int depth_ = 0;
  std::vector<std::shared_ptr<Object>> kept_;
};

// Grows a text under the runtime's limits: the one way to make a string of unknown size.
class TextBuilder {
 public:
  explicit TextBuilder(Runtime& runtime) : runtime_(runtime) {}

  void Append(std::string_view bytes, bool content = false) {
    Grow(bytes.size());
    jinja::Append(text_, bytes, content);
  }
  void Append(const Text& piece) { Append(piece, 0, piece.text.size()); }
  void Append(const Text& piece, size_t begin, size_t end) {
    Grow(end - begin);
    jinja::Append(text_, piece, begin, end);
  }
  void Repeat(std::string_view bytes, int64_t count, bool content = false);
  void AppendCharacter(char32_t code_point, bool content);

  Runtime& runtime() { return runtime_; }
  const Text& text() const { return text_; }
  Text Take() { return std::move(text_); }
  Value TakeValue() { return runtime_.MakeString(std::move(text_)); }

 private:
  // Charged in pages, so that most appends do no more than compare.
  void Grow(size_t bytes) {
    if (text_.text.size() + bytes > checked_bytes_) CheckGrowth(bytes);
  }
  void CheckGrowth(size_t bytes);

  Runtime& runtime_;
  Text text_;
  size_t checked_bytes_ = 0;
};

}  // namespace staffel::jinja
