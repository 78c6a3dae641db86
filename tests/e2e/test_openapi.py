"""/openapi.json against what clients can send, what the sources read, and docs/api.md."""
import inspect
import json
import re
import unittest

try:
    import anthropic
    import openai
except ImportError as error:
    raise ImportError("the clients are missing; scripts/test.sh installs them into build/venv") from error

from harness import ROOT, ServerTest

# Arguments of the clients' methods that are no fields of the body.
NOT_SENT = {"self", "extra_headers", "extra_query", "extra_body", "timeout", "betas"}


def parameters(method):
    return set(inspect.signature(method).parameters) - NOT_SENT


def names(properties):
    """Of fields, and of the members of those that have a table of their own."""
    return set(properties).union(*(names(field["properties"]) for field in properties.values() if "properties" in field))


class OpenApi(ServerTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        reply = cls.server.get("/openapi.json")
        assert reply.status == 200, reply.status
        cls.document = reply.json

    def fields(self, path):
        return self.document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]

    def test_every_parameter_of_the_clients_is_in_a_table(self):
        client, claude = openai.OpenAI(api_key="none"), anthropic.Anthropic(api_key="none")
        for path, method in (("/v1/chat/completions", client.chat.completions.create), ("/v1/completions", client.completions.create),
                             ("/v1/responses", client.responses.create), ("/v1/embeddings", client.embeddings.create), ("/v1/messages", claude.messages.create),
                             ("/v1/messages/count_tokens", claude.messages.count_tokens)):
            with self.subTest(path):
                self.assertEqual(parameters(method) - set(self.fields(path)), set(),
                                 "say in src/server/*/fields.cc and docs/api.md what becomes of them")

    def test_every_field_that_the_sources_read_is_in_a_table(self):
        known = set()
        for path in self.document["paths"].values():
            for operation in path.values():
                if "requestBody" in operation:
                    known |= names(operation["requestBody"]["content"]["application/json"]["schema"]["properties"])
        read = re.compile(r'\b(?:reader|parameters)\.(?:Get|Bool|Int|Number|String|Array|Object|IntArray)\(\s*"(\w+)"')
        for file in sorted((ROOT / "src/server").glob("*/*.cc")):
            if file.parent.name in ("api", "openai", "anthropic", "llama", "ollama", "tgi", "tokenize"):
                self.assertEqual(set(read.findall(file.read_text())) - known, set(), file.name)

    def test_the_documentation_names_every_field(self):
        text = (ROOT / "docs/api.md").read_text()
        words = set(re.findall(r"\w+", text))
        for path in ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/messages", "/completion", "/embedding", "/api/embed", "/api/embeddings", "/infill", "/tokenize", "/api/chat", "/api/generate", "/api/show", "/generate"):
            self.assertEqual(names(self.fields(path)) - words, set(), path)

    def test_what_the_document_calls_ignored_or_refused_is(self):
        for path, body in (("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}),
                           ("/v1/responses", {"input": "hi", "max_output_tokens": 1}), ("/completion", {"prompt": "hi", "n_predict": 1}),
                           ("/api/generate", {"prompt": "hi", "stream": False, "options": {"num_predict": 1}})):
            for name, schema in self.fields(path).items():
                use = schema.get("x-use")
                if use:
                    with self.subTest(f"{path} {name}"):
                        reply = self.server.request("POST", path, {**body, name: {"a": 1} if name != "background" else True})
                        self.assertEqual(reply.status, 200 if use == "ignored" else 400, reply.body)


if __name__ == "__main__":
    unittest.main()
