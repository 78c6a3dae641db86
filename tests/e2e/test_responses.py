"""responses.create and responses.stream of the stock openai client against the real server."""
import json
import unittest

try:
    import openai
except ImportError as error:
    raise ImportError("the openai package is missing; scripts/test.sh installs it into build/venv") from error

from harness import ServerTest


class Responses(ServerTest):
    options = ("--served-model-name", "smollm2")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = openai.OpenAI(base_url=f"http://127.0.0.1:{cls.server.port}/v1", api_key="none", max_retries=0)

    def ask(self, **fields):
        return self.client.responses.create(**{"model": "smollm2", "temperature": 0, "max_output_tokens": 24,
                                               "input": "What is gravity?", **fields})

    def test_whole_and_streamed_agree(self):
        whole = self.ask()
        self.assertEqual((whole.status, whole.incomplete_details.reason), ("incomplete", "max_output_tokens"))
        self.assertIn("Gravity", whole.output_text)
        with self.client.responses.stream(model="smollm2", temperature=0, max_output_tokens=24, input="What is gravity?") as stream:
            events = list(stream)
            final = events[-1].response
        self.assertEqual([e.sequence_number for e in events if hasattr(e, "sequence_number")], list(range(len(events))))
        self.assertEqual("".join(e.delta for e in events if e.type == "response.output_text.delta"), whole.output_text)
        self.assertEqual(final.output_text, whole.output_text)
        self.assertEqual(final.usage.output_tokens, whole.usage.output_tokens)

    def test_the_same_as_a_chat(self):
        chat = self.client.chat.completions.create(model="smollm2", temperature=0, max_tokens=24, messages=[
            {"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is gravity?"}])
        reply = self.ask(instructions="Be brief.", input=[{"role": "user", "content": [{"type": "input_text", "text": "What is gravity?"}]}])
        self.assertEqual(reply.output_text, chat.choices[0].message.content)
        self.assertEqual(reply.usage.input_tokens, chat.usage.prompt_tokens)

    def test_a_conversation_goes_on_with_its_own_output(self):
        first = self.ask(max_output_tokens=8)
        history = [{"role": "user", "content": "What is gravity?"}] + [item.model_dump() for item in first.output]
        second = self.ask(input=history + [{"role": "user", "content": "Go on."}])
        self.assertGreater(second.usage.input_tokens, first.usage.input_tokens + 8)

    def test_format_and_logprobs(self):
        reply = self.ask(text={"format": {"type": "json_schema", "name": "answer", "schema": {"enum": ["yes", "no"]}}},
                         top_logprobs=2, include=["message.output_text.logprobs"])
        self.assertIn(reply.output_text, ('"yes"', '"no"'))
        self.assertEqual(reply.status, "completed")
        self.assertEqual(len(reply.output[0].content[0].logprobs[0].top_logprobs), 2)

    def test_functions(self):
        tool = {"type": "function", "name": "get_weather", "parameters": {
            "type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}}
        fields = dict(model="smollm2", temperature=0, max_output_tokens=60, input="What is the weather in Rome?", tools=[tool],
                      tool_choice="required")
        call = self.client.responses.create(**fields).output[-1]
        self.assertEqual((call.type, call.name), ("function_call", "get_weather"))
        self.assertIn(json.loads(call.arguments)["city"], ("Paris", "Rome"))
        with self.client.responses.stream(**fields) as stream:
            events = list(stream)
        self.assertEqual("".join(e.delta for e in events if e.type == "response.function_call_arguments.delta"), call.arguments)
        self.assertEqual(events[-1].response.output[-1].arguments, call.arguments)
        reply = self.ask(tools=[tool], input=[{"role": "user", "content": "What is the weather in Rome?"}, call.model_dump(exclude_none=True),
                                              {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}])
        self.assertTrue(reply.output)

    def test_what_would_have_to_be_kept_is_refused(self):
        for field, value in (("previous_response_id", "resp_1"), ("conversation", "conv_1"), ("background", True)):
            with self.subTest(field), self.assertRaises(openai.BadRequestError) as caught:
                self.ask(**{field: value})
            self.assertEqual(caught.exception.param, field)
        self.assertFalse(self.ask(store=True, max_output_tokens=1).store)


if __name__ == "__main__":
    unittest.main()
