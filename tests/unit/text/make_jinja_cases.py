#!/usr/bin/env python3
"""Writes tests/data/jinja/*.json: templates, variables, and what real Jinja2 makes of them.

Needs the package jinja2 (3.1). The environment is set up as transformers does for chat templates.
Run it after a change of the case files (jinja_cases_*.py beside it); the output is checked in.
"""
import datetime
import importlib
import json
import pathlib
import random
import sys

import jinja2
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE.parent.parent / "data" / "jinja"
NOW = datetime.datetime(2024, 7, 6, 14, 5, 9)  # a Saturday; the C++ test passes the same time


class Generation(Extension):
    """{% generation %} as a block of its own scope, as training code has it."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_pass"), [], [], body).set_lineno(line)

    def _pass(self, caller):
        return caller()


def make_environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda fmt: NOW.strftime(fmt)
    return env


ENV = make_environment()


def run(template, variables):
    """(expected text, None) or (None, error)."""
    try:
        return ENV.from_string(template).render(**variables), None
    except jinja2.exceptions.TemplateSyntaxError as e:
        return None, f"syntax: {e}"
    except jinja2.exceptions.TemplateError as e:
        kind = "raised" if type(e) is jinja2.exceptions.TemplateError else "failed"
        return None, f"{kind}: {e}"
    except Exception as e:  # what a template does may fail in any way
        return None, f"failed: {type(e).__name__}: {e}"


def make_case(template, variables, file=None):
    """file: the template's place under tests/data, if it has one; the case then names it."""
    case = {"file": file} if file else {"template": template}
    text, error = run(template, json.loads(json.dumps(variables)))
    if error is None:
        text.encode()  # must be text that can be written
        case["expected"] = text
    else:
        case["error"] = error
    return case


def write(name, cases):
    """One file: the variables that cases share, by number, and the cases."""
    shared, numbers, lines = [], {}, []
    errors = 0
    for case in cases:
        template, variables, file = (*case, None)[:3]
        key = json.dumps(variables)
        if key not in numbers:
            numbers[key] = len(shared)
            shared.append(variables)
        made = make_case(template, variables, file)
        errors += "error" in made
        lines.append(json.dumps({"variables": numbers[key], **made}, ensure_ascii=False))
    with open(OUT / f"{name}.json", "w", encoding="utf-8") as f:
        f.write('{"variables": [\n' + ",\n".join(json.dumps(v, ensure_ascii=False) for v in shared) + '\n],\n"cases": [\n' + ",\n".join(lines) + "\n]}\n")
    print(f"{name}: {len(lines)} cases, {errors} of them errors")
    return len(lines)


def main():
    sys.path.insert(0, str(HERE))
    OUT.mkdir(parents=True, exist_ok=True)
    names = ("language", "builtins", "whitespace", "families")
    total = sum(write(name, importlib.import_module("jinja_cases_" + name).cases(random.Random(20240706))) for name in names)
    print(f"{total} cases")


if __name__ == "__main__":
    main()
