"""The stock anthropic client against the real server."""
import unittest

try:
    import anthropic
except ImportError as error:
    raise ImportError("the anthropic package is missing; scripts/test.sh installs it into build/venv") from error

from harness import ServerTest

QUESTION = [{"role": "user", "content": "What is gravity?"}]
# The newest clients have no parameter for the temperature any more.
GREEDY = {"model": "smollm2", "max_tokens": 24, "messages": QUESTION, "extra_body": {"temperature": 0}}


class Client(ServerTest):
    options = ("--api-key", "secret", "--served-model-name", "smollm2")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.url = f"http://127.0.0.1:{cls.server.port}"
        cls.client = anthropic.Anthropic(base_url=cls.url, api_key="secret", max_retries=0)

    def ask(self, **fields):
        return self.client.messages.create(**{**GREEDY, **fields})

    def test_whole_and_streamed_agree(self):
        whole = self.ask()
        self.assertEqual((whole.type, whole.role, whole.stop_reason), ("message", "assistant", "max_tokens"))
        self.assertIn("Gravity", whole.content[0].text)
        with self.client.messages.stream(**GREEDY) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual(text, whole.content[0].text)
        self.assertEqual(final.content[0].text, text)
        self.assertEqual(final.stop_reason, "max_tokens")
        self.assertEqual(final.usage.output_tokens, whole.usage.output_tokens)
        total = whole.usage.input_tokens + whole.usage.cache_read_input_tokens
        self.assertEqual(final.usage.input_tokens + final.usage.cache_read_input_tokens, total)

    def test_events_of_a_stream(self):
        types = [event.type for event in self.ask(stream=True, max_tokens=2)]
        self.assertEqual(types[0], "message_start")
        self.assertEqual(types[-1], "message_stop")
        for name in ("content_block_start", "content_block_delta", "content_block_stop", "message_delta"):
            self.assertIn(name, types)

    def test_system_blocks_and_stop_sequences(self):
        reply = self.ask(system=[{"type": "text", "text": "You are brief."}], stop_sequences=["physics", "force"], max_tokens=48,
                         messages=[{"role": "user", "content": [{"type": "text", "text": "What is gravity?"}]}])
        self.assertEqual(reply.stop_reason, "stop_sequence")
        self.assertIn(reply.stop_sequence, ("physics", "force"))
        self.assertNotIn(reply.stop_sequence, reply.content[0].text)

    def test_an_answer_that_has_begun_goes_on(self):
        reply = self.ask(messages=QUESTION + [{"role": "assistant", "content": "Gravity is a force"}], max_tokens=4)
        self.assertTrue(reply.content[0].text.startswith(" "), reply.content[0].text)

    def test_tokens_are_counted(self):
        counted = self.client.messages.count_tokens(model="smollm2", messages=QUESTION).input_tokens
        usage = self.ask(max_tokens=1).usage
        self.assertEqual(counted, usage.input_tokens + usage.cache_read_input_tokens)

    def test_format_of_the_answer(self):
        reply = self.ask(extra_body={"temperature": 0, "output_config": {"format": {"type": "json_schema", "schema": {"enum": ["yes", "no"]}}}})
        self.assertIn(reply.content[0].text, ('"yes"', '"no"'))

    def test_tools(self):
        tools = [{"name": "get_weather", "description": "Weather of a city", "input_schema": {
            "type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}}]
        question = [{"role": "user", "content": "What is the weather in Rome?"}]
        fields = {**GREEDY, "max_tokens": 60, "messages": question, "tools": tools, "tool_choice": {"type": "tool", "name": "get_weather"}}
        whole = self.client.messages.create(**fields)
        self.assertEqual(whole.stop_reason, "tool_use")
        block = whole.content[-1]
        self.assertEqual((block.type, block.name), ("tool_use", "get_weather"))
        self.assertIn(block.input["city"], ("Paris", "Rome"))
        with self.client.messages.stream(**fields) as stream:
            self.assertEqual(stream.get_final_message().content[-1].input, block.input)
        reply = self.ask(tools=tools, messages=question + [
            {"role": "assistant", "content": [{"type": "tool_use", "id": block.id, "name": block.name, "input": block.input}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": block.id, "content": "sunny"}]}])
        self.assertEqual(reply.role, "assistant")

    def test_errors_are_the_clients_exceptions(self):
        with self.assertRaises(anthropic.BadRequestError) as caught:
            self.ask(extra_body={"temperature": 5})
        self.assertEqual(caught.exception.body["error"]["type"], "invalid_request_error")
        with self.assertRaises(anthropic.NotFoundError):
            self.ask(model="other")
        with self.assertRaises(anthropic.AuthenticationError):
            anthropic.Anthropic(base_url=self.url, api_key="wrong", max_retries=0).messages.create(
                model="smollm2", max_tokens=1, messages=QUESTION)
        with self.assertRaises(anthropic.BadRequestError) as caught:
            self.ask(tools=[{"type": "web_search_20250305", "name": "web_search"}])
        self.assertIn("tools[0]", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
