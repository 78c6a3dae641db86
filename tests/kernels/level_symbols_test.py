#!/usr/bin/env python3
"""Object files of the instruction set levels define nothing that other code could share: every symbol lies in the
level's own namespace, but for the one table. An inline function compiled for AVX-512 might else be the copy that the
linker keeps for everybody.

    level_symbols_test.py NM OBJECT ...
"""
import pathlib, re, subprocess, sys


def main():
    nm, objects = sys.argv[1], [p for p in sys.argv[2:] if pathlib.Path(p).name.startswith("level_")]
    failures = 0 if len(objects) == 4 else 1
    print(f"{len(objects)} levels")
    for path in objects:
        level = re.match(r"level_(\w+)\.cc", pathlib.Path(path).name)[1]
        listed = subprocess.run([nm, "-C", "--defined-only", path], capture_output=True, text=True, check=True).stdout
        tables = 0
        for line in listed.splitlines():
            kind, name = re.match(r"\S*\s+(\S) (.*)", line).groups()
            if kind.islower() and kind not in "vwu":  # local to the file
                continue
            if re.fullmatch(r"staffel::kernels::k\w+Kernels", name):
                tables += 1
            elif f"staffel::kernels::{level}::" not in name and "asan" not in name and "ubsan" not in name:
                print(f"{path}: {kind} {name} is open to other code")
                failures += 1
        if tables != 1:
            print(f"{path}: {tables} tables")
            failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
