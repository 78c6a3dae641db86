"""Hosts as network namespaces, joined by a switch: `eth0` of each in one network, `eth1` in a second one.

The test itself is in both networks, through veth pairs of its own. Needs root, iproute2 and iptables.
"""
import os
import pathlib
import re
import subprocess

TEST_HOST = 254
NAME = re.compile(r"s(\d+)(h\d+|sw|t\d)\b")


def run(*words, check=True):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    if check and done.returncode:
        raise AssertionError(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
    return done.stdout


def clear_leftovers():
    """Namespaces and cables of processes that were killed in the midst of a test."""
    for name in set(re.findall(r"s\d+(?:h\d+|sw)\b", run("ip", "netns", "list"))):
        if not pathlib.Path(f"/proc/{NAME.match(name)[1]}").exists():
            run("ip", "netns", "del", name, check=False)
    for name in set(re.findall(r"\bs\d+t\d\b", run("ip", "-o", "link"))):
        if not pathlib.Path(f"/proc/{NAME.match(name)[1]}").exists():
            run("ip", "link", "del", name, check=False)


class Hosts:
    """Use as a context manager. Host i has the addresses ip(i), ip6(i); in the second network ip(i, 1), ...

    Names and networks are this process's own, so that several tests may run side by side.
    """

    def __init__(self, count):
        self.count = count
        self.tag = f"s{os.getpid()}"
        part = os.getpid() % 250
        self.networks = ((f"10.90.{part}.", f"fd00:90:{part:x}::"), (f"10.91.{part}.", f"fd00:91:{part:x}::"))
        self.switch = f"{self.tag}sw"

    def name(self, host):
        return f"{self.tag}h{host}"

    def ip(self, host, network=0):
        return f"{self.networks[network][0]}{host + 1}"

    def ip6(self, host, network=0):
        return f"{self.networks[network][1]}{host + 1:x}"

    def inside(self, host):
        """Words in front of a command that is to run on that host."""
        return ["ip", "netns", "exec", self.name(host)]

    def __enter__(self):
        clear_leftovers()
        run("ip", "netns", "add", self.switch)
        for network in range(2):
            run("ip", "-n", self.switch, "link", "add", f"br{network}", "type", "bridge")
            run("ip", "-n", self.switch, "link", "set", f"br{network}", "up")
        for host in range(self.count):
            run("ip", "netns", "add", self.name(host))
            run("ip", "-n", self.name(host), "link", "set", "lo", "up")
            for network in range(2):
                self.plug(host, network)
        for network in range(2):
            self.plug(None, network)
        return self

    def __exit__(self, *_):
        for network in range(2):
            run("ip", "link", "del", f"{self.tag}t{network}", check=False)
        for host in range(self.count):
            run("ip", "netns", "del", self.name(host), check=False)
        run("ip", "netns", "del", self.switch, check=False)

    def plug(self, host, network):
        """A cable from the host (None: the test's own) to a switch."""
        near = f"eth{network}" if host is not None else f"{self.tag}t{network}"
        far = f"p{host if host is not None else 't'}n{network}"
        at = ["-n", self.name(host)] if host is not None else []
        run("ip", *at, "link", "add", near, "type", "veth", "peer", "name", far, "netns", self.switch)
        run("ip", "-n", self.switch, "link", "set", far, "master", f"br{network}", "up")
        number = host if host is not None else TEST_HOST - 1
        run("ip", *at, "addr", "add", f"{self.ip(number, network)}/24", "dev", near)
        run("ip", *at, "-6", "addr", "add", f"{self.ip6(number, network)}/64", "dev", near, "nodad")
        run("ip", *at, "link", "set", near, "up")

    def rate(self, host, gbit, network=0):
        """Limits what the host sends and receives. The burst holds one 64 KiB segment of the kernel."""
        near, near_dev, far, far_dev = self.ends(host, network)
        for at, dev in ((near, near_dev), (far, far_dev)):
            run("tc", *at, "qdisc", "replace", "dev", dev, "root", "tbf", "rate", f"{gbit}gbit", "burst", "80kb", "latency", "20ms")

    def cut(self, host, network=0):
        """The cable is out: the host sees no carrier."""
        run("ip", "-n", self.switch, "link", "set", f"p{host}n{network}", "down")

    def mend(self, host, network=0):
        run("ip", "-n", self.switch, "link", "set", f"p{host}n{network}", "up")

    def block(self, host, port):
        """Packets from and to that TCP port vanish at the host, of either side of a connection; all else passes."""
        for chain in "INPUT", "OUTPUT":
            for end in "--sport", "--dport":
                run(*self.inside(host), "iptables", "-I", chain, "-p", "tcp", end, port, "-j", "DROP")

    def unblock(self, host):
        run(*self.inside(host), "iptables", "-F")

    def ends(self, host, network):
        """Both ends of its cable: what it sends, what it gets."""
        return ["-n", self.name(host)], f"eth{network}", ["-n", self.switch], f"p{host}n{network}"

    def black_hole(self, host, network=0):
        """Nothing passes in either direction, and nobody is told: the queues hold no packet."""
        near, near_dev, far, far_dev = self.ends(host, network)
        for at, dev in ((near, near_dev), (far, far_dev)):
            run("tc", *at, "qdisc", "replace", "dev", dev, "root", "tbf", "rate", "8bit", "burst", "1", "limit", "1")

    def light(self, host, network=0):
        """Undoes black_hole, and rate."""
        near, near_dev, far, far_dev = self.ends(host, network)
        for at, dev in ((near, near_dev), (far, far_dev)):
            run("tc", *at, "qdisc", "del", "dev", dev, "root")
