// Looking into values: length, items, attributes, subscripts, slices.
#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/error.h"
#include "text/jinja/objects.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace staffel::jinja {

int64_t Length(Runtime& runtime, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      runtime.Work(value.bytes().size());
      return CountCharacters(value.bytes());
    case Kind::kDict:
      return static_cast<int64_t>(value.dict().entries().size());
    case Kind::kSequence:
      if (value.sequence().type() != SequenceType::kGenerator) {
        return static_cast<int64_t>(value.sequence().items().size());
      }
      break;
    default:
      break;
  }
  Fail("object of type '", TypeName(value), "' has no len()");
}

bool IsIterable(const Value& value) {
  return value.is_undefined() || value.is_string() || value.is_sequence() || value.is_dict();
}

std::vector<Value> Items(Runtime& runtime, const Value& value) {
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  if (value.is_sequence()) {
    const Sequence& sequence = value.sequence();
    items.assign(sequence.items().begin() + static_cast<ptrdiff_t>(sequence.taken()),
                 sequence.items().end());
    if (sequence.type() == SequenceType::kGenerator) sequence.Take(items.size());
  } else if (value.is_dict()) {
    items.reserve(value.dict().entries().size());
    for (const auto& [key, item] : value.dict().entries()) items.push_back(key);
  } else if (value.is_string()) {
    const Text& text = value.text();
    for (size_t at = 0; at < text.text.size();) {
      const size_t begin = at;
      NextCodePoint(text.text, at);
      items.push_back(runtime.MakeString(Slice(text, begin, at)));
      runtime.Step();
    }
  } else {
    Fail("'", TypeName(value), "' object is not iterable");
  }
  runtime.Step(static_cast<int64_t>(items.size()));
  return items;
}

namespace {

// As Jinja names a value's type in messages about attributes.
std::string ObjectName(const Value& value) {
  if (value.is_none()) return "None";
  return StrCat(TypeName(value), " object");
}

// A method, wrapped for a later call; nothing if the value has none of that name.
std::optional<Value> FindAttribute(Runtime& runtime, const Value& value, std::string_view name) {
  if (value.is_object()) {
    if (auto attribute = value.object().Attribute(runtime, name)) return attribute;
  }
  if (value.is_sequence() && value.sequence().type() == SequenceType::kGroup) {
    if (name == "grouper") return value.sequence().items()[0];
    if (name == "list") return value.sequence().items()[1];
  }
  if (const Method* method = FindMethod(value, name)) return BindMethod(value, *method);
  return std::nullopt;
}

// The item under a key; nothing if there is none or the value has no items.
std::optional<Value> FindItem(Runtime& runtime, const Value& value, const Value& key) {
  if (value.is_dict()) {
    const Dict& dict = value.dict();
    if (key.is_string()) {
      runtime.Work(key.bytes().size());
      if (const Value* found = dict.Find(key.bytes())) return *found;
      return std::nullopt;
    }
    for (const auto& [other, item] : dict.entries()) {
      if (Equal(runtime, other, key)) return item;
    }
    return std::nullopt;
  }
  if (!key.is_index()) return std::nullopt;
  int64_t index = ToInt64(key);
  if (value.is_sequence() && value.sequence().is_indexable()) {
    const auto& items = value.sequence().items();
    const auto size = static_cast<int64_t>(items.size());
    if (index < 0) index += size;
    if (index < 0 || index >= size) return std::nullopt;
    return items[static_cast<size_t>(index)];
  }
  if (value.is_string()) {
    const Text& text = value.text();
    runtime.Work(text.text.size());
    if (index < 0) index += CountCharacters(text.text);
    if (index < 0) return std::nullopt;
    const size_t begin = CharacterOffset(text.text, index);
    if (begin == text.text.size()) return std::nullopt;
    size_t end = begin;
    NextCodePoint(text.text, end);
    return runtime.MakeString(Slice(text, begin, end));
  }
  return std::nullopt;
}

}  // namespace

Value GetAttribute(Runtime& runtime, const Value& value, std::string_view name) {
  if (value.is_undefined()) Fail(value.undefined_reason());
  if (auto attribute = FindAttribute(runtime, value, name)) return *std::move(attribute);
  if (value.is_dict()) {
    if (const Value* item = value.dict().Find(name)) return *item;
  }
  return Value::Undefined(StrCat("'", ObjectName(value), "' has no attribute '", name, "'"));
}

Value GetItem(Runtime& runtime, const Value& value, const Value& key) {
  if (value.is_undefined()) Fail(value.undefined_reason());
  if (auto item = FindItem(runtime, value, key)) return *std::move(item);
  if (!key.is_string()) {
    return Value::Undefined(StrCat(ObjectName(value), " has no element ", Repr(runtime, key).text));
  }
  if (auto attribute = FindAttribute(runtime, value, key.bytes())) return *std::move(attribute);
  return Value::Undefined(StrCat("'", ObjectName(value), "' has no attribute '", key.bytes(), "'"));
}

namespace {

struct SliceBounds {
  int64_t begin, end, step;
};

// Python's rules for bounds: negative ones count from the end, all are clamped.
SliceBounds ResolveSlice(const Value& begin, const Value& end, const Value& step, int64_t size) {
  SliceBounds bounds{0, size, step.is_none() ? 1 : ToInt64(step)};
  if (bounds.step == 0) Fail("slice step cannot be zero");
  bounds.step = std::clamp(bounds.step, -size - 1, size + 1);  // beyond, it is one item anyway
  const bool backwards = bounds.step < 0;
  const int64_t low = backwards ? -1 : 0, high = backwards ? size - 1 : size;
  const auto resolve = [&](const Value& bound, int64_t otherwise) {
    if (bound.is_none()) return otherwise;
    int64_t index = ToInt64(bound);
    if (index < 0) index = std::max(index, -size - 1) + size;
    return std::clamp(index, low, high);
  };
  bounds.begin = resolve(begin, backwards ? high : low);
  bounds.end = resolve(end, backwards ? low : high);
  return bounds;
}

Value SliceText(Runtime& runtime, const Text& text, const Value& begin, const Value& end,
                const Value& step) {
  runtime.Work(2 * text.text.size());
  const SliceBounds bounds = ResolveSlice(begin, end, step, CountCharacters(text.text));
  if (bounds.step == 1) {
    if (bounds.begin >= bounds.end) return runtime.MakeString("");
    const size_t from = CharacterOffset(text.text, bounds.begin);
    const std::string_view rest = std::string_view(text.text).substr(from);
    const size_t length = CharacterOffset(rest, bounds.end - bounds.begin);
    return runtime.MakeString(Slice(text, from, from + length));
  }
  std::vector<size_t> offsets;
  for (size_t at = 0; at < text.text.size();) {
    offsets.push_back(at);
    NextCodePoint(text.text, at);
  }
  offsets.push_back(text.text.size());
  TextBuilder out(runtime);
  for (int64_t i = bounds.begin; bounds.step > 0 ? i < bounds.end : i > bounds.end;
       i += bounds.step) {
    out.Append(text, offsets[static_cast<size_t>(i)], offsets[static_cast<size_t>(i) + 1]);
    runtime.Step();
  }
  return out.TakeValue();
}

}  // namespace

Value GetSlice(Runtime& runtime, const Value& value, const Value& begin, const Value& end,
               const Value& step) {
  if (value.is_undefined()) Fail(value.undefined_reason());
  for (const Value* bound : {&begin, &end, &step}) {
    if (!bound->is_none() && !bound->is_index()) {
      Fail("slice indices must be integers or None, not ", TypeName(*bound));
    }
  }
  if (value.is_string()) return SliceText(runtime, value.text(), begin, end, step);
  if (!value.is_sequence() || !value.sequence().is_indexable()) {
    Fail("'", TypeName(value), "' object cannot be sliced");
  }
  const auto& items = value.sequence().items();
  const SliceBounds bounds = ResolveSlice(begin, end, step, static_cast<int64_t>(items.size()));
  std::vector<Value> out;
  for (int64_t i = bounds.begin; bounds.step > 0 ? i < bounds.end : i > bounds.end;
       i += bounds.step) {
    out.push_back(items[static_cast<size_t>(i)]);
  }
  return runtime.MakeSequence(value.sequence().type(), std::move(out));
}

void CheckHashable(const Value& key) {
  if (key.is_dict() || (key.is_sequence() && key.sequence().type() == SequenceType::kList)) {
    Fail("unhashable type: '", TypeName(key), "'");
  }
  if (key.is_sequence() && key.sequence().is_tuple()) {
    for (const Value& item : key.sequence().items()) CheckHashable(item);
  }
}

void DictBuilder::Set(const Value& key, Value value) {
  CheckHashable(key);
  runtime_.Step();
  size_t position = entries_.size();
  if (key.is_string()) {
    runtime_.Work(key.bytes().size());
    position = positions_.emplace(key.bytes(), position).first->second;
  } else {
    for (size_t i = 0; i < entries_.size(); i++) {
      if (Equal(runtime_, entries_[i].first, key)) {
        position = i;
        break;
      }
    }
  }
  if (position < entries_.size()) {
    entries_[position].second = std::move(value);
  } else {
    entries_.emplace_back(key, std::move(value));
  }
}

void DictBuilder::SetAll(const Value& source) {
  if (source.is_dict()) {
    for (const auto& [key, value] : source.dict().entries()) Set(key, value);
    return;
  }
  for (const Value& pair : Items(runtime_, source)) {
    const std::vector<Value> parts = Items(runtime_, pair);
    if (parts.size() != 2) Fail("a dict is made of pairs, not of ", parts.size(), " values");
    Set(parts[0], parts[1]);
  }
}

}  // namespace staffel::jinja
