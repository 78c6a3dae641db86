#!/usr/bin/env python3
"""Write a llama-shaped GGUF of Q4_0 random weights, for speed alone: metadata and tokenizer are another file's.

usage: make_model.py TOKENIZER_FROM.gguf OUT.gguf [--layers 16 --hidden 2048 --ffn 8192 --heads 32 --kv-heads 8 --context 8192]

The defaults have the shape of a model of 1.07 billion parameters (604 MB). Runs on the standard library and numpy.
"""
import argparse
import struct

import numpy

SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
F32, Q4_0, ALIGNMENT = 0, 2, 32


class Reader:
    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read(64 << 20)
        self.at = 0

    def scalar(self, form):
        value, = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def text(self):
        size = self.scalar("<Q")
        self.at += size
        return self.data[self.at - size:self.at]

    def skip(self, kind):
        if kind == 8:
            self.text()
        elif kind == 9:
            item, count = self.scalar("<I"), self.scalar("<Q")
            for _ in range(count):
                self.skip(item)
        else:
            self.scalar(SCALARS[kind])

    def entries(self):
        """(key, bytes of type and value) of all metadata."""
        magic, version, _, count = self.scalar("<I"), self.scalar("<I"), self.scalar("<Q"), self.scalar("<Q")
        assert magic == 0x46554747 and version in (2, 3), "not a GGUF file"
        for _ in range(count):
            key = self.text().decode()
            begin = self.at
            self.skip(self.scalar("<I"))
            yield key, self.data[begin:self.at]


def packed_text(text):
    return struct.pack("<Q", len(text)) + text.encode()


def tensors(args, vocab):
    """(name, dimensions innermost first, type)"""
    head = args.hidden // args.heads
    yield "token_embd.weight", (args.hidden, vocab), Q4_0
    for layer in range(args.layers):
        name = f"blk.{layer}."
        yield name + "attn_norm.weight", (args.hidden,), F32
        yield name + "attn_q.weight", (args.hidden, args.hidden), Q4_0
        yield name + "attn_k.weight", (args.hidden, args.kv_heads * head), Q4_0
        yield name + "attn_v.weight", (args.hidden, args.kv_heads * head), Q4_0
        yield name + "attn_output.weight", (args.hidden, args.hidden), Q4_0
        yield name + "ffn_norm.weight", (args.hidden,), F32
        yield name + "ffn_gate.weight", (args.hidden, args.ffn), Q4_0
        yield name + "ffn_up.weight", (args.hidden, args.ffn), Q4_0
        yield name + "ffn_down.weight", (args.ffn, args.hidden), Q4_0
    yield "output_norm.weight", (args.hidden,), F32


def content(rng, dimensions, kind):
    count = int(numpy.prod(dimensions))
    if kind == F32:
        return numpy.ones(count, numpy.float32).tobytes()
    blocks = rng.integers(0, 256, (count // 32, 18), numpy.uint8)
    scale = numpy.float16(1 / (4.6 * dimensions[0] ** .5))   # rows of about unit length
    blocks[:, :2] = numpy.frombuffer(scale.tobytes(), numpy.uint8)
    return blocks.tobytes()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer_from")
    parser.add_argument("out")
    for name, default in (("layers", 16), ("hidden", 2048), ("ffn", 8192), ("heads", 32), ("kv-heads", 8), ("context", 8192)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    changed = {"llama.block_count": args.layers, "llama.embedding_length": args.hidden, "llama.feed_forward_length": args.ffn,
               "llama.attention.head_count": args.heads, "llama.attention.head_count_kv": args.kv_heads,
               "llama.rope.dimension_count": args.hidden // args.heads, "llama.context_length": args.context}
    entries, vocab = [], None
    for key, value in Reader(args.tokenizer_from).entries():
        if key == "tokenizer.ggml.tokens":
            vocab, = struct.unpack_from("<Q", value, 8)
        if key in changed:
            value = struct.pack("<II", 4, changed[key])
        if key not in ("llama.attention.key_length", "llama.attention.value_length", "general.file_type"):
            entries.append(packed_text(key) + value)
    table, offset, infos = list(tensors(args, vocab)), 0, b""
    for name, dimensions, kind in table:
        infos += packed_text(name) + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, kind, offset)
        count = int(numpy.prod(dimensions))
        size = count * 4 if kind == F32 else count // 32 * 18
        offset += (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
    rng = numpy.random.default_rng(1)
    with open(args.out, "wb") as out:
        out.write(struct.pack("<IIQQ", 0x46554747, 3, len(table), len(entries)) + b"".join(entries) + infos)
        for _, dimensions, kind in table:
            out.write(bytes(-out.tell() % ALIGNMENT))
            out.write(content(rng, dimensions, kind))
    print(f"{args.out}: {offset / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
