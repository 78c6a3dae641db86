#!/usr/bin/env python3
"""Tokens a second of two workers on two hosts, over links of several rates and delays: tensor against pipeline parallel.

usage: networks.py MODEL [--binary build/staffel] [--rounds N] [--links RATE_GBIT:DELAY_MS,...] [--workloads W,...]

Hosts are network namespaces (root is needed). A link with a delay goes through link_relay, which takes part of a core; one without is
limited by the kernel. All layouts of a link are measured in turns, round by round; one process with two threads is the measure.
"""
import argparse
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tests/e2e")]
import harness  # noqa: E402
import load  # noqa: E402
from cluster import Process  # noqa: E402
from netns import Hosts  # noqa: E402

LAYOUTS = {"one process": (), "tp 2": ("--tp", 2), "pp 2": ("--pp", 2)}


def measure(port, address, workloads, seed):
    model = load.served_model(f"http://{address}:{port}")
    lines = load.measure(f"http://{address}:{port}", model, workloads, seed)
    return {line["workload"]: line.get("decode_tok_s", line["out_tok_s"]) for line in lines}


def wait_ready(address, port, processes):
    import urllib.error
    import urllib.request
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            if urllib.request.urlopen(f"http://{address}:{port}/health", timeout=2).status == 200:
                return
        except OSError:
            pass
        time.sleep(.05)
    raise SystemExit("not ready: " + "".join(p.output()[-500:] for p in processes))


def run(hosts, args, layout, master_address, seed):
    port, cluster_port = 8000, 7100
    options = LAYOUTS[layout]
    processes = []
    try:
        front = [*hosts.inside(0), args.binary]
        if options:
            processes.append(Process([*front, "master", args.model, "--host", "0.0.0.0", "--port", port, "--cluster-port", cluster_port, *options]))
            for host in range(2):
                processes.append(Process([*hosts.inside(host), args.binary, "worker", "--master", f"{master_address}:{cluster_port}",
                                          "--name", f"w{host}", "--threads", 1]))
        else:
            processes.append(Process([*front, "serve", args.model, "--host", "0.0.0.0", "--port", port, "--threads", 2]))
        wait_ready(hosts.ip(0), port, processes)
        return measure(port, hosts.ip(0), args.workloads.split(","), seed)
    finally:
        for process in reversed(processes):
            process.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--binary", default="build/staffel")
    parser.add_argument("--relay", default="build/benchmarks/serving/link_relay")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--links", default="1:0,10:0,25:0,10:0.05,10:0.25,10:1")
    parser.add_argument("--workloads", default="single,c8")
    args = parser.parse_args()
    print("| link | workload | " + " | ".join(LAYOUTS) + " |\n|---|---|" + "---|" * len(LAYOUTS))
    for link in args.links.split(","):
        gbit, delay_ms = map(float, link.split(":"))
        with Hosts(2) as hosts:
            relay = None
            address = hosts.ip(0)
            if delay_ms:
                address = "10.92.0.1"
                relay = Process([args.relay, hosts.name(0), "10.92.0.1/24", hosts.name(1), "10.92.0.2/24", delay_ms * 1000, gbit * 1000])
                time.sleep(.5)
            else:
                hosts.rate(1, gbit)
            figures = {}
            for round_number in range(args.rounds):
                for layout in LAYOUTS:
                    for workload, value in run(hosts, args, layout, address, round_number).items():
                        figures.setdefault((workload, layout), []).append(value)
            if relay:
                relay.stop()
            for workload in args.workloads.split(","):
                medians = [statistics.median(figures[workload, layout]) for layout in LAYOUTS]
                cells = [f"{m:.0f} tok/s" if i == 0 else f"{m / medians[0]:.2f} ×" for i, m in enumerate(medians)]
                print(f"| {gbit:g} Gbit/s, {delay_ms:g} ms | {workload} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
