"""langchain-openai, langchain-ollama and litellm against the real server. Heavy packages: not part of ctest; docs/development.md has the command."""
import os
import unittest

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")   # no look-up at import
import litellm
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_ollama import ChatOllama, OllamaLLM
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from harness import ServerTest


@tool
def get_weather(city: str) -> str:
    """Weather of a city."""
    return f"sunny in {city}"


class Answer(BaseModel):
    force: bool
    discovered_by: str


class Frameworks(ServerTest):
    options = ("--served-model-name", "smollm2")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = f"http://127.0.0.1:{cls.server.port}"
        cls.chat = ChatOpenAI(model="smollm2", base_url=cls.root + "/v1", api_key="none", temperature=0, max_tokens=60, max_retries=0)

    def test_langchain_whole_and_streamed_agree(self):
        whole = self.chat.invoke("What is gravity?")
        self.assertIn("Gravity", whole.content)
        self.assertGreater(whole.usage_metadata["output_tokens"], 0)
        self.assertEqual("".join(chunk.content for chunk in self.chat.stream("What is gravity?")), whole.content)

    def test_langchain_tools(self):
        bound = self.chat.bind_tools([get_weather], tool_choice="any")
        question = HumanMessage("What is the weather in Rome?")
        reply = bound.invoke([question])
        self.assertEqual([call["name"] for call in reply.tool_calls], ["get_weather"])
        result = ToolMessage(get_weather.invoke(reply.tool_calls[0]["args"]), tool_call_id=reply.tool_calls[0]["id"])
        self.assertTrue(self.chat.invoke([question, reply, result]).content)

    def test_langchain_ollama(self):
        chat = ChatOllama(model="smollm2", base_url=self.root, temperature=0, num_predict=60, validate_model_on_init=True)
        whole = chat.invoke("What is gravity?")
        self.assertEqual(whole.content, self.chat.invoke("What is gravity?").content)
        self.assertGreater(whole.usage_metadata["output_tokens"], 0)
        self.assertEqual("".join(chunk.content for chunk in chat.stream("What is gravity?")), whole.content)
        answer = chat.with_structured_output(Answer, method="json_schema").invoke("Is gravity a force, and who discovered it?")
        self.assertIsInstance(answer.force, bool)
        result = ToolMessage("sunny", tool_call_id="1")
        call = AIMessage("", tool_calls=[{"name": "get_weather", "args": {"city": "Rome"}, "id": "1"}])
        self.assertTrue(chat.bind_tools([get_weather]).invoke([HumanMessage("What is the weather in Rome?"), call, result]).content)
        self.assertTrue(OllamaLLM(model="smollm2", base_url=self.root, temperature=0, num_predict=8).invoke("Once upon a time"))

    def test_litellm(self):
        question = [{"role": "user", "content": "What is gravity?"}]
        for model, base in (("openai/smollm2", self.root + "/v1"), ("anthropic/smollm2", self.root), ("ollama_chat/smollm2", self.root), ("ollama/smollm2", self.root)):
            with self.subTest(model):
                fields = dict(model=model, api_base=base, api_key="none", messages=question, max_tokens=24, temperature=0, num_retries=0)
                whole = litellm.completion(**fields).choices[0].message.content
                self.assertIn("Gravity", whole)
                stream = litellm.completion(stream=True, **fields)
                self.assertEqual("".join(chunk.choices[0].delta.content or "" for chunk in stream), whole)


if __name__ == "__main__":
    unittest.main()
