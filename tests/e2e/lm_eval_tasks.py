"""Makes lm-eval tasks of the reference data in tests/data/golden, with the scores that the reference implementation has.

usage: lm_eval_tasks.py FOLDER [MODEL [URL]]      MODEL: smollm2 (default), qwen2.5 or gemma3; URL of the running server

staffel_passage: the next token of a passage after contexts of different lengths. staffel_greedy: is the beginning of the reference's greedy
continuation, up to the first near tie, the likeliest here as well? Both need a tokenizer that cuts the text as the reference did, which the
server's own does.
"""
import json
import math
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONTEXTS = range(16, 640, 16)  # tokens
NEAR_TIE = 0.1  # between the two best log-probabilities


def text_of(server, ids):
    return server("/detokenize", {"tokens": ids})["prompt"]


def documents(golden, server):
    """(passage documents, greedy documents, mean negative log-likelihood of the passage's continuations)."""
    passage, ids, losses = [], golden["passage"]["ids"], []
    for begin in CONTEXTS:
        context, target = (text_of(server, part) for part in (ids[:begin], ids[begin:begin + 1]))
        # The cut must be one between tokens when the halves are read again.
        tokens = [server("/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"] for text in (context, context + target)]
        # lm-eval counts white space at a context's end to the target.
        if context != context.rstrip() or tokens[0] != ids[:begin] or tokens[1] != ids[:begin + 1]:
            continue
        passage.append({"context": context, "target": target})
        losses.append(golden["passage"]["nll"][begin - 1])
    greedy = []
    for generation in golden["generations"]:
        ids = []
        for token, best in zip(generation["greedy_ids"], (step["top_logprobs"] for step in generation["steps"])):
            if best[0] - best[1] < NEAR_TIE:
                break
            ids.append(token)
        target = text_of(server, ids)
        tokens = server("/tokenize", {"prompt": generation["prompt"] + target, "add_special_tokens": False})["tokens"]
        if tokens == generation["prompt_ids"] + ids and ids:
            greedy.append({"context": generation["prompt"], "target": target})
    return passage, greedy, sum(losses) / len(losses)


TASK = """task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: loglikelihood
doc_to_text: "{{{{context}}}}"
doc_to_target: "{{{{target}}}}"
target_delimiter: ""
metric_list:
  - metric: perplexity
    aggregation: perplexity
    higher_is_better: false
  - metric: acc
    aggregation: mean
    higher_is_better: true
"""


def main():
    import urllib.request
    folder, model = pathlib.Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "smollm2"
    url = sys.argv[3] if len(sys.argv) > 3 else "http://127.0.0.1:8000"

    def server(path, body):
        request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as reply:
            return json.load(reply)
    golden = json.loads((ROOT / f"tests/data/golden/{model}.json").read_text())
    passage, greedy, loss = documents(golden, server)
    folder.mkdir(parents=True, exist_ok=True)
    for name, docs in (("staffel_passage", passage), ("staffel_greedy", greedy)):
        data = (folder / f"{name}.jsonl").resolve()
        data.write_text("".join(json.dumps(doc) + "\n" for doc in docs))
        (folder / f"{name}.yaml").write_text(TASK.format(name=name, data=data))
    print(f"reference: staffel_passage perplexity {math.exp(loss):.4f} over {len(passage)} documents; staffel_greedy acc 1.0 over {len(greedy)}")


if __name__ == "__main__":
    main()
