"""The gRPC API with the stock grpcio client."""
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from grpc_client import Answer, GrpcServer, details, failure, grpc, pb, sampling, stub, user, wrong_field
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from google.protobuf.descriptor_pool import DescriptorPool

from harness import BINARY, NO_END, PATIENCE, ROOT, SMOLLM2, ServerTest, at_once, free_port
from tiny_models import chain_model

WEATHER = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
Code = grpc.StatusCode


class GrpcTest(ServerTest):
    @classmethod
    def setUpClass(cls):
        cls.server = GrpcServer(cls.model, *cls.options)
        cls.channel = cls.server.channel()
        cls.api = stub(cls.channel)

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        super().tearDownClass()

    def generate(self, text, stream=True, echo=None, timeout=60, model="", **fields):
        return Answer(self.api.Generate(pb.GenerateRequest(model=model, text=text, stream=stream, echo=echo, sampling=sampling(**fields)),
                                        timeout=timeout * PATIENCE))

    def chat(self, content, stream=True, tools=(), tool_choice=None, **fields):
        messages = [user(content)] if isinstance(content, str) else content
        return Answer(self.api.Chat(pb.ChatRequest(messages=messages, stream=stream, tools=tools, tool_choice=tool_choice,
                                                   sampling=sampling(**fields)), timeout=60 * PATIENCE))


class Inference(GrpcTest):
    options = ("--served-model-name", "smollm2", "--client-buffer-bytes", "65536")

    def test_models(self):
        models = self.api.Models(pb.ModelsRequest()).models
        shown = self.server.get("/v1/models").json["data"][0]
        self.assertEqual([(m.id, m.root, m.created, m.max_model_len) for m in models],
                         [(shown["id"], shown["root"], shown["created"], shown["max_model_len"])])

    def test_tokens_there_and_back(self):
        text = "Grüße, 世界 🙂 <|im_end|>"
        reply = self.api.Tokenize(pb.TokenizeRequest(text=text, return_token_strs=True))
        shown = self.server.request("POST", "/tokenize", {"prompt": text}).json
        self.assertEqual((list(reply.tokens), reply.count, reply.max_model_len), (shown["tokens"], shown["count"], shown["max_model_len"]))
        self.assertEqual(b"".join(reply.token_strs).decode(), text)
        self.assertEqual(self.api.Detokenize(pb.DetokenizeRequest(tokens=reply.tokens)).prompt, text)
        special = self.api.Tokenize(pb.TokenizeRequest(text=text, parse_special=True))
        self.assertLess(special.count, reply.count)
        chat = self.api.Tokenize(pb.TokenizeRequest(chat=pb.TokenizeRequest.Chat(messages=[user("hi")])))
        shown = self.server.request("POST", "/tokenize", {"messages": [{"role": "user", "content": "hi"}]}).json
        self.assertEqual(list(chat.tokens), shown["tokens"])

    def test_generate_is_the_completion_of_http(self):
        prompt = "The capital of France is"
        expected = self.server.complete(prompt, max_tokens=24, return_token_ids=True, logit_bias=NO_END)
        choice = expected.json["choices"][0]
        for stream in (True, False):
            with self.subTest(stream=stream):
                answer = self.generate(prompt, stream=stream, max_tokens=24, return_token_ids=True, logit_bias=NO_END)
                self.assertEqual(answer.text(), choice["text"])
                self.assertEqual(answer.joined("token_ids"), choice["token_ids"])
                self.assertEqual(list(answer.messages[0].prompt_token_ids), choice["prompt_token_ids"])
                self.assertEqual(answer.finish(), "length")
                self.assertEqual((answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens),
                                 tuple(expected.usage[k] for k in ("prompt_tokens", "completion_tokens", "total_tokens")))
                self.assertEqual(answer.messages[0].model, "smollm2")
                self.assertEqual(len(answer.messages) > 10, stream)
        ids = pb.GenerateRequest(token_ids=pb.TokenIds(ids=choice["prompt_token_ids"]), sampling=sampling(max_tokens=24, logit_bias=NO_END))
        self.assertEqual(Answer(self.api.Generate(ids)).text(), choice["text"])

    def test_chat_is_the_chat_of_http(self):
        for question in ("What is gravity?", "Say hello."):
            expected = self.server.chat(question, max_tokens=32)
            for stream in (True, False):
                with self.subTest(question, stream=stream):
                    answer = self.chat(question, stream=stream, max_tokens=32)
                    self.assertEqual(answer.text(), expected.text())
                    self.assertEqual(answer.finish(), expected.finish())
                    self.assertEqual(answer.usage.completion_tokens, expected.usage["completion_tokens"])
                    self.assertEqual([c.delta.role for c in answer.choices[0]][0], "assistant")

    def test_drawn_answers_are_those_of_http(self):
        fields = dict(temperature=.8, top_p=.9, top_k=50, min_p=.02, seed=11, n=3, max_tokens=20, presence_penalty=.3, repetition_penalty=1.1)
        expected = self.server.complete("Once upon a time", **fields)
        answer = self.generate("Once upon a time", **fields)
        self.assertEqual([answer.text(i) for i in range(3)], [expected.text(i) for i in range(3)])
        self.assertEqual(len({answer.text(i) for i in range(3)}), 3)

    def test_log_probabilities_are_those_of_http(self):
        expected = self.server.chat("Hello", max_tokens=6, logprobs=True, top_logprobs=3).json["choices"][0]["logprobs"]["content"]
        told = self.chat("Hello", max_tokens=6, logprobs=3).joined("logprobs")
        self.assertEqual([bytes(e["bytes"]) for e in expected], [t.token for t in told])
        for want, got in zip(expected, told):
            self.assertAlmostEqual(want["logprob"], got.logprob, places=4)
            self.assertEqual([bytes(e["bytes"]) for e in want["top_logprobs"]], [t.token for t in got.top])

    def test_echo_with_the_prompts_log_probabilities(self):
        shown = self.server.complete("The sky is blue", max_tokens=0, echo=True, logprobs=1).json["choices"][0]["logprobs"]
        for stream in (True, False):
            answer = self.generate("The sky is blue", stream=stream, echo=True, logprobs=1, max_tokens=0)
            self.assertEqual(answer.text(), "The sky is blue")
            told = answer.joined("prompt_logprobs")
            self.assertEqual(len(told), len(shown["tokens"]) - 1)
            for want, got in zip(shown["token_logprobs"][1:], told):
                self.assertAlmostEqual(want, got.logprob, places=4)

    def test_stop(self):
        whole = self.generate("1, 2, 3, 4,", max_tokens=30).text()
        self.assertIn("7", whole)
        answer = self.generate("1, 2, 3, 4,", max_tokens=30, stop=["7"])
        self.assertEqual((answer.text(), answer.finish()), (whole[:whole.index("7")], "stop"))
        answer = self.generate("1, 2, 3, 4,", max_tokens=30, stop=["7"], include_stop_str_in_output=True)
        self.assertTrue(answer.text().endswith("7"))

    def test_structured_output(self):
        outputs = pb.StructuredOutputs
        answer = self.chat("A city?", structured_outputs=outputs(json=json.dumps(WEATHER)), max_tokens=60)
        self.assertIn(json.loads(answer.text())["city"], ("Paris", "Rome"))
        self.assertRegex(self.generate("x", structured_outputs=outputs(regex="[0-9]{3}-[a-f]{2}")).text(), r"^[0-9]{3}-[a-f]{2}$")
        self.assertIn(self.generate("x", structured_outputs=outputs(choice=outputs.Choices(values=["red", "blue"]))).text(), ("red", "blue"))
        self.assertEqual(self.generate("x", structured_outputs=outputs(grammar='root ::= "yes" | "yes"')).text(), "yes")
        answer = self.generate("x", structured_outputs=outputs(json_object=True), max_tokens=40, temperature=1, seed=3)
        self.assertTrue(answer.text().startswith("{"))

    def test_a_call_that_is_demanded(self):
        tool = pb.Tool(name="get_weather", description="Weather of a city", parameters=json.dumps(WEATHER))
        for choice in (pb.ToolChoice(mode=pb.ToolChoice.MODE_REQUIRED), pb.ToolChoice(function="get_weather"),
                       pb.ToolChoice(allowed=pb.ToolChoice.Allowed(functions=["get_weather"], mode=pb.ToolChoice.MODE_REQUIRED))):
            for stream in (True, False):
                with self.subTest(choice=choice, stream=stream):
                    answer = self.chat("What is the weather in Rome?", stream=stream, tools=[tool], tool_choice=choice, max_tokens=60)
                    self.assertEqual(answer.finish(), "tool_calls")
                    (name, arguments), = answer.calls()
                    self.assertEqual(name, "get_weather")
                    self.assertIn(json.loads(arguments)["city"], ("Paris", "Rome"))

    def test_wrong_fields_are_named(self):
        for field, fields in (("sampling.temperature", {"temperature": 3}), ("sampling.n", {"n": 0}), ("sampling.stop", {"stop": [""]}),
                              ("sampling.logit_bias", {"logit_bias": {10 ** 6: 1}}), ("sampling.max_tokens", {"max_tokens": 0}),
                              ("sampling.structured_outputs.json", {"structured_outputs": pb.StructuredOutputs(json='{"contains": {}}')})):
            with self.subTest(field):
                error = failure(lambda: self.generate("x", **fields).messages)
                self.assertEqual(wrong_field(error), field)
                self.assertIn(field, error.details())
        self.assertEqual(wrong_field(failure(lambda: self.chat([]).messages)), "messages")
        self.assertEqual(wrong_field(failure(lambda: self.chat([pb.ChatMessage(role="boss", content="x")]).messages)), "messages[0].role")
        error = failure(lambda: self.generate("x " * 20000).messages)
        self.assertEqual(wrong_field(error), "text")
        self.assertEqual(details(error, "ErrorInfo").reason, "context_length_exceeded")
        self.assertEqual(self.generate("x", max_tokens=1).finish(), "length")   # it lives

    def test_a_model_that_there_is_not(self):
        error = failure(lambda: self.generate("x", model="gpt-9").messages)
        self.assertEqual(error.code(), Code.NOT_FOUND)
        self.assertIn("'smollm2'", error.details())

    def test_embeddings_are_those_of_http(self):
        texts = ["Hello, world!", "What is gravity?"]
        answer = self.api.Embed(pb.EmbedRequest(input=texts))
        http = self.server.request("POST", "/v1/embeddings", {"input": texts}).json
        for got, entry in zip(answer.embeddings, http["data"], strict=True):
            for a, b in zip(got.values, entry["embedding"], strict=True):
                self.assertAlmostEqual(a, b, 5)
        self.assertEqual(answer.usage.prompt_tokens, http["usage"]["prompt_tokens"])
        ids = [pb.TokenIds(ids=self.api.Tokenize(pb.TokenizeRequest(text=text)).tokens) for text in texts]
        self.assertEqual(len(self.api.Embed(pb.EmbedRequest(token_ids=ids, dimensions=8)).embeddings[1].values), 8)
        self.assertEqual(wrong_field(failure(lambda: self.api.Embed(pb.EmbedRequest()))), "input")
        error = failure(lambda: self.api.Embed(pb.EmbedRequest(input=["word " * 400] * 400), timeout=.3))
        self.assertEqual(error.code(), Code.DEADLINE_EXCEEDED)

    def test_the_request_id_comes_back(self):
        call = self.api.Chat(pb.ChatRequest(messages=[user("hi")], sampling=sampling(max_tokens=2)), metadata=(("x-request-id", "abc-1"),))
        self.assertTrue(all(m.id.startswith("abc-1-") for m in call))
        self.assertEqual(dict(call.initial_metadata())["x-request-id"], "abc-1")

    def long(self, **more):
        return self.api.Generate(pb.GenerateRequest(text="Tell me", sampling=sampling(max_tokens=4000, logit_bias=NO_END)), **more)

    def test_a_deadline_frees_the_slot(self):
        before = self.server.metric("staffel_num_requests_running")
        self.assertEqual(before, 0)
        error = failure(self.long(timeout=.5))
        self.assertEqual(error.code(), Code.DEADLINE_EXCEEDED)
        self.server.wait_idle()
        self.assertIn('staffel_grpc_calls_total{code="DEADLINE_EXCEEDED",method="/staffel.v1.Inference/Generate"}',
                      self.server.get("/metrics").body.decode())

    def test_a_cancel_frees_the_slot(self):
        call = self.long()
        for _ in range(3):
            next(call)
        self.assertEqual(self.server.metric("staffel_num_requests_running"), 1)
        call.cancel()
        self.server.wait_idle()
        whole = self.api.Generate(pb.GenerateRequest(text="Tell me", stream=False, sampling=sampling(max_tokens=4000, logit_bias=NO_END)))
        while self.server.metric("staffel_num_requests_running") == 0:
            time.sleep(.005)
        whole.cancel()
        self.server.wait_idle()

    def test_a_connection_that_breaks_frees_the_slot(self):
        channel = self.server.channel()
        call = stub(channel).Generate(pb.GenerateRequest(text="Tell me", sampling=sampling(max_tokens=4000, logit_bias=NO_END)))
        next(call)
        channel.close()
        self.server.wait_idle()

    def test_a_slow_reader_holds_nobody_and_is_cut_off(self):
        # A window that does not grow; else the client takes megabytes that nobody reads.
        channel = self.server.channel(("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65536))
        slow = stub(channel).Generate(pb.GenerateRequest(text="Tell me", sampling=sampling(max_tokens=1500, logprobs=20, logit_bias=NO_END)))
        next(slow)
        self.assertEqual(self.chat("Hello", max_tokens=8).text(), self.server.chat("Hello", max_tokens=8).text())
        self.server.wait_idle(within_s=60)   # cut off, or all of it is on its way
        error = failure(slow)
        self.assertEqual(error.code(), Code.RESOURCE_EXHAUSTED)
        self.assertIn("too slowly", error.details())
        channel.close()

    def test_sixteen_streams_at_once(self):
        prompts = [f"{i} apples and {i + 1} pears are" for i in range(16)]
        alone = [self.generate(p, max_tokens=12).text() for p in prompts]
        together = at_once([lambda p=p: self.generate(p, max_tokens=12).text() for p in prompts])
        self.assertEqual(together, alone)

    def test_reflection_lists_and_describes(self):
        database = ProtoReflectionDescriptorDatabase(self.channel)
        names = set(database.get_services())
        self.assertLessEqual({"staffel.v1.Inference", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"}, names)
        pool = DescriptorPool(database)
        methods = {m.name: m.server_streaming for m in pool.FindServiceByName("staffel.v1.Inference").methods}
        self.assertEqual(methods, {"Generate": True, "Chat": True, "Embed": False, "Tokenize": False, "Detokenize": False, "Models": False})
        self.assertEqual(pool.FindMessageTypeByName("staffel.v1.SamplingParams").fields_by_name["temperature"].number, 2)

    def test_health(self):
        health = health_pb2_grpc.HealthStub(self.channel)
        for service in ("", "staffel.v1.Inference"):
            self.assertEqual(health.Check(health_pb2.HealthCheckRequest(service=service)).status, SERVING)
        error = failure(lambda: [health.Check(health_pb2.HealthCheckRequest(service="no.Such"))])
        self.assertEqual(error.code(), Code.NOT_FOUND)

    def test_metrics_count_calls_and_requests(self):
        name, labels = "staffel_grpc_calls_total", '{code="OK",method="/staffel.v1.Inference/Chat"}'
        count = lambda: [float(line.split()[-1]) for line in self.server.get("/metrics").body.decode().splitlines()
                         if line.startswith(name + labels)] or [0]
        before, requests = count()[0], self.server.metric("staffel_request_success_total")
        self.chat("hi", max_tokens=2)
        self.assertEqual(self.server.metric("staffel_request_success_total"), requests + 1)
        end = time.monotonic() + 5 * PATIENCE
        while count()[0] != before + 1:   # counted when gRPC is done with the call
            self.assertLess(time.monotonic(), end)
            time.sleep(.01)


class WithFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def tiny(self, *options, **more):
        server = GrpcServer(chain_model(self.folder / "model.gguf", b"?AB Z"), *options, **more)
        self.addCleanup(server.stop)
        return server

    def ask(self, channel, **more):
        return Answer(stub(channel).Generate(pb.GenerateRequest(text="?", sampling=sampling()), timeout=30 * PATIENCE, **more)).text()


class Operations(WithFolder):
    def test_keys(self):
        server = self.tiny("--api-key", "secret")
        with server.channel() as channel:
            for metadata in ((), (("authorization", "Bearer wrong"),), (("authorization", "secret"),)):
                error = failure(lambda: self.ask(channel, metadata=metadata))
                self.assertEqual(error.code(), Code.UNAUTHENTICATED)
                self.assertIn("authorization: Bearer KEY", error.details())
            self.assertEqual(self.ask(channel, metadata=(("authorization", "Bearer secret"),)), "AB Z")
            health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
            self.assertEqual(health.status, SERVING)   # needs none
            self.assertEqual(failure(lambda: ProtoReflectionDescriptorDatabase(channel).get_services()).code(), Code.UNAUTHENTICATED)

    def certificate(self, name, *options):
        key, certificate = self.folder / f"{name}.key", self.folder / f"{name}.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", certificate],
                       check=True, capture_output=True)
        return key, certificate

    def test_tls_and_certificates_of_clients(self):
        key, certificate = self.certificate("server")
        client_key, client_certificate = self.certificate("client")
        server = self.tiny("--grpc-tls-cert", certificate, "--grpc-tls-key", key)
        trust = certificate.read_bytes()
        with grpc.secure_channel(server.target, grpc.ssl_channel_credentials(trust)) as channel:
            self.assertEqual(self.ask(channel), "AB Z")
        with server.channel() as channel:   # plain text
            self.assertEqual(failure(lambda: self.ask(channel)).code(), Code.UNAVAILABLE)
        server.stop()
        server = self.tiny("--grpc-tls-cert", certificate, "--grpc-tls-key", key, "--grpc-tls-ca", client_certificate)
        with grpc.secure_channel(server.target, grpc.ssl_channel_credentials(trust)) as channel:
            self.assertEqual(failure(lambda: self.ask(channel)).code(), Code.UNAVAILABLE)
        own = grpc.ssl_channel_credentials(trust, client_key.read_bytes(), client_certificate.read_bytes())
        with grpc.secure_channel(server.target, own) as channel:
            self.assertEqual(self.ask(channel), "AB Z")

    def test_a_message_that_is_too_large(self):
        server = self.tiny("--max-body-bytes", 65536)
        with server.channel() as channel:
            error = failure(stub(channel).Generate(pb.GenerateRequest(text="x" * 70000)))
            self.assertEqual(error.code(), Code.RESOURCE_EXHAUSTED)
            self.assertEqual(self.ask(channel), "AB Z")

    def test_loading_is_unavailable_and_nothing_else(self):
        server = GrpcServer(SMOLLM2, wait=False)
        self.addCleanup(server.stop)
        with server.channel() as channel:
            seen, end = set(), time.monotonic() + 60 * PATIENCE
            while Code.OK not in seen:
                self.assertLess(time.monotonic(), end)
                try:
                    stub(channel).Models(pb.ModelsRequest(), timeout=10 * PATIENCE)
                    seen.add(Code.OK)
                except grpc.RpcError as error:
                    seen.add(error.code())
                    if "load" in error.details():
                        self.assertGreater(details(error, "RetryInfo").retry_delay.seconds, 0)
            self.assertLessEqual(seen, {Code.OK, Code.UNAVAILABLE})
            self.assertEqual(self.ask(channel), self.ask(channel))

    def test_sigterm_lets_streams_finish_and_refuses_others(self):
        server = GrpcServer(SMOLLM2)
        self.addCleanup(server.stop)
        with server.channel() as channel:
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            self.assertEqual(next(watch).status, SERVING)
            stream = stub(channel).Generate(pb.GenerateRequest(text="Count.", sampling=sampling(max_tokens=200, logit_bias=NO_END)))
            first = next(stream)
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(next(watch).status, NOT_SERVING)
            error = failure(lambda: self.ask(channel))
            self.assertEqual(error.code(), Code.UNAVAILABLE)
            self.assertIn("stopping", error.details())
            answer = Answer([first, *stream])
            self.assertEqual((answer.finish(), answer.usage.completion_tokens), ("length", 200))
            self.assertEqual(server.process.wait(10 * PATIENCE), 0)
            self.assertEqual(failure(watch).code(), Code.UNAVAILABLE)

    def test_the_drain_timeout_ends_streams(self):
        server = GrpcServer(SMOLLM2, "--drain-timeout", "0.5")
        self.addCleanup(server.stop)
        with server.channel() as channel:
            stream = stub(channel).Generate(pb.GenerateRequest(text="Count.", sampling=sampling(max_tokens=8000, logit_bias=NO_END)))
            next(stream)
            server.process.send_signal(signal.SIGTERM)
            error = failure(stream)
            self.assertEqual((error.code(), error.details()), (Code.UNAVAILABLE, "the server is shutting down"))
            self.assertEqual(server.process.wait(10 * PATIENCE), 0)

    def test_options_that_cannot_be(self):
        model = chain_model(self.folder / "model.gguf", b"?AB")
        port = free_port()
        key, certificate = self.certificate("server")
        for options, says in ((("--grpc-tls-cert", certificate, "--grpc-tls-key", key), "--grpc-port"),
                              (("--grpc-port", port, "--grpc-tls-cert", certificate), "--grpc-tls-key"),
                              (("--grpc-port", port, "--grpc-tls-cert", key, "--grpc-tls-key", "/no/such"), "/no/such"),
                              (("--grpc-port", port, "--port", port), "different ports")):
            with self.subTest(says):
                done = subprocess.run([BINARY, "serve", model, "--host", "127.0.0.1", "--port", "0", *map(str, options)],
                                      capture_output=True, text=True, timeout=20 * PATIENCE)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(says, done.stdout + done.stderr)

    def test_a_port_that_is_taken(self):
        server = self.tiny()
        done = subprocess.run([BINARY, "serve", chain_model(self.folder / "b.gguf", b"?AB"), "--host", "127.0.0.1", "--port", "0",
                               "--grpc-port", str(server.grpc_port)], capture_output=True, text=True, timeout=20 * PATIENCE)
        self.assertEqual(done.returncode, 1)
        self.assertIn(str(server.grpc_port), done.stdout + done.stderr)

    def test_a_master_with_local_workers(self):
        server = GrpcServer(SMOLLM2, "--tp", "2")
        self.addCleanup(server.stop)
        with server.channel() as channel:
            answer = Answer(stub(channel).Chat(pb.ChatRequest(messages=[user("Say hello.")], sampling=sampling()), timeout=60 * PATIENCE))
            self.assertEqual(answer.text(), server.chat("Say hello.").text())


class Examples(GrpcTest):
    def run_example(self, *command):
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=120 * PATIENCE)
        return done.returncode, done.stdout, done.stderr

    def test_both_say_what_http_says(self):
        question = "What is gravity?"
        expected = self.server.chat(question, max_tokens=200).text() + "\n"
        for command in ((sys.executable, ROOT / "examples/grpc/python/chat.py"), (pathlib.Path(BINARY).parent / "examples/grpc/cpp/grpc_chat",)):
            with self.subTest(command[-1].name):
                self.assertEqual(self.run_example(*command, self.server.target, question), (0, expected, ""))
                code, _, error = self.run_example(*command, self.server.target, "long " * 20000)
                self.assertEqual(code, 1)
                self.assertIn("context", error)


if __name__ == "__main__":
    unittest.main()
