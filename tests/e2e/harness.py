"""Starts the real binary and talks to it. Standard library only; every test file of this folder builds on it."""
import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("SERVER_BINARY", str(ROOT / "build/staffel"))
MODELS = pathlib.Path(os.environ.get("STAFFEL_MODELS") or pathlib.Path.home() / ".cache/staffel/models")
SMOLLM2 = MODELS / "SmolLM2-135M-Instruct.Q4_1.gguf"
PATIENCE = float(os.environ.get("TEST_PATIENCE", "1"))   # factor of all waits that only guard against hangs, for slow builds
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
NO_END = {"0": -100, "2": -100}   # logit_bias that never ends an answer (SmolLM2 and chain models)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]

    @property
    def chunks(self):
        return parse_sse(self.body)

    def text(self, index=0):
        """The text of a choice, whole or streamed, of either route."""
        if self.status != 200:
            raise AssertionError(f"status {self.status}: {self.body[:300]!r}")
        if not self.headers.get("content-type", "").startswith("text/event-stream"):
            choice = next(c for c in self.json["choices"] if c["index"] == index)
            return choice["message"]["content"] if "message" in choice else choice["text"]
        return "".join((c["delta"].get("content") or "") if "delta" in c else c["text"]
                       for chunk in self.chunks for c in chunk["choices"] if c["index"] == index)

    def finish(self, index=0):
        chunks = self.chunks if self.headers.get("content-type", "").startswith("text/event-stream") else [self.json]
        return [c["finish_reason"] for chunk in chunks for c in chunk["choices"] if c["index"] == index][-1]

    @property
    def usage(self):
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            return [c["usage"] for c in self.chunks if c.get("usage")][-1]
        return self.json["usage"]


def parse_sse(raw):
    """Strict: only data lines and comments, valid UTF-8 and JSON, [DONE] last."""
    text = raw.decode("utf-8")
    assert text.endswith("\n\n"), f"the last event is not closed: {text[-60:]!r}"
    chunks, done = [], False
    for event in text[:-2].split("\n\n"):
        for line in event.split("\n"):
            if line.startswith(":"):
                continue
            assert not done, f"data after [DONE]: {line[:80]!r}"
            assert line.startswith("data: "), f"not an SSE line: {line[:80]!r}"
            if line == "data: [DONE]":
                done = True
            else:
                chunks.append(json.loads(line[6:]))
    assert done, "no [DONE]"
    return chunks


class Server:
    """`staffel serve` in a process of its own. Use as a context manager."""

    def __init__(self, model, *options, env=None, wait=True):
        self.port = free_port()
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen([BINARY, "serve", str(model), "--host", "127.0.0.1", "--port", str(self.port), *map(str, options)],
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT, env={**os.environ, **(env or {})})
        if wait:
            self.wait_ready()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def output(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def wait_ready(self, within_s=60):
        end = time.monotonic() + within_s * PATIENCE
        while time.monotonic() < end:
            if self.process.poll() is not None:
                output = self.output()
                self.stop()
                raise AssertionError(f"the server ended with {self.process.returncode}: {output[-500:]}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.get("/health").status == 200:
                    return
            time.sleep(.01)
        raise AssertionError(f"not ready after {within_s} s: {self.output()[-500:]}")

    def stop(self, within_s=20):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(within_s * PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()
        return self.process.returncode

    def request(self, method, path, body=None, headers=None, timeout_s=60):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s * PATIENCE)
        try:
            data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
            connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
            reply = connection.getresponse()
            return Reply(reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read())
        finally:
            connection.close()

    def get(self, path, **more):
        return self.request("GET", path, **more)

    def chat(self, content, timeout_s=60, **fields):
        messages = [{"role": "user", "content": content}] if isinstance(content, str) else content
        return self.request("POST", CHAT, {"messages": messages, "temperature": 0, "max_tokens": 16, **fields}, timeout_s=timeout_s)

    def complete(self, prompt, timeout_s=60, **fields):
        return self.request("POST", COMPLETIONS, {"prompt": prompt, "temperature": 0, "max_tokens": 16, **fields}, timeout_s=timeout_s)

    def begin(self, path, body):
        """Sends a request and returns the open socket; the reply is not read."""
        data = json.dumps(body).encode()
        s = socket.create_connection(("127.0.0.1", self.port), timeout=60 * PATIENCE)
        s.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        return s

    def metric(self, name):
        """Sum over a metric's series."""
        values = re.findall(rf"^{re.escape(name)}(?:\{{.*\}})? (\S+)$", self.get("/metrics").body.decode(), re.M)
        assert values, f"/metrics has no {name}"
        return sum(map(float, values))

    def wait_idle(self, within_s=5):
        """Nothing runs, waits or holds KV."""
        names = ("staffel_num_requests_running", "staffel_num_requests_waiting", "staffel_kv_cache_usage_ratio")
        end = time.monotonic() + within_s * PATIENCE
        while any(left := {n: self.metric(n) for n in names}.values()):
            assert time.monotonic() < end, f"not idle after {within_s} s: {left}"
            time.sleep(.02)


def at_once(jobs):
    """Runs functions at the same time: their results, or their exceptions."""
    out = [None] * len(jobs)

    def run(i):
        try:
            out[i] = jobs[i]()
        except Exception as e:   # handed to the caller, who compares
            out[i] = e

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(jobs))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return out


class ServerTest(unittest.TestCase):
    """Tests that share one server; `model` and `options` are class attributes."""
    model, options = SMOLLM2, ()

    @classmethod
    def setUpClass(cls):
        if callable(model := cls.__dict__.get("make_model")) or hasattr(cls, "make_model"):
            cls.folder = tempfile.TemporaryDirectory()
            cls.model = cls.make_model(pathlib.Path(cls.folder.name) / "model.gguf")
        elif not pathlib.Path(cls.model).exists():
            raise AssertionError(f"{cls.model} is missing; run scripts/fetch_model.py")
        cls.server = Server(cls.model, *cls.options)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        if hasattr(cls, "folder"):
            cls.folder.cleanup()

    def assert_refused(self, reply, status, param=None):
        self.assertEqual(reply.status, status, reply.body[:300])
        self.assertTrue(reply.headers["content-type"].startswith("application/json"))
        error = reply.error
        self.assertTrue(error["message"] and error["type"])
        self.assertIn("code", error)
        if param is not None:
            self.assertTrue((error["param"] or "").startswith(param), error)
