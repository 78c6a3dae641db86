#!/usr/bin/env python3
"""Measure servers side by side: one at a time, interleaved over rounds, and print medians and the ratio of the first to each other one.

usage: compare_servers.py [--rounds N] [--workloads W,...] [--markdown] NAME=PORT=COMMAND...

COMMAND is run by sh and must answer /health or /v1/models on PORT. Only ratios of one run are figures: a shared machine is noisy. Example:

  compare_servers.py --rounds 5 \\
    "staffel=8001=build/staffel serve MODEL --port 8001 --threads 2" \\
    "llama-server=8002=llama-server -m MODEL --port 8002 -t 2 -c 32768 -np 32 --no-webui"
"""
import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import load


def answers(port):
    for path in ("/health", "/v1/models"):
        try:
            if urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=2).status == 200:
                return True
        except OSError:
            pass
    return False


def resident_mib(group):
    total = 0
    pids = subprocess.run(["pgrep", "-g", str(group)], capture_output=True, text=True).stdout.split()
    for pid in pids:
        try:
            with open(f"/proc/{pid}/status") as status:
                total += sum(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
        except OSError:
            pass
    return total / 1024


def run_server(command, port, workloads, seed):
    """Starts the server, measures, stops it: [(workload, figure, value)]."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, shell=True, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            start = time.time()
            while not answers(port):
                if process.poll() is not None or time.time() - start > 300:
                    log.seek(0)
                    raise RuntimeError(f"did not start: {log.read()[-300:].decode(errors='replace')}")
                time.sleep(.02)
            rows = [("start", "ready_s", time.time() - start)]
            url = f"http://127.0.0.1:{port}"
            for result in load.measure(url, load.served_model(url), workloads, seed):
                rows += [(result["workload"], k, v) for k, v in result.items() if k not in ("workload", "wall_s")]
            return rows + [("start", "rss_mib", resident_mib(process.pid))]
        finally:
            for sig in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(process.pid, sig)
                    process.wait(20)
                    break
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workloads", default="single,prefill,c8,c32,prefix")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("servers", nargs="+", metavar="NAME=PORT=COMMAND")
    args = parser.parse_args()
    servers = [s.split("=", 2) for s in args.servers]
    data = {}   # (workload, figure) -> name -> values
    for round_number in range(args.rounds):
        for name, port, command in servers:
            print(f"round {round_number + 1} of {args.rounds}: {name}", file=sys.stderr, flush=True)
            try:
                for workload, figure, value in run_server(command, int(port), args.workloads.split(","), 1000 + round_number):
                    data.setdefault((workload, figure), {}).setdefault(name, []).append(value)
            except RuntimeError as error:
                print(f"{name}: {error}", file=sys.stderr)
    names = [name for name, _, _ in servers]
    if args.markdown:
        print(f"| workload | figure | {' | '.join(names)} | {' | '.join(f'{names[0]} / {n}' for n in names[1:])} |")
        print("|---" * (2 + len(names) + len(names[1:])) + "|")
    for (workload, figure), by_name in data.items():
        medians = {n: statistics.median(v) for n, v in by_name.items()}
        if names[0] not in medians:
            continue
        ratios = {n: medians[names[0]] / m if m else float("nan") for n, m in medians.items()}
        if args.markdown:
            cells = [f"{medians[n]:.2f}" if n in medians else "–" for n in names]
            cells += [f"{ratios[n]:.2f} ×" if n in ratios else "–" for n in names[1:]]
            print(f"| {workload} | {figure} | {' | '.join(cells)} |")
        else:
            print(f"{workload:9s} {figure:14s} " + "  ".join(
                f"{n} {m:.2f}" + (f" (x{ratios[n]:.2f})" if n != names[0] else "") for n, m in medians.items()))


if __name__ == "__main__":
    main()
