// Stand-ins around the routes of a front: an engine that a test drives, a writer that records, a
// tokenizer of one token a byte.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "server/anthropic/routes.h"
#include "server/api/service.h"
#include "server/http.h"
#include "server/http_router.h"
#include "server/llama/routes.h"
#include "server/ollama/routes.h"
#include "server/openai/routes.h"
#include "server/tgi/routes.h"
#include "server/tokenize/routes.h"
#include "text/chat_template.h"

namespace staffel::api {

// Tokens 0..255 are bytes; 256 is <|end|>, 257 <|turn|>.
class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr TokenId kEnd = 256, kTurn = 257;

  std::vector<TokenId> Encode(const PromptText& prompt, bool) const override {
    std::vector<TokenId> out;
    for (size_t i = 0; i < prompt.text.size(); i++) {
      bool content = false;
      for (const ByteRange& range : prompt.content) content |= range.begin <= i && i < range.end;
      if (!content && prompt.text.compare(i, 7, "<|end|>") == 0) {
        out.push_back(kEnd);
        i += 6;
      } else if (!content && prompt.text.compare(i, 8, "<|turn|>") == 0) {
        out.push_back(kTurn);
        i += 7;
      } else {
        out.push_back(static_cast<uint8_t>(prompt.text[i]));
      }
    }
    return out;
  }
  std::vector<TokenId> Encode(std::string_view text, bool parse_special,
                              bool add_bos) const override {
    PromptText prompt{std::string(text), {}};
    if (!parse_special) prompt.content = {{0, text.size()}};
    return Encode(prompt, add_bos);
  }
  std::string_view TokenBytes(TokenId token, bool special) const override {
    static const std::vector<std::string> kBytes = [] {
      std::vector<std::string> bytes;
      for (int i = 0; i < 256; i++) bytes.push_back(std::string(1, static_cast<char>(i)));
      return bytes;
    }();
    if (token < 256) return kBytes[token];
    if (!special) return "";
    return token == kEnd ? "<|end|>" : "<|turn|>";
  }
  std::string Decode(absl::Span<const TokenId> tokens, bool special) const override {
    std::string out;
    for (TokenId token : tokens) out += TokenBytes(token, special);
    return out;
  }
  bool IsControl(TokenId token) const override { return token >= 256; }
  int vocab_size() const override { return 258; }
  const TokenizerSpec& spec() const override { return spec_; }
  absl::Span<const TokenId> end_tokens() const override { return ends_; }
  TokenizerSpec& mutable_spec() { return spec_; }

 private:
  TokenizerSpec spec_;
  std::vector<TokenId> ends_ = {kEnd};
};

class FakeEngine final : public EngineClient {
 public:
  Status Submit(GenerateRequest request, std::shared_ptr<EventSink> sink) override {
    if (!submit_status.ok() && static_cast<int>(requests.size()) >= refuse_after)
      return submit_status;
    sinks[request.id] = std::move(sink);
    requests.push_back(std::move(request));
    return absl::OkStatus();
  }
  void Cancel(RequestId request, int index) override { cancelled.emplace_back(request, index); }
  EngineLimits limits() const override {
    return {.max_model_len = 128, .kv_capacity_tokens = 96, .vocab_size = 258, .max_queue = 4};
  }
  EngineStats stats() const override { return now; }
  Status health() const override { return absl::OkStatus(); }

  // Sends the bytes of `text` as the next tokens of sequence `index` of the request that was
  // submitted as number `which`.
  void Say(std::string_view text, std::optional<FinishReason> finish = std::nullopt, int which = 0,
           int index = 0) {
    SeqEvent event;
    event.request = requests[which].id;
    event.index = index;
    for (char c : text)
      event.tokens.push_back(
          {static_cast<uint8_t>(c), -0.5f, {{static_cast<uint8_t>(c), -0.5f}, {'z', -1.5f}}});
    event.finish = finish;
    Send(std::move(event));
  }
  // Ends the request that was submitted as number `which` with its embedding.
  void Embed(std::vector<float> values, int which = 0) {
    SeqEvent event;
    event.request = requests[which].id;
    event.finish = FinishReason::kLength;
    event.embedding = std::move(values);
    Send(std::move(event));
  }
  void Send(SeqEvent event) {
    event.first = !begun[{event.request, event.index}];
    begun[{event.request, event.index}] = true;
    if (event.first) event.cached_tokens = cached_tokens;
    sinks[event.request]->OnEvent(event);
  }

  std::vector<GenerateRequest> requests;
  std::map<RequestId, std::shared_ptr<EventSink>> sinks;
  std::map<std::pair<RequestId, int>, bool> begun;
  std::vector<std::pair<RequestId, int>> cancelled;
  Status submit_status;
  int refuse_after = 0;
  EngineStats now;
  int cached_tokens = 0;
};

// Knows what it was asked for; refuses the source "[".
class FakeGrammars final : public grammar::Grammars {
 public:
  Status Check(const grammar::GrammarSpec& spec) override {
    if (spec.source == "[") return absl::InvalidArgumentError("a \"[\" has no \"]\"");
    return absl::OkStatus();
  }
  Result<std::unique_ptr<grammar::SequenceGrammar>> Begin(const grammar::GrammarSpec&) override {
    return absl::UnimplementedError("");
  }
};

class RecordingWriter final : public ResponseWriter {
 public:
  void Send(int status_code, std::string, std::string text, HttpHeaders h) override {
    answers++;
    status = status_code;
    body = std::move(text);
    headers = std::move(h);
  }
  void BeginStream(HttpHeaders, StreamFraming as) override {
    streaming = true;
    framing = as;
  }
  bool WriteEvent(std::string_view data, std::string_view name) override {
    event_names.emplace_back(name);
    events.emplace_back(data);
    return static_cast<int>(events.size()) < slow_after;
  }
  void EndStream() override {
    answers++;
    ended = true;
  }
  void OnDisconnect(std::function<void()> callback) override { disconnect = std::move(callback); }

  nlohmann::ordered_json json() const { return nlohmann::ordered_json::parse(body); }
  nlohmann::ordered_json event(int i) const {
    return nlohmann::ordered_json::parse(events.at(i < 0 ? events.size() + i : i));
  }
  std::string error_param() const {
    return json()["error"]["param"].is_null() ? "" : json()["error"]["param"];
  }

  int answers = 0, status = 0, slow_after = 1 << 30;
  bool streaming = false, ended = false;
  std::string body;
  HttpHeaders headers;
  StreamFraming framing = StreamFraming::kEvents;
  std::vector<std::string> events, event_names;
  std::function<void()> disconnect;
};

class InlineRunner final : public TaskRunner {
 public:
  void Post(std::function<void()> task) override { task(); }
  void PostShort(std::function<void()> task) override { task(); }
  void WakeForShort() override {}
};

// Remembers every route.
class MapRouter final : public Router {
 public:
  void Handle(std::string method, std::string path, HttpHandler handler) override {
    handlers[method + " " + path] = std::move(handler);
  }
  void ShapeErrors(std::string, ErrorShape) override {}
  std::map<std::string, HttpHandler> handlers;
};

// The whole fixture: post a body to a path and look at what the writer got.
struct ApiWorld {
  explicit ApiWorld(std::string_view chat_template =
                        "{% for m in messages %}<|turn|>{{ m.role }}:{{ m.content }}<|end|>{% "
                        "endfor %}<|turn|>") {
    engine = std::make_shared<FakeEngine>();
    model = std::make_shared<ServedModel>();
    model->names = {"tiny", "alias"};
    model->tokenizer = std::make_shared<ByteTokenizer>();
    auto parsed = ChatTemplate::Parse(chat_template, {"<|turn|>", "<|end|>", "", ""});
    if (parsed.ok()) model->chat_template = *std::move(parsed);
    model->chat_template_problem = "this model has no chat template";
    model->engine = engine;
    model->limits = engine->limits();
    model->max_sequences = 2;
    openai::AddRoutes(service, router);
    anthropic::AddRoutes(service, router);
    tgi::AddRoutes(service, router);
    llama::AddRoutes(service, router);
    ollama::AddRoutes(service, router);
    tokenize::AddRoutes(service, router);
    service.SetModels(std::make_shared<ModelSet>(ModelSet{.served = {model}, .pending = {}}));
  }
  ~ApiWorld() { engine->sinks.clear(); }  // which hold the model, and so the engine

  std::shared_ptr<RecordingWriter> Post(const std::string& path, const std::string& body,
                                        const std::string& method = "POST") {
    auto writer = std::make_shared<RecordingWriter>();
    HttpRequest request;
    request.method = method;
    request.body = body;
    request.request_id = "r1";
    RouteMatch match = router.Find(method, path);
    request.path = match.path;
    match.handler(std::move(request), writer);
    return writer;
  }
  // A chat with one user message "hi" and the given further members, e.g. R"("n":2)".
  std::shared_ptr<RecordingWriter> Chat(const std::string& members = "") {
    return Post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}])" +
                                            (members.empty() ? "" : "," + members) + "}");
  }
  std::shared_ptr<RecordingWriter> Complete(const std::string& members) {
    return Post("/v1/completions", "{" + members + "}");
  }

  InlineRunner runner;
  Service service{&runner};
  RouteTable router;
  std::shared_ptr<FakeEngine> engine;
  std::shared_ptr<ServedModel> model;
};

}  // namespace staffel::api
