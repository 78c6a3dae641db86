// Filters that take sequences apart, order them and put them together.
#include <algorithm>

#include "text/jinja/error.h"
#include "text/jinja/filter_tables.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/string_ops.h"

namespace staffel::jinja {
namespace {

Value Generator(Runtime& runtime, std::vector<Value> items) {
  return runtime.MakeSequence(SequenceType::kGenerator, std::move(items));
}

Value First(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound("first", arguments, {});
  if (input.is_string() && !input.bytes().empty()) {
    return GetItem(runtime, input, Value::Integer(0));
  }
  if (input.is_sequence()) {
    const Sequence& sequence = input.sequence();
    if (sequence.taken() < sequence.items().size()) {
      const Value& item = sequence.items()[sequence.taken()];
      if (sequence.type() == SequenceType::kGenerator) sequence.Take(1);
      return item;
    }
  }
  const std::vector<Value> items = Items(runtime, input);
  return items.empty() ? Value::Undefined("No first item, sequence was empty.") : items.front();
}

Value Last(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound("last", arguments, {});
  if (input.is_sequence() && input.sequence().type() == SequenceType::kGenerator) {
    Fail("'generator' object is not reversible");
  }
  if (input.is_string() && !input.bytes().empty()) {
    return GetItem(runtime, input, Value::Integer(-1));
  }
  if (input.is_sequence() && !input.sequence().items().empty()) {
    return input.sequence().items().back();
  }
  const std::vector<Value> items = Items(runtime, input);
  return items.empty() ? Value::Undefined("No last item, sequence was empty.") : items.back();
}

Value LengthFilter(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound("length", arguments, {});
  return Value::Integer(Length(runtime, input));
}

Value List(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound("list", arguments, {});
  return runtime.MakeList(Items(runtime, input));
}

Value Reverse(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound("reverse", arguments, {});
  if (input.is_string()) {
    return GetSlice(runtime, input, Value::None(), Value::None(), Value::Integer(-1));
  }
  std::vector<Value> items = Items(runtime, input);
  std::reverse(items.begin(), items.end());
  const bool was_generator =
      input.is_sequence() && input.sequence().type() == SequenceType::kGenerator;
  return was_generator ? runtime.MakeList(std::move(items)) : Generator(runtime, std::move(items));
}

Value JoinFilter(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("join", arguments, {"d", "attribute"});
  std::vector<Value> items = Items(runtime, input);
  if (const Value* attribute = bound.NotNone(1)) {
    const AttributePath path(runtime, *attribute);
    for (Value& item : items) item = path.Get(item);
  }
  const Text separator = bound[0] != nullptr ? Str(runtime, *bound[0]) : Text();
  TextBuilder out(runtime);
  for (size_t i = 0; i < items.size(); i++) {
    if (i > 0) out.Append(separator);
    AppendStr(out, items[i]);
    runtime.Step();
  }
  return out.TakeValue();
}

bool KeysLess(Runtime& runtime, const std::vector<Value>& a, const std::vector<Value>& b) {
  for (size_t i = 0; i < a.size(); i++) {
    if (!Equal(runtime, a[i], b[i])) return Less(runtime, a[i], b[i]);
  }
  return false;
}

// Items sorted by keys, as Python's sorted(): stable, and so in reverse, too.
struct Keyed {
  std::vector<Value> keys;
  Value item;
};
void SortByKeys(Runtime& runtime, std::vector<Keyed>& items, bool reverse) {
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
    return reverse ? KeysLess(runtime, b.keys, a.keys) : KeysLess(runtime, a.keys, b.keys);
  });
}

std::vector<Value> ItemsOf(std::vector<Keyed> keyed) {
  std::vector<Value> items;
  for (Keyed& entry : keyed) items.push_back(std::move(entry.item));
  return items;
}

Value Sort(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  std::vector<AttributePath> paths;
  if (const Value* attribute = bound.NotNone(2); attribute != nullptr && attribute->is_string()) {
    const Text comma = TemplateText(",");
    for (const Value& part : Split(runtime, attribute->text(), &comma, -1, false)) {
      paths.emplace_back(runtime, part);
    }
  } else {
    paths.emplace_back(runtime, attribute != nullptr ? *attribute : Value::None());
  }
  std::vector<Keyed> keyed;
  for (const Value& item : Items(runtime, input)) {
    Keyed& entry = keyed.emplace_back();
    entry.item = item;
    for (const AttributePath& path : paths) {
      entry.keys.push_back(SortKey(runtime, path.Get(item), bound.Truth(1, false)));
    }
  }
  SortByKeys(runtime, keyed, bound.Truth(0, false));
  return runtime.MakeList(ItemsOf(std::move(keyed)));
}

Value DictSort(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  if (input.is_undefined()) Fail(input.undefined_reason());
  if (!input.is_dict()) Fail("dictsort wants a dict, not ", TypeName(input));
  const std::string by = bound[1] != nullptr ? bound.String(1).text : "key";
  if (by != "key" && by != "value") Fail("dictsort sorts by either \"key\" or \"value\"");
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : input.dict().entries()) {
    keyed.push_back({{SortKey(runtime, by == "key" ? key : value, bound.Truth(0, false))},
                     runtime.MakeTuple({key, value})});
  }
  SortByKeys(runtime, keyed, bound.Truth(2, false));
  return runtime.MakeList(ItemsOf(std::move(keyed)));
}

Value GroupBy(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const AttributePath path(runtime, *bound[0]);
  const Value* otherwise = bound.NotNone(1);
  std::vector<Keyed> keyed;
  for (const Value& item : Items(runtime, input)) {
    keyed.push_back({{SortKey(runtime, path.Get(item, otherwise), bound.Truth(2, false))}, item});
  }
  SortByKeys(runtime, keyed, false);
  std::vector<Value> groups;
  for (size_t begin = 0; begin < keyed.size();) {
    size_t end = begin;
    std::vector<Value> members;
    while (end < keyed.size() && Equal(runtime, keyed[end].keys[0], keyed[begin].keys[0])) {
      members.push_back(keyed[end++].item);
    }
    const Value grouper = path.Get(keyed[begin].item, otherwise);
    groups.push_back(runtime.MakeSequence(SequenceType::kGroup,
                                          {grouper, runtime.MakeList(std::move(members))}));
    begin = end;
  }
  return runtime.MakeList(std::move(groups));
}

template <bool greatest>
Value Extreme(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound(greatest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const std::vector<Value> items = Items(runtime, input);
  if (items.empty()) return Value::Undefined("No aggregated item, sequence was empty.");
  const AttributePath path(runtime, bound[1] != nullptr ? *bound[1] : Value::None());
  const Value* best = nullptr;
  Value best_key;
  for (const Value& item : items) {
    Value key = SortKey(runtime, path.Get(item), bound.Truth(0, false));
    const bool better =
        best == nullptr || (greatest ? Less(runtime, best_key, key) : Less(runtime, key, best_key));
    if (!better) continue;
    best = &item;
    best_key = std::move(key);
  }
  return *best;
}

Value Sum(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("sum", arguments, {"attribute", "start"});
  Value sum = bound[1] != nullptr ? *bound[1] : Value::Integer(0);
  if (sum.is_string()) Fail("sum() cannot sum strings");
  const AttributePath path(runtime, bound[0] != nullptr ? *bound[0] : Value::None());
  for (const Value& item : Items(runtime, input)) {
    sum = Apply(runtime, Operator::kAdd, sum, path.Get(item));
  }
  return sum;
}

Value Unique(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("unique", arguments, {"case_sensitive", "attribute"});
  const AttributePath path(runtime, bound[1] != nullptr ? *bound[1] : Value::None());
  std::unordered_map<std::string, bool> seen_text;
  std::vector<Value> seen_others, unique;
  for (const Value& item : Items(runtime, input)) {
    Value key = SortKey(runtime, path.Get(item), bound.Truth(0, false));
    CheckHashable(key);
    bool is_new;
    if (key.is_string()) {
      runtime.Work(key.bytes().size());
      is_new = seen_text.emplace(key.bytes(), true).second;
    } else {
      is_new = std::none_of(seen_others.begin(), seen_others.end(),
                            [&](const Value& other) { return Equal(runtime, other, key); });
      if (is_new) seen_others.push_back(key);
    }
    if (is_new) unique.push_back(item);
  }
  return Generator(runtime, std::move(unique));
}

Value Batch(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("batch", arguments, {"linecount", "fill_with"}, 1);
  const int64_t size = bound.Int(0, 0);
  std::vector<Value> rows, row;
  for (const Value& item : Items(runtime, input)) {
    if (static_cast<int64_t>(row.size()) == size) {
      rows.push_back(runtime.MakeList(std::move(row)));
      row.clear();
    }
    row.push_back(item);
  }
  if (!row.empty()) {
    if (const Value* fill = bound.NotNone(1)) {
      if (size > 0) runtime.meter().Check(static_cast<size_t>(size));
      while (static_cast<int64_t>(row.size()) < size) {
        runtime.Step();
        row.push_back(*fill);
      }
    }
    rows.push_back(runtime.MakeList(std::move(row)));
  }
  return Generator(runtime, std::move(rows));
}

Value SliceFilter(Runtime& runtime, const Value& input, Arguments& arguments) {
  const Bound bound("slice", arguments, {"slices", "fill_with"}, 1);
  const std::vector<Value> items = Items(runtime, input);
  const int64_t slices = bound.Int(0, 0);
  if (slices <= 0) Fail("slice: the number of slices must be above 0");
  const auto size = static_cast<int64_t>(items.size());
  const Value* fill = bound.NotNone(1);
  std::vector<Value> out;
  int64_t begin = 0;
  for (int64_t i = 0; i < slices; i++) {
    const bool has_extra = i < size % slices;
    const int64_t end = begin + size / slices + (has_extra ? 1 : 0);
    std::vector<Value> part(items.begin() + begin, items.begin() + end);
    if (fill != nullptr && !has_extra) part.push_back(*fill);
    out.push_back(runtime.MakeList(std::move(part)));
    begin = end;
  }
  return Generator(runtime, std::move(out));
}

Value ItemsFilter(Runtime& runtime, const Value& input, Arguments& arguments) {
  Bound("items", arguments, {});
  std::vector<Value> pairs;
  if (!input.is_undefined() && !input.is_dict()) Fail("Can only get item pairs from a mapping.");
  if (input.is_dict()) {
    for (const auto& [key, value] : input.dict().entries()) {
      pairs.push_back(runtime.MakeTuple({key, value}));
    }
  }
  return Generator(runtime, std::move(pairs));
}

}  // namespace

const std::vector<Filter>& SequenceFilters() {
  static const std::vector<Filter> kFilters = {
      {"batch", Batch},     {"count", LengthFilter}, {"dictsort", DictSort},
      {"first", First},     {"groupby", GroupBy},    {"items", ItemsFilter},
      {"join", JoinFilter}, {"last", Last},          {"length", LengthFilter},
      {"list", List},       {"max", Extreme<true>},  {"min", Extreme<false>},
      {"reverse", Reverse}, {"slice", SliceFilter},  {"sort", Sort},
      {"sum", Sum},         {"unique", Unique}};
  return kFilters;
}

}  // namespace staffel::jinja
