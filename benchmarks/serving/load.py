#!/usr/bin/env python3
"""Load an OpenAI-compatible server and print one JSON line of figures a workload.

usage: load.py BASE_URL [--model NAME] [--workloads single,prefill,...] [--seed N]

Streams /v1/completions with temperature 0 and ignore_eos. Standard library only, raw sockets, one process: the client must stay cheap,
since it shares the machine with the server.
"""
import argparse
import json
import random
import selectors
import socket
import statistics
import time
import urllib.request
from urllib.parse import urlparse

WORDS = ("time year people way day man thing woman life child world school state family student group country problem hand part "
         "place case week company system program question work government number night point home water room mother area money "
         "story fact month lot right study book eye job word business issue side kind head house service friend father power hour "
         "game line end member law car city community name president team minute idea body information back parent face others "
         "level office door health person art war history party result change morning reason research girl guy moment air teacher "
         "force education").split()

# name: what it is. Prompts are words, about one token each.
WORKLOADS = {
    "single": "one stream, 24-word prompt, 128 tokens out, 3 requests in turn",
    "prefill": "one at a time, fresh 500-word prompt, 1 token out, 4 requests",
    "prefill2k": "one at a time, fresh 2,000-word prompt, 1 token out, 2 requests",
    "c8": "24 requests, 8 at once, 48 words in, 96 tokens out",
    "c16": "48 requests, 16 at once, 48 words in, 96 tokens out",
    "c32": "64 requests, 32 at once, 48 words in, 96 tokens out",
    "prefix": "24 requests that share 600 words, 4 at once, 16 tokens out",
}


def words(rng, n):
    return " ".join(rng.choice(WORDS) for _ in range(n))


class Stream:
    """One streamed completion: arrival times of its text chunks and its usage."""

    def __init__(self, address, model, prompt, max_tokens):
        body = json.dumps({"model": model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "stream": True,
                           "ignore_eos": True, "stream_options": {"include_usage": True}}).encode()
        self.start, self.times, self.usage, self.status, self.rest = time.perf_counter(), [], b"", None, b""
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: {address[0]}\r\nContent-Type: application/json\r\n"
                            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)

    def take(self):
        """Reads what has come; whether the answer is complete."""
        data, now = self.socket.recv(1 << 16), time.perf_counter()
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            if self.status is None:
                self.status = int(line.split()[1])
            if not line.startswith(b"data: "):
                continue
            if line.startswith(b"data: [DONE]"):
                return True
            if b'"usage":{' in line or b'"usage": {' in line:
                self.usage = line[6:]
                if b'"choices":[]' in line or b'"choices": []' in line:
                    continue
            self.times.append(now)
        return not data

    def result(self):
        self.socket.close()
        if self.status != 200 or not self.times:
            raise RuntimeError(f"status {self.status}, {len(self.times)} chunks")
        usage = (json.loads(self.usage).get("usage") if self.usage else None) or {}
        return {"start": self.start, "first": self.times[0], "last": self.times[-1],
                "out": usage.get("completion_tokens", len(self.times)), "prompt": usage.get("prompt_tokens", 0),
                "gaps": [b - a for a, b in zip(self.times, self.times[1:])]}


def run_jobs(address, model, jobs, concurrency):
    """Runs (prompt, max_tokens) jobs, some at once: (results, seconds)."""
    queue, results, start = list(jobs), [], time.perf_counter()
    with selectors.DefaultSelector() as selector:

        def begin():
            stream = Stream(address, model, *queue.pop(0))
            selector.register(stream.socket, selectors.EVENT_READ, stream)

        while queue and len(selector.get_map()) < concurrency:
            begin()
        while selector.get_map():
            for key, _ in selector.select():
                if not key.data.take():
                    continue
                selector.unregister(key.fileobj)
                results.append(key.data.result())
                if queue:
                    begin()
    return results, time.perf_counter() - start


def jobs_of(workload, rng):
    """(jobs, concurrency)."""
    if workload == "single":
        return [(words(rng, 24), 128) for _ in range(3)], 1
    if workload == "prefill":
        return [(words(rng, 500), 1) for _ in range(4)], 1
    if workload == "prefill2k":
        return [(words(rng, 2000), 1) for _ in range(2)], 1
    if workload == "c8":
        return [(words(rng, 48), 96) for _ in range(24)], 8
    if workload == "c16":
        return [(words(rng, 48), 96) for _ in range(48)], 16
    if workload == "c32":
        return [(words(rng, 48), 96) for _ in range(64)], 32
    if workload == "prefix":
        shared = words(rng, 600)
        return [(f"{shared}\n{words(rng, 16)}", 16) for _ in range(24)], 4
    raise SystemExit(f"no workload '{workload}'; there are {', '.join(WORKLOADS)}")


def figures(workload, results, seconds):
    gaps = sorted(g for r in results for g in r["gaps"]) or [0.0]
    ttft = [r["first"] - r["start"] for r in results]
    out = {"workload": workload, "wall_s": seconds, "out_tok_s": sum(r["out"] for r in results) / seconds,
           "ttft_ms": 1e3 * statistics.median(ttft), "itl_ms": 1e3 * statistics.median(gaps),
           "itl_p99_ms": 1e3 * gaps[int(len(gaps) * .99)]}
    if workload == "single":
        out["decode_tok_s"] = statistics.median((r["out"] - 1) / (r["last"] - r["first"]) for r in results)
    if workload.startswith("prefill"):
        out["prefill_tok_s"] = statistics.median(r["prompt"] / t for r, t in zip(results, ttft))
    return {k: round(v, 3) if isinstance(v, float) else v for k, v in out.items()}


def measure(base_url, model, workloads, seed):
    url = urlparse(base_url)
    address, rng = (url.hostname, url.port), random.Random(seed)
    run_jobs(address, model, [(words(rng, 20), 8)] * 2, 1)   # warm up
    out = []
    for workload in workloads:
        jobs, concurrency = jobs_of(workload, rng)
        out.append(figures(workload, *run_jobs(address, model, jobs, concurrency)))
    return out


def served_model(base_url):
    with urllib.request.urlopen(f"{base_url}/v1/models", timeout=10) as reply:
        return json.load(reply)["data"][0]["id"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--model")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args()
    model = args.model or served_model(args.url)
    for line in measure(args.url, model, args.workloads.split(","), args.seed):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
