"""Starting, stopping, ports, keys, health, metrics, bad model files."""
import contextlib
import ctypes
import http.client
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

from harness import BINARY, CHAT, NO_END, PATIENCE, SMOLLM2, Server
from tiny_models import U32, chain_model

EMOJI = b"?AB\xf0\x9f\x98\x80 Z"


class WithFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def model(self, name="model.gguf", **more):
        return chain_model(self.folder / name, EMOJI, **more)

    def run_to_end(self, *args, within_s=10, env=None):
        done = subprocess.run([BINARY, *map(str, args)], capture_output=True, text=True, timeout=within_s * PATIENCE, env={**os.environ, **(env or {})})
        return done.returncode, done.stdout + done.stderr


class StartAndStop(WithFolder):
    def test_second_server_on_a_port_ends_at_once_and_says_so(self):
        with Server(self.model()) as first:
            start = time.monotonic()
            code, output = self.run_to_end("serve", self.model("b.gguf"), "--host", "127.0.0.1", "--port", first.port)
            self.assertEqual(code, 1)
            self.assertIn(str(first.port), output)
            self.assertLess(time.monotonic() - start, 2)
            self.assertEqual(first.get("/health").status, 200)

    def test_bad_flags_end_with_usage(self):
        for args, says in ((("--port", "70000"), "70000"), (("--port", "abc"), "abc"), (("--no-such-flag",), "no-such-flag")):
            code, output = self.run_to_end("serve", self.model(), *args)
            self.assertEqual((code, says in output), (2, True), output)

    def test_drain_finishes_running_requests_and_refuses_new_ones(self):
        server = Server(SMOLLM2)
        replies = []
        stream = threading.Thread(target=lambda: replies.append(server.chat("Count.", stream=True, max_tokens=200, logit_bias=NO_END)))
        stream.start()
        while server.metric("staffel_num_requests_running") == 0:
            time.sleep(.005)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(.05)
        self.assertEqual(server.chat("hi").status, 503)
        stream.join()
        self.assertEqual(replies[0].finish(), "length")
        self.assertEqual(server.process.wait(10), 0)

    def test_second_signal_stops_at_once(self):
        server = Server(SMOLLM2)
        s = server.begin(CHAT, {"messages": [{"role": "user", "content": "x"}], "stream": True, "max_tokens": 4000, "logit_bias": NO_END})
        s.recv(100)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(.1)
        start = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(10)
        self.assertLess(time.monotonic() - start, 2)
        s.close()

    def test_not_ready_before_a_chat_is_answered(self):
        server = Server(SMOLLM2, wait=False)
        try:
            seen = set()
            while True:
                try:
                    chat, health = server.chat("hi", max_tokens=1).status, server.get("/health").status
                except OSError:
                    continue
                seen.add(chat)
                if health == 200:
                    self.assertEqual(server.chat("hi", max_tokens=1).status, 200)
                    break
            self.assertLessEqual(seen, {200, 503})
        finally:
            server.stop()

    def test_workers_that_cannot_be_started_end_the_server_in_order(self):
        binary = self.folder / "staffel"
        shutil.copy(BINARY, binary)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        process = subprocess.Popen([binary, "serve", SMOLLM2, "--tp", "2", "--host", "127.0.0.1", "--port", str(port)],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        binary.chmod(0)   # it runs, but cannot be run again
        while process.poll() is None:   # its end must not be disturbed by who asks
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
                connection.request("GET", "/v1/cluster")
                connection.getresponse().read()
        output = process.stdout.read()
        process.stdout.close()
        self.assertEqual(process.returncode, 1, output)
        self.assertIn("the workers cannot be started", output)

    def test_sd_notify_tells_ready_and_stopping(self):
        path = str(self.folder / "n.sock")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.bind(path)
            notify.settimeout(10)
            server = Server(self.model(), env={"NOTIFY_SOCKET": path})
            messages = notify.recv(4096).decode()
            while "READY=1" not in messages:
                messages += notify.recv(4096).decode()
            server.stop()
            while "STOPPING=1" not in messages:
                messages += notify.recv(4096).decode()


@contextlib.contextmanager
def frozen(pid, thread_name):
    """Holds one thread of a process, as a debugger does."""
    attach, detach, wait_all = 16, 17, 0x40000000   # ptrace(2), waitpid(2)
    tids = [int(t) for t in os.listdir(f"/proc/{pid}/task") if pathlib.Path(f"/proc/{pid}/task/{t}/comm").read_text().strip() == thread_name]
    libc = ctypes.CDLL(None, use_errno=True)
    if len(tids) != 1 or libc.ptrace(attach, tids[0], None, None) != 0:
        raise AssertionError(f"cannot hold thread '{thread_name}' of {pid}: {tids} {os.strerror(ctypes.get_errno())}")
    os.waitpid(tids[0], wait_all)
    try:
        yield
    finally:
        libc.ptrace(detach, tids[0], None, None)


class Stall(WithFolder):
    def test_a_worker_that_hangs_with_work_is_told_by_health_after_the_time_given(self):
        with Server(SMOLLM2, "--stall-timeout", "1") as server:
            stream = server.begin(CHAT, {"messages": [{"role": "user", "content": "x"}], "stream": True, "max_tokens": 4000, "logit_bias": NO_END})
            stream.recv(100)
            self.assertEqual(server.get("/health").status, 200)
            with frozen(server.process.pid, "worker"):
                begin = time.monotonic()
                while server.get("/health").status == 200:
                    self.assertLess(time.monotonic() - begin, 9, "the default is 10 s")
                    time.sleep(.05)
                self.assertIn("no step has ended", server.get("/health").error["message"])
            while server.get("/health").status != 200:   # it goes on, and so does the stream
                self.assertLess(time.monotonic() - begin, 20)
                time.sleep(.05)
            stream.close()


class Keys(WithFolder):
    def test_every_route_but_the_open_ones_needs_the_key(self):
        with Server(self.model(), "--api-key", "secret") as server:
            for path in (CHAT, "/v1/completions", "/v1/models", "/tokenize", "/nothing", "//v1/chat/completions", "/V1/models"):
                for method in ("GET", "POST"):
                    self.assertEqual(server.request(method, path).status, 401, path)
            for path in ("/health", "/live", "/metrics"):
                self.assertEqual(server.get(path).status, 200)
            for value in ("Bearer secre", "Bearer secret2", "Bearer", "Basic secret", ""):
                self.assertEqual(server.get("/v1/models", headers={"Authorization": value}).status, 401, value)
            self.assertEqual(server.get("/v1/models", headers={"Authorization": "Bearer secret"}).status, 200)


class Metrics(WithFolder):
    def test_text_format(self):
        with Server(self.model(), "--served-model-name", 'a"b\\c') as server:
            server.chat("hello?")
            reply = server.get("/metrics")
            self.assertIn("version=0.0.4", reply.headers["content-type"])
            text = reply.body.decode()
            self.assertTrue(text.endswith("\n"))
            self.assertIn('a\\"b\\\\c', text)
            sample = re.compile(r'[a-zA-Z_:][\w:]*(\{([a-zA-Z_]\w*="([^"\\\n]|\\[\\"n])*",?)*\})? \S+')
            for line in text.splitlines():
                self.assertTrue(line.startswith("#") or sample.fullmatch(line), line)


class BadFiles(WithFolder):
    def refused(self, path, *names):
        start = time.monotonic()
        code, output = self.run_to_end("serve", path, "--port", 0)
        self.assertEqual(code, 1, output)
        self.assertTrue(any(n.lower() in output.lower() for n in names), output)
        self.assertLess(time.monotonic() - start, 5)
        self.assertLess(len(output.strip().splitlines()), 8, output)

    def test_files_that_are_no_models(self):
        (self.folder / "page.gguf").write_text("<html>404</html>")
        (self.folder / "empty.gguf").write_bytes(b"")
        (self.folder / "lfs.gguf").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
        self.refused(self.folder / "missing.gguf", "missing.gguf")
        self.refused(self.folder / "page.gguf", "HTML")
        self.refused(self.folder / "empty.gguf", "empty")
        self.refused(self.folder / "lfs.gguf", "lfs")
        self.refused(self.folder, "folder", "directory")

    def test_truncated_and_inconsistent_models(self):
        whole = pathlib.Path(self.model()).read_bytes()
        (self.folder / "cut.gguf").write_bytes(whole[:len(whole) // 2])
        self.refused(self.folder / "cut.gguf", "token_embd", "output", "blk.0", "truncated", "end")
        for key in ("attention.head_count", "attention.head_count_kv", "embedding_length", "block_count", "context_length"):
            self.refused(self.model("zero.gguf", changes={f"llama.{key}": (U32, 0)}), key)
        self.refused(self.model("deep.gguf", changes={"llama.block_count": (U32, 2**32 - 1)}), "block_count", "blk.")
        self.refused(self.model("arch.gguf", changes={"general.architecture": (8, "mamba")}), "mamba")
        self.refused(self.model("pre.gguf", changes={"tokenizer.ggml.pre": (8, "nonsense")}), "nonsense")
        self.refused(self.model("dim.gguf", tensor=lambda n, d, b: ([0, *d[1:]], b"") if n == "blk.0.attn_q.weight" else (d, b)),
                     "blk.0.attn_q.weight")

    def test_a_pool_that_does_not_fit_into_memory_is_refused_with_numbers(self):
        self.refused_pool = self.run_to_end("serve", self.model(), "--port", 0, "--kv-blocks", 2**31 - 1)
        self.assertIn(self.refused_pool[0], (1, 2))
        self.assertRegex(self.refused_pool[1], r"\d")


if __name__ == "__main__":
    unittest.main()
