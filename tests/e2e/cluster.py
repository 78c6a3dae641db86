"""A master and its workers as processes of their own, on this host or in network namespaces."""
import collections
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

from harness import BINARY, PATIENCE, Server, free_port


class Process:
    """A command whose output is kept."""

    def __init__(self, command, env=None):
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=subprocess.STDOUT, env={**os.environ, **(env or {})})

    @property
    def pid(self):
        return self.process.pid

    def running(self):
        return self.process.poll() is None

    def output(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def send(self, sig):
        self.process.send_signal(sig)

    def wait(self, within_s=20):
        return self.process.wait(within_s * PATIENCE)

    def stop(self, within_s=20):
        if self.running():
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(within_s * PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        return self.process.returncode


class Master(Server):
    """`staffel master`; the HTTP side is that of a Server."""

    def __init__(self, arguments, prefix=(), http_host="127.0.0.1"):
        self.port = free_port()
        self.host = http_host
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen([*prefix, BINARY, "master", "--host", http_host, "--port", str(self.port), *map(str, arguments)],
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT)

    def wait_live(self, within_s=10):
        """It answers, whether it serves or not."""
        end = time.monotonic() + within_s * PATIENCE
        while True:
            with contextlib.suppress(OSError):
                if self.get("/v1/cluster").status == 200:
                    return
            assert self.process.poll() is None and time.monotonic() < end, self.output()[-1000:]
            time.sleep(.02)


class Cluster:
    """Use as a context manager. tp, pp, dp are the layout; threads each worker's; speeds those that workers say they have
    (measured ones, of many that start at once on few cores, would cut the model in another way each time)."""

    def __init__(self, model, tp=0, pp=0, dp=1, workers=None, threads=1, options=(), worker_options=(), speeds=None, start=True, wait=True):
        self.cluster_port = free_port()
        self.threads, self.worker_options = threads, worker_options
        arguments = [model, "--cluster-host", "127.0.0.1", "--cluster-port", self.cluster_port, "--dp", dp, *options]
        arguments += ["--tp", tp] if tp else []
        arguments += ["--pp", pp] if pp else []
        self.master = Master(arguments)
        self.workers = []
        self.count = workers if workers is not None else max(tp, 1) * max(pp, 1) * dp
        if start:
            try:
                for i in range(self.count):
                    self.add_worker("--speed", speeds[i] if speeds else 1)
                self.master.wait_ready() if wait else self.master.wait_live()
            except BaseException:
                self.stop()
                raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def command(self, name, *options):
        if "--speed" not in options:
            options = ("--speed", 1, *options)
        return [BINARY, "worker", "--master", f"127.0.0.1:{self.cluster_port}", "--name", name, "--threads", self.threads,
                *self.worker_options, *options]

    def add_worker(self, *options):
        self.workers.append(Process(self.command(f"w{len(self.workers)}", *options)))
        return self.workers[-1]

    def restart_worker(self, index, *options):
        """Again under its name; the old process must have ended."""
        self.workers[index].log.close()
        self.workers[index] = Process(self.command(f"w{index}", *options))

    def restart_master(self):
        """Killed, and again with the same arguments."""
        arguments = self.master.process.args
        self.master.process.kill()
        self.master.process.wait()
        self.master.process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=self.master.log, stderr=subprocess.STDOUT)
        self.master.wait_ready()

    def stop(self):
        for worker in self.workers:
            with contextlib.suppress(ProcessLookupError):
                worker.send(signal.SIGCONT)
        self.master.stop()
        for worker in self.workers:
            worker.stop()

    def status(self):
        return self.master.get("/v1/cluster").json

    def replica(self, pool=0, index=0):
        return self.status()["pools"][pool]["replicas"][index]

    def wait_for(self, condition, within_s=20, what="the cluster's state"):
        """Until condition(status) holds."""
        end = time.monotonic() + within_s * PATIENCE
        while not condition(status := self.status()):
            assert time.monotonic() < end, f"{what} not reached after {within_s} s: {status}\n{self.master.output()[-2000:]}"
            time.sleep(.02)
        return status

    def wait_whole(self, within_s=60):
        """All replicas serve, each in the layout that was asked for."""
        return self.wait_for(lambda status: all(replica["state"] == "serving" and not replica["degraded"]
                                                for pool in status["pools"] for replica in pool["replicas"]), within_s, "every replica")

    def wait_layout(self, tp, pp, within_s=20):
        """The first replica serves with that layout."""
        def right(status):
            replica = status["pools"][0]["replicas"][0]
            return (replica["state"], replica["tensor_parallel"], replica["pipeline_parallel"]) == ("serving", tp, pp)
        return self.wait_for(right, within_s, f"layout {tp} x {pp}")


def holdings(pid):
    """What a process has open, and its threads, counted by kind and name."""
    held = {"descriptors": collections.Counter(), "threads": collections.Counter()}
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            held["descriptors"][re.sub(r"\d+", "N", os.readlink(entry.path))] += 1
    for entry in os.scandir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError):
            held["threads"][pathlib.Path(entry.path, "comm").read_text().strip()] += 1
    return held


def resident_mb(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) / 1024
