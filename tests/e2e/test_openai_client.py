"""The stock openai client against the real server."""
import json
import unittest

try:
    import openai
except ImportError as error:
    raise ImportError("the openai package is missing; scripts/test.sh installs it into build/venv") from error

from harness import NO_END, Server, ServerTest, SMOLLM2


class Client(ServerTest):
    options = ("--api-key", "secret", "--served-model-name", "smollm2")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = openai.OpenAI(base_url=f"http://127.0.0.1:{cls.server.port}/v1", api_key="secret", max_retries=0)

    def chat(self, **fields):
        return self.client.chat.completions.create(**{"model": "smollm2", "temperature": 0, "max_tokens": 48,
                                                      "messages": [{"role": "user", "content": "What is gravity?"}], **fields})

    def test_models(self):
        model = self.client.models.list().data[0]
        self.assertEqual((model.id, model.object), ("smollm2", "model"))

    def test_chat_whole_and_streamed_agree(self):
        whole = self.chat()
        self.assertIn("force", whole.choices[0].message.content)
        text, usage = "", None
        for chunk in self.chat(stream=True, stream_options={"include_usage": True}):
            if chunk.choices:
                text += chunk.choices[0].delta.content or ""
            usage = chunk.usage or usage
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)

    def test_every_parameter_of_this_version(self):
        reply = self.chat(n=2, temperature=.7, top_p=.9, seed=5, stop=["\n\n"], presence_penalty=.5, frequency_penalty=.5,
                          logit_bias={"6004": -100}, logprobs=True, top_logprobs=2, max_completion_tokens=12, user="u",
                          extra_body={"top_k": 40, "min_p": .01, "repetition_penalty": 1.1, "ignore_eos": True, "stop_token_ids": [5],
                                      "return_token_ids": True})
        self.assertEqual(len(reply.choices), 2)
        self.assertEqual(len(reply.choices[0].logprobs.content[0].top_logprobs), 2)
        self.assertTrue(reply.choices[0].token_ids)

    def test_a_call_that_is_demanded(self):
        tool = {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city", "parameters": {
            "type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}}}
        question = [{"role": "user", "content": "What is the weather in Rome?"}]
        for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
            with self.subTest(choice):
                reply = self.chat(messages=question, tools=[tool], tool_choice=choice).choices[0]
                self.assertEqual((reply.finish_reason, len(reply.message.tool_calls)), ("tool_calls", 1))
                call = reply.message.tool_calls[0]
                self.assertIn(json.loads(call.function.arguments)["city"], ("Paris", "Rome"))
                arguments, names = "", []
                for chunk in self.chat(messages=question, tools=[tool], tool_choice=choice, stream=True):
                    for part in chunk.choices[0].delta.tool_calls or []:
                        arguments += part.function.arguments
                        names += [part.function.name] if part.function.name else []
                self.assertEqual((names, arguments), (["get_weather"], call.function.arguments))
        after = question + [reply.message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
        self.assertTrue(self.chat(messages=after, tools=[tool], tool_choice="none").choices[0].message.content)

    def test_completions(self):
        reply = self.client.completions.create(model="smollm2", prompt=["The capital of France is", "2 + 2 ="], max_tokens=4, temperature=0,
                                               logprobs=1)
        self.assertEqual([c.index for c in reply.choices], [0, 1])
        self.assertEqual(len(reply.choices[0].logprobs.tokens), 4)
        stream = self.client.completions.create(model="smollm2", prompt="The capital of France is", max_tokens=4, temperature=0, stream=True)
        self.assertEqual("".join(c.choices[0].text for c in stream), reply.choices[0].text)

    def test_errors_are_the_clients_exceptions(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(temperature=5)
        self.assertEqual(caught.exception.param, "temperature")
        with self.assertRaises(openai.NotFoundError):
            self.chat(model="gpt-4")
        with self.assertRaises(openai.AuthenticationError):
            self.client.with_options(api_key="wrong").models.list()
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(messages=[{"role": "user", "content": "word " * 9000}])
        self.assertEqual(caught.exception.code, "context_length_exceeded")

    def test_leaving_a_stream_frees_its_slot(self):
        stream = self.chat(stream=True, max_tokens=4000, logit_bias=NO_END)
        next(iter(stream))
        stream.close()
        self.server.wait_idle(2)

    def test_a_full_queue_is_retried_by_the_client(self):
        with Server(SMOLLM2, "--max-queue", 1, "--max-num-seqs", 1) as server:
            client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
            from harness import at_once
            replies = at_once([lambda: client.chat.completions.create(model=client.models.list().data[0].id, max_tokens=64,
                                                                      messages=[{"role": "user", "content": "hi"}],
                                                                      logit_bias=NO_END)] * 12)
            self.assertTrue(any(isinstance(r, openai.RateLimitError) for r in replies))
            self.assertTrue(any(not isinstance(r, Exception) for r in replies))


if __name__ == "__main__":
    unittest.main()
