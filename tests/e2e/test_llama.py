"""llama-server's own routes, as its documentation and the clients that read them have it."""
import json
import unittest

from harness import MODELS, NO_END, ServerTest

QWEN = MODELS / "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
STORY = "Once upon a time"


def events(reply):
    """The events of a stream; these have no [DONE]."""
    text = reply.body.decode()
    assert text.endswith("\n\n"), text[-60:]
    return [json.loads(event.removeprefix("data: ")) for event in text[:-2].split("\n\n") if not event.startswith(":")]


class Completion(ServerTest):
    options = ("--served-model-name", "smollm2", "--max-num-seqs", "4", "--max-model-len", "512")

    def ask(self, path="/completion", method="POST", **fields):
        body = {"prompt": STORY, "n_predict": 8, "temperature": 0, **fields} if path == "/completion" else fields
        return self.server.request(method, path, body if method == "POST" else None)

    def test_whole_and_streamed_agree(self):
        whole = self.ask(return_tokens=True).json
        self.assertEqual((whole["stop"], whole["stop_type"], whole["tokens_predicted"]), (True, "limit", 8))
        self.assertEqual(len(whole["tokens"]), 8)
        self.assertEqual(whole["prompt"], STORY)
        stream = events(self.ask(stream=True))
        self.assertEqual("".join(e["content"] for e in stream), whole["content"])
        self.assertEqual([t for e in stream for t in e["tokens"]], whole["tokens"])
        self.assertEqual([e["stop"] for e in stream], [False] * (len(stream) - 1) + [True])
        self.assertTrue(all(e["content"] for e in stream[:-1]))
        self.assertEqual(stream[-1]["tokens_predicted"], 8)
        # The same text as OpenAI's route gives.
        self.assertEqual(self.server.complete(STORY, max_tokens=8).text(), whole["content"])

    def test_timings_add_up(self):
        last = events(self.ask(stream=True, timings_per_token=True, return_progress=True, cache_prompt=False))
        self.assertEqual(last[0]["prompt_progress"]["total"], last[0]["tokens_evaluated"])
        counts = [e["timings"]["predicted_n"] for e in last]
        self.assertEqual(counts, sorted(counts))
        timings = last[-1]["timings"]
        self.assertEqual((timings["predicted_n"], timings["cache_n"]), (8, 0))
        self.assertGreater(timings["predicted_ms"], 0)
        self.assertAlmostEqual(timings["predicted_per_second"], 8000 / timings["predicted_ms"], places=3)

    def test_the_cache_is_told_and_can_be_left_out(self):
        long = "One two three four five six seven eight nine ten. " * 6
        self.ask(prompt=long)
        self.assertGreater(self.ask(prompt=long).json["tokens_cached"], 16)
        self.assertEqual(self.ask(prompt=long, cache_prompt=False).json["tokens_cached"], 0)

    def test_stop_words(self):
        whole = self.ask(n_predict=24).json["content"]
        word = whole.split()[5]
        stopped = self.ask(n_predict=24, stop=["never-there", word]).json
        self.assertEqual((stopped["stop_type"], stopped["stopping_word"]), ("word", word))
        self.assertEqual(stopped["content"], whole[:whole.index(word)])
        ended = self.ask(prompt="<|im_start|>user\nSay OK.<|im_end|>\n<|im_start|>assistant\n", n_predict=200).json
        self.assertEqual(ended["stop_type"], "eos")

    def test_probabilities_are_those_of_openai(self):
        whole = self.ask(n_probs=3, n_predict=4).json["completion_probabilities"]
        self.assertEqual(len(whole), 4)
        for entry in whole:
            self.assertEqual(entry["id"], entry["top_logprobs"][0]["id"], "greedy")
            self.assertEqual(len(entry["top_logprobs"]), 3)
            self.assertEqual(bytes(entry["bytes"]).decode(), entry["token"])
        openai = self.server.complete(STORY, max_tokens=4, logprobs=3).json["choices"][0]["logprobs"]
        self.assertEqual([e["logprob"] for e in whole], openai["token_logprobs"])
        streamed = [p for e in events(self.ask(n_probs=3, n_predict=4, stream=True)) for p in e.get("completion_probabilities", [])]
        self.assertEqual(streamed, whole)

    def test_grammar_and_schema(self):
        self.assertIn(self.ask(prompt="Is the sky blue? ", grammar='root ::= "yes" | "no"', n_predict=10).json["content"], ("yes", "no"))
        schema = {"type": "object", "properties": {"age": {"type": "integer", "maximum": 99}}, "required": ["age"]}
        answer = json.loads(self.ask(prompt="Anna is 30. As JSON: ", json_schema=schema, n_predict=40).json["content"])
        self.assertIsInstance(answer["age"], int)
        refused = self.ask(grammar="root ::= root")
        self.assertEqual((refused.status, refused.error["type"]), (400, "invalid_request_error"))

    def test_prompts_of_all_forms(self):
        tokens = self.ask("/tokenize", content=STORY).json["tokens"]
        self.assertEqual(self.ask("/detokenize", tokens=tokens).json["content"], STORY)
        text = self.ask().json["content"]
        for prompt in (tokens, [*tokens[:2], self.ask("/detokenize", tokens=tokens[2:]).json["content"]], {"prompt_string": STORY}):
            self.assertEqual(self.ask(prompt=prompt).json["content"], text, prompt)
        several = self.ask(prompt=[STORY, tokens, "The"]).json
        self.assertEqual([e["index"] for e in several], [0, 1, 2])
        self.assertEqual([several[0]["content"], several[1]["content"]], [text, text])
        drawn = self.ask(n_cmpl=2, temperature=1.5, seed=1).json
        self.assertEqual(len({e["content"] for e in drawn}), 2)

    def test_bias_and_nothing_to_predict(self):
        first = self.ask(n_predict=1, return_tokens=True).json["tokens"][0]
        self.assertNotEqual(self.ask(n_predict=1, return_tokens=True, logit_bias=[[first, False]]).json["tokens"][0], first)
        none = self.ask(n_predict=0).json
        self.assertEqual((none["content"], none["tokens_predicted"], none["stop_type"]), ("", 0, "limit"))
        full = self.ask(n_predict=-1, logit_bias=[[int(k), False] for k in NO_END]).json
        self.assertEqual((full["truncated"], full["stop_type"]), (True, "limit"))
        self.assertEqual(full["tokens_evaluated"] + full["tokens_predicted"], 512)

    def test_template_props_and_slots(self):
        messages = [{"role": "user", "content": "Hi"}]
        prompt = self.ask("/apply-template", messages=messages).json["prompt"]
        self.assertTrue(prompt.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"), prompt)
        props = self.ask("/props", "GET").json
        self.assertEqual((props["total_slots"], props["model_alias"]), (4, "smollm2"))
        self.assertEqual(props["default_generation_settings"]["n_ctx"], 512)
        self.assertIn("<|im_start|>", props["chat_template"])
        self.assertEqual(props["eos_token"], "<|im_end|>")
        self.assertEqual([s["is_processing"] for s in self.ask("/slots", "GET").json], [False] * 4)
        endless = {"prompt": STORY, "stream": True, "n_predict": 400, "logit_bias": [[int(k), False] for k in NO_END]}
        with self.server.begin("/completion", endless) as s:
            while b'"content"' not in (data := s.recv(4096)):   # until a token has been computed
                self.assertTrue(data)
            self.assertEqual(sum(slot["is_processing"] for slot in self.ask("/slots", "GET").json), 1)
        pieces = self.ask("/tokenize", content="Hé", with_pieces=True).json["tokens"]
        self.assertEqual("".join(p["piece"] for p in pieces), "Hé")

    def test_errors(self):
        for reply, status, kind in ((self.ask(model="other"), 404, "not_found_error"),
                                    (self.ask(temperature="hot"), 400, "invalid_request_error"), (self.ask("/completion", "GET"), 405, "invalid_request_error")):
            self.assertEqual((reply.status, reply.error["code"], reply.error["type"]), (status, status, kind))
        for field, value in (("mirostat", 2), ("dry_multiplier", .8), ("typical_p", .5), ("samplers", ["magic"]), ("t_max_predict_ms", 5)):
            self.assertIn(f"'{field}'", self.ask(**{field: value}).error["message"])
        self.assertEqual(self.ask("/infill", input_prefix="a", input_suffix="b").status, 400, "SmolLM2 has no tokens for it")

    def test_timings_in_openais_answers(self):
        whole = self.server.chat("Hi", max_tokens=3, timings_per_token=True).json
        self.assertEqual(whole["timings"]["predicted_n"], whole["usage"]["completion_tokens"])
        chunks = self.server.chat("Hi", max_tokens=3, timings_per_token=True, stream=True).chunks
        self.assertEqual(chunks[-1]["timings"]["predicted_n"], 3)
        self.assertNotIn("timings", self.server.chat("Hi", max_tokens=3).json)


class Infill(ServerTest):
    model, options = QWEN, ("--api-key", "secret")

    def infill(self, **fields):
        return self.server.request("POST", "/infill", {"n_predict": 16, "temperature": 0, **fields}, headers={"Authorization": "Bearer secret"})

    def test_keys(self):
        for path in ("/infill", "/completion", "/slots"):
            reply = self.server.request("POST", path, {"prompt": "a"})
            self.assertEqual((reply.status, reply.error["code"], reply.error["type"]), (401, 401, "authentication_error"))

    def test_the_gap_is_filled(self):
        fields = {"input_prefix": "def add(a, b):\n    return ", "input_suffix": "\n\nprint(add(1, 2))\n"}
        whole = self.infill(**fields).json
        self.assertTrue(whole["content"].startswith("a + b"), whole["content"])
        self.assertEqual("".join(e["content"] for e in events(self.infill(**fields, stream=True))), whole["content"])
        begun = self.infill(**fields, prompt="b +").json
        self.assertEqual(begun["content"].split()[0], "a", begun["content"])
        extra = [{"filename": "names.py", "text": "NAME_OF_THE_THING = 'x'\n"}]
        reply = self.infill(input_prefix="from names import NAME", input_suffix="\n", input_extra=extra).json
        self.assertTrue(reply["content"].startswith("_OF_THE_THING"), reply["content"])


if __name__ == "__main__":
    unittest.main()
