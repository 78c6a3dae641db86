"""Templates in the style of well-known model families (tests/data/templates), over many conversations."""
import pathlib

TEMPLATES = pathlib.Path(__file__).resolve().parent.parent.parent / "data" / "templates"

WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "Get the weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "description": "Name of the <city> & 'country'"},
                                     "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
                                     "days": {"type": "integer", "default": 1}},
    "required": ["city"]}}}
SEARCH = {"type": "function", "function": {"name": "search", "description": "Suche \"überall\"", "return": {"type": "string"}, "parameters": {
    "type": "object", "properties": {
        "queries": {"type": "array", "items": {"type": "string"}},
        "filters": {"type": "object", "properties": {"min": {"type": "number"}, "tags": {"type": "array", "items": {"type": "object"}}}, "required": ["min"]},
        "mode": {"oneOf": [{"type": "string", "default": "fast"}, {"type": "integer", "description": "level"}]},
        "limit": {"type": ["integer", "null"]}, "flag": {"type": "boolean"}, "any": {}}, "required": ["queries"]}}}
NO_ARGUMENTS = {"type": "function", "function": {"name": "now", "description": "Time", "parameters": {"type": "object", "properties": {}}}}


def user(text): return {"role": "user", "content": text}
def system(text): return {"role": "system", "content": text}
def said(text, **fields): return {"role": "assistant", "content": text, **fields}
def call(name, arguments, id="abcdefghi"): return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
def result(text, id="abcdefghi"): return {"role": "tool", "tool_call_id": id, "name": "get_weather", "content": text}
def parts(*texts): return [{"type": "text", "text": t} for t in texts]


OBJECT = {"city": "Zürich", "days": 2, "deep": {"a": [1.0, None, True], "q": "\"'\\"}}
CONVERSATIONS = {
    "hi": [user("hi")],
    "empty": [user("")],
    "system": [system("Be brief.\n"), user("  What is it?  ")],
    "turns": [user("Hi"), said("Hello! How can I help?"), user("  Tell me a joke.  "), said(" No. "), user("ok\n\n")],
    "system_turns": [system(" S "), user("a"), said("b"), user("c")],
    "only_system": [system("only")],
    "ends_with_assistant": [user("a"), said("The answer is ")],
    "two_users": [user("a"), user("b")],
    "starts_with_assistant": [said("a"), user("b")],
    "late_system": [user("a"), system("late"), user("b")],
    "unicode": [user("Ünïcödé 😀\u2028 <|im_end|> {{ x }} {% y %} \\n \"quotes\" 'single'\ttab")],
    "thinking": [user("q"), said("<think>\nlong\nthought\n</think>\n\nanswer"), user("r")],
    "thinking_last": [user("q"), said("<think>\nlong\nthought\n</think>\n\nanswer")],
    "reasoning": [user("q"), said("answer", reasoning_content="\nwhy\n"), user("r"), said("more", reasoning_content="because")],
    "parts": [user(parts("one ", "two"))],
    "parts_system": [system(parts("S")), user(parts("x")), said(parts("y")), user("z")],
    "call": [user("Weather?"), said("", tool_calls=[call("get_weather", OBJECT)]), result("{\"t\": 5}")],
    "call_answered": [user("Weather?"), said("Let me see.", tool_calls=[call("get_weather", OBJECT)]), result("rain"), said("It rains."), user("Thanks")],
    "call_string": [user("Weather?"), said("", tool_calls=[call("get_weather", "{\"city\": \"X\"}")]), result("rain")],
    "call_null": [user("Weather?"), said(None, tool_calls=[call("get_weather", OBJECT)]), result("rain")],
    "two_calls": [user("Weather?"), said("", tool_calls=[call("get_weather", {"city": "A"}), call("search", {"queries": ["x", "y"]}, "ihgfedcba")]),
                  result("rain"), result("sun", "ihgfedcba"), said("done")],
    "two_calls_strings": [user("Weather?"), said("x", tool_calls=[call("a", "{}"), call("b", "{\"k\": 1}", "ihgfedcba")]), result("r"), result("s", "ihgfedcba")],
    "call_no_arguments": [user("t?"), said("", tool_calls=[call("now", {})]), result("12:00"), said("noon"), user("ok")],
    "developer": [{"role": "developer", "content": "Rules."}, user("x")],
    "other_role": [user("x"), {"role": "critic", "content": "no"}],
    "named": [{"role": "user", "name": "Ann", "content": "x"}, {"role": "assistant", "name": "Bot", "content": "y"}, user("z")],
    "no_content": [user("a"), {"role": "assistant"}],
    "overrides": [system("Do /no_think it. /system_override"), user("x")],
    "no_think": [system("Do it. /no_think"), user("x"), said("\n\ny"), user("z")],
}
TOOLS = {"": None, "weather": [WEATHER], "all": [WEATHER, SEARCH, NO_ARGUMENTS]}
EXTRA = {
    "qwen3": [{"enable_thinking": False}, {"enable_thinking": True}], "glm4": [{"enable_thinking": False}], "smollm3": [{"enable_thinking": False}],
    "llama3": [{"date_string": "1 Jan 2020"}, {"tools_in_user_message": False}, {"builtin_tools": ["code_interpreter", "get_weather"]}],
    "llama4": [{"tool_definition": "Defs: "}],
    "granite": [{"documents": [{"text": "doc one"}, {"text": "doc two"}]}, {"thinking": True}, {"controls": {"length": "short", "citations": True}},
                {"documents": [{"text": "d"}], "controls": {"citations": True}}],
    "gpt_oss": [{"reasoning_effort": "high"}, {"model_identity": "You are M."}],
    "qwen_vl": [{"add_vision_id": True}],
}


def cases(rng):
    for path in sorted(TEMPLATES.glob("*.jinja")):
        template = path.read_text(encoding="utf-8")
        for name, messages in CONVERSATIONS.items():
            for tools_name, tools in TOOLS.items():
                if tools is not None and name not in ("hi", "system", "call", "call_answered", "two_calls"): continue
                for extra in [{}] + (EXTRA.get(path.stem, []) if name in ("hi", "turns", "call", "thinking", "system") else []):
                    for generate in (True, False):
                        if not generate and (extra or tools_name == "all"): continue
                        variables = {"messages": messages, "tools": tools, "documents": None, "add_generation_prompt": generate,
                                     "bos_token": "<s>", "eos_token": "</s>", **extra}
                        yield template, variables, f"templates/{path.name}"
