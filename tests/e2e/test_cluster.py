"""What /v1/cluster, /metrics and the log tell of layouts of several worker processes; test_exactness.py compares their answers."""
import signal
import tempfile
import time
import unittest

from cluster import Cluster, Process
from harness import BINARY, NO_END, SMOLLM2, at_once


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

    def test_utilisation_of_every_stage(self):
        with Cluster(SMOLLM2, pp=2) as cluster:
            replies = at_once([lambda: cluster.master.complete("Count:", max_tokens=60, logit_bias=NO_END)] * 8)
            self.assertEqual([reply.status for reply in replies], [200] * 8)
            stages = {stage["stage"]: stage["utilisation"] for stage in cluster.replica()["stages"]}
            self.assertEqual(set(stages), {0, 1})
            self.assertTrue(all(.05 < share <= 1 for share in stages.values()), stages)
            metrics = cluster.master.get("/metrics").body.decode()
            for stage in range(2):
                self.assertRegex(metrics, rf'staffel_stage_utilisation_ratio\{{[^}}]*stage="{stage}"[^}}]*\}} 0?\.?\d')

    def test_layouts_that_cannot_work_are_refused_with_their_numbers(self):
        for layout, numbers in (({"tp": 16}, ("16", "9")), ({"pp": 31}, ("31", "30"))):
            with self.subTest(**layout):
                cluster = Cluster(SMOLLM2, start=False, **layout)
                self.assertEqual(cluster.master.process.wait(10), 1)
                for number in numbers:
                    self.assertIn(number, cluster.master.output())


if __name__ == "__main__":
    unittest.main()
