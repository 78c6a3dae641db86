"""Embeddings over all fronts: the vectors of the reference implementation, whatever layout computes them, and the same ones for every client."""
import base64
import json
import math
import struct
import threading
import time
import unittest

try:
    import ollama
    import openai
except ImportError as error:
    raise ImportError("the clients are missing; scripts/test.sh installs them into build/venv") from error

from cluster import Cluster
from harness import ROOT, SMOLLM2, Server, ServerTest

REFERENCE = json.loads((ROOT / "tests/data/embeddings/smollm2.json").read_text())
TEXTS = [entry["text"] for entry in REFERENCE["entries"]]


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def vectors(server, **fields):
    reply = server.request("POST", "/v1/embeddings", {"input": TEXTS, **fields})
    assert reply.status == 200, reply.body
    return [entry["embedding"] for entry in reply.json["data"]]


class Reference(unittest.TestCase):
    """A cosine of 0.9999 is an angle of 0.8 degrees; the texts of the reference are 30 degrees apart and more."""

    def assert_near(self, got, pooling, least):
        for entry, vector in zip(REFERENCE["entries"], got, strict=True):
            self.assertGreater(cosine(vector, entry[pooling]), least, entry["text"])
            self.assertAlmostEqual(sum(x * x for x in vector), 1, 4)

    def test_last_and_mean(self):
        for pooling in ("last", "mean"):
            with Server(SMOLLM2, "--pooling", pooling) as server:
                self.assert_near(vectors(server), pooling, .9999)
                # The second time prefixes may come from the cache.
                self.assert_near(vectors(server), pooling, .9999)

    def test_layouts(self):
        for layout in ({"tp": 2}, {"pp": 2}):
            with self.subTest(layout), Cluster(SMOLLM2, **layout) as cluster:
                self.assert_near(vectors(cluster.master), "last", .9999)

    def test_the_texts_differ(self):
        entries = REFERENCE["entries"]
        for pooling in ("last", "mean"):
            for i, a in enumerate(entries):
                for b in entries[:i]:
                    self.assertLess(cosine(a[pooling], b[pooling]), .87)


class Fronts(ServerTest):
    options = ("--served-model-name", "smollm2", "--max-model-len", "1024", "--max-queue", "8", "--max-num-seqs", "4")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.url = f"http://127.0.0.1:{cls.server.port}"
        cls.openai = openai.OpenAI(base_url=cls.url + "/v1", api_key="none", max_retries=0)
        cls.ollama = ollama.Client(cls.url)
        cls.vectors = vectors(cls.server)

    def test_openai(self):
        answer = self.openai.embeddings.create(model="smollm2", input=TEXTS)   # the client asks for base64
        self.assertEqual([entry.index for entry in answer.data], list(range(len(TEXTS))))
        for entry, vector in zip(answer.data, self.vectors):
            self.assertGreater(cosine(entry.embedding, vector), .99999)
        self.assertEqual(answer.usage.prompt_tokens, answer.usage.total_tokens)
        self.assertEqual(answer.usage.prompt_tokens, sum(
            len(self.server.request("POST", "/tokenize", {"prompt": text}).json["tokens"]) for text in TEXTS))
        plain = self.openai.embeddings.create(model="smollm2", input=TEXTS[0], encoding_format="float", dimensions=64)
        self.assertEqual(len(plain.data[0].embedding), 64)
        self.assertGreater(cosine(plain.data[0].embedding, self.vectors[0][:64]), .99999)

    def test_base64_and_numbers_are_equal(self):
        body = {"input": TEXTS[0]}
        numbers, text = (self.server.request("POST", "/v1/embeddings", {**body, "encoding_format": form}).json["data"][0]["embedding"]
                         for form in ("float", "base64"))
        raw = base64.b64decode(text)
        self.assertEqual(list(struct.unpack(f"<{len(raw) // 4}f", raw)), [struct.unpack("f", struct.pack("f", x))[0] for x in numbers])

    def test_token_ids_are_the_text(self):
        ids = [self.server.request("POST", "/tokenize", {"prompt": text}).json["tokens"] for text in TEXTS]
        for got, vector in zip(vectors(self.server, input=ids), self.vectors, strict=True):
            self.assertGreater(cosine(got, vector), .99999)

    def test_ollama(self):
        answer = self.ollama.embed("smollm2", TEXTS)
        for got, vector in zip(answer.embeddings, self.vectors, strict=True):
            self.assertGreater(cosine(got, vector), .99999)
        self.assertGreater(answer.total_duration, 0)
        earlier = self.ollama.embeddings("smollm2", TEXTS[0]).embedding
        self.assertGreater(cosine(earlier, self.vectors[0]), .99999)
        self.assertEqual(len(self.ollama.embed("smollm2", "word " * 3000).embeddings), 1)   # its end is left out
        with self.assertRaises(ollama.ResponseError) as caught:
            self.ollama.embed("smollm2", "word " * 3000, truncate=False)
        self.assertEqual(caught.exception.status_code, 400)

    def test_llama_server(self):
        for path, name in (("/embedding", "content"), ("/embeddings", "input")):
            answer = self.server.request("POST", path, {name: TEXTS}).json
            for i, (entry, vector) in enumerate(zip(answer, self.vectors, strict=True)):
                self.assertEqual(entry["index"], i)
                self.assertGreater(cosine(entry["embedding"][0], vector), .99999)

    def test_more_inputs_than_the_queue_holds(self):
        texts = [f"Number {i} of many." for i in range(100)]
        answer = self.openai.embeddings.create(model="smollm2", input=texts)
        self.assertEqual(len(answer.data), 100)
        alone = self.openai.embeddings.create(model="smollm2", input=texts[57]).data[0].embedding
        self.assertGreater(cosine(answer.data[57].embedding, alone), .9999)

    def test_errors(self):
        for status, fields in ((400, {"input": ""}), (400, {"input": []}), (400, {"input": [[10 ** 6]]}), (400, {"dimensions": 577}),
                               (400, {"encoding_format": "int8"}), (400, {"input": "word " * 3000}), (404, {"model": "huge"})):
            with self.subTest(fields=str(fields)[:60]):
                reply = self.server.request("POST", "/v1/embeddings", {"input": "a", **fields})
                self.assertEqual(reply.status, status, reply.body)
                self.assertEqual(reply.error["param"], next(iter(fields)))

    def test_a_client_that_goes_away_leaves_nothing(self):
        client = openai.OpenAI(base_url=self.url + "/v1", api_key="none", max_retries=0, timeout=.3)
        with self.assertRaises(openai.APITimeoutError):
            client.embeddings.create(model="smollm2", input=["word " * 500] * 400)
        end = time.monotonic() + 10
        while self.server.metric("staffel_num_requests_running") + self.server.metric("staffel_num_requests_waiting") > 0:
            self.assertLess(time.monotonic(), end)
            time.sleep(.05)

    def test_beside_chats(self):
        answers = []
        chat = threading.Thread(target=lambda: answers.append(self.server.complete("Once upon a time", max_tokens=60, temperature=0).text()))
        alone = self.server.complete("Once upon a time", max_tokens=60, temperature=0).text()
        chat.start()
        for _ in range(3):
            for got, vector in zip(vectors(self.server), self.vectors, strict=True):
                self.assertGreater(cosine(got, vector), .99999)
        chat.join()
        self.assertEqual(answers, [alone])


if __name__ == "__main__":
    unittest.main()
