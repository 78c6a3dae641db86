"""Workers of other versions, that lie, that have other files or a full disk: refused or replaced by name, and the cluster goes on."""
import pathlib
import tempfile
import time
import unittest

from cluster import Cluster, Process
from compare import assert_same, assert_same_tokens, tokens_of_stream
from harness import BINARY, MODELS, NO_END, PATIENCE, SMOLLM2, Server, at_once

LIAR = pathlib.Path(BINARY).parent / "tests/e2e/lying_worker"
FIELDS = {"max_tokens": 40, "logprobs": 3, "return_token_ids": True, "logit_bias": NO_END}
PROMPTS = [f"{subject}, told in three sentences:" for subject in ("A relay race", "The sea", "An old engine", "A letter")]


def ranks(status):
    """Names of the workers that serve."""
    return {rank["worker"] for rank in status["pools"][0]["replicas"][0]["ranks"]}


class BadWorkers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with Server(SMOLLM2, "--threads", 2) as server:
            cls.expected = cls.streams(server)

    @staticmethod
    def streams(server):
        replies = at_once([lambda p=p: server.complete(p, stream=True, **FIELDS) for p in PROMPTS])
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
            assert reply.status == 200, reply.body[:300]
        return [tokens_of_stream(reply) for reply in replies]

    def check(self, cluster, what):
        for want, have, prompt in zip(self.expected, self.streams(cluster.master), PROMPTS):
            assert_same_tokens(self, want, have, f"{what}, {prompt}")

    def liar(self, cluster, lie):
        """Joins as the cluster's next worker."""
        cluster.workers.append(Process([LIAR, lie, *cluster.command(f"w{len(cluster.workers)}")[2:]]))
        return cluster.workers[-1]

    def wait_said(self, process, *texts, within_s=20):
        end = time.monotonic() + within_s * PATIENCE
        while not all(text in process.output() for text in texts):
            self.assertLess(time.monotonic(), end, f"{texts} not in {process.output()[-2000:]}")
            time.sleep(.02)


class Versions(BadWorkers):
    def test_the_neighbouring_minor_version_works_and_others_are_refused_on_both_sides(self):
        with Cluster(SMOLLM2, tp=2) as cluster:
            for version in ("1.2", "2.0", "0.1"):
                other = self.liar(cluster, f"protocol={version}")
                self.assertEqual(other.wait(10), 1, version)
                for who in (other, cluster.master):
                    self.wait_said(who, f"the worker speaks protocol {version} and the master 1.0", "use neighbouring versions")
            self.check(cluster, "beside others' refusal")
            neighbour = self.liar(cluster, "protocol=1.1")
            self.wait_said(neighbour, "joined the master")
            cluster.workers[1].stop()
            cluster.wait_for(lambda status: {"w0", f"w{len(cluster.workers) - 1}"} == ranks(status), 20, "the neighbour in w1's place")
            self.check(cluster, "with a worker of a neighbouring version")


class Lies(BadWorkers):
    def test_a_rank_with_another_state_is_replaced_and_streams_go_on(self):
        for layout in ({"tp": 2}, {"pp": 2}):
            with self.subTest(**layout), Cluster(SMOLLM2, workers=1, wait=False, **layout) as cluster:
                self.liar(cluster, "state")
                cluster.wait_layout(layout.get("tp", 1), layout.get("pp", 1), 60)
                self.check(cluster, "a diverged rank")
                self.assertRegex(cluster.master.output(), 'worker "?w1"? .*the worker\'s state is not the master\'s')
                self.assertEqual(cluster.replica()["losses"], 1)
                cluster.wait_layout(layout.get("tp", 1), layout.get("pp", 1))   # it is used again, and honest now
                self.check(cluster, "after it came back")

    def test_impossible_times_and_speeds_are_refused_by_name(self):
        with Cluster(SMOLLM2, tp=2) as cluster:
            for speed in ("nan", "-1", "0", "1e300"):
                other = self.liar(cluster, f"speed={speed}")
                self.assertEqual(other.wait(10), 1, speed)
                self.wait_said(other, "speed")
            for clock in ("nan", "-1", "inf", "1e300"):
                with self.subTest(clock=clock):
                    other = self.liar(cluster, f"clock={clock}")
                    self.wait_said(cluster.master, f"worker w{len(cluster.workers) - 1} ", f"in_step_s {clock.replace('1e300', '1e+300')} is out of range")
                    other.stop()
                    self.check(cluster, f"after a clock of {clock}")
            self.assertEqual(cluster.master.get("/health").status, 200)


class OwnDisk(BadWorkers):
    """A worker in a mount namespace of its own beside another one."""

    @staticmethod
    def cluster():
        return Cluster(SMOLLM2, tp=2, workers=1, options=("--worker-wait", "2s"), wait=False)

    def worker(self, cluster, mounts, *options):
        script = f'{mounts} && exec "$@"'
        command = cluster.command(f"w{len(cluster.workers)}", *options)
        cluster.workers.append(Process(["unshare", "-m", "sh", "-c", script, "sh", *command]))

    def folder(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return folder.name

    def wait_set_aside(self, cluster, *texts):
        """The second worker is set aside for a reason with these texts, and the first serves alone."""
        def right(status):
            reasons = [w.get("reason", "") for w in [*status["workers"], *status["absent"]] if w["worker"] == "w1"]
            return any(all(text in reason for text in texts) for reason in reasons)
        cluster.wait_for(right, 20, f"w1 set aside for {texts}")
        cluster.wait_layout(1, 1)
        self.check(cluster, "without it")
        self.assertIn("w1", cluster.master.output())

    def test_a_full_disk_is_named_and_the_others_go_on(self):
        cache = self.folder()
        with self.cluster() as cluster:
            hide = f'mount -t tmpfs none "{SMOLLM2.parent}"'
            self.worker(cluster, f'{hide} && mount -t tmpfs -o size=16m none "{cache}"', "--cache-dir", cache)
            self.wait_set_aside(cluster, cache, "free", "--cache-dir")
            cluster.workers[1].stop()
            # With room, it serves.
            self.worker(cluster, hide, "--cache-dir", cache)
            cluster.wait_layout(2, 1)
            self.check(cluster, "with room")

    def test_a_limit_of_the_cache_is_kept(self):
        cache = self.folder()
        with self.cluster() as cluster:
            self.worker(cluster, f'mount -t tmpfs none "{SMOLLM2.parent}"', "--cache-dir", cache, "--cache-limit", "20M")
            self.wait_set_aside(cluster, cache, "20.0 MiB", "--cache-limit")

    def test_a_file_with_other_content_is_not_used(self):
        cache = self.folder()
        other = MODELS / "gemma-3-270m-q4_k_m.gguf"
        with self.cluster() as cluster:
            self.worker(cluster, f'mount --bind "{other}" "{SMOLLM2}"', "--cache-dir", cache)
            cluster.wait_layout(2, 1)
            fetched = {rank["worker"]: rank["bytes_fetched"] for rank in cluster.replica()["ranks"]}
            self.assertEqual(fetched["w0"], 0)
            self.assertGreater(fetched["w1"], .3 * SMOLLM2.stat().st_size)
            self.check(cluster, "with bytes from the master")
            cluster.workers[1].stop()
            # Without a cache there is no other way, and it says so.
            self.worker(cluster, f'mount --bind "{other}" "{SMOLLM2}"', "--cache-dir", "/proc/none")
            end = time.monotonic() + 20 * PATIENCE
            while "has other content (digest" not in cluster.master.output():
                self.assertLess(time.monotonic(), end)
                time.sleep(.05)
            self.check(cluster, "without it")


if __name__ == "__main__":
    unittest.main()
