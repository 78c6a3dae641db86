"""huggingface_hub's InferenceClient against the real server, and the rest of text-generation-inference's API."""
import asyncio
import json
import unittest

try:
    from huggingface_hub import AsyncInferenceClient, InferenceClient
    from huggingface_hub.errors import ValidationError
except ImportError as error:
    raise ImportError("huggingface_hub is missing; scripts/test.sh installs it into build/venv") from error

from harness import ServerTest

PROMPT = "The capital of France is"


class Client(ServerTest):
    options = ("--api-key", "secret", "--served-model-name", "smollm2")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.url = f"http://127.0.0.1:{cls.server.port}"
        cls.client = InferenceClient(cls.url, token="secret")
        cls.operations = InferenceClient(cls.url, token="secret", provider="hf-inference")

    def test_whole_and_streamed_agree(self):
        whole = self.client.text_generation(PROMPT, max_new_tokens=12)
        self.assertIn("Paris", whole)
        self.assertEqual("".join(self.client.text_generation(PROMPT, max_new_tokens=12, stream=True)), whole)
        self.assertEqual(self.client.text_generation(PROMPT, max_new_tokens=12, return_full_text=True), PROMPT + whole)

    def test_details(self):
        whole = self.client.text_generation(PROMPT, max_new_tokens=6, details=True, decoder_input_details=True, top_n_tokens=2)
        details = whole.details
        self.assertEqual((details.finish_reason, details.generated_tokens, details.seed), ("length", 6, None))
        self.assertEqual("".join(token.text for token in details.tokens), whole.generated_text)
        self.assertEqual("".join(token.text for token in details.prefill), PROMPT)
        self.assertIsNone(details.prefill[0].logprob)
        self.assertTrue(all(token.logprob < 0 for token in details.prefill[1:]))
        for token, top in zip(details.tokens, details.top_tokens):
            self.assertEqual((top[0]["id"], len(top)), (token.id, 2))
            self.assertLess(token.logprob, 0)

    def test_details_of_a_stream(self):
        whole = self.client.text_generation(PROMPT, max_new_tokens=6, details=True)
        events = list(self.client.text_generation(PROMPT, max_new_tokens=6, details=True, stream=True))
        self.assertEqual([event.index for event in events], list(range(1, 7)))
        self.assertEqual([event.token.id for event in events], [token.id for token in whole.details.tokens])
        self.assertTrue(all(event.generated_text is None for event in events[:-1]))
        self.assertEqual(events[-1].generated_text, whole.generated_text)
        self.assertEqual((events[-1].details.finish_reason, events[-1].details.generated_tokens), ("length", 6))
        self.assertEqual(events[-1].details.input_length, 5)

    def test_stops(self):
        stopped = self.client.text_generation(PROMPT, max_new_tokens=30, stop=["Paris"], details=True)
        self.assertEqual(stopped.details.finish_reason, "stop_sequence")
        self.assertTrue(stopped.generated_text.endswith("Paris"))
        chat = "<|im_start|>user\nSay hi.<|im_end|>\n<|im_start|>assistant\n"
        events = list(self.client.text_generation(chat, max_new_tokens=100, details=True, stream=True))
        self.assertEqual(events[-1].details.finish_reason, "eos_token")
        self.assertTrue(events[-1].token.special)
        self.assertEqual("".join(event.token.text for event in events if not event.token.special), events[-1].generated_text)

    def test_sampling(self):
        fields = dict(max_new_tokens=8, do_sample=True, temperature=1.2, top_k=50, top_p=0.9, repetition_penalty=1.1,
                      frequency_penalty=0.1, details=True)
        first = self.client.text_generation(PROMPT, seed=7, **fields)
        self.assertEqual(first.details.seed, 7)
        self.assertEqual(self.client.text_generation(PROMPT, seed=7, **fields).generated_text, first.generated_text)
        self.assertNotEqual(self.client.text_generation(PROMPT, seed=8, **fields).generated_text, first.generated_text)
        best = self.client.text_generation(PROMPT, seed=7, best_of=3, **fields)
        self.assertEqual(len(best.details.best_of_sequences), 2)

        def mean(tokens):
            tokens = [token if isinstance(token, dict) else vars(token) for token in tokens]
            values = [token["logprob"] for token in tokens if not token["special"]]  # not of the end
            return sum(values) / len(values)
        for other in best.details.best_of_sequences:
            tokens = other["tokens"] if isinstance(other, dict) else other.tokens
            self.assertGreaterEqual(mean(best.details.tokens), mean(tokens))

    def test_truncate(self):
        short = self.client.text_generation(PROMPT, max_new_tokens=1, truncate=2, details=True, decoder_input_details=True)
        self.assertEqual([token.text for token in short.details.prefill], [" France", " is"])

    def test_grammars(self):
        schema = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}
        text = self.client.text_generation("As JSON: ", max_new_tokens=40, grammar={"type": "json", "value": schema})
        self.assertIn(json.loads(text)["city"], ("Paris", "Rome"))
        text = self.client.text_generation("As JSON: ", max_new_tokens=40,
                                           grammar={"type": "json_schema", "value": {"name": "city", "schema": schema}})
        self.assertIn(json.loads(text)["city"], ("Paris", "Rome"))
        events = list(self.client.text_generation("A number: ", max_new_tokens=40, grammar={"type": "regex", "value": "[0-9]{3}"},
                                                  stream=True, details=True))
        self.assertRegex(events[-1].generated_text, "^[0-9]{3}$")

    def test_errors(self):
        for fields in (dict(adapter_id="x"), dict(typical_p=0.5), dict(watermark=True), dict(best_of=2), dict(max_new_tokens=0)):
            with self.subTest(fields), self.assertRaisesRegex(ValidationError, next(iter(fields))):
                self.client.text_generation(PROMPT, **fields)
        with self.assertRaisesRegex(ValidationError, "tokens"):
            self.client.text_generation("word " * 9000)
        with self.assertRaises(Exception):
            InferenceClient(self.url, token="wrong").text_generation(PROMPT)
        reply = self.server.request("POST", "/generate", {"inputs": "x"})
        self.assertEqual((reply.status, reply.json["error_type"]), (401, "unauthorized"))

    def test_chat(self):
        messages = [{"role": "user", "content": "What is gravity?"}]
        reply = self.client.chat.completions.create(messages=messages, model="smollm2", max_tokens=20, temperature=0)
        text = reply.choices[0].message.content
        self.assertIn("Gravity", text)
        stream = self.client.chat.completions.create(messages=messages, model="smollm2", max_tokens=20, temperature=0, stream=True)
        self.assertEqual("".join(chunk.choices[0].delta.content or "" for chunk in stream), text)

    def test_chat_with_a_schema(self):
        schema = {"enum": ["yes", "no"]}
        reply = self.client.chat.completions.create(
            messages=[{"role": "user", "content": "Is water wet?"}], model="smollm2", max_tokens=10,
            response_format={"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}})
        self.assertIn(json.loads(reply.choices[0].message.content), ("yes", "no"))

    def test_asynchronous(self):
        async def ask():
            async with AsyncInferenceClient(self.url, token="secret") as client:
                whole, stream = await asyncio.gather(client.text_generation(PROMPT, max_new_tokens=8, details=True),
                                                     client.text_generation(PROMPT, max_new_tokens=8, stream=True))
                return whole, "".join([token async for token in stream])
        whole, streamed = asyncio.run(ask())
        self.assertEqual(whole.generated_text, streamed)

    def test_info_and_health(self):
        info = self.operations.get_endpoint_info()
        self.assertEqual(info["model_id"], "smollm2")
        self.assertRegex(info["model_sha"], "^[0-9a-f]{64}$")
        self.assertGreater(info["max_total_tokens"], info["max_input_tokens"])
        self.assertTrue(self.operations.health_check())

    def test_tokens_of_a_chat(self):
        reply = self.server.request("POST", "/chat_tokenize", {"messages": [{"role": "user", "content": "Grüße"}]},
                                    headers={"Authorization": "Bearer secret"}).json
        self.assertIn("Grüße", reply["templated_text"])
        text = reply["templated_text"]
        for token in reply["tokenize_response"]:
            self.assertEqual(token["text"], text[token["start"]:token["stop"]])


if __name__ == "__main__":
    unittest.main()
