#include "server/api/fields.h"

#include <string>

#include "base/strings.h"

namespace staffel::api {
namespace {

// Whole numbers up to 2^63: the range of a double is wider.
int64_t IntBound(double bound) {
  if (bound <= -9.2e18) return INT64_MIN;
  return bound >= 9.2e18 ? INT64_MAX : static_cast<int64_t>(bound);
}

bool IsEmpty(const Json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return (value.is_array() || value.is_object()) && value.empty();
}

void CheckMembers(FieldReader& reader, const Field& field) {
  const Json* object = reader.Object(field.name);
  if (object == nullptr || field.members.empty()) return;
  FieldReader members(*object, StrCat(field.name, "."));
  CheckFields(members, field.members);
  if (members.ok()) return;
  reader.Fail(members.error()->param.value_or(std::string(field.name)), members.error()->message);
}

void CheckKind(FieldReader& reader, const Field& field) {
  switch (field.kind) {
    case FieldKind::kBool:
      reader.Bool(field.name);
      return;
    case FieldKind::kInt:
      reader.Int(field.name, IntBound(field.min), IntBound(field.max));
      return;
    case FieldKind::kNumber:
      reader.Number(field.name, field.min, field.max);
      return;
    case FieldKind::kString:
      reader.String(field.name);
      return;
    case FieldKind::kArray:
      reader.Array(field.name);
      return;
    case FieldKind::kObject:
      return CheckMembers(reader, field);
    case FieldKind::kMixed:
      return;
  }
}

}  // namespace

void CheckFields(FieldReader& reader, std::span<const Field> fields) {
  for (const Field& field : fields) {
    const Json* value = reader.Get(field.name);
    if (value == nullptr || field.use == FieldUse::kIgnored) continue;
    if (field.use == FieldUse::kNeutral) {
      if (*value != Json::parse(field.fallback)) {
        reader.Fail(field.name,
                    StrCat("'", reader.PathOf(field.name),
                           "' is not supported; leave it out, or send ", field.fallback));
      }
    } else if (field.use != FieldUse::kRefused) {
      CheckKind(reader, field);
    } else if (!IsEmpty(*value)) {
      reader.Fail(field.name,
                  StrCat("'", reader.PathOf(field.name), "' is not supported: ", field.note));
    }
  }
}

void CopyFields(const Json& client, std::span<const ClientName> names, Json& fields) {
  for (const ClientName& name : names) {
    const auto found = client.find(name.client);
    if (found != client.end() && !found->is_null()) fields[std::string(name.openai)] = *found;
  }
}

}  // namespace staffel::api
