"""The stock ollama client against the real server."""
import asyncio
import json
import unittest

try:
    import ollama
    from pydantic import BaseModel
except ImportError as error:
    raise ImportError("the ollama package is missing; scripts/test.sh installs it into build/venv") from error

from harness import MODELS, ServerTest

QWEN = MODELS / "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
QUESTION = [{"role": "user", "content": "What is gravity?"}]
GREEDY = {"temperature": 0, "num_predict": 16}


class City(BaseModel):
    name: str
    people: int
    coastal: bool


def get_weather(city: str) -> str:
    """Weather of a city.

    Args:
      city: The name of the city
    """
    return f"sunny in {city}"


class Client(ServerTest):
    options = ("--api-key", "secret", "--served-model-name", "smollm2")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.url = f"http://127.0.0.1:{cls.server.port}"
        cls.headers = {"Authorization": "Bearer secret"}
        cls.client = ollama.Client(cls.url, headers=cls.headers)

    def chat(self, **fields):
        return self.client.chat(**{"model": "smollm2", "messages": QUESTION, "options": GREEDY, **fields})

    def test_whole_and_streamed_agree(self):
        whole = self.chat()
        self.assertIn("Gravity", whole.message.content)
        self.assertEqual((whole.done, whole.done_reason, whole.eval_count), (True, "length", 16))
        parts = list(self.chat(stream=True))
        self.assertEqual("".join(p.message.content for p in parts), whole.message.content)
        self.assertEqual([p.done for p in parts], [False] * (len(parts) - 1) + [True])
        self.assertEqual((parts[-1].eval_count, parts[-1].prompt_eval_count), (16, whole.prompt_eval_count))
        self.assertGreaterEqual(whole.total_duration, whole.eval_duration)
        self.assertGreater(whole.eval_duration, 10 ** 6, "nanoseconds")
        # The same text as OpenAI's route gives.
        openai = self.server.request("POST", "/v1/chat/completions", {"messages": QUESTION, "max_tokens": 16, "temperature": 0}, headers=self.headers)
        self.assertEqual(openai.text(), whole.message.content)

    def test_async(self):
        async def ask():
            client = ollama.AsyncClient(self.url, headers=self.headers)
            whole = await client.chat("smollm2", QUESTION, options=GREEDY)
            parts = [part.message.content async for part in await client.chat("smollm2", QUESTION, options=GREEDY, stream=True)]
            return whole.message.content, "".join(parts)
        whole, streamed = asyncio.run(ask())
        self.assertEqual(whole, streamed)

    def test_generate_goes_on_with_its_context(self):
        first = self.client.generate("smollm2:latest", "My name is Zoltan. Just say hello.", options=GREEDY)
        self.assertTrue(first.response)
        parts = list(self.client.generate("smollm2", "My name is Zoltan. Just say hello.", options=GREEDY, stream=True))
        self.assertEqual("".join(p.response for p in parts), first.response)
        self.assertEqual(list(parts[-1].context), list(first.context))
        second = self.client.generate("smollm2", "What is my name?", context=first.context, options=GREEDY)
        self.assertGreater(second.prompt_eval_count, len(first.context))
        self.assertIn("Zoltan", second.response)

    def test_generate_system_and_raw(self):
        raw = self.client.generate("smollm2", "Once upon a time", raw=True, options=GREEDY)
        openai = self.server.request("POST", "/v1/completions", {"prompt": "Once upon a time", "max_tokens": 16, "temperature": 0}, headers=self.headers)
        self.assertEqual(raw.response, openai.text())
        self.assertIsNone(raw.context)
        plain, system = (self.client.generate("smollm2", "Who are you?", system=s, options=GREEDY) for s in ("", "You are Captain Nemo."))
        self.assertNotEqual(plain.response, system.response)

    def test_options(self):
        drawn = [self.chat(options={"seed": seed, "temperature": 1.5, "num_predict": 12}).message.content for seed in (1, 1, 2)]
        self.assertEqual(drawn[0], drawn[1])
        self.assertNotEqual(drawn[0], drawn[2])
        whole = self.chat().message.content
        stopped = self.chat(options={**GREEDY, "stop": [whole.split()[4]]})
        self.assertEqual(stopped.message.content, whole[:whole.index(whole.split()[4])])
        self.assertEqual(stopped.done_reason, "stop")
        self.assertEqual(self.chat(options={"num_predict": 3, "num_ctx": 2048, "num_gpu": 1}, keep_alive="10m").eval_count, 3)

    def test_structured_output(self):
        reply = self.chat(messages=[{"role": "user", "content": "Describe Hamburg."}], format=City.model_json_schema(), options={"temperature": 0})
        city = City.model_validate_json(reply.message.content)
        self.assertTrue(city.name)
        loose = self.client.generate("smollm2", "Describe Hamburg as JSON.", format="json", options={"temperature": 0, "num_predict": 60})
        if loose.done_reason == "stop":
            self.assertIsInstance(json.loads(loose.response), dict)
        self.assertTrue(loose.response.lstrip().startswith("{"))

    def test_python_functions_are_called(self):
        # The format holds this small model to a call as its template has it: plain JSON.
        call = {"type": "object", "required": ["name", "arguments"], "properties": {"name": {"const": "get_weather"}, "arguments": {
            "type": "object", "required": ["city"], "properties": {"city": {"enum": ["Rome", "Paris"]}}}}}
        fields = dict(messages=[{"role": "user", "content": "What is the weather in Rome?"}], tools=[get_weather], format=call,
                      options={"temperature": 0, "num_predict": 80})
        whole = self.chat(**fields)
        self.assertEqual([c.function.name for c in whole.message.tool_calls], ["get_weather"])
        arguments = whole.message.tool_calls[0].function.arguments
        self.assertIn(get_weather(**arguments), ("sunny in Rome", "sunny in Paris"))
        parts = list(self.chat(**fields, stream=True))
        self.assertEqual([c.function.arguments for p in parts for c in p.message.tool_calls or []], [arguments])
        self.assertEqual("".join(p.message.content for p in parts).strip(), whole.message.content.strip())
        self.assertIsNone(self.chat(**{**fields, "tools": None}).message.tool_calls, "without tools it is text")

    def test_logprobs(self):
        lines = [json.loads(line) for line in self.server.request(
            "POST", "/api/generate", {"prompt": "Hi", "logprobs": True, "top_logprobs": 2, "options": GREEDY}, headers=self.headers).body.splitlines()]
        tokens = [token for line in lines for token in line.get("logprobs", [])]
        self.assertEqual(len(tokens), lines[-1]["eval_count"] - (lines[-1]["done_reason"] == "stop"), "but the end token")
        self.assertEqual("".join(t["token"] for t in tokens), "".join(line["response"] for line in lines))
        self.assertTrue(all(len(t["top_logprobs"]) == 2 and t["logprob"] <= 0 for t in tokens))

    def test_models(self):
        listed = self.client.list().models
        self.assertEqual([m.model for m in listed], ["smollm2:latest"])
        self.assertEqual((listed[0].details.family, listed[0].details.format), ("llama", "gguf"))
        self.assertEqual(listed[0].size, self.model.stat().st_size)
        shown = self.client.show("smollm2")
        self.assertEqual(shown.modelinfo["llama.context_length"], 8192)
        self.assertIn("completion", shown.capabilities)
        self.assertIn("<|im_start|>", shown.template)
        running = self.client.ps().models
        self.assertEqual([m.model for m in running], ["smollm2:latest"])
        self.assertGreater(running[0].expires_at.year, 2100)
        self.assertEqual(self.client.pull("smollm2").status, "success")
        self.assertEqual([p.status for p in self.client.pull("smollm2", stream=True)], ["success"])
        self.assertEqual(self.client.generate("smollm2", "").done_reason, "load")
        self.assertEqual(self.server.request("HEAD", "/", headers=self.headers).status, 200)
        self.assertIn("version", self.server.request("GET", "/api/version", headers=self.headers).json)

    def test_errors_are_the_clients_exceptions(self):
        for status, ask in ((404, lambda: self.chat(model="llama3")), (400, lambda: self.chat(options={"temperature": 9})),
                            (400, lambda: self.chat(options={"mirostat": 2})), (400, lambda: self.client.embed("smollm2", ["text", ""])),
                            (404, lambda: self.client.pull("llama3")), (501, lambda: self.client.delete("smollm2")),
                            (501, lambda: self.client.create("x", from_="smollm2")), (501, lambda: self.client.copy("smollm2", "x")),
                            (401, lambda: ollama.Client(self.url).list()),
                            (400, lambda: self.client.generate("smollm2", "a", suffix="b")),
                            (404, lambda: list(self.chat(model="llama3", stream=True)))):
            with self.assertRaises(ollama.ResponseError) as caught:
                ask()
            self.assertEqual(caught.exception.status_code, status, caught.exception.error)
            self.assertNotIn("{", caught.exception.error[:1], "a sentence, not JSON")


class Tools(ServerTest):
    model, options = QWEN, ("--served-model-name", "qwen")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = ollama.Client(f"http://127.0.0.1:{cls.server.port}")

    def test_results_of_python_functions_are_read(self):
        messages = [{"role": "user", "content": "What is the weather in Rome?"},
                    ollama.Message(role="assistant", tool_calls=[{"function": {"name": "get_weather", "arguments": {"city": "Rome"}}}]),
                    {"role": "tool", "tool_name": "get_weather", "content": get_weather("Rome")},
                    {"role": "user", "content": "Repeat what the tool said."}]
        reply = self.client.chat("qwen", messages, options={"temperature": 0, "num_predict": 40})
        self.assertIn("sunny", reply.message.content.lower())

    def test_the_gap_is_filled(self):
        reply = self.client.generate("qwen", "def add(a, b):\n    return ", suffix="\n\nprint(add(1, 2))\n", options={"temperature": 0, "num_predict": 16})
        self.assertTrue(reply.response.startswith("a + b"), reply.response)
        self.assertIn("insert", self.client.show("qwen").capabilities)
        self.assertIn("tools", self.client.show("qwen").capabilities)


if __name__ == "__main__":
    unittest.main()
