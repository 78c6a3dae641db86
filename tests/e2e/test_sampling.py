"""Greedy under load, seeds, penalties, biases: each request answers as if it were alone."""
import unittest

from harness import NO_END, ServerTest, at_once

PROMPTS = [f"{ask} {about}." for about in ("the sea", "bread", "old ships") for ask in ("Tell me about", "Write a poem about")]


class Sampling(ServerTest):
    def test_greedy_answers_do_not_depend_on_the_batch(self):
        ask = lambda p: lambda: self.server.chat(p, max_tokens=32).text()
        alone = [ask(p)() for p in PROMPTS]
        self.assertEqual(at_once([ask(p) for p in PROMPTS]), alone)
        long_prefill = lambda: self.server.complete("word " * 800, max_tokens=1).status
        self.assertEqual(at_once([ask(p) for p in PROMPTS] + [long_prefill] * 2)[:len(PROMPTS)], alone)

    def test_seeds_repeat_alone_in_a_batch_and_streamed(self):
        ask = lambda seed, **f: self.server.chat("Tell me about the sea.", seed=seed, temperature=1, max_tokens=24, **f).text()
        first = ask(42)
        self.assertEqual({ask(42), ask(42, stream=True), *at_once([lambda: ask(42)] * 3)}, {first})
        self.assertNotEqual(ask(2**53), ask(2**53 + 1))
        self.assertGreater(len({self.server.chat("Tell me about the sea.", temperature=1).text() for _ in range(4)}), 1)

    def test_choices_of_one_request_differ_and_repeat_with_the_seed(self):
        ask = lambda: self.server.chat("Tell me about the sea.", seed=7, temperature=1, n=3)
        a, b = ask(), ask()
        texts = [a.text(i) for i in range(3)]
        self.assertEqual(texts, [b.text(i) for i in range(3)])
        self.assertGreater(len(set(texts)), 1)

    def test_penalties_have_an_effect_and_the_same_one_in_a_batch(self):
        ask = lambda **f: self.server.complete("a a a a a a a a", max_tokens=32, **f).text()
        plain = ask()
        fields = ({"frequency_penalty": 2}, {"presence_penalty": 2}, {"repetition_penalty": 1.8})
        alone = [ask(**f) for f in fields]
        self.assertNotIn(plain, alone)
        self.assertEqual(at_once([lambda f=f: ask(**f) for f in fields]), alone)

    def test_logit_bias_forces_and_bans(self):
        for extra in ({}, {"top_k": 1}, {"temperature": 1, "seed": 1}):
            self.assertEqual(self.server.chat("x", logit_bias={"6004": 100}, max_tokens=3, **extra).text(), "hihihi")
        reply = self.server.chat("Say ok.", logit_bias=NO_END, max_tokens=48)
        self.assertEqual((reply.finish(), reply.usage["completion_tokens"]), ("length", 48))

    def test_greedy_and_random_rows_in_one_batch(self):
        rows = [(p, {}) for p in PROMPTS[:3]] + [(p, {"temperature": 1, "seed": i, **extra}) for i, (p, extra) in enumerate(
            zip(PROMPTS[3:], ({"top_k": 5}, {"top_p": .5}, {"min_p": .2})))]
        ask = lambda p, f: lambda: self.server.chat(p, **f).text()
        self.assertEqual(at_once([ask(p, f) for p, f in rows]), [ask(p, f)() for p, f in rows])


if __name__ == "__main__":
    unittest.main()
