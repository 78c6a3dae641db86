"""Workers on hosts of their own: joining over IPv4, IPv6 and names, choice of the network card, links that break."""
import contextlib
import http.client
import pathlib
import shutil
import tempfile
import threading
import time
import unittest

from cluster import Master, Process
from compare import assert_same
from harness import BINARY, NO_END, SMOLLM2, Server, free_port
from netns import Hosts

FIELDS = {"max_tokens": 24, "logprobs": 3, "return_token_ids": True, "logit_bias": NO_END}
PROMPT = "The runner took the baton and"


class RemoteMaster(Master):
    """A master on host 0, asked from the test's place in its network."""

    def __init__(self, hosts, arguments, address=None, listen="::"):
        self.address = address or hosts.ip(0)
        super().__init__(arguments, hosts.inside(0), listen)

    def request(self, *args, **more):
        real = http.client.HTTPConnection
        http.client.HTTPConnection = lambda _, port, timeout: real(self.address, port, timeout=timeout)
        try:
            return super().request(*args, **more)
        finally:
            http.client.HTTPConnection = real


class TwoHosts(unittest.TestCase):
    layout = ("--tp", 2)

    @classmethod
    def setUpClass(cls):
        cls.hosts = Hosts(2)
        cls.hosts.__enter__()
        with Server(SMOLLM2, "--threads", 1) as server:
            cls.expected = server.complete(PROMPT, **FIELDS)

    @classmethod
    def tearDownClass(cls):
        cls.hosts.__exit__()

    @contextlib.contextmanager
    def cluster(self, master_address=None, worker_options=((), ()), options=(), cluster_host="::", wait=True, hide_models_from=None):
        """A worker on each host."""
        port = free_port()
        address = master_address or self.hosts.ip(0)
        master = RemoteMaster(self.hosts, [SMOLLM2, "--cluster-host", cluster_host, "--cluster-port", port, *self.layout, *options])
        workers = []
        try:
            where = f"[{address}]" if ":" in address else address
            for host in range(2):
                # A host of its own has a disk of its own: without the models' folder.
                hide = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs none "{SMOLLM2.parent}" && exec "$@"', "sh"]
                workers.append(Process([*self.hosts.inside(host), *(hide if host == hide_models_from else []), BINARY, "worker", "--master", f"{where}:{port}", "--name", f"w{host}",
                                        "--threads", 1, "--speed", 1, *worker_options[host]]))
            if wait:
                master.wait_ready()
            yield master, workers
        finally:
            master.stop()
            for worker in workers:
                worker.stop()

    def check(self, master):
        assert_same(self, self.expected, master.complete(PROMPT, **FIELDS), "two hosts")

    def ranks(self, master):
        return {rank["worker"]: rank for pool in master.get("/v1/cluster").json["pools"] for replica in pool["replicas"]
                for rank in replica["ranks"]}


class Joining(TwoHosts):
    def test_ipv4_and_the_card_that_leads_to_the_master(self):
        with self.cluster() as (master, _):
            self.check(master)
            for host, rank in ((0, self.ranks(master)["w0"]), (1, self.ranks(master)["w1"])):
                self.assertIn(self.hosts.ip(host), rank["data_address"])

    def test_ipv6(self):
        with self.cluster(self.hosts.ip6(0)) as (master, _):
            self.check(master)
            self.assertIn(f"[{self.hosts.ip6(1)}]", self.ranks(master)["w1"]["data_address"])

    def test_interface_by_name(self):
        with self.cluster(worker_options=(("--interface", "eth1"), ("--interface", "eth1"))) as (master, _):
            self.check(master)
            self.assertIn(self.hosts.ip(1, 1), self.ranks(master)["w1"]["data_address"])

    def test_host_names(self):
        for host in range(2):
            folder = pathlib.Path("/etc/netns") / self.hosts.name(host)
            folder.mkdir(parents=True)
            self.addCleanup(shutil.rmtree, folder)
            (folder / "hosts").write_text(f"127.0.0.1 localhost\n{self.hosts.ip(0)} relay-master\n")
        with self.cluster("relay-master") as (master, _):
            self.check(master)

    def test_a_worker_without_the_file_gets_its_part_from_the_master(self):
        with tempfile.TemporaryDirectory() as cache:
            with self.cluster(worker_options=((), ("--cache-dir", cache)), hide_models_from=1) as (master, _):
                self.check(master)
                fetched = self.ranks(master)["w1"]["bytes_fetched"]
                self.assertGreater(fetched, .3 * SMOLLM2.stat().st_size)
                self.assertLess(fetched, .9 * SMOLLM2.stat().st_size)
            with self.cluster(worker_options=((), ("--cache-dir", cache)), hide_models_from=1) as (master, _):
                self.check(master)
                self.assertEqual(self.ranks(master)["w1"]["bytes_fetched"], 0)


class Breaking(TwoHosts):
    def disturbed(self, master, act, mend):
        """A long stream with act() in its midst; then mend() and the layout comes back."""
        reply = []
        long = {**FIELDS, "max_tokens": 300}
        expected = master.complete(PROMPT, **long)
        stream = threading.Thread(target=lambda: reply.append(master.complete(PROMPT, **long)))
        stream.start()
        time.sleep(.3)
        act()
        start = time.monotonic()
        while "w1" in self.ranks(master):
            self.assertLess(time.monotonic() - start, 3, "the loss of w1 was not noticed")
            time.sleep(.05)
        print(f"noticed after {time.monotonic() - start:.2f} s")
        self.assertIn("w1", master.output())
        stream.join()
        assert_same(self, expected, reply[0], "over the broken link")
        mend()
        start = time.monotonic()
        while "w1" not in self.ranks(master) or master.get("/health").status != 200:
            self.assertLess(time.monotonic() - start, 30, "w1 is not used again")
            time.sleep(.1)
        self.check(master)

    def test_a_cable_is_pulled(self):
        with self.cluster() as (master, _):
            self.disturbed(master, lambda: self.hosts.cut(1), lambda: self.hosts.mend(1))

    def test_a_link_becomes_a_black_hole(self):
        with self.cluster() as (master, _):
            self.disturbed(master, lambda: self.hosts.black_hole(1), lambda: self.hosts.light(1))

    def test_a_black_hole_is_found_while_idle(self):
        with self.cluster() as (master, _):
            self.hosts.black_hole(1)
            start = time.monotonic()
            while "w1" in self.ranks(master):
                self.assertLess(time.monotonic() - start, 3)
                time.sleep(.05)
            self.check(master)   # by the survivor
            self.hosts.light(1)


class DataLink(TwoHosts):
    """The data port is blocked while the control connections stay up."""
    port = 7345

    def broken(self, comes_back):
        fixed = (("--data-port", self.port),) * 2
        with self.cluster(worker_options=fixed) as (master, workers):
            reply, long = [], {**FIELDS, "max_tokens": 300}
            expected = master.complete(PROMPT, **long)
            stream = threading.Thread(target=lambda: reply.append(master.complete(PROMPT, **long)))
            stream.start()
            time.sleep(.3)
            self.hosts.block(1, self.port)
            self.addCleanup(self.hosts.unblock, 1)
            start = time.monotonic()
            while not (links := master.get("/v1/cluster").json["broken_links"]):
                self.assertLess(time.monotonic() - start, 4, "the broken link was not noticed")
                time.sleep(.05)
            noticed_s = time.monotonic() - start
            self.assertLess(noticed_s, 2.5)
            print(f"noticed after {noticed_s:.2f} s")
            self.assertEqual(sorted(links[0]["workers"]), ["w0", "w1"])
            for text in (links[0]["reason"], master.output()):
                for part in ("the data link between rank", '"w0"', '"w1"', self.hosts.ip(0), self.hosts.ip(1)):
                    self.assertIn(part, text)
            stream.join()
            assert_same(self, expected, reply[0], "over the broken link")
            self.assertIn("link between workers", master.get("/health").json["degraded"])
            self.assertRegex(master.get("/metrics").body.decode(), r'staffel_link_failures_total\{[^}]*peer="w[01]"[^}]*\} 1')
            self.assertTrue(all(worker.running() for worker in workers))
            self.hosts.unblock(1)
            if not comes_back:
                return
            start = time.monotonic()
            while len(self.ranks(master)) < 2 or master.get("/health").status != 200:
                self.assertLess(time.monotonic() - start, 60, "the link is not used again")
                time.sleep(.1)
            self.check(master)


class DataLinkOfTensorRanks(DataLink):
    def test_blocked(self):
        self.broken(comes_back=True)


class DataLinkOfStages(DataLink):
    layout = ("--pp", 2)

    def test_blocked(self):
        self.broken(comes_back=False)


if __name__ == "__main__":
    unittest.main()
