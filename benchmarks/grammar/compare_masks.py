#!/usr/bin/env python3
"""Masks of src/grammar beside those of the pip packages xgrammar and llguidance, in one run.

compare_masks.py BENCH_MASKS MODEL.gguf [MODEL.gguf ...]   prints a Markdown table

The packages are asked for what is installed of them. Each follows the same tokens of the same texts (schemas.json) and fills a mask before each token;
times are microseconds of the calling thread's processor time, for compiling the process's. "first" is the first request with a grammar, "again" the second.
"""
import json
import pathlib
import statistics
import subprocess
import sys
import time
import types

HERE = pathlib.Path(__file__).parent


def stand_in_for_torch():
    """xgrammar imports torch for arrays only; masks are filled through DLPack, which numpy has."""
    import numpy
    import tvm_ffi  # noqa: F401  (asks for torch itself, and does without)
    torch = types.ModuleType("torch")
    torch.Tensor, torch.int32 = numpy.ndarray, numpy.int32
    torch.tensor = lambda value, dtype: numpy.array(value, dtype=dtype)
    torch.full = lambda shape, value, dtype: numpy.full(shape, value, dtype=dtype)
    torch.__getattr__ = lambda name: type(name, (), {})
    sys.modules["torch"] = torch
    transformers = types.ModuleType("transformers")  # names of types only
    transformers.__getattr__ = lambda name: type(name, (), {})
    sys.modules.setdefault("transformers", transformers)


def timed(call, *args, clock=time.thread_time):
    begin = clock()
    result = call(*args)
    return result, (clock() - begin) * 1e6


class XGrammar:
    name = "xgrammar"

    def __init__(self, tokens, ends):
        try:
            import torch  # noqa: F401
        except ImportError:
            stand_in_for_torch()
        import xgrammar
        self.x = xgrammar
        info = xgrammar.TokenizerInfo(tokens, vocab_type=xgrammar.VocabType.RAW, vocab_size=len(tokens), stop_token_ids=ends)
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.mask = xgrammar.allocate_token_bitmask(1, len(tokens))

    def compile(self, schema):
        return self.compiler.compile_json_schema(schema, any_whitespace=True, strict_mode=False)

    def follow(self, compiled, tokens):
        matcher = self.x.GrammarMatcher(compiled)
        times = []
        for token in [*tokens, None]:
            times.append(timed(matcher.fill_next_token_bitmask, self.mask)[1])
            if token is not None and not matcher.accept_token(token):
                return None
        return times


class LlGuidance:
    name = "llguidance"

    def __init__(self, tokens, ends):
        import llguidance
        import llguidance.numpy
        self.l, self.n = llguidance, llguidance.numpy

        class Tokenizer:
            eos_token_id, bos_token_id = ends[0], None
            special_token_ids = [i for i, t in enumerate(tokens) if not t]

            def __call__(self, text):  # byte by byte: only forced tokens would need more
                return [self.of_byte[bytes([b])] for b in text]

        Tokenizer.tokens = [t or b"<|%d|>" % i for i, t in enumerate(tokens)]
        Tokenizer.of_byte = {t: i for i, t in enumerate(tokens) if len(t) == 1}
        self.tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Tokenizer()))
        self.mask = self.n.allocate_token_bitmask(1, self.tokenizer.vocab_size)

    def compile(self, schema):
        grammar = self.l.LLMatcher.grammar_from_json_schema(schema)
        return self.l.LLMatcher(self.tokenizer, grammar)

    def follow(self, compiled, tokens):
        matcher = compiled.deep_copy()
        times = []
        for token in [*tokens, None]:
            times.append(timed(self.n.fill_next_token_bitmask, matcher, self.mask)[1])
            if token is not None and (not matcher.consume_token(token) or matcher.is_error()):
                return None
        return times


def summary(compile_us, first, again):
    if not first:
        return "–"
    first, again = sorted(first), sorted(again)
    p99 = lambda times: times[min(len(times) - 1, int(len(times) * 0.99))]
    return (f"{statistics.median(compile_us) / 1e3:.2f} | {statistics.median(first):.1f} | {p99(first):.0f} | "
            f"{statistics.median(again):.1f} | {p99(again):.0f} | {max(first):.0f}")


def main(bench, models):
    cases = json.loads((HERE / "schemas.json").read_text())
    print("| vocabulary | engine | texts | compile, ms | first, median | first, p99 | again, median | again, p99 | longest |\n|---|---|---|---|---|---|---|---|---|")
    for model in models:
        lines = subprocess.run([bench, model, HERE / "schemas.json"], check=True, capture_output=True, text=True).stdout.splitlines()
        head, *own = map(json.loads, lines)
        tokens = [bytes.fromhex(t) for t in head["tokens"]]
        size = f"{len(tokens):,}"
        print(f"| {size} | staffel | {len(own)} | "
              + summary([r["compile_us"] for r in own], sum((r["cold_us"] for r in own), []), sum((r["warm_us"] for r in own), [])) + " |")
        for kind in (XGrammar, LlGuidance):
            try:
                engine = kind(tokens, head["end_tokens"])
            except ImportError as error:
                print(f"| {size} | {kind.name} | not installed ({error.name}) | | | | | | |")
                continue
            compile_us, first, again, followed = [], [], [], 0
            for case, row in zip(cases, own):
                try:
                    compiled, spent = timed(engine.compile, json.dumps(case["schema"]), clock=time.process_time)
                    times = [engine.follow(compiled, row["tokens"]) for _ in range(2)]
                except Exception as error:  # a schema that the peer refuses
                    print(f"{kind.name}: {case['name']}: {str(error)[:200]}", file=sys.stderr)
                    continue
                if times[0] is None:
                    print(f"{kind.name}: {case['name']}: refuses the text", file=sys.stderr)
                    continue
                followed += 1
                compile_us.append(spent)
                first += times[0]
                again += times[1]
            print(f"| {size} | {kind.name} | {followed} | " + summary(compile_us, first, again) + " |")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:])
