#include "text/jinja/runtime.h"

namespace staffel::jinja {

Runtime::~Runtime() {
  for (const auto& object : kept_) object->Clear();
}

Value Runtime::MakeString(Text text) {
  Work(text.text.size());
  return Value(std::make_shared<const String>(meter_, std::move(text)));
}

Value Runtime::MakeSequence(SequenceType type, std::vector<Value> items) {
  Step(static_cast<int64_t>(items.size()));
  return Value(std::make_shared<const Sequence>(meter_, type, std::move(items)));
}

Value Runtime::MakeDict(std::vector<Dict::Entry> entries) {
  Step(static_cast<int64_t>(entries.size()));
  return Value(std::make_shared<const Dict>(meter_, std::move(entries)));
}

void Runtime::FailSteps() const { Fail("the template ran more steps than its limit allows"); }

void Runtime::FailDepth() { Fail("the template is nested too deeply (or calls itself forever)"); }

void TextBuilder::Repeat(std::string_view bytes, int64_t count, bool content) {
  if (count <= 0 || bytes.empty()) return;
  // Refuses the whole before writing the first piece.
  runtime_.meter().Check(static_cast<size_t>(count));
  Grow(static_cast<size_t>(count) * bytes.size());
  for (int64_t i = 0; i < count; i++) jinja::Append(text_, bytes, content);
}

void TextBuilder::AppendCharacter(char32_t code_point, bool content) {
  std::string bytes;
  AppendUtf8(code_point, &bytes);
  Append(bytes, content);
}

void TextBuilder::CheckGrowth(size_t bytes) {
  constexpr size_t kPageBytes = 4096;
  const size_t size = text_.text.size() + bytes;
  runtime_.meter().Check(size + text_.content.size() * sizeof(ByteRange));
  runtime_.Work(size - checked_bytes_ + kPageBytes);
  checked_bytes_ = size + kPageBytes;
}

}  // namespace staffel::jinja
