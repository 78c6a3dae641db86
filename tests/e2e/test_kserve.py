"""KServe's protocol over gRPC with the stock Triton client."""
import json
import queue
import unittest

import numpy as np

try:
    import tritonclient.grpc as triton
    from tritonclient.utils import InferenceServerException
except ImportError as error:
    raise ImportError("tritonclient[grpc] is missing; scripts/test.sh installs it into build/venv") from error

from grpc_client import GrpcServer
from harness import NO_END, PATIENCE, SMOLLM2, ServerTest

TYPES = {bool: "BOOL", int: "INT32", float: "FP32", str: "BYTES", list: "BYTES"}


def tensor(name, value):
    kind = TYPES[type(value)]
    if kind == "BYTES":
        data = np.array([v.encode() for v in (value if isinstance(value, list) else [value])], dtype=object)
    else:
        data = np.array([value], dtype={"BOOL": bool, "INT32": np.int32, "FP32": np.float32}[kind])
    out = triton.InferInput(name, data.shape, kind)
    out.set_data_from_numpy(data)
    return out


def tensors(**values):
    return [tensor(name, value) for name, value in values.items()]


def text(result, name="text_output"):
    return result.as_numpy(name)[0].decode()


class Triton(ServerTest):
    options = ("--served-model-name", "smollm2")

    @classmethod
    def setUpClass(cls):
        cls.server = GrpcServer(SMOLLM2, *cls.options)
        cls.client = triton.InferenceServerClient(cls.server.target)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        super().tearDownClass()

    def infer(self, outputs=None, parameters=None, model="smollm2", **values):
        return self.client.infer(model, tensors(**values), outputs=outputs and [triton.InferRequestedOutput(o) for o in outputs],
                                 parameters=parameters, request_id="r7", client_timeout=60 * PATIENCE)

    def stream(self, requests, empty_final=False):
        """Results by request id, until each is final."""
        arrived = queue.Queue()
        client = triton.InferenceServerClient(self.server.target)   # one stream a client
        client.start_stream(lambda result, error: arrived.put((result, error)))
        for number, values in requests.items():
            parameters = values.pop("parameters", None)
            client.async_stream_infer("smollm2", tensors(**values), request_id=number, parameters=parameters,
                                      enable_empty_final_response=empty_final)
        results, errors, left = {n: [] for n in requests}, [], len(requests)
        while left:
            result, error = arrived.get(timeout=60 * PATIENCE)
            if error:
                errors.append(error)
                left -= 1
                continue
            response = result.get_response()
            results[response.id].append(result)
            left -= response.parameters["triton_final_response"].bool_param
        client.stop_stream()
        client.close()
        return results, errors

    def test_health_and_metadata(self):
        self.assertTrue(self.client.is_server_live())
        self.assertTrue(self.client.is_server_ready())
        self.assertTrue(self.client.is_model_ready("smollm2"))
        self.assertTrue(self.client.is_model_ready("smollm2", "1"))
        self.assertFalse(self.client.is_model_ready("gpt-9"))
        self.assertEqual(self.client.get_server_metadata().name, "staffel")
        metadata = self.client.get_model_metadata("smollm2")
        self.assertEqual({t.name: t.datatype for t in metadata.outputs}["text_output"], "BYTES")
        self.assertEqual({t.name: t.datatype for t in metadata.inputs}["max_tokens"], "INT32")

    def test_infer_is_the_completion_of_http(self):
        expected = self.server.complete("The capital of France is", max_tokens=20)
        sampling = json.dumps({"temperature": 0, "max_tokens": 20})
        for values in (dict(temperature=0.0, max_tokens=20), dict(sampling_parameters=sampling, exclude_input_in_output=True, stream=False),
                       dict(parameters={"temperature": 0, "max_tokens": 20})):
            with self.subTest(values):
                result = self.infer(text_input="The capital of France is", **values)
                self.assertEqual(text(result), expected.text())
                self.assertEqual(result.get_response().id, "r7")
        result = self.infer(text_input="The capital of France is", temperature=0.0, max_tokens=20, exclude_input_in_output=False)
        self.assertEqual(text(result), "The capital of France is" + expected.text())

    def test_all_outputs(self):
        result = self.infer(text_input="1, 2, 3,", temperature=0.0, max_tokens=30, stop_words=["7"], bad_words=[""],
                            outputs=("text_output", "finish_reason", "cumulative_logprob", "num_input_tokens", "num_output_tokens"))
        shown = self.server.complete("1, 2, 3,", max_tokens=30, stop=["7"], logprobs=0).json
        choice = shown["choices"][0]
        self.assertEqual((text(result), text(result, "finish_reason")), (choice["text"], "stop"))
        self.assertAlmostEqual(float(result.as_numpy("cumulative_logprob")[0]), sum(choice["logprobs"]["token_logprobs"]), places=3)
        self.assertEqual(result.as_numpy("num_input_tokens")[0], shown["usage"]["prompt_tokens"])
        self.assertEqual(result.as_numpy("num_output_tokens")[0], shown["usage"]["completion_tokens"])

    def test_structured_output(self):
        result = self.infer(text_input="x", sampling_parameters=json.dumps({"guided_regex": "[0-9]{3}", "temperature": 0}))
        self.assertRegex(text(result), "^[0-9]{3}$")

    def test_streams_side_by_side_end_with_the_final_response(self):
        prompts = {str(i): f"{i} apples and {i + 1} pears are" for i in range(4)}
        whole = {i: text(self.infer(text_input=p, temperature=0.0, max_tokens=16)) for i, p in prompts.items()}
        for empty_final in (False, True):
            results, errors = self.stream({i: dict(text_input=p, temperature=0.0, max_tokens=16, stream=True) for i, p in prompts.items()},
                                          empty_final)
            self.assertEqual(errors, [])
            self.assertEqual({i: "".join(map(text, r)) for i, r in results.items()}, whole)
            for parts in results.values():
                self.assertGreater(len(parts), 3)
                finals = [p.get_response().parameters["triton_final_response"].bool_param for p in parts]
                self.assertEqual(finals, [False] * (len(parts) - 1) + [True])

    def test_a_whole_answer_over_a_stream(self):
        results, _ = self.stream({"a": dict(text_input="The sky is", temperature=0.0, max_tokens=8)})
        self.assertEqual([text(r) for r in results["a"]], [self.server.complete("The sky is", max_tokens=8).text()])

    def test_an_error_ends_its_request_only(self):
        results, errors = self.stream({"bad": dict(text_input="x", temperature=9.0), "good": dict(text_input="x", max_tokens=3)})
        self.assertEqual(len(errors), 1)
        self.assertIn("temperature", errors[0].message())
        self.assertEqual(len(results["good"]), 1)

    def test_errors(self):
        for status, values in (("NOT_FOUND", dict(text_input="x", model="gpt-9")), ("INVALID_ARGUMENT", dict(text_input=["a", "b"])),
                               ("INVALID_ARGUMENT", dict(prompt="x")), ("INVALID_ARGUMENT", dict(text_input="x", stream=True)),
                               ("INVALID_ARGUMENT", dict(text_input="x", beam_width=2))):
            with self.subTest(values), self.assertRaises(InferenceServerException) as caught:
                self.infer(**values)
            self.assertIn(status, caught.exception.status())

    def test_a_client_that_leaves_frees_the_slot(self):
        client = triton.InferenceServerClient(self.server.target)
        arrived = queue.Queue()
        client.start_stream(lambda result, error: arrived.put(result))
        sampling = json.dumps({"logit_bias": NO_END, "max_tokens": 4000})
        client.async_stream_infer("smollm2", tensors(text_input="Tell me", sampling_parameters=sampling, stream=True))
        arrived.get(timeout=60 * PATIENCE)
        client.stop_stream(cancel_requests=True)
        client.close()
        self.server.wait_idle()


if __name__ == "__main__":
    unittest.main()
