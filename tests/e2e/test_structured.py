"""Answers that must be valid: by schema, expression, grammar or choice, with any sampling, alone and in a batch, on one rank and on two."""
import json
import unittest

from harness import ServerTest, at_once

PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 1, "maximum": 99},
                                           "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3}},
          "required": ["name", "age"], "additionalProperties": False}


def by_schema(schema):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}}


class Structured(ServerTest):
    options = ("--max-num-seqs", "8")

    def assert_person(self, text):
        value = json.loads(text)
        self.assertLessEqual({"name", "age"}, set(value))
        self.assertLessEqual(set(value), {"name", "age", "tags"})
        self.assertLessEqual(len(value["name"]), 12)
        self.assertIn(value["age"], range(1, 100))

    def test_schemas_hold_with_any_sampling(self):
        for fields in ({"temperature": 0}, {"temperature": 1.5, "seed": 3, "n": 3}, {"temperature": 2, "top_p": .9, "seed": 4}, {"top_k": 1},
                       {"frequency_penalty": 2}, {"min_tokens": 50}, {"ignore_eos": True}):
            reply = self.server.chat("Describe a person.", max_tokens=200, **by_schema(PERSON), **fields)
            self.assertEqual(reply.status, 200, reply.body)
            for i in range(fields.get("n", 1)):
                self.assertEqual(reply.finish(i), "stop")
                self.assert_person(reply.text(i))

    def test_fixed_answers(self):
        for schema in ({"const": "q\"\\\n\té😀"}, {"const": {"a": [1, None, "x/y"]}}):
            for stream in (False, True):
                reply = self.server.chat("x", max_tokens=64, stream=stream, **by_schema(schema))
                self.assertEqual((json.loads(reply.text()), reply.finish()), (schema["const"], "stop"))

    def test_other_kinds(self):
        ask = lambda **f: self.server.chat("Answer.", max_tokens=40, temperature=1.2, seed=1, **f).text()
        self.assertRegex(ask(structured_outputs={"regex": r"[a-c]{3}-\d{2}"}), r"^[a-c]{3}-\d{2}$")
        self.assertIn(ask(guided_choice=["red", "green"]), ("red", "green"))
        self.assertRegex(ask(guided_grammar='root ::= ("ab" | "cd")+ "."' "\n").rstrip("."), r"^(ab|cd)+$")
        # Biased to quotes and closing braces, so that it ends.
        reply = self.server.chat("An object.", max_tokens=200, response_format={"type": "json_object"}, logit_bias={"18": 8, "109": 15})
        self.assertIsInstance(json.loads(reply.text()), dict)

    def test_rows_with_and_without_grammars_do_not_disturb_each_other(self):
        plain = lambda: self.server.chat("Tell me about the sea.", max_tokens=24).text()
        formed = lambda: self.server.chat("Describe a person.", max_tokens=100, seed=5, temperature=1, **by_schema(PERSON)).text()
        alone = [plain(), formed()]
        self.assertEqual(at_once([plain, formed] * 3), alone * 3)

    def test_what_cannot_be_honoured_is_refused_by_name(self):
        refused = self.server.chat("x", **by_schema({"type": "object", "properties": {"a": {"contains": {}}}}))
        self.assert_refused(refused, 400, "response_format")
        self.assertRegex(refused.error["message"], r'"contains" at #/properties/a')
        self.assert_refused(self.server.chat("x", guided_regex="(a"), 400, "guided_regex")
        self.assert_refused(self.server.chat("x", guided_grammar="root ::= root"), 400, "guided_grammar")


class OverRanks(Structured):
    """The rank that draws reads the vocabulary from its part of the model."""
    options = ("--max-num-seqs", "8", "--tp", "2")


if __name__ == "__main__":
    unittest.main()
