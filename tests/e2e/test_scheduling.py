"""Small pools, long prompts, cancelled clients: nothing is lost, nothing is repeated, everything is given back."""
import random
import time
import unittest

from harness import CHAT, NO_END, Server, ServerTest, SMOLLM2, at_once


class SmallPool(ServerTest):
    options = ("--kv-blocks", 64, "--max-queue", 64)   # 1,024 tokens

    def test_preempted_answers_are_whole(self):
        prompts = [f"Story {i}: " + "once upon a time " * 20 for i in range(6)]
        ask = lambda p: lambda: self.server.complete(p, max_tokens=200, logit_bias=NO_END, stream=True,
                                                     stream_options={"include_usage": True}, timeout_s=200)
        alone = [ask(p)() for p in prompts]
        before = self.server.metric("staffel_num_preemptions_total")
        together = at_once([ask(p) for p in prompts])
        self.assertEqual([r.text() for r in together], [r.text() for r in alone])
        self.assertTrue(all(r.usage["completion_tokens"] == 200 for r in together))
        self.assertGreater(self.server.metric("staffel_num_preemptions_total"), before)
        self.server.wait_idle()

    def test_a_prompt_that_can_never_fit_is_refused_and_blocks_nobody(self):
        self.assert_refused(self.server.complete("word " * 2000), 400, "prompt")
        self.assertEqual(self.server.chat("hi", max_tokens=2).status, 200)

    def test_an_answer_that_outgrows_the_pool_ends_with_length(self):
        reply = self.server.complete("word " * 900, max_tokens=4000, logit_bias=NO_END, timeout_s=200)
        self.assertEqual(reply.finish(), "length")
        self.server.wait_idle()

    def test_aborted_streams_give_everything_back(self):
        for i in range(40):
            s = self.server.begin(CHAT, {"messages": [{"role": "user", "content": f"Tell {i}"}], "stream": True, "max_tokens": 64,
                                         "logit_bias": NO_END})
            for _ in range(i % 6):
                s.recv(512)
            s.close()
        self.server.wait_idle()
        self.assertEqual(self.server.chat("hi", max_tokens=2).status, 200)


class PrefixCache(ServerTest):
    def test_shared_prefix_is_reused_with_the_same_answer(self):
        rng = random.Random(1)
        shared = " ".join(rng.choice(("sea", "ship", "storm", "bread")) for _ in range(300))
        tails = [f"{shared} Number {i}:" for i in range(4)]
        with Server(SMOLLM2, "--enable-prefix-caching=false") as cold:
            want = [cold.complete(t).text() for t in tails]
            self.assertEqual(cold.complete(tails[0]).usage["prompt_tokens_details"]["cached_tokens"], 0)
        replies = [self.server.complete(t) for t in tails]
        self.assertEqual([r.text() for r in replies], want)
        for reply in replies[1:]:
            cached = reply.usage["prompt_tokens_details"]["cached_tokens"]
            self.assertTrue(256 <= cached < reply.usage["prompt_tokens"], cached)
        other = self.server.complete(tails[0], cache_salt="other tenant")
        self.assertEqual((other.text(), other.usage["prompt_tokens_details"]["cached_tokens"]), (want[0], 0))

    def test_cancel_and_retry_gives_the_cold_answer(self):
        rng = random.Random(2)
        for delay_ms in (0, 5, 20, 60, 120):
            prompt = " ".join(rng.choice(("sun", "rain", "wind")) for _ in range(600))
            s = self.server.begin("/v1/completions", {"prompt": prompt, "max_tokens": 16, "temperature": 0})
            time.sleep(delay_ms / 1000)
            s.close()
            retry = self.server.complete(prompt)
            fresh = self.server.complete(prompt, cache_salt=f"fresh {delay_ms}")
            self.assertEqual(retry.text(), fresh.text(), f"{delay_ms} ms")

    def test_context_ends_with_length(self):
        with Server(SMOLLM2, "--max-model-len", 256) as server:
            reply = server.complete("word " * 200, max_tokens=None, logit_bias=NO_END)
            self.assertEqual((reply.finish(), reply.usage["completion_tokens"]), ("length", 16))
            room = 256 - reply.usage["prompt_tokens"]
            reply = server.complete("word " * 200, max_tokens=1000, logit_bias=NO_END)
            self.assertEqual((reply.finish(), reply.usage["completion_tokens"]), ("length", room))
            self.assert_refused(server.complete("word " * 256), 400, "prompt")

    def test_streams_go_on_beside_a_long_prefill(self):
        streams = [lambda: self.server.chat("Count.", stream=True, max_tokens=64, logit_bias=NO_END)] * 3
        replies = at_once(streams + [lambda: self.server.complete("word " * 3000, max_tokens=2, timeout_s=120)])
        self.assertEqual([r.status for r in replies], [200] * 4)


class Queue(unittest.TestCase):
    def test_above_the_limit_requests_are_refused_at_once(self):
        with Server(SMOLLM2, "--max-queue", 4, "--max-num-seqs", 2) as server:
            replies = at_once([lambda: server.chat("hi", max_tokens=8, logit_bias=NO_END)] * 40)
            statuses = sorted(r.status for r in replies)
            self.assertEqual(set(statuses), {200, 429})
            refused = next(r for r in replies if r.status == 429)
            self.assertIn("retry-after", refused.headers)
            self.assertTrue(all(len(r.text()) > 0 for r in replies if r.status == 200))
            server.wait_idle()


if __name__ == "__main__":
    unittest.main()
