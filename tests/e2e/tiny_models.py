"""Small generated GGUF files. A chain model says any byte sequence on demand: one llama layer that does nothing, one-hot embeddings,
and an output row for each token that points at its predecessor, so that greedy decoding walks from token to token."""
import struct

ARRAY, BOOL, F32, STRING, U32, I32 = 9, 7, 6, 8, 4, 5
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHATML = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
PLAIN = "{% for m in messages %}{{ m.content }}{% endfor %}"


def byte_alphabet():
    """The printable character that stands for each byte in a byte-level vocabulary (GPT-2)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, spare = {b: chr(b) for b in printable}, 0
    for b in range(256):
        if b not in table:
            table[b] = chr(256 + spare)
            spare += 1
    return [table[b] for b in range(256)]


def text(value):
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def pair(key, kind, value):
    """One metadata pair; kind is a type number or (ARRAY, item type)."""
    pack = {STRING: text, U32: lambda v: struct.pack("<I", v), I32: lambda v: struct.pack("<i", v),
            F32: lambda v: struct.pack("<f", v), BOOL: lambda v: struct.pack("<?", v)}
    if isinstance(kind, tuple):
        item = kind[1]
        return text(key) + struct.pack("<IIQ", ARRAY, item, len(value)) + b"".join(map(pack[item], value))
    return text(key) + struct.pack("<I", kind) + pack[kind](value)


def write_gguf(path, pairs, tensors, alignment=32):
    """pairs: packed metadata; tensors: (name, dims innermost first, bytes), all F32."""
    infos, data, offset = b"", b"", 0
    for name, dims, body in tensors:
        infos += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, 0, offset)
        padding = bytes(-len(body) % alignment)
        data += body + padding
        offset += len(body) + len(padding)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs) + infos
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % alignment) + data)
    return str(path)


def byte_token(b):
    return len(SPECIAL) + b


def script(data, end=2):
    """Successors that make the model say data[1:] after a prompt that ends with data[0]. Bytes must not repeat."""
    assert len(set(data)) == len(data), "a byte may occur once only"
    successors = {byte_token(a): byte_token(b) for a, b in zip(data, data[1:])}
    successors[byte_token(data[-1])] = end
    return successors


def chain_model(path, successors, template=PLAIN, context=256, extra=(), changes=None, drop=(), tensor=lambda name, dims, body: (dims, body)):
    """successors: token -> token, or a byte script. extra: further vocabulary entries (text, type). changes: metadata to add or replace,
    key -> (kind, value). drop: metadata keys to leave out. tensor: edits a tensor's dims and bytes."""
    if isinstance(successors, bytes):
        successors = script(successors)
    tokens = [*SPECIAL, *byte_alphabet(), "he", *[t for t, _ in extra]]
    types = [3] * len(SPECIAL) + [1] * 257 + [k for _, k in extra]
    vocab, hidden, heads, kv_heads, ffn = len(tokens), 288, 9, 3, 32
    assert vocab <= hidden
    meta = {
        "general.architecture": (STRING, "llama"), "llama.block_count": (U32, 1), "llama.context_length": (U32, context),
        "llama.embedding_length": (U32, hidden), "llama.feed_forward_length": (U32, ffn), "llama.attention.head_count": (U32, heads),
        "llama.attention.head_count_kv": (U32, kv_heads), "llama.attention.layer_norm_rms_epsilon": (F32, 1e-5),
        "llama.rope.dimension_count": (U32, hidden // heads), "llama.vocab_size": (U32, vocab),
        "tokenizer.ggml.model": (STRING, "gpt2"), "tokenizer.ggml.pre": (STRING, "smollm"),
        "tokenizer.ggml.tokens": ((ARRAY, STRING), tokens), "tokenizer.ggml.token_type": ((ARRAY, I32), types),
        "tokenizer.ggml.merges": ((ARRAY, STRING), ["h e"]), "tokenizer.ggml.bos_token_id": (U32, 1),
        "tokenizer.ggml.eos_token_id": (U32, 2), "tokenizer.ggml.add_bos_token": (BOOL, False),
        "tokenizer.chat_template": (STRING, template)}
    meta.update(changes or {})
    predecessors = {}
    for a, b in successors.items():
        predecessors.setdefault(b, []).append(a)

    def rows(ids_of_row, count):
        return b"".join(struct.pack(f"<{hidden}f", *[1.0 if j in ids_of_row(i) else 0.0 for j in range(hidden)]) for i in range(count))

    def zeros(cols, count):
        return bytes(4 * cols * count)

    ones, kv = struct.pack(f"<{hidden}f", *[1.0] * hidden), hidden // heads * kv_heads
    tensors = [
        ("token_embd.weight", [hidden, vocab], rows(lambda i: (i,), vocab)),
        ("output_norm.weight", [hidden], ones),
        ("output.weight", [hidden, vocab], rows(lambda i: predecessors.get(i, ()), vocab)),
        ("blk.0.attn_norm.weight", [hidden], ones), ("blk.0.ffn_norm.weight", [hidden], ones),
        ("blk.0.attn_q.weight", [hidden, hidden], zeros(hidden, hidden)), ("blk.0.attn_k.weight", [hidden, kv], zeros(hidden, kv)),
        ("blk.0.attn_v.weight", [hidden, kv], zeros(hidden, kv)), ("blk.0.attn_output.weight", [hidden, hidden], zeros(hidden, hidden)),
        ("blk.0.ffn_gate.weight", [hidden, ffn], zeros(hidden, ffn)), ("blk.0.ffn_up.weight", [hidden, ffn], zeros(hidden, ffn)),
        ("blk.0.ffn_down.weight", [ffn, hidden], zeros(ffn, hidden))]
    return write_gguf(path, [pair(k, *v) for k, v in meta.items() if k not in drop],
                      [(name, *tensor(name, dims, body)) for name, dims, body in tensors])
