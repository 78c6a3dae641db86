#!/usr/bin/env python3
"""Make tests/fuzz/corpus/gguf: small GGUF files, good ones and ones that are wrong in one place.

usage: make_gguf_corpus.py [--out tests/fuzz/corpus/gguf]
"""
import argparse, pathlib, struct

SIZES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
text = lambda s: struct.pack("<Q", len(s.encode())) + s.encode()


def value(kind, v):
    """A metadata value: a scalar, a string (8) or an array ((9, element kind))."""
    if isinstance(kind, tuple):
        return struct.pack("<IQ", kind[1], len(v)) + b"".join(value(kind[1], x) for x in v)
    return text(v) if kind == 8 else struct.pack("<" + SIZES[kind], v)


def key(name, kind, v):
    return text(name) + struct.pack("<I", kind[0] if isinstance(kind, tuple) else kind) + value(kind, v)


def tensor(name, dims, kind, offset):
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def gguf(keys, tensors, data=b"", version=3, n_keys=None, n_tensors=None, align=32, magic=b"GGUF"):
    head = magic + struct.pack("<IQQ", version, len(tensors) if n_tensors is None else n_tensors, len(keys) if n_keys is None else n_keys)
    head += b"".join(keys) + b"".join(tensors)
    return head + bytes(-len(head) % align) + data


MODEL = [key("general.architecture", 8, "llama"), key("llama.block_count", 4, 1), key("llama.rope.freq_base", 6, 1e4)]
BPE = [key("tokenizer.ggml.model", 8, "gpt2"), key("tokenizer.ggml.pre", 8, "smollm"),
       key("tokenizer.ggml.tokens", (9, 8), ["<end>", "a", "b", "ab"]), key("tokenizer.ggml.merges", (9, 8), ["a b"]),
       key("tokenizer.ggml.token_type", (9, 5), [3, 1, 1, 1]), key("tokenizer.ggml.eos_token_id", 4, 0),
       key("tokenizer.ggml.eos_token_ids", (9, 4), [0, 3]), key("tokenizer.ggml.add_bos_token", 7, False)]
SPM = [key("tokenizer.ggml.model", 8, "llama"), key("tokenizer.ggml.tokens", (9, 8), ["<unk>", "\u2581a"]),
       key("tokenizer.ggml.scores", (9, 6), [0.0, -1.5])]
WEIGHTS = [tensor("token_embd.weight", [4, 4], 0, 0), tensor("blk.0.attn_q.weight", [32, 2], 2, 64),
           tensor("blk.0.ffn_down.weight", [256, 1], 12, 128)]
DATA = bytes(range(256)) * 2
EVERY = [key(f"k{kind}", kind, 1) for kind in SIZES] + [key(f"a{kind}", (9, kind), [1, 0, 1]) for kind in SIZES]

FILES = {
    "keys": gguf(MODEL, []), "bpe": gguf(MODEL + BPE, []), "spm": gguf(MODEL + SPM, []), "every_type": gguf(EVERY, []),
    "weights": gguf(MODEL, WEIGHTS, DATA), "whole": gguf(MODEL + BPE + [key("tokenizer.chat_template", 8, "{{ x }}")], WEIGHTS, DATA),
    "version2": gguf(MODEL, WEIGHTS, DATA, version=2), "align64": gguf([key("general.alignment", 4, 64), *MODEL], WEIGHTS[:1], DATA, align=64),
    "split": gguf([key("split.no", 2, 0), key("split.count", 2, 3), key("split.tensors.count", 5, 3), *MODEL], WEIGHTS, DATA),
    "cut_data": gguf(MODEL, WEIGHTS, DATA[:200]), "cut_header": gguf(MODEL, WEIGHTS, DATA)[:120], "no_align": gguf([key("general.alignment", 4, 0)], []),
    "many_keys": gguf(MODEL, [], n_keys=2**64 - 1), "many_tensors": gguf(MODEL, [], n_tensors=2**40),
    "big_dims": gguf([], [tensor("x", [2**32, 2**32], 0, 0)], DATA), "zero_dim": gguf([], [tensor("x", [0, 4], 0, 0)], DATA),
    "wrap": gguf([], [tensor("x", [2**62], 0, 0)], DATA), "far": gguf([], [tensor("x", [4], 0, 2**64 - 32)], DATA),
    "overlap": gguf([], [tensor("x", [16], 0, 0), tensor("y", [16], 0, 32)], DATA), "type39": gguf([], [tensor("x", [32], 39, 0)], DATA),
    "five_dims": gguf([], [tensor("x", [1] * 5, 0, 0)], DATA), "twice": gguf([key("k", 4, 1)] * 2, []),
    "nested": gguf([text("k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 50 + struct.pack("<IQ", 0, 0)], []),
    "long_array": gguf([text("k") + struct.pack("<IIQ", 9, 8, 2**60)], []), "long_key": gguf([struct.pack("<Q", 2**63) + b"key"], [], n_keys=1),
    "bad_scores": gguf(SPM[:2] + [key("tokenizer.ggml.scores", (9, 6), [float("nan"), 0])], []),
    "big_endian": b"GGUF\0\0\0\x03" + bytes(40), "old": b"tjgg" + bytes(40), "html": b"<!DOCTYPE html><html>", "empty": b"",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "corpus/gguf")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for name, data in FILES.items():
        (out / name).write_bytes(data)


if __name__ == "__main__":
    main()
