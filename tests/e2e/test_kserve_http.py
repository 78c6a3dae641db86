"""KServe's protocol over HTTP with the stock Triton client, and Triton's generate extension."""
import http.client
import json
import unittest

import numpy as np

try:
    import tritonclient.http as triton
    from tritonclient.utils import InferenceServerException
except ImportError as error:
    raise ImportError("tritonclient[http] is missing; scripts/test.sh installs it into build/venv") from error

from harness import SMOLLM2, Server, ServerTest

TYPES = {bool: "BOOL", int: "INT32", float: "FP32", str: "BYTES", list: "BYTES"}
PROMPT = "The capital of France is"


def tensors(binary=True, **values):
    out = []
    for name, value in values.items():
        kind = TYPES[type(value)]
        if kind == "BYTES":
            data = np.array([v.encode() for v in (value if isinstance(value, list) else [value])], dtype=object)
        else:
            data = np.array([value], dtype={"BOOL": bool, "INT32": np.int32, "FP32": np.float32}[kind])
        tensor = triton.InferInput(name, data.shape, kind)
        tensor.set_data_from_numpy(data, binary_data=binary)
        out.append(tensor)
    return out


def text(result, name="text_output"):
    value = result.as_numpy(name)[0]
    return value if isinstance(value, str) else value.decode()


class TritonHttp(ServerTest):
    options = ("--served-model-name", "smollm2")

    @classmethod
    def setUpClass(cls):
        cls.server = Server(SMOLLM2, *cls.options)
        cls.client = triton.InferenceServerClient(f"127.0.0.1:{cls.server.port}")

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        super().tearDownClass()

    def post(self, path, body, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=120)
        connection.request("POST", path, body if isinstance(body, (bytes, str)) else json.dumps(body), headers or {})
        reply = connection.getresponse()
        data = reply.read()
        connection.close()
        return reply.status, reply.getheader("content-type"), data.decode()

    def test_health_and_metadata(self):
        self.assertTrue(self.client.is_server_live())
        self.assertTrue(self.client.is_server_ready())
        self.assertTrue(self.client.is_model_ready("smollm2"))
        self.assertTrue(self.client.is_model_ready("smollm2", "1"))
        self.assertFalse(self.client.is_model_ready("gpt-9"))
        self.assertFalse(self.client.is_model_ready("smollm2", "7"))
        self.assertEqual(self.client.get_server_metadata()["name"], "staffel")
        metadata = self.client.get_model_metadata("smollm2")
        self.assertEqual({t["name"]: t["datatype"] for t in metadata["outputs"]}["text_output"], "BYTES")
        self.assertEqual({t["name"]: t["datatype"] for t in metadata["inputs"]}["max_tokens"], "INT32")
        config = self.client.get_model_config("smollm2")
        self.assertTrue(config["model_transaction_policy"]["decoupled"])
        self.assertEqual([(m["name"], m["state"]) for m in self.client.get_model_repository_index()], [("smollm2", "READY")])

    def test_infer_is_the_completion(self):
        expected = self.server.complete(PROMPT, max_tokens=20).text()
        values = dict(text_input=PROMPT, temperature=0.0, max_tokens=20)
        for binary_in in (False, True):
            for binary_out in (False, True):
                with self.subTest(binary_in=binary_in, binary_out=binary_out):
                    outputs = [triton.InferRequestedOutput(name, binary_data=binary_out) for name in ("text_output", "finish_reason",
                                                                                                       "num_output_tokens")]
                    result = self.client.infer("smollm2", tensors(binary_in, **values), outputs=outputs, request_id="r7")
                    self.assertEqual((text(result), text(result, "finish_reason")), (expected, "length"))
                    self.assertEqual(result.as_numpy("num_output_tokens").tolist(), [20])
                    self.assertEqual((result.get_response()["id"], result.get_response()["model_name"]), ("r7", "smollm2"))
        result = self.client.infer("smollm2", tensors(**values))
        self.assertEqual(text(result), expected)
        result = self.client.infer("smollm2", tensors(**values, exclude_input_in_output=False))
        self.assertEqual(text(result), PROMPT + expected)

    def test_several_answers_are_elements(self):
        result = self.client.infer("smollm2", tensors(text_input="Once upon a time", max_tokens=5, n=3))
        self.assertEqual(result.as_numpy("text_output").shape, (3,))

    def test_errors(self):
        for word, model, values in (("gpt-9", "gpt-9", dict(text_input="x")), ("temperature", "smollm2", dict(text_input="x", temperature=9.0)),
                                    ("text_input", "smollm2", dict(text_input=["a", "b"])), ("prompt", "smollm2", dict(prompt="x")),
                                    ("generate_stream", "smollm2", dict(text_input="x", stream=True))):
            with self.subTest(values), self.assertRaises(InferenceServerException) as caught:
                self.client.infer(model, tensors(**values))
            self.assertIn(word, caught.exception.message())

    def test_bodies_that_are_wrong(self):
        tensor = {"name": "text_input", "datatype": "BYTES", "shape": [1], "data": ["x"]}
        for word, body, headers in (
                ("inputs", {}, None), ("inputs", {"inputs": 3}, None), ("JSON", "{", None), ("inputs", {"inputs": [3]}, None),
                ("elements", {"inputs": [{**tensor, "shape": [2]}]}, None), ("shape", {"inputs": [{**tensor, "shape": [-1]}]}, None),
                ("shape", {"inputs": [{**tensor, "shape": [1 << 40, 1 << 40]}]}, None),
                ("unknown type", {"inputs": [{**tensor, "datatype": "TEXT"}]}, None), ("elements", {"inputs": [{**tensor, "data": [1]}]}, None),
                ("binary_data_size", {"inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1],
                                                  "parameters": {"binary_data_size": 99}}]}, None),
                ("text_input", {"inputs": [tensor, tensor]}, None), ("text_9", {"inputs": [tensor], "outputs": [{"name": "text_9"}]}, None),
                ("bytes behind", json.dumps({"inputs": [tensor]}) + "more", {"Inference-Header-Content-Length": str(len(json.dumps({"inputs": [tensor]})))}),
                ("Inference-Header-Content-Length", {"inputs": [tensor]}, {"Inference-Header-Content-Length": "99999"}),
                ("Inference-Header-Content-Length", {"inputs": [tensor]}, {"Inference-Header-Content-Length": "-1"})):
            status, _, answer = self.post("/v2/models/smollm2/infer", body, headers)
            with self.subTest(body=body, headers=headers):
                self.assertEqual(status, 400, answer)
                self.assertIn(word, json.loads(answer)["error"])
        for path, status in (("/v2/models/smollm2/versions/2/infer", 404), ("/v2/models/gpt-9/generate", 404), ("/v2/nothing", 404),
                             ("/v2/models/smollm2", 405)):
            got, kind, answer = self.post(path, {"inputs": [tensor]})
            self.assertEqual((got, kind, list(json.loads(answer))), (status, "application/json", ["error"]), path)

    def test_generate(self):
        expected = self.server.complete(PROMPT, max_tokens=16).text()
        for body in ({"text_input": PROMPT, "parameters": {"temperature": 0, "max_tokens": 16, "stream": False, "exclude_input_in_output": True}},
                     {"text_input": PROMPT, "temperature": 0, "max_tokens": 16}):
            status, _, answer = self.post("/v2/models/smollm2/generate", body)
            self.assertEqual(status, 200, answer)
            self.assertEqual(json.loads(answer)["text_output"], expected)
            self.assertEqual(json.loads(answer)["model_name"], "smollm2")
        status, _, answer = self.post("/v2/models/smollm2/versions/1/generate", {"text_input": PROMPT, "max_tokens": "many"})
        self.assertEqual(status, 400)
        self.assertIn("max_tokens", json.loads(answer)["error"])

    def test_generate_stream(self):
        expected = self.server.complete(PROMPT, max_tokens=16).text()
        for body in ({"text_input": PROMPT, "parameters": {"temperature": 0, "max_tokens": 16, "stream": True}},
                     {"text_input": PROMPT, "parameters": {"temperature": 0, "max_tokens": 16, "stream": False}}):
            status, kind, answer = self.post("/v2/models/smollm2/generate_stream", body)
            self.assertEqual((status, kind.split(";")[0]), (200, "text/event-stream"))
            events = [json.loads(line[6:]) for line in answer.split("\n\n") if line.startswith("data: ")]
            self.assertEqual("".join(event["text_output"] for event in events), expected)
            self.assertEqual(len(events) > 3, body["parameters"]["stream"])


if __name__ == "__main__":
    unittest.main()
