"""Streams from models that say chosen bytes: characters cut over tokens, stop strings, roles, usage."""
import json
import unittest

from harness import CHAT, Server, ServerTest
from tiny_models import byte_token, chain_model

EMOJI = b"?AB\xf0\x9f\x98\x80 Z"
USAGE = {"stream": True, "stream_options": {"include_usage": True}}


class EmojiModel(ServerTest):
    @staticmethod
    def make_model(path):
        return chain_model(path, EMOJI)

    def both(self, **fields):
        return self.server.chat("hello?", **fields), self.server.chat("hello?", **{**USAGE, **fields})

    def test_character_over_several_tokens_comes_whole(self):
        plain, stream = self.both()
        self.assertEqual(plain.text(), "AB😀 Z")
        self.assertEqual(stream.text(), "AB😀 Z")
        self.assertNotIn("\ufffd", stream.body.decode())
        self.assertEqual(plain.usage["completion_tokens"], stream.usage["completion_tokens"])
        self.assertEqual((plain.finish(), stream.finish()), ("stop", "stop"))

    def test_stop_strings_cut_inside_tokens_and_characters(self):
        for stop, want in (("B😀", "A"), ("😀", "AB"), ("A", ""), ("😀 Z", "AB"), (["Z", " "], "AB😀"), (["B", "AB"], "")):
            for reply in self.both(stop=stop):
                self.assertEqual(reply.text(), want, stop)
                self.assertEqual(reply.finish(), "stop", stop)
        self.server.wait_idle()

    def test_near_misses_of_stop_strings_are_sent_once(self):
        for reply in self.both(stop=["AB!", "B😀!", "Z!"]):
            self.assertEqual(reply.text(), "AB😀 Z")

    def test_role_first_and_once_for_every_choice(self):
        for fields, n in (({}, 1), ({"n": 3}, 3), ({"logit_bias": {"2": 100}}, 1)):
            chunks = self.server.chat("hello?", stream=True, **fields).chunks
            for i in range(n):
                deltas = [c["delta"] for chunk in chunks for c in chunk["choices"] if c["index"] == i]
                self.assertEqual(deltas[0], {"role": "assistant", "content": ""})
                self.assertFalse(any("role" in d for d in deltas[1:]))

    def test_usage_chunk_is_last_and_only_when_asked_for(self):
        for options in ({}, {"include_usage": False}, {"include_usage": None}, None):
            chunks = self.server.chat("hello?", stream=True, stream_options=options).chunks
            self.assertFalse(any(c.get("usage") or not c["choices"] for c in chunks), options)
        chunks = self.server.chat("hello?", **USAGE).chunks
        self.assertEqual([i for i, c in enumerate(chunks) if c.get("usage")], [len(chunks) - 1])
        self.assertEqual(chunks[-1]["choices"], [])

    def test_text_completion_stream_and_echo(self):
        self.assertEqual(self.server.complete("hello?").text(), "AB😀 Z")
        self.assertEqual(self.server.complete("hello?", echo=True, stream=True).text(), "hello?AB😀 Z")

    def test_token_ids_are_returned(self):
        reply = self.server.chat("hello?", return_token_ids=True)
        ids = [byte_token(b) for b in EMOJI[1:]]
        self.assertEqual(reply.json["choices"][0]["token_ids"], ids)
        stream = self.server.chat("hello?", return_token_ids=True, stream=True)
        self.assertEqual([t for c in stream.chunks for x in c["choices"] for t in x.get("token_ids", [])], ids)


class InvalidBytes(ServerTest):
    data = b"?A\xc0\xaf\xed\xa0\x80\xf5\xff"

    @classmethod
    def make_model(cls, path):
        return chain_model(path, cls.data)

    def test_invalid_output_is_replaced_as_python_does(self):
        want = self.data[1:].decode("utf-8", "replace")
        self.assertEqual(self.server.chat("?").text(), want)
        self.assertEqual(self.server.chat("?", stream=True).text(), want)

    def test_endless_half_characters_are_not_held_back(self):
        bias = {str(byte_token(0xf0)): 100}
        reply = self.server.chat("?", stream=True, max_tokens=32, logit_bias=bias)
        self.assertIn(reply.text(), ("\ufffd" * 31, "\ufffd" * 32))
        self.assertGreater(sum(1 for c in reply.chunks if c["choices"][0]["delta"].get("content")), 4)


class UserDefinedTokens(ServerTest):
    @staticmethod
    def make_model(path):
        return chain_model(path, b"?A", extra=(("<tool>", 4), ("<ctl>", 3)))

    def test_user_defined_always_control_never_in_content(self):
        reply = self.server.request("POST", CHAT + "/render", {"messages": [{"role": "user", "content": "a<tool>b<ctl>c"}]})
        self.assertEqual(reply.json["tokens"], [100, 260, 101, 63, 102, 119, 111, 65, 102])


class Templates(unittest.TestCase):
    def render(self, template, messages, **fields):
        import tempfile
        with tempfile.TemporaryDirectory() as folder:
            with Server(chain_model(folder + "/m.gguf", EMOJI, template=template)) as server:
                return server.request("POST", CHAT + "/render", {"messages": messages, **fields})

    def test_tojson_is_python_json(self):
        tools = [{"type": "function", "function": {"name": "f", "description": "<b>&'é😀\"\\/",
                                                   "parameters": {"z": 1, "a": {"default": 1.0}}}}]
        reply = self.render("{{ tools | tojson }}", [{"role": "user", "content": "x"}], tools=tools)
        self.assertEqual(reply.json["prompt"], json.dumps(tools, ensure_ascii=False))

    def test_raise_exception_is_the_callers_400(self):
        template = "{{ raise_exception('no <system> here') if messages[0].role == 'system' else messages[0].content }}"
        reply = self.render(template, [{"role": "system", "content": "S"}])
        self.assertEqual((reply.status, "no <system> here" in reply.error["message"]), (400, True))


if __name__ == "__main__":
    unittest.main()
