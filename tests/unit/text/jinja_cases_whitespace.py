"""Whitespace control: hand-picked corners, and random mixtures of tags, signs and spaces."""

DATA = {"x": "X", "t": True, "f": False, "l": [1, 2]}

FIXED = [
    "", "\n", "\n\n", "a\n", "a\n\n", "a\r\nb\rc\n", "a\r\n", "\r\n\r\n", " ", "  \n  ",
    "{{ x }}\n", "{{ x }}\n\n", "{{ x }}\n{{ x }}\n", "{{ x }}  \n", "  {{ x }}", "\n  {{ x }}\n",
    "{% if t %}\na\n{% endif %}\n", "{% if t %}\n\na\n\n{% endif %}\n\nb", "{% if t %}  \na{% endif %}",
    "  {% if t %}\n  a\n  {% endif %}\n", "a  {% if t %}  b  {% endif %}  c", "a\n  {% if t %}b{% endif %}\n", "\t{% if t %}\tb\t{% endif %}\t\n",
    "  {%- if t %}\n  a\n  {%- endif %}\n", "a  {%- if t -%}  b  {%- endif -%}  c", "a\n\n  {%- if t -%}\n\n b {%- endif -%} \n\n c",
    "  {%+ if t %}\n  a\n  {%+ endif %}\n", "a\n  {%+ if t +%}\n  b\n  {%+ endif +%}\n  c", "{% if t +%}\na{% endif +%}\nb",
    "  {{- x }}  ", "  {{ x -}}  y", "a \n {{- x -}} \n b", "  {{+ x }}  ", "a\n  {{+ x }}\nb",
    "{# c #}\na", "  {# c #}\na", "a {# c #}\nb", "a\n  {#- c -#}\n  b", "a\n  {#+ c +#}\n  b", "{#c#}{#d#}\n\n", "{#-#}a", "{##}\na", "{#--#}a", "{#++#}\na", "a {#- x #} b",
    "{%raw%}\n a {% endraw %}\nb", "  {% raw %}  a  {% endraw %}  \nb", "a  {%- raw -%}  b  {%- endraw -%}  c", "a\n  {% raw %}\n  b\n  {% endraw %}\nc",
    "{% raw -%} \n {{ x }} {%- endraw %}\n\nz", "{% raw %}a{%+ endraw +%}\nb", "{%+ raw %}a{% endraw %}", "{%- raw %}{%- endraw -%}  z", "{% raw %}{% if %}{% endraw %}",
    "{% raw %}{% raw %}{% endraw %}", "{% raw %}\n{% endraw %}\n", "x{% raw %}  {%- endraw %}", "{% raw +%}a{% endraw %}",
    "{% for i in l %}\n{{ i }}\n{% endfor %}\n", "{% for i in l -%}\n{{ i }}\n{%- endfor %}\n", "{%- for i in l %}\n  {{- i }}\n{%- endfor -%}\n end",
    "{% for i in l %}{{ i }}\n{% endfor %}", "a\n{% for i in l %}\n  {% if t %}\n  {{ i }}\n  {% endif %}\n{% endfor %}\nb",
    "{% set y = 1 %}\n{{ y }}", "{%- set y %}\n  a\n{% endset -%}\n[{{ y }}]", "{% set y = '\n' %}[{{ y }}]", "{% set y = 'a\r\nb' %}[{{ y }}]",
    "{% if t\n%}\na{% endif\n%}", "{%\nif t\n-%}\n\n a", "{{\nx\n}}\n", "{{ x\n-}}\n\n a",
    "\u00a0{%- if t %}a{% endif %}", "\u3000\n{% if t %}a{% endif -%}\u2003b", "\u00a0  {% if t %}a{% endif %}", "\x0b{% if t %}a{% endif %}\x0c\n", "a\x85  {% if t %}b{% endif %}",
    "a\n\x0c {% if t %}b{% endif %}", "{% if t %}\x0b\na{% endif %}", "{% if t %}\r\na{% endif %}\r\n", "{% if t %}\n\r\na{% endif %}",
    "{% if t %}{% endif %}\n{% if t %}{% endif %}\n", "{% if t %}{% endif %}  {% if t %}{% endif %}\n", "\n{% if t %}{% endif %}  \n  {% if t %}{% endif %}",
    "{{ x }}{% if t %}\n{{ x }}{% endif %}\n{{ x }}", "{{ x }} {% if t %}\n {{ x }}{% endif %}\n {{ x }}", "{{ x }}\n {% if t %}{{ x }}{% endif %}",
    "{{ x -}}\n {% if t %}a{% endif %}", "{{ x }}{#- c -#}  \n  {{ x }}", "{%- -%}", "{{ '-' }}{{-1}}{{ -1 }}{{- -1 -}}", "{{ 1 -1 }}{{ 1-1 }}{{ 2 -}}{{ 3 }}",
    "{%-if t-%}a{%-endif-%}", "{%if t%}a{%endif%}", "{{x}}{{-x-}}{{ x}}{{x }}", "{%if t%}{#c#}{{x}}{#c#}{%endif%}\n",
    "a\n\n\n{%- if t %}\n\n\nb{% endif %}", "a\n \n \n{% if t %}\n \n \nb{% endif %}", "  a{% if t %}  {% endif %}b  ", "\n\n{% if t %}\n\n{% endif %}\n\n",
    "{% macro m() %}\n  a\n{% endmacro %}\n[{{ m() }}]\n", "{%- macro m() -%}\n  a\n{%- endmacro -%}\n[{{ m() }}]\n",
    "{% generation %}\na\n{% endgeneration %}\nb", "{% filter upper %}\n a\n{% endfilter %}\n", "{% call m() %}\nx\n{% endcall %}{% macro m() %}\n[{{ caller() }}]\n{% endmacro %}",
    "{% macro m() %}\n[{{ caller() }}]\n{% endmacro %}\n{% call m() %}\nx\n{% endcall %}\n",
]


def cases(rng):
    for template in FIXED:
        yield template, DATA
    spaces = ["", "", "", " ", "  ", "\n", "\n\n", " \n", "\n ", "\n  ", "\t", "\r\n", "a", "b", "a ", " b", "a\n", "\nb", "\u00a0"]
    inside = ["", " ", "  ", "\n"]

    def sign(choices):
        return rng.choice(choices)

    def variable():
        return "{{" + sign(["", "", "-", "+"][:rng.choice([3, 3, 3, 4])]) + " x " + sign(["", "", "-"]) + "}}"

    def tag(text):
        return "{%" + sign(["", "", "", "-", "+"]) + rng.choice(inside) + text + rng.choice([" ", " ", "\n"]) + sign(["", "", "", "-", "+"]) + "%}"

    def comment():
        return "{#" + sign(["", "", "-", "+"]) + rng.choice([" c ", "", "\n", " {{ y }} "]) + sign(["", "", "-", "+"]) + "#}"

    def raw():
        begin = "{%" + sign(["", "-"]) + " raw " + sign(["", "-"]) + "%}"
        return begin + text(1) + rng.choice(["", "{{ x }}", "{% if %}"]) + text(1) + "{%" + sign(["", "-", "+"]) + " endraw " + sign(["", "-", "+"]) + "%}"

    def text(n=2):
        return "".join(rng.choice(spaces) for _ in range(rng.randint(0, n)))

    def body(depth):
        out = text()
        for _ in range(rng.randint(1, 4)):
            kind = rng.randint(0, 7 if depth > 0 else 4)
            if kind in (0, 1): out += variable()
            elif kind == 2: out += comment()
            elif kind == 3: out += tag("set y = 1")
            elif kind == 4: out += raw()
            elif kind == 5: out += tag("if t") + body(depth - 1) + tag("endif")
            elif kind == 6: out += tag("for i in l") + body(depth - 1) + tag("endfor")
            else: out += tag("if f") + body(depth - 1) + tag("else") + body(depth - 1) + tag("endif")
            out += text()
        return out

    for _ in range(700):
        yield body(2), DATA
