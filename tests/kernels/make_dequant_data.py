#!/usr/bin/env python3
"""Make tests/data/dequant/TYPE.bin: random blocks of every stored type and what the pip package gguf makes of them.

usage: make_dequant_data.py [--out tests/data/dequant]        (needs: pip install gguf)

A file is: u32 type number, u32 block count, the blocks, then the expected f32 values (little-endian). Scales take turns between
random ones and the extremes of binary16; there is no infinity or NaN.
"""
import argparse, pathlib, struct

import gguf
import numpy as np
from gguf.quants import dequantize

# Byte offsets of the binary16 scales in a block.
SCALES = {"F16": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2],
          "Q6_K": [208]}
EXTREMES = [0.0, -0.0, 2**-24, -(2**-24), 1023 * 2**-24, 2**-14, 65504.0, -65504.0, 1.0]


def finite(rng, dtype, count):
    """Random bit patterns of a float type, without infinity and NaN."""
    bits = {np.float16: np.uint16, np.float32: np.uint32}[dtype]
    values = rng.integers(0, 2 ** (8 * bits().itemsize), count, dtype=np.uint64).astype(bits).view(dtype)
    values[~np.isfinite(values)] = 0.5
    return values


def blocks_of(name, count, block_bytes, rng):
    blocks = rng.integers(0, 256, (count, block_bytes), dtype=np.uint8)
    if name == "F32": return finite(rng, np.float32, count).view(np.uint8).reshape(count, 4)
    if name == "BF16":
        blocks[:, :] = finite(rng, np.float32, count).view(np.uint16)[1::2].copy().view(np.uint8).reshape(count, 2)
        return blocks
    for k, at in enumerate(SCALES[name]):
        scales = finite(rng, np.float16, count)
        scales[:len(EXTREMES)] = np.roll(np.array(EXTREMES, np.float16), k)[:count]
        scales[len(EXTREMES):-2] = rng.normal(0, 0.05, count - 2 - len(EXTREMES)).astype(np.float16)  # as in models
        blocks[:, at:at + 2] = scales.view(np.uint8).reshape(count, 2)
    return blocks


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent / "data/dequant")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for name in ("F32", "F16", "BF16", *[n for n in SCALES if n != "F16"]):
        kind = gguf.GGMLQuantizationType[name]
        block_elements, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        count = 256 if block_elements == 1 else 24 if block_elements == 32 else 16
        blocks = blocks_of(name, count, block_bytes, np.random.default_rng(int(kind)))
        expected = dequantize(blocks.reshape(1, -1).view(np.float32 if name == "F32" else np.float16 if name == "F16" else np.uint8), kind)
        assert expected.size == count * block_elements and np.isfinite(expected).all(), name
        (out / f"{name}.bin").write_bytes(struct.pack("<II", kind, count) + blocks.tobytes() + expected.astype("<f4").tobytes())


if __name__ == "__main__":
    main()
