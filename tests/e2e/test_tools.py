"""Tools, held by grammars: a model that draws its tokens blindly, in every format of calls, through the stock clients."""
import json
import pathlib
import tempfile
import unittest

import anthropic
import openai

from harness import Server, ServerTest
from tiny_models import PLAIN, chain_model

DEEPSEEK = [f"<｜tool▁{name}｜>" for name in ("calls▁begin", "call▁begin", "sep", "call▁end", "calls▁end")]
HARMONY = [f"<|{name}|>" for name in ("start", "channel", "constrain", "message", "end", "call", "return")]
FORMATS = {   # what a template names, and the markers that are control tokens
    "json": ("", []),
    "hermes": ("<tool_call>", []),
    "hermes-control": ("<tool_call>", ["<tool_call>", "</tool_call>"]),
    "qwen-xml": ("<tool_call> <function= <parameter=", ["<tool_call>", "</tool_call>"]),
    "llama": ("<|python_tag|>", ["<|python_tag|>"]),
    "mistral": ("[TOOL_CALLS]", ["[TOOL_CALLS]"]),
    "mistral-args": ("[TOOL_CALLS] [ARGS]", ["[TOOL_CALLS]", "[ARGS]"]),
    "deepseek": ("<｜tool▁call▁begin｜> ```json", DEEPSEEK),
    "deepseek-v3.1": ("<｜tool▁call▁begin｜>", DEEPSEEK),
    "gemma": ("<start_of_turn>", []),
    "granite": ("<|tool_call|>", ["<|tool_call|>"]),
    "harmony": ("<|channel|> <|message|>", HARMONY),
}
WEATHER = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9},
                                            "note": {"type": "string", "maxLength": 6}},
           "required": ["city", "days"], "additionalProperties": False}
NAME = {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"], "additionalProperties": False}


def tool(name, parameters, **more):
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


TOOLS = [tool("get_weather", WEATHER), tool("set-light", NAME)]


def random_model(path, named="", control=(), reasoning=""):
    """All tokens are equally likely."""
    template = PLAIN + "{# " + named + " " + reasoning + " #}"
    return chain_model(path, {}, template=template, context=2048, extra=[(marker, 3) for marker in control])


class Checks(unittest.TestCase):
    def assert_arguments(self, name, arguments):
        if name == "get_weather":
            self.assertLessEqual({"city", "days"}, set(arguments))
            self.assertLessEqual(set(arguments), set(WEATHER["properties"]))
            self.assertIn(arguments["city"], ("Paris", "Rome"))
            self.assertIn(arguments["days"], range(1, 10))
            self.assertLessEqual(len(arguments.get("note", "")), 6)
        else:
            self.assertEqual(name, "set-light")
            self.assertIsInstance(arguments["on"], bool)
            self.assertEqual(len(arguments), 1)

    def assert_calls(self, choice, count=None):
        self.assertEqual(choice.finish_reason, "tool_calls")
        self.assertFalse(choice.message.content)
        calls = choice.message.tool_calls
        self.assertEqual(len(calls), count or len(calls))
        for call in calls:
            self.assert_arguments(call.function.name, json.loads(call.function.arguments))


class EveryFormat(Checks):
    def test_demanded_calls(self):
        for name, (named, control) in FORMATS.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                with Server(random_model(f"{folder}/m.gguf", named, control)) as server:
                    client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
                    self.ask_each_way(client)

    def ask_each_way(self, client):
        def ask(seed, **fields):
            return client.chat.completions.create(model="m", messages=[{"role": "user", "content": "?"}], tools=TOOLS, seed=seed,
                                                  temperature=1, max_tokens=1500, logit_bias={"0": 3, "2": 3}, **fields)

        for seed in range(4):
            self.assert_calls(ask(seed, tool_choice="required").choices[0])
            self.assert_calls(ask(seed, tool_choice="required", parallel_tool_calls=False).choices[0], 1)
            named = ask(seed, tool_choice={"type": "function", "function": {"name": "set-light"}}).choices[0]
            self.assert_calls(named, 1)
            self.assertEqual(named.message.tool_calls[0].function.name, "set-light")
            allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [
                {"type": "function", "function": {"name": "get_weather"}}]}}
            for call in ask(seed, tool_choice=allowed).choices[0].message.tool_calls:
                self.assertEqual(call.function.name, "get_weather")
        whole = ask(7, tool_choice="required").choices[0].message.tool_calls
        names, arguments = {}, {}
        for chunk in ask(7, tool_choice="required", stream=True):
            for part in chunk.choices[0].delta.tool_calls or []:
                names[part.index] = part.function.name or names[part.index]
                arguments[part.index] = arguments.get(part.index, "") + (part.function.arguments or "")
        self.assertEqual([(names[i], arguments[i]) for i in sorted(names)], [(c.function.name, c.function.arguments) for c in whole])

    def test_reasoning_comes_first(self):
        control = ["<tool_call>", "</tool_call>", "<think>", "</think>"]
        with tempfile.TemporaryDirectory() as folder:
            path = random_model(f"{folder}/m.gguf", "<tool_call>", control, "<think>")
            with Server(path, "--served-model-name", "m") as server:
                client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
                think, close = str(260 + control.index("<think>")), str(260 + control.index("</think>"))
                for fields in ({"tools": TOOLS, "tool_choice": "required"},
                               {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": WEATHER}}}):
                    reply = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "?"}], seed=3, temperature=1,
                                                           max_tokens=1500, logit_bias={"0": 3, "2": 3, think: 40, close: 2}, **fields)
                    message = reply.choices[0].message
                    self.assertTrue(message.reasoning_content)
                    self.assertGreater(reply.usage.completion_tokens_details.reasoning_tokens, 0)
                    if "tools" in fields:
                        self.assert_calls(reply.choices[0])
                    else:
                        self.assert_arguments("get_weather", json.loads(message.content))


class Flags(Checks):
    def test_formats_by_flag(self):
        with tempfile.TemporaryDirectory() as folder:
            path = random_model(f"{folder}/m.gguf", "", ["[TOOL_CALLS]"])
            with Server(path, "--tool-call-format", "mistral") as server:
                client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
                reply = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "?"}], tools=TOOLS, seed=1, temperature=1,
                                                       max_tokens=1500, tool_choice="required", logprobs=True)
                self.assert_calls(reply.choices[0])
                self.assertEqual(reply.choices[0].logprobs.content[0].token, "[TOOL_CALLS]")
            wrong = Server(path, "--tool-call-format", "pythonic", wait=False)
            self.assertNotEqual(wrong.process.wait(30), 0)
            self.assertIn("hermes, qwen-xml", wrong.output())
            wrong.stop()


class Reasoning(unittest.TestCase):
    """A model that thinks for ever, until its budget is spent."""

    def test_budgets(self):
        with tempfile.TemporaryDirectory() as folder:
            path = random_model(f"{folder}/m.gguf", "", ["<think>", "</think>"], "<think>")
            with Server(path) as server:
                chat = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0).chat.completions
                fields = dict(model="m", messages=[{"role": "user", "content": "?"}], seed=5, temperature=1, max_tokens=200)
                bias = {"260": 60, "261": -100, "0": -100, "2": -100}   # thinks first; ends neither by itself
                for extra, most in (({"thinking_token_budget": 20}, 20), ({"reasoning": {"max_tokens": 5}}, 5), ({"thinking_budget": 0}, 0)):
                    with self.subTest(extra):
                        # The bias begins reasoning again behind its end: that is ended at once, and everything else is content.
                        reply = chat.create(**fields, logit_bias=bias, extra_body=extra)
                        details = reply.usage.completion_tokens_details
                        self.assertLessEqual(details.reasoning_tokens, most + 4)
                        self.assertGreaterEqual(details.reasoning_tokens, most)
                endless = chat.create(**fields, logit_bias=bias)
                self.assertGreater(endless.usage.completion_tokens_details.reasoning_tokens, 150)
                client = anthropic.Anthropic(base_url=f"http://127.0.0.1:{server.port}", api_key="none", max_retries=0)
                reply = client.messages.create(model="m", max_tokens=2000, messages=[{"role": "user", "content": "?"}],
                                               thinking={"type": "enabled", "budget_tokens": 1024})
                self.assertIn(reply.stop_reason, ("end_turn", "max_tokens"))


class Strict(Checks):
    """Text in which calls, once begun, follow their schemas."""

    def test_within_text(self):
        strict = [tool("get_weather", WEATHER, strict=True), tool("set-light", NAME, strict=True)]
        for name in ("hermes-control", "qwen-xml", "mistral", "deepseek-v3.1", "granite", "harmony", "llama"):
            named, control = FORMATS[name]
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                with Server(random_model(f"{folder}/m.gguf", named, control)) as server:
                    client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
                    bias = {str(260 + i): 5 for i in range(len(control))}
                    bias = {**bias, "0": 3, "2": 3, str(3 + ord("{")): 5}
                    seen = 0
                    for seed in range(6):
                        reply = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "?"}], tools=strict, seed=seed,
                                                               temperature=1, max_tokens=1500, logit_bias=bias)
                        choice = reply.choices[0]
                        for call in choice.message.tool_calls or []:
                            seen += 1
                            if choice.finish_reason != "length":
                                self.assert_arguments(call.function.name, json.loads(call.function.arguments))
                    self.assertGreater(seen, 0)

    def test_json_or_a_call(self):
        named, control = FORMATS["hermes-control"]
        with tempfile.TemporaryDirectory() as folder, Server(random_model(f"{folder}/m.gguf", named, control)) as server:
            client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
            seen = set()
            for seed in range(10):
                choice = client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": "?"}], tools=[tool("get_weather", WEATHER, strict=True)], seed=seed,
                    temperature=1, max_tokens=1500, logit_bias={"0": 3, "2": 3},
                    response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": NAME}}).choices[0]
                seen.add(choice.finish_reason)
                if choice.finish_reason == "tool_calls":
                    self.assert_calls(choice)
                else:
                    self.assert_arguments("set-light", json.loads(choice.message.content))
            self.assertEqual(seen, {"tool_calls", "stop"})


class Anthropic(Checks):
    def test_one_tool_use(self):
        named, control = FORMATS["mistral"]
        with tempfile.TemporaryDirectory() as folder, Server(random_model(f"{folder}/m.gguf", named, control)) as server:
            client = anthropic.Anthropic(base_url=f"http://127.0.0.1:{server.port}", api_key="none", max_retries=0)
            for choice in ({"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "get_weather"}):
                reply = client.messages.create(model="m", max_tokens=1500, messages=[{"role": "user", "content": "?"}], tool_choice=choice,
                                               tools=[{"name": "get_weather", "input_schema": WEATHER}])
                self.assertEqual([block.type for block in reply.content], ["tool_use"])
                self.assert_arguments("get_weather", reply.content[0].input)
                self.assertEqual(reply.stop_reason, "tool_use")


if __name__ == "__main__":
    unittest.main()
