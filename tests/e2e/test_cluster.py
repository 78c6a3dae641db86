"""Layouts of several worker processes: the same answers as one process, and what /v1/cluster tells of them."""
import signal
import tempfile
import time
import unittest

from cluster import Cluster, Process
from compare import assert_same
from harness import BINARY, MODELS, NO_END, SMOLLM2, Server, at_once

QWEN = MODELS / "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
GEMMA = MODELS / "gemma-3-270m-q4_k_m.gguf"
STORY = "The relay team had trained for months. " * 12
PROMPTS = [STORY + "On the morning of the race", STORY + "Nobody had expected", "Once upon a time", "def fibonacci(n):",
           "The capital of France is", "Water boils at", "1, 2, 3, 4,", "Dear diary, today"]
FIELDS = {"max_tokens": 24, "logprobs": 5, "return_token_ids": True, "logit_bias": NO_END}


def answers(server, prompts=PROMPTS, **fields):
    """All at once, so that decodes, chunks of prefill and prefix hits share steps."""
    replies = at_once([lambda p=p: server.complete(p, **{**FIELDS, **fields}) for p in prompts])
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
        assert reply.status == 200, reply.body[:300]
    return replies


class Layouts(unittest.TestCase):
    def check(self, model, layouts, options=("--max-num-batched-tokens", 96)):
        with Server(model, "--threads", 1, *options) as whole:
            expected = answers(whole)
            sampled = whole.complete("Once upon a time", n=3, seed=7, temperature=.8, max_tokens=16).json
        for layout in layouts:
            with self.subTest(model=model.name, **layout), Cluster(model, options=options, **layout) as cluster:
                exact = 0
                for _ in range(2):   # the second time from the prefix cache
                    for want, got, prompt in zip(expected, answers(cluster.master), PROMPTS):
                        exact += assert_same(self, want, got, f"{layout}, {prompt[-30:]!r}")
                print(f"{model.name} {layout}: {exact} of {2 * len(PROMPTS)} answers equal, the others after a near tie")
                got = cluster.master.complete("Once upon a time", n=3, seed=7, temperature=.8, max_tokens=16).json
                self.assertEqual(len(got["choices"]), len(sampled["choices"]))
                cluster.master.wait_idle()

    def test_smollm2(self):
        self.check(SMOLLM2, [{"tp": 2}, {"tp": 3}, {"tp": 4}, {"pp": 2}, {"pp": 3}, {"tp": 2, "pp": 2}, {"tp": 3, "pp": 2}, {"dp": 2}])

    def test_qwen(self):
        self.check(QWEN, [{"tp": 2}, {"tp": 3}, {"pp": 2}])

    def test_gemma(self):
        self.check(GEMMA, [{"tp": 2}, {"tp": 3}, {"tp": 2, "pp": 2}])

    def test_preemption_in_a_small_pool(self):
        options = ("--kv-blocks", 40, "--max-model-len", 512)
        self.check(SMOLLM2, [{"tp": 2}, {"pp": 2}], options)


class Status(unittest.TestCase):
    def test_placement_and_metrics_of_every_rank(self):
        with Cluster(SMOLLM2, tp=2, pp=2) as cluster:
            cluster.master.complete("x", max_tokens=4)
            replica = cluster.replica()
            self.assertEqual((replica["state"], replica["tensor_parallel"], replica["pipeline_parallel"]), ("serving", 2, 2))
            ranks = replica["ranks"]
            self.assertEqual([r["worker"] for r in ranks if r["rank"] == 0], [ranks[0]["worker"]])
            self.assertEqual(sorted({tuple(r["layers"]) for r in ranks})[0][0], 0)
            self.assertEqual(max(r["layers"][1] for r in ranks), 30)
            size = SMOLLM2.stat().st_size
            read = sum(r["bytes_read"] for r in ranks)
            # The embedding is read by both ranks of the first stage and, tied, by the last one's as their rows.
            self.assertLess(read, 1.65 * size)
            self.assertTrue(all(r["bytes_read"] < .6 * size for r in ranks), ranks)
            metrics = cluster.master.get("/metrics").body.decode()
            for rank in range(4):
                self.assertRegex(metrics, rf'staffel_rank_compute_seconds\{{[^}}]*rank="{rank}"')

    def test_fewer_workers_serve_when_the_wait_is_over(self):
        with Cluster(SMOLLM2, tp=2, start=False, options=("--worker-wait", "2s")) as cluster:
            cluster.master.wait_live()
            cluster.add_worker()
            start = time.monotonic()
            cluster.wait_for(lambda status: status["workers"])
            time.sleep(.8)
            health = cluster.master.get("/health")
            self.assertEqual(health.status, 503)
            self.assertIn("waits for 1 more worker", health.body.decode())
            cluster.master.wait_ready()
            self.assertGreater(time.monotonic() - start, 1.9)
            self.assertIn("waits for 1 more worker", cluster.master.get("/health").json["degraded"])
            self.assertTrue(cluster.replica()["degraded"])
            self.assertIn("fewer workers than asked for", cluster.replica()["reason"])
            self.assertIn("fewer workers than asked for", cluster.master.output())
            self.assertEqual(cluster.master.complete("x", max_tokens=4).status, 200)
            cluster.add_worker()
            cluster.wait_layout(2, 1)
            self.assertNotIn("degraded", cluster.master.get("/health").json)

    def test_all_workers_are_waited_for_where_another_layout_is_not_allowed(self):
        with Cluster(SMOLLM2, tp=2, start=False, options=("--worker-wait", "1s", "--no-allow-degraded")) as cluster:
            cluster.master.wait_live()
            cluster.add_worker()
            time.sleep(2.5)
            health = cluster.master.get("/health")
            self.assertEqual(health.status, 503)
            self.assertIn("waits for 1 more worker", health.body.decode())
            cluster.add_worker()
            cluster.wait_layout(2, 1)

    def test_a_worker_without_a_name_keeps_its_own_over_restarts(self):
        with tempfile.TemporaryDirectory() as cache, Cluster(SMOLLM2, tp=2, start=False) as cluster:
            cluster.master.wait_live()
            command = [BINARY, "worker", "--master", f"127.0.0.1:{cluster.cluster_port}", "--threads", 1, "--cache-dir", cache]
            names = []
            for _ in range(2):
                workers = [Process(command) for _ in range(2)]
                status = cluster.wait_for(lambda status: len(status["workers"]) == 2, what="two workers")
                names.append({w["worker"] for w in status["workers"]})
                for worker in workers:
                    worker.send(signal.SIGKILL)
                    worker.wait()
                cluster.wait_for(lambda status: not status["workers"], what="no worker")
            self.assertEqual(names[0], names[1])
            self.assertEqual(len(names[0]), 2)

    def test_layouts_that_cannot_work_are_refused_with_their_numbers(self):
        for layout, numbers in (({"tp": 16}, ("16", "9")), ({"pp": 31}, ("31", "30"))):
            with self.subTest(**layout):
                cluster = Cluster(SMOLLM2, start=False, **layout)
                self.assertEqual(cluster.master.process.wait(10), 1)
                for number in numbers:
                    self.assertIn(number, cluster.master.output())


if __name__ == "__main__":
    unittest.main()
