"""README's "Two machines", as it stands there: its commands, in its order, on two hosts that are network namespaces."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest

from cluster import Process
from harness import BINARY, PATIENCE, ROOT, SMOLLM2
from netns import Hosts

README = (ROOT / "README.md").read_text()


def section(title):
    return README.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def blocks(text):
    """Commands of each fenced block; a line that ends in a backslash goes on."""
    return [re.sub(r"\\\n\s*", " ", block).strip().split("\n") for block in re.findall(r"```\w*\n(.*?)```", text, re.S)]


class TwoMachines(unittest.TestCase):
    def test_the_commands_of_the_readme_serve(self):
        first, second = blocks(section("Two machines"))
        (ask,) = next(block for block in blocks(README) if block[0].startswith("curl "))
        with contextlib.ExitStack() as running:
            hosts = running.enter_context(Hosts(2))
            folders = [self.machine(hosts, host) for host in range(2)]
            os.symlink(SMOLLM2, folders[0] / "MODEL.gguf")
            processes = [self.start(running, hosts, host, folders[host], line)
                         for host, lines in enumerate((first, second)) for line in lines]
            servers = [process for process in processes if process.running()]
            self.assertEqual(len(servers), 3, "a master and two workers")
            status = self.wait_for_both(hosts, servers)
            there = {rank["host"]: rank for rank in status["pools"][0]["replicas"][0]["ranks"]}
            fetched = sorted(rank["bytes_fetched"] for rank in status["pools"][0]["replicas"][0]["ranks"])
            self.assertEqual(fetched[0], 0, there)
            self.assertGreater(fetched[1], 0, "the second machine has no file")
            self.assertGreater(len(self.answer(hosts, ask)), 20)
            # As it stands it draws at random, and a small model says anything then.
            greedy = self.answer(hosts, ask.replace('"stream":true', '"stream":true,"temperature":0'))
            self.assertIn("gravity", greedy.lower())

    def answer(self, hosts, command):
        """The text of its stream."""
        done = subprocess.run([*hosts.inside(0), "bash", "-c", command], capture_output=True, text=True, timeout=120 * PATIENCE)
        events = [line[6:] for line in done.stdout.split("\n") if line.startswith("data: ")]
        self.assertEqual(events[-1:], ["[DONE]"], done.stdout + done.stderr)
        return "".join(choice["delta"].get("content") or "" for event in events[:-1] for choice in json.loads(event)["choices"])

    def machine(self, hosts, host):
        """A folder with the program, a cache of its own, and the name by which the text calls the first machine."""
        folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        (folder / "build").mkdir()
        os.symlink(pathlib.Path(BINARY).resolve(), folder / "build/staffel")
        names = pathlib.Path("/etc/netns") / hosts.name(host)
        names.mkdir(parents=True)
        self.addCleanup(shutil.rmtree, names)
        (names / "hosts").write_text(f"127.0.0.1 localhost\n{hosts.ip(0)} FIRST\n")
        return folder

    def start(self, running, hosts, host, folder, line):
        """In a terminal of its own: servers go on, other commands end before the next one."""
        server = line.startswith("build/")
        process = Process([*hosts.inside(host), "bash", "-c", f'cd "{folder}" && {"exec " if server else ""}{line}'],
                          env={"XDG_CACHE_HOME": str(folder / "cache")})
        running.callback(process.stop)
        if not server:
            self.assertEqual(process.wait(), 0, process.output())
        return process

    def wait_for_both(self, hosts, servers, within_s=60):
        end = time.monotonic() + within_s * PATIENCE
        while True:
            answer = subprocess.run([*hosts.inside(0), "curl", "-s", "http://localhost:8000/v1/cluster"], capture_output=True, text=True)
            status = json.loads(answer.stdout) if answer.returncode == 0 and answer.stdout.startswith("{") else {}
            replica = status["pools"][0]["replicas"][0] if status.get("pools") else {}
            if replica.get("state") == "serving" and len(replica["ranks"]) == 2:
                return status
            self.assertLess(time.monotonic(), end, "\n".join(server.output()[-1500:] for server in servers))
            time.sleep(.1)


class OneMachine(unittest.TestCase):
    def test_the_command_for_two_local_workers_serves(self):
        (line,) = re.findall(r"`(build/staffel serve [^`]*--tp 2)`", section("Two machines"))
        with Hosts(1) as hosts, tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as running:
            os.mkdir(f"{folder}/build")
            os.symlink(pathlib.Path(BINARY).resolve(), f"{folder}/build/staffel")
            os.symlink(SMOLLM2, f"{folder}/MODEL.gguf")
            process = Process([*hosts.inside(0), "bash", "-c", f'cd "{folder}" && exec {line}'])
            running.callback(process.stop)
            end = time.monotonic() + 60 * PATIENCE
            ask = [*hosts.inside(0), "curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "http://localhost:8000/health"]
            while subprocess.run(ask, capture_output=True, text=True).stdout != "200":
                self.assertLess(time.monotonic(), end, process.output()[-1500:])
                time.sleep(.1)


if __name__ == "__main__":
    unittest.main()
