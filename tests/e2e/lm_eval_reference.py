"""Has lm-eval score the same tasks over a running server and with the reference model, and compares the scores and what they are made of.

usage: lm_eval_reference.py SmolLM2-135M-Instruct.Q4_1.gguf [URL]       pip: lm-eval[api], gguf, numpy. URL: http://127.0.0.1:8000

Three kinds of tasks: multiple choice, perplexity of texts, short answers. Both sides read the same tokens. Fails where a choice or an answer differs that is
no near tie of the reference, or a score by more than that explains.
"""
import json
import pathlib
import sys
import tempfile
import urllib.request

import lm_eval
from lm_eval.models.openai_completions import LocalCompletionsAPI
from lm_eval.tasks import TaskManager

from reference_model import ROOT, ReferenceModel

NEAR_TIE = 0.1       # between the two best log-probabilities
PERPLEXITY = 0.01    # as a part of the reference's

CAPITALS = "France Paris, Italy Rome, Germany Berlin, Spain Madrid, Japan Tokyo, Egypt Cairo, Greece Athens, Russia Moscow, China Beijing, Cuba Havana, " \
           "Norway Oslo, Poland Warsaw, Austria Vienna, Ireland Dublin, Portugal Lisbon, Hungary Budapest, Kenya Nairobi, Peru Lima, Iraq Baghdad, Iran Tehran"
OPPOSITES = "hot cold, big small, day night, up down, black white, old new, rich poor, fast slow, full empty, hard soft, high low, happy sad, in out, left right, " \
            "light dark, long short, love hate, open closed, win lose, young old"
KINDS = "apple fruit, hammer tool, dog animal, rose flower, shirt clothing, car vehicle, piano instrument, red color, bread food, doctor profession, " \
        "winter season, iron metal, Monday day, oak tree, sparrow bird, salmon fish, chess game, Mars planet, seven number, milk drink"

TASK = """task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: {kind}
doc_to_text: "{{{{text}}}}"
{fields}
"""
CHOICE = 'doc_to_choice: "{{choices}}"\ndoc_to_target: 0\nmetric_list:\n  - metric: acc\n  - metric: acc_norm'
ROLLING = 'doc_to_target: "{{target}}"\nmetric_list:\n  - metric: word_perplexity\n  - metric: bits_per_byte'
ANSWER = ('doc_to_target: "{{target}}"\ngeneration_kwargs:\n  until: ["\\n"]\n  max_gen_toks: 12\n  do_sample: false\n  temperature: 0\n'
          "metric_list:\n  - metric: exact_match\nfilter_list:\n  - name: word\n    filter:\n      - function: regex\n"
          "        regex_pattern: '(\\w+)'\n      - function: take_first")


def pairs(text):
    return [pair.split() for pair in text.split(", ")]


def choices():
    """The right one first, then three others of the same list."""
    for question, table in (("The capital of {} is", CAPITALS), ("The opposite of {} is", OPPOSITES), ("Question: What is a {}? Answer: a kind of", KINDS)):
        table = pairs(table)
        for i, (asked, answer) in enumerate(table):
            others = [table[(i + step) % len(table)][1] for step in (3, 7, 12)]
            yield {"text": question.format(asked), "choices": [" " + word for word in (answer, *others)]}
    for a in range(2, 12):
        yield {"text": f"{a} + {a + 1} =", "choices": [f" {a + a + 1 + off}" for off in (0, 1, -1, 10)]}


def texts():
    """Paragraphs of the passage in tests/data/golden."""
    passage = json.loads((ROOT / "tests/data/golden/smollm2.json").read_text())["passage"]["text"]
    return [{"text": "", "target": paragraph} for paragraph in passage.split("\n\n")]


def answers():
    shots = "Q: What is the capital of Sweden?\nA: Stockholm\nQ: What is the capital of Chile?\nA: Santiago\n"
    return [{"text": f"{shots}Q: What is the capital of {country}?\nA:", "target": city} for country, city in pairs(CAPITALS)]


class Reference(LocalCompletionsAPI):
    """Tokens come from the server, all numbers from the reference model."""

    def __init__(self, reference, **arguments):
        super().__init__(**arguments)
        self.reference = reference
        self.ties = set()   # contexts whose greedy answer had a near tie

    def _loglikelihood_tokens(self, requests, **kwargs):
        results = []
        for _, context, continuation in requests:
            ids = list(context) + list(continuation)
            logprobs = self.reference.logprobs(self.reference.hidden(ids[:-1])[-len(continuation):])
            picked = logprobs[range(len(continuation)), continuation]
            results.append((float(picked.sum()), bool((logprobs.argmax(-1) == continuation).all())))
        return results

    def generate_until(self, requests, disable_tqdm=False):
        return [self.continuation(request.args[0], request.args[1]) for request in requests]

    def continuation(self, context, arguments):
        ids, text = list(self.tok_encode(context)), ""
        begin = len(ids)
        for _ in range(arguments["max_gen_toks"]):
            logprobs = self.reference.logprobs(self.reference.hidden(ids)[-1])
            best, second = logprobs.argsort()[:-3:-1]
            if logprobs[best] - logprobs[second] < NEAR_TIE:
                self.ties.add(context)
            ids.append(int(best))
            text = self.tokenizer.decode(ids[begin:])
            if best == self.prefix_token_id or any(stop in text for stop in arguments["until"]):
                break
        for stop in arguments["until"]:
            text = text.split(stop)[0]
        return text


def evaluate(model, folder, names):
    return lm_eval.simple_evaluate(model=model, tasks=names, task_manager=TaskManager(include_path=str(folder), include_defaults=False),
                                   log_samples=True, bootstrap_iters=0)


def by_document(result, task):
    return {sample["doc_id"]: sample for sample in result["samples"][task]}


def likelihoods(sample):
    return [float(response[0][0]) for response in sample["resps"]]


def differences(served, reference, ties):
    """(what differs without a reason, number of differences that are near ties, largest difference of a log-likelihood)."""
    wrong, near, largest = [], 0, 0
    found = by_document(served, "staffel_choice")
    for number, sample in by_document(reference, "staffel_choice").items():
        want, got = likelihoods(sample), likelihoods(found[number])
        largest = max(largest, *(abs(a - b) for a, b in zip(want, got)))
        best = max(range(len(want)), key=want.__getitem__)
        chosen = max(range(len(got)), key=got.__getitem__)
        if chosen != best:
            near += 1
            if want[best] - want[chosen] > 2 * NEAR_TIE:
                wrong.append(f"choice {number}: {sample['doc']['text']!r}")
    found = by_document(served, "staffel_answer")
    for number, sample in by_document(reference, "staffel_answer").items():
        want, got = (s["resps"][0][0].strip() for s in (sample, found[number]))
        if want != got:
            near += 1
            if sample["doc"]["text"] not in ties:
                wrong.append(f"answer {number}: {want!r}, served {got!r}")
    return wrong, near, largest


def evaluate_both(model, url):
    """(number of documents by task, results of the reference, results of the server, contexts with near ties)."""
    with urllib.request.urlopen(url + "/v1/models") as reply:
        name = json.load(reply)["data"][0]["id"]
    arguments = {"base_url": url + "/v1/completions", "model": name, "tokenizer_backend": "remote", "tokenized_requests": True, "max_length": 2048}
    tasks = {"staffel_choice": (list(choices()), "multiple_choice", CHOICE), "staffel_text": (texts(), "loglikelihood_rolling", ROLLING),
             "staffel_answer": (answers(), "generate_until", ANSWER)}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for task, (documents, kind, fields) in tasks.items():
            data = folder / f"{task}.jsonl"
            data.write_text("".join(json.dumps(document) + "\n" for document in documents))
            (folder / f"{task}.yaml").write_text(TASK.format(name=task, data=data, kind=kind, fields=fields))
        oracle = Reference(ReferenceModel(model), **arguments)
        reference = evaluate(oracle, folder, list(tasks))
        served = evaluate(LocalCompletionsAPI(**arguments), folder, list(tasks))
    return {task: len(documents) for task, (documents, _, _) in tasks.items()}, reference, served, oracle.ties


def main():
    counts, reference, served, ties = evaluate_both(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "http://127.0.0.1:8000")
    wrong, near, largest = differences(served, reference, ties)
    print("| task | documents | score | reference | server |\n|---|---|---|---|---|")
    for task, count in counts.items():
        for score, want in reference["results"][task].items():
            if not isinstance(want, float) or "stderr" in score:
                continue
            got = served["results"][task][score]
            print(f"| {task} | {count} | {score.split(',')[0]} | {want:.4f} | {got:.4f} |")
            bound = PERPLEXITY * want if task == "staffel_text" else near / count
            if abs(got - want) > bound + 1e-9:
                wrong.append(f"{task} {score}: {got} instead of {want}")
    print(f"largest difference of a choice's log-likelihood: {largest:.4f}; documents that differ at a near tie: {near}")
    if wrong:
        sys.exit("differences:\n" + "\n".join(wrong))


if __name__ == "__main__":
    main()
