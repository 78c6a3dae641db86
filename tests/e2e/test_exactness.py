"""Every layout of every model answers as one process does, with prefix cache, chunked prefill, preemption, n > 1 and seeds at once.

A part of the table by default, all 24 cells with EXACTNESS=all.
"""
import json
import os
import unittest

from cluster import Cluster
from compare import assert_drawn, assert_same, assert_same_draws
from harness import MODELS, SMOLLM2, Server, at_once
from sampling_rule import Draws

# Workers say how fast they are: measured speeds would cut the model in another way each time, and so round in another way.
LAYOUTS = {
    "tp 2": {"tp": 2}, "tp 3": {"tp": 3}, "tp 4": {"tp": 4}, "pp 2": {"pp": 2}, "pp 3": {"pp": 3}, "tp 2, pp 2": {"tp": 2, "pp": 2},
    "uneven tp 3, pp 2": {"tp": 3, "pp": 2, "speeds": (1, 2, 1.5, 1.5, 1, 2)}, "dp 2": {"dp": 2}}
# Of each model: the file, the tokens that end an answer (banned, so that answers have one length), and what runs by default.
CUT = {
    "smollm2": (SMOLLM2, {0: "<|endoftext|>", 2: "<|im_end|>"}, list(LAYOUTS)),
    "qwen2.5": (MODELS / "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", {151643: "<|endoftext|>", 151645: "<|im_end|>"}, ["tp 3", "pp 2"]),
    "gemma3": (MODELS / "gemma-3-270m-q4_k_m.gguf", {1: "<eos>", 106: "<end_of_turn>"}, ["tp 3", "tp 2, pp 2"])}

STORY = "The relay team had trained for months. " * 12
PROMPTS = [STORY + "On the morning of the race", STORY + "Nobody had expected", "Once upon a time", "def fibonacci(n):",
           "The capital of France is", "Water boils at", "1, 2, 3, 4,", "Dear diary, today"]
DRAWN = [STORY + "Nobody had expected", "Once upon a time", "Dear diary, today"]
TOKENS = 36
# Most of such an answer is forced: nothing is drawn, and several tokens are computed at once, in each layout alike.
HELD = [STORY + "The prize was", "Once upon a time there was", "Water boils at"]
KEYS = {"subject_of_sentence": ["relay", "water", "princess"], "expected_temperature": ["boiling", "freezing"], "is_it_a_story": [True, False]}
HELD_SCHEMA = {"type": "object", "properties": {key: {"enum": values} for key, values in KEYS.items()}, "required": list(KEYS),
               "additionalProperties": False}
BLOCKS = 24   # of 16 tokens: what two of the stories need; the short ones grow from one to three
# A chunk is shorter than a story's prompt. Slow machines are no loss here.
OPTIONS = ("--max-num-batched-tokens", 64, "--max-num-seqs", 32, "--max-model-len", 256, "--worker-dead-after", "10s")


def leading(a, b):
    """Tokens until the first difference."""
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


class Exactness(unittest.TestCase):
    def answers(self, server, draws, bias):
        """Greedy answers, drawn ones from a few candidates, and drawn ones from the whole vocabulary, all at the same time, so that
        decodes, chunks of prefill, prefix hits and preemptions share steps."""
        common = {"max_tokens": TOKENS, "return_token_ids": True, "logit_bias": bias, "timeout_s": 200}
        jobs = [lambda p=p: server.complete(p, logprobs=5, **common) for p in PROMPTS]
        jobs += [lambda p=p: server.complete(p, n=3, seed=draws.seed, temperature=draws.temperature, top_k=draws.top_k,
                                             logprobs=draws.top_k + len(bias) + 5, **common) for p in DRAWN]
        jobs += [lambda: server.complete("Once upon a time", n=3, seed=7, temperature=.5, logprobs=1, **common)]
        jobs += [lambda p=p: server.complete(p, max_tokens=90, return_token_ids=True, structured_outputs={"json": HELD_SCHEMA}, timeout_s=200)
                 for p in HELD]
        replies = at_once(jobs)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
            self.assertEqual(reply.status, 200, reply.body[:300])
        replies, held = replies[:-len(HELD)], replies[-len(HELD):]
        for reply in held:
            answer = json.loads(reply.json["choices"][0]["text"])
            self.assertEqual(list(answer), list(KEYS))
            for key, values in KEYS.items():
                self.assertIn(answer[key], values)
        return replies[:len(PROMPTS)], replies[len(PROMPTS):-1], replies[-1], held

    def compare(self, expected, got, draws, what):
        """(equal answers, answers). One that is not equal parts from the other where rounding explains it."""
        equal = [assert_same(self, a, b, f"{what}, {p[-30:]!r}") for a, b, p in zip(expected[0], got[0], PROMPTS)]
        for a, b, prompt in zip(expected[1], got[1], DRAWN):
            for want, have in zip(a.json["choices"], b.json["choices"], strict=True):
                where = f"{what}, choice {want['index']} of {prompt[-30:]!r}"
                self.assertEqual(want["index"], have["index"], where)
                assert_drawn(self, have, draws, a.json["usage"]["prompt_tokens"], where)
                equal.append(assert_same_draws(self, want, have, draws, a.json["usage"]["prompt_tokens"], where))
        # The weights of the whole vocabulary are not in the answer, and many are so small that the least rounding reaches the next
        # one. Another seed would agree in a few tokens, by chance.
        lengths = [leading(a["token_ids"], b["token_ids"]) for a, b in zip(expected[2].json["choices"], got[2].json["choices"])]
        self.assertGreater(sum(lengths), len(lengths) * TOKENS / 4, f"{what}: tokens until the first difference: {lengths}")
        equal += [length == TOKENS for length in lengths]
        same = [a.json["choices"] == b.json["choices"] for a, b in zip(expected[3], got[3])]
        self.assertGreater(sum(same), len(same) / 2, f"{what}: answers by a schema")   # one may turn at a near tie
        equal += same
        return sum(equal), len(equal)

    def check(self, name):
        path, ends, layouts = CUT[name]
        bias = {str(token): -100 for token in ends}
        draws = Draws(seed=4711, temperature=.9, top_k=5, banned=tuple(ends.values()))
        with Server(path, "--threads", 2, "--no-enable-prefix-caching") as whole:
            expected = self.answers(whole, draws, bias)
        self.compare(expected, expected, draws, f"{name}, one process")
        for layout in LAYOUTS if os.environ.get("EXACTNESS") == "all" else layouts:
            with self.subTest(model=name, layout=layout):
                self.check_layout(path, layout, expected, draws, bias, f"{name}, {layout}")

    def check_layout(self, path, layout, expected, draws, bias, what):
        sizes = {"tp": 1, "pp": 1, "dp": 1, **LAYOUTS[layout]}
        workers = sizes["tp"] * sizes["pp"] * sizes["dp"]
        speeds = sizes.pop("speeds", (1,) * workers)
        with Cluster(path, options=(*OPTIONS, "--kv-blocks", BLOCKS // sizes["dp"]), speeds=speeds, **sizes) as cluster:
            cluster.wait_whole()
            ranks = cluster.replica()["ranks"]
            if len(set(speeds)) > 1:
                self.assertGreater(len({rank["ffn"][1] - rank["ffn"][0] for rank in ranks}), 1, "all ranks are equal")
            first = self.answers(cluster.master, draws, bias)
            equal, total = self.compare(expected, first, draws, what)
            again = self.answers(cluster.master, draws, bias)   # from the prefix cache, and in other company
            for a, b in zip([*first[0], *first[1], first[2], *first[3]], [*again[0], *again[1], again[2], *again[3]]):
                self.assertEqual(a.json["choices"], b.json["choices"], f"{what}: the second time")
            print(f"{what}: {equal} of {total} answers equal, the others after a near tie", flush=True)
            cluster.master.wait_idle()
            for metric in ("staffel_num_preemptions_total", "staffel_prefix_cache_hits_total", "staffel_forced_tokens_total"):
                self.assertGreater(cluster.master.metric(metric), 0, metric)
            losses = [replica["losses"] for replica in cluster.status()["pools"][0]["replicas"]]
            self.assertEqual(losses, [0] * sizes["dp"], cluster.master.output()[-3000:])

    def test_smollm2(self):
        self.check("smollm2")

    def test_qwen(self):
        self.check("qwen2.5")

    def test_gemma(self):
        self.check("gemma3")


if __name__ == "__main__":
    unittest.main()
