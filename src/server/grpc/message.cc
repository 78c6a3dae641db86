#include "server/grpc/message.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <array>
#include <charconv>
#include <string>

#include "base/strings.h"

namespace staffel {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr int kDepthMax = 100;  // as the parser has it

// Walks the fields of one message, `type` null for one that is not known. False at what is
// malformed, or once `left` is negative.
bool CountFields(CodedInputStream& in, const Descriptor* type, int depth, int64_t& left) {
  if (depth > kDepthMax) return false;
  for (;;) {
    const uint32_t tag = in.ReadTag();
    if (tag == 0) return in.ConsumedEntireMessage();
    if (--left < 0) return false;
    const WireFormatLite::WireType wire = WireFormatLite::GetTagWireType(tag);
    // proto3 has no groups; unknown ones would be kept as trees.
    if (wire == WireFormatLite::WIRETYPE_START_GROUP) return false;
    const FieldDescriptor* field =
        type == nullptr ? nullptr : type->FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
    if (wire != WireFormatLite::WIRETYPE_LENGTH_DELIMITED || field == nullptr ||
        field->type() != FieldDescriptor::TYPE_MESSAGE) {
      if (!WireFormatLite::SkipField(&in, tag)) return false;
      continue;
    }
    uint32_t length = 0;
    if (!in.ReadVarint32(&length) || length > static_cast<uint32_t>(INT32_MAX)) return false;
    const CodedInputStream::Limit outer = in.PushLimit(static_cast<int>(length));
    if (!CountFields(in, field->message_type(), depth + 1, left)) return false;
    in.PopLimit(outer);
  }
}

HttpError Malformed(std::string message) {
  return {.status = 400, .message = std::move(message), .code = "invalid_message"};
}

}  // namespace

double WidenFloat(float value) {
  std::array<char, 32> text;
  const auto written = std::to_chars(text.data(), text.data() + text.size(), value);
  double wide = value;
  std::from_chars(text.data(), written.ptr, wide);
  return wide;
}

std::optional<HttpError> ReadMessage(std::string_view bytes, google::protobuf::Message& message) {
  CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                      static_cast<int>(bytes.size()));
  int64_t left = kMessageFieldsMax;
  const bool counted = CountFields(in, message.GetDescriptor(), 0, left);
  const std::string& name = message.GetDescriptor()->full_name();
  if (left < 0) {
    return Malformed(StrCat("The ", name, " has more than ", kMessageFieldsMax,
                            " fields; send less in one request."));
  }
  if (!counted || !message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Malformed(StrCat("The message is not a ", name,
                            ", or a string in it is not UTF-8; is the client built from this "
                            "server's .proto file?"));
  }
  return std::nullopt;
}

}  // namespace staffel
