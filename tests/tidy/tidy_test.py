#!/usr/bin/env python3
"""Rules of the tree that a compiler does not check. Run by ctest; prints every offence with its place.

- includes follow layers.txt; test code may include anything
- no file is too long, no test is disabled, no marker of unfinished work stays
- no path of one machine, no registry host
- every folder of src and kernels is in docs/architecture.md
"""
import pathlib, re, subprocess, sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINES_MAX = 600
CASE_LINES_MAX = 900   # of Python files that are lists of test cases
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
MACHINE = re.compile(r"(?<![\w.])/(?:work|farm|root|home/\w+)/|files\.python" r"hosted\.org|py" r"pi\.org|deb\.deb" r"ian\.org")
DISABLED = re.compile(r"DISAB" r"LED_|GTEST_SK" r"IP|@unittest\.sk" r"ip|pytest\.mark\.sk" r"ip")

offences = []


def offend(path, line, what):
    offences.append(f"{path}:{line}: {what}" if line else f"{path}: {what}")


def tracked_files():
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode == 0:
        return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]
    return [p for p in ROOT.rglob("*") if p.is_file() and "build" not in p.relative_to(ROOT).parts]


def read_layers():
    layers = {}
    for line in (ROOT / "tests/tidy/layers.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            folder, _, allowed = line.partition(":")
            layers[folder] = allowed.split()
    return layers


def folder_of(name, layers):
    """The most specific folder of the table that a path lies in, or None."""
    found = [f for f in layers if name.startswith(f + "/")]
    return max(found, key=len, default=None)


def check_includes(path, name, lines, layers):
    mine = folder_of(name, layers)
    if mine is None:
        return
    for number, line in enumerate(lines, 1):
        included = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if not included:
            continue
        target = included[1]
        for root in ("include/", "src/", ""):
            if (ROOT / (root + target)).is_file():
                target = root + target
                break
        else:
            continue
        theirs = folder_of(target, layers)
        if theirs not in (None, mine, *layers[mine]):
            offend(name, number, f"{mine} may not include {theirs} ({included[1]})")


def main():
    layers = read_layers()
    architecture = (ROOT / "docs/architecture.md").read_text()
    for folder in layers:
        if (ROOT / folder).is_dir() and folder.removeprefix("src/") not in architecture:
            offend("docs/architecture.md", 0, f"does not mention {folder}")
    for path in tracked_files():
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(("tests/data/", "tests/fuzz/corpus/")) or path.suffix in (".png", ".bin", ".gguf") or name == "LICENSE":
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        lines = text.splitlines()
        code = path.suffix in (".cc", ".h", ".cu", ".cuh", ".inc", ".py")
        lines_max = CASE_LINES_MAX if name.startswith("tests/") and path.suffix == ".py" else LINES_MAX
        if code and len(lines) > lines_max:
            offend(name, 0, f"{len(lines)} lines; split it (at most {lines_max})")
        for number, line in enumerate(lines, 1):
            if name != "tests/tidy/tidy_test.py":
                if MACHINE.search(line):
                    offend(name, number, f"path of one machine or host of a registry: {line.strip()[:80]}")
                if code and UNFINISHED.search(line):
                    offend(name, number, f"unfinished work: {line.strip()[:80]}")
                if code and DISABLED.search(line):
                    offend(name, number, f"a test that does not run: {line.strip()[:80]}")
        if code:
            check_includes(path, name, lines, layers)
    for offence in offences:
        print(offence)
    print(f"{len(offences)} offences")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
