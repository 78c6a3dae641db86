"""A forward pass of llama models in f32, from the dequantised weights of a GGUF file: what answers are compared with where tests/data has no recording.

pip: numpy, gguf. Needs no part of this project. As a program it checks itself against tests/data/golden/smollm2.json and writes the vectors of
tests/data/embeddings:   reference_model.py SmolLM2-135M-Instruct.Q4_1.gguf > tests/data/embeddings/smollm2.json
"""
import json
import pathlib
import sys

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

ROOT = pathlib.Path(__file__).resolve().parents[2]
EMBEDDED = ("Hello, world!", "Grüße aus München, Straße", "def f(x):\n    return x**2  # comment\n", "日本語のテキスト")


class ReferenceModel:
    def __init__(self, path):
        reader = GGUFReader(path)
        self.weights = {t.name: dequantize(t.data, t.tensor_type).astype(np.float32).reshape(tuple(reversed(t.shape.tolist())))
                        for t in reader.tensors}

        def value(key):
            field = reader.fields["llama." + key]
            return field.parts[field.data[0]][0]
        self.layers, self.heads, self.kv_heads = (int(value(key)) for key in ("block_count", "attention.head_count", "attention.head_count_kv"))
        self.rope_base, self.epsilon = float(value("rope.freq_base")), float(value("attention.layer_norm_rms_epsilon"))
        self.head_dim = self.weights["token_embd.weight"].shape[1] // self.heads

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.epsilon) * self.weights[name]

    def rope(self, x):
        """[tokens, heads, head_dim], pairs side by side (RoFormer, as GGUF files of llama models have them)."""
        angles = np.arange(len(x))[:, None] * self.rope_base ** (-np.arange(0, self.head_dim, 2) / self.head_dim)
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        out, even, odd = np.empty_like(x), x[..., ::2], x[..., 1::2]
        out[..., ::2], out[..., 1::2] = even * cos - odd * sin, even * sin + odd * cos
        return out

    def attention(self, x, block):
        def heads(name, count):
            return (x @ self.weights[f"{block}attn_{name}.weight"].T).reshape(len(x), count, self.head_dim)
        group = self.heads // self.kv_heads
        q, k = self.rope(heads("q", self.heads)), np.repeat(self.rope(heads("k", self.kv_heads)), group, 1)
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(self.head_dim) + np.triu(np.full((len(x), len(x)), -np.inf), 1)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        mixed = np.einsum("hqk,khd->qhd", scores, np.repeat(heads("v", self.kv_heads), group, 1))
        return mixed.reshape(len(x), -1).astype(np.float32) @ self.weights[block + "attn_output.weight"].T

    def feed_forward(self, x, block):
        gate = x @ self.weights[block + "ffn_gate.weight"].T
        return (gate / (1 + np.exp(-gate)) * (x @ self.weights[block + "ffn_up.weight"].T)) @ self.weights[block + "ffn_down.weight"].T

    def hidden(self, ids):
        """[tokens, hidden] behind the last norm."""
        x = self.weights["token_embd.weight"][ids]
        for layer in range(self.layers):
            block = f"blk.{layer}."
            x = x + self.attention(self.norm(x, block + "attn_norm.weight"), block)
            x = x + self.feed_forward(self.norm(x, block + "ffn_norm.weight"), block)
        return self.norm(x, "output_norm.weight")

    def logprobs(self, hidden):
        """[tokens, vocabulary] of the tokens that follow."""
        logits = hidden @ self.weights.get("output.weight", self.weights["token_embd.weight"]).T
        logits -= logits.max(-1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def worst_difference(model, golden):
    """Of the recorded log-probabilities."""
    worst = 0
    for generation in golden["generations"][:4]:
        ids = list(generation["prompt_ids"])
        for step, token in zip(generation["steps"], generation["greedy_ids"]):
            found = model.logprobs(model.hidden(ids)[-1])
            worst = max(worst, *(abs(found[i] - expected) for i, expected in zip(step["top_ids"], step["top_logprobs"])))
            ids.append(token)
    return worst


def main():
    model = ReferenceModel(sys.argv[1])
    golden = json.loads((ROOT / "tests/data/golden/smollm2.json").read_text())
    worst = worst_difference(model, golden)
    print(f"largest difference to recorded log-probabilities: {worst:.6f}", file=sys.stderr)
    assert worst < 1e-3
    entries = []
    for item in [t for t in golden["tokenize"] if t["text"] in EMBEDDED] + [golden["passage"]]:
        hidden = model.hidden(item["ids"])
        entries.append({"text": item["text"], **{pooling: [float(f"{x:.5g}") for x in vector] for pooling, vector in
                                                 (("last", hidden[-1]), ("mean", hidden.mean(0)))}})
    text = json.dumps({"model": golden["model"], "reference": "tests/e2e/reference_model.py", "entries": entries}, ensure_ascii=False, separators=(",", ":"))
    print(text.replace('{"text"', '\n{"text"'))


if __name__ == "__main__":
    main()
