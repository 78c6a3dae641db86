"""Cases for filters, methods, formatting and JSON."""

DATA = {
    "s": "hello world", "u": "Ünïcödé ß 😀 text", "sp": "  padded \n\t ", "html": "<b>&'\"</b>", "n": None, "i": 42, "neg": -5, "f": 3.14159,
    "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "mixed": [1, "a", None, 2.5, True, [1], {"k": "v"}], "nums": [1.5, 2, -3, 0],
    "d": {"b": 2, "a": 1, "C": 3}, "nested": [{"n": {"v": 2}, "t": "x"}, {"n": {"v": 1}, "t": "y"}, {"n": {"v": 3}, "t": "X"}],
    "users": [{"name": "Bob", "age": 30}, {"name": "alice", "age": 25}, {"name": "Carl", "age": 30}],
    "text": "line one\nline two\n\nline four", "crlf": "a\r\nb\rc\nd\u2028e\x0bf\x85g", "e": [], "de": {},
    "tools": [{"type": "function", "function": {"name": "f", "description": "<b>&'é😀\"\\/", "parameters": {
        "type": "object", "properties": {"z": {"type": "integer"}, "a": {"type": "number", "default": 1.0}}}}}],
    "ctrl": "\x00\x01\x1f\x7f\x80\u2028\ufeff\b\f\n\r\t", "path": "a/b/c.txt", "csv": "a,b,,c", "dash": "one-two (three) [four]",
}

EXPRESSIONS = r"""
s|upper
s|lower
s|title
s|capitalize
u|upper
u|lower
u|title
u|capitalize
dash|title
"HELLO wORLD"|capitalize
"foo's bar"|title
"foo's bar".title()
"é é"|title
sp|trim
sp|trim|length
"xxhixx"|trim("x")
"xyhiyx"|trim("xy")
42|trim
none|trim
s|replace("o", "0")
s|replace("o", "0", 1)
s|replace("", "-")
s|replace("l", "")
s|replace("hello", "bye")
"aaa"|replace("aa", "b")
42|replace("4", "x")
s|replace(none, "x")
s|length
s|count
l|length
u|length
d|length
42|length
none|length
s|first
s|last
l|first
l|last
e|first
e|last
d|first
d|last
""|first
u|last
l|join
l|join(", ")
ls|join("-")
mixed|join("|")
d|join(",")
s|join("-")
users|join(", ", attribute="name")
users|join(attribute="age")
42|join
none|join
l|list
s|list
d|list
u|list
range(3)|list
42|list
(1, 2)|list
d.items()|list
l|sort
ls|sort
ls|sort(case_sensitive=true)
ls|sort(reverse=true)
ls|sort(true)
ls|sort(false, true)
nums|sort
mixed|sort
users|sort(attribute="age")|map(attribute="name")|list
users|sort(attribute="name")|map(attribute="name")|list
users|sort(attribute="age,name")|map(attribute="name")|list
users|sort(attribute="age", reverse=true)|map(attribute="name")|list
nested|sort(attribute="n.v")|map(attribute="t")|join
s|sort|join
d|sort
e|sort
42|sort
d|dictsort
d|dictsort(true)
d|dictsort(by="value")
d|dictsort(reverse=true)
d|dictsort(false, "value", true)
d|dictsort(by="nope")
l|dictsort
l|reverse|list
s|reverse
u|reverse
d|reverse|list
42|reverse
l|reverse|join
l|unique|list
[1, 1, 2, 1.0, "a", "A", true]|unique|list
["a", "A", "b"]|unique(true)|list
users|unique(attribute="age")|map(attribute="name")|list
ls|unique|list
[[1], [1]]|unique|list
l|min
l|max
ls|min
ls|max
ls|min(true)
e|min
e|max|default("none")
users|max(attribute="age")
users|min(attribute="age")
mixed|max
s|min
l|sum
e|sum
nums|sum
l|sum(start=10)
users|sum(attribute="age")
users|sum("age")
users|sum("age", 100)
ls|sum
[[1], [2]]|sum(start=[])
l|map("string")|list
ls|map("upper")|list
ls|map("upper")|join
ls|map("replace", "a", "x")|list
ls|map("nope")|list
ls|map|list
users|map(attribute="name")|list
users|map(attribute="nope")|list
users|map(attribute="nope", default="?")|list
nested|map(attribute="n.v")|list
[[1, 2], [3, 4]]|map(attribute=1)|list
[[1, 2], [3, 4]]|map(attribute="0")|list
[[1, 2], [3, 4]]|map("first")|list
[[1, 2], [3, 4]]|map("join", "-")|list
users|map(attribute="name", nope=1)|list
none|map("upper")|list
l|select|list
nums|select|list
l|select("odd")|list
l|select("gt", 1)|list
l|select("divisibleby", 3)|list
l|select("in", [1, 2])|list
l|reject("odd")|list
mixed|select("string")|list
mixed|reject("none")|list
mixed|select("mapping")|list
l|select("nope")|list
users|selectattr("age", "equalto", 30)|map(attribute="name")|list
users|selectattr("age", "gt", 26)|list|length
users|selectattr("age")|list|length
users|rejectattr("age", "equalto", 30)|list
users|selectattr("name", "in", ["Bob"])|list
nested|selectattr("n.v", "gt", 1)|list|length
users|selectattr|list
users|selectattr("nope")|list
users|selectattr("nope", "undefined")|list|length
users|groupby("age")
users|groupby("age")|length
nested|groupby("t")|map("first")|list
nested|groupby("t", case_sensitive=true)|map("first")|list
users|groupby("nope", default=1)|length
[{"a": 1}, {"a": 2}, {"a": 1}]|groupby("a")
users|groupby
l|batch(2)|list
l|batch(2, "-")|list
range(7)|batch(3)|list
range(7)|batch(3, 0)|list
l|slice(2)|list
range(7)|slice(3)|list
range(7)|slice(3, "x")|list
e|batch(2)|list
l|batch|list
l|slice(0)|list
d|items|list
missing|items|list
d|attr("a")
42|abs
neg|abs
(-1.5)|abs
s|abs
true|abs
"42"|int
" 42 "|int
"-42"|int
"+42"|int
"4_2"|int
"42.9"|int
"x"|int
"x"|int(7)
"x"|int(default=-1)
"ff"|int(base=16)
"0xff"|int(base=16)
"0xff"|int(0, 16)
"0b11"|int(base=2)
"0o17"|int(base=8)
"0x1F"|int(0, 0)
"12"|int(0, 0)
"z"|int(0, 36)
"1e3"|int
""|int
none|int
3.99|int
-3.99|int
true|int
[]|int
"1.5"|float
"1e3"|float
" 2 "|float
"x"|float
"x"|float(1.5)
"inf"|float
"-inf"|float
"nan"|float
"infinity"|float
"1_0.5"|float
none|float
42|float
"1e400"|float
"1e-400"|float
true|float
f|round
f|round(2)
f|round(2, "ceil")
f|round(2, "floor")
f|round(method="ceil")
2.5|round
3.5|round
-2.5|round
0.125|round(2)
2.675|round(2)
1e20|round
42|round
42|round(2)
42|round(-1)
45|round(-1)
55|round(-1)
-45|round(-1)
1234.5|round(-2)
f|round(2, "nope")
f|round|int
"x"|round
1.005|round(2)
1e-10|round(5)
42|string
none|string
l|string
3.0|string
true|string|lower
s|string
html|e
html|escape
html|safe
html|forceescape
42|e
s|default("x")
missing|default("x")
missing|d("x")
missing|default
none|default("x")
none|default("x", true)
""|default("x", true)
""|default("x")
0|default(5, boolean=true)
missing|default(none)
text|indent
text|indent(2)
text|indent(2, true)
text|indent(2, first=true, blank=true)
text|indent(2, false, true)
text|indent("> ")
text|indent("> ", true)
"a\n"|indent
""|indent
""|indent(2, true)
"\n"|indent(2, blank=true)
"one"|indent(3)
crlf|indent(1)
42|indent
s|truncate(5)
s|truncate(8)
s|truncate(8, leeway=0)
s|truncate(8, true, leeway=0)
s|truncate(8, true, "…", 0)
s|truncate(5, false, "", 0)
s|truncate(2)
u|truncate(6, true, "", 0)
s|truncate
s|center(20)
s|center(21) ~ "|"
"ab"|center(5) ~ "|"
"abc"|center(6) ~ "|"
"abc"|center(2)
s|wordcount
""|wordcount
u|wordcount
dash|wordcount
"a_b c-d e.f"|wordcount
"%s - %s"|format("a", 1)
"%(a)s - %(b)d"|format(a="x", b=2)
"%s"|format
"%d"|format("x")
"%s"|format(1, a=2)
"%.1f%%"|format(99.5)
l|tojson
s|tojson
u|tojson
html|tojson
d|tojson
n|tojson
true|tojson
1.0|tojson
1.5|tojson
1e100|tojson
1e16|tojson
0.1|tojson
1e-7|tojson
-0.0|tojson
42|tojson
mixed|tojson
ctrl|tojson
ctrl|tojson(ensure_ascii=true)
u|tojson(ensure_ascii=true)
tools|tojson
tools[0]|tojson(indent=2)
tools[0]|tojson(indent=4)
tools|tojson(indent=2)
tools[0]|tojson(ensure_ascii=true)
tools[0]|tojson(sort_keys=true)
tools[0]|tojson(separators=(",", ":"))
tools[0]|tojson(separators=(", ", " : "), indent=1)
tools[0]|tojson(false, 2)
tools[0]|tojson(indent="\t")
tools[0]|tojson(indent=0)
tools[0]|tojson(indent=none)
tools[0]|tojson(indent=-3)
tools[0]|tojson(indent=true)
tools[0]|tojson(nope=1)
tools[0]|tojson(separators=",")
d|tojson(sort_keys=true)
de|tojson
e|tojson
e|tojson(indent=2)
de|tojson(indent=2)
[[], {}, [[]]]|tojson(indent=2)
(1, 2)|tojson
{1: "a", none: 2, true: 3, 1.5: 4}|tojson
{(1, 2): 3}|tojson
{"b": 1, 2: 3}|tojson(sort_keys=true)
range(3)|tojson
d.items()|tojson
d.keys()|tojson
l|map("string")|tojson
namespace(a=1)|tojson
missing|tojson
[missing]|tojson
"inf"|float|tojson
"nan"|float|tojson
"\u2028</script>"|tojson
"a" | tojson | length
[1, "a", {"b": none}] | tojson | upper
"tab\tquote\"back\\slash/"|tojson
[1.0, 2.50, 1e5, 1e-5, 123456789.123, 1e22, 5e-324]|tojson
[1.0, 2.50, 1e5, 1e-5, 123456789.123, 1e22, 5e-324]
s.upper()
s.lower()
s.title()
s.capitalize()
s.swapcase()
"aBc".swapcase()
u.upper()
u.swapcase()
"ab12".isalnum()
"ab 12".isalnum()
"ab".isalpha()
"12".isdigit()
"1.2".isdigit()
"".isdigit()
"12".isnumeric()
"12".isdecimal()
" \n".isspace()
"".isspace()
"abc".islower()
"ABC".isupper()
"Abc Def".istitle()
"Abc def".istitle()
"abc".isascii()
"é".isascii()
"".isascii()
"ab\n".isprintable()
"abc".isupper(1)
sp.strip()
sp.lstrip()
sp.rstrip()
"xxaxx".strip("x")
"xxaxx".lstrip("x")
"xxaxx".rstrip("x")
"xyzabczyx".strip("zyx")
"éaé".strip("é")
"abc".strip("")
"abc".strip(none)
"abc".strip(1)
"\u3000a\u00a0".strip()
s.split()
s.split("o")
s.split(" ")
s.split("o", 1)
s.split(none, 1)
s.split(sep="o", maxsplit=1)
s.split("")
s.split("zz")
csv.split(",")
csv.split(",", 2)
csv.split(",", 0)
csv.split(",", -1)
"".split()
"".split(",")
"  a  b  ".split()
"  a  b  c ".split(none, 1)
"  a  b  ".split(" ")
s.rsplit("o", 1)
csv.rsplit(",", 1)
"  a  b  c ".rsplit(none, 1)
"a b c".rsplit()
"aaa".split("aa")
"aaa".rsplit("aa")
path.split("/")[-1]
path.split("/")[0]
u.split(" ")
"a<think>b</think>c".split("</think>")[-1]
"a<think>b</think>c".split("</think>")[0].split("<think>")[-1]
text.splitlines()
text.splitlines(true)
crlf.splitlines()
crlf.splitlines(keepends=true)
"".splitlines()
"\n".splitlines()
"a\n\nb\n".splitlines()
s.startswith("hello")
s.startswith("x")
s.startswith("")
s.startswith(("x", "he"))
s.startswith("world", 6)
s.startswith("hello", 0, 3)
s.startswith(1)
s.startswith()
s.endswith("world")
s.endswith(("x", "ld"))
s.endswith("hello", 0, 5)
s.find("o")
s.find("o", 5)
s.find("o", 5, 7)
s.find("zz")
s.find("")
s.find("", 50)
s.find("o", -4)
u.find("ö")
u.find("😀")
s.rfind("o")
s.rfind("o", 0, 5)
s.index("w")
s.index("zz")
s.rindex("o")
s.count("o")
s.count("l", 3)
s.count("")
"aaaa".count("aa")
s.replace("o", "0")
s.replace("o", "0", 1)
s.replace("", "-")
s.replace("", "-", 3)
s.replace("o", "0", -1)
s.replace("o")
s.replace("o", 1)
"😀😀".replace("😀", "x")
", ".join(ls)
"".join([])
", ".join("abc")
"-".join({"a": 1, "b": 2})
", ".join([1, 2])
s.partition(" ")
s.partition("zz")
s.rpartition("o")
s.rpartition("zz")
s.partition("")
"abc".ljust(5) ~ "|"
"abc".rjust(5) ~ "|"
"abc".center(6) ~ "|"
"abcd".center(7, "*")
"abc".center(6, "*")
"abc".ljust(6, "é")
"abc".ljust(6, "ab")
"abc".ljust(2)
"42".zfill(5)
"-42".zfill(5)
"+42".zfill(6)
"abc".zfill(2)
"a\tb".expandtabs()
"a\tb".expandtabs(4)
"hello".removeprefix("he")
"hello".removesuffix("lo")
"hello".removeprefix("xx")
"hello".removesuffix("")
"{} {}".format("a", 1)
"{0} {1} {0}".format("a", "b")
"{x} {y}".format(x=1, y="z")
"{:>5}|{:<5}|{:^5}|{:*^7}".format("a", "b", "c", "d")
"{:5d}|{:<5d}|{:05d}|{:+d}|{: d}".format(42, 42, 42, 42, 42)
"{:.2f} {:8.3f} {:e} {:g} {:%} {:.1%}".format(3.14159, 2.5, 12345.678, 0.00001, 0.25, 0.256)
"{:,} {:_} {:,.2f}".format(1234567, 1234567, 1234567.891)
"{:x} {:X} {:o} {:b} {:#x} {:#b} {:c}".format(255, 255, 8, 5, 255, 5, 65)
"{:5}|{:5}".format(42, "ab")
"{:.2}".format("abcdef")
"{:5.1f}|{:<7.2f}|{:=+8.2f}".format(3.14159, 2.5, 1.5)
"{!r} {!s}".format("a", "b")
"{0[a]} {0[b]}".format(d)
"{d[a]}".format(d=d)
"{{}} {{{}}}".format(1)
"{".format(1)
"}".format(1)
"{} {}".format(1)
"{x}".format(1)
"{0} {}".format(1, 2)
"{:{}}|".format("a", 5)
"{:{w}.{p}f}".format(3.14159, w=8, p=2)
"{}".format(none)
"{:5}".format(none)
"{}".format([1, "a"])
"{}".format(true)
"{:d}".format(true)
"{:d}".format("x")
"{:s}".format(1)
"{:d}".format(1.5)
"{:.3}".format(1234.5)
"{:.3}".format(3.0)
"{:10}|".format(1.5)
"{:q}".format(1)
"{!x}".format(1)
"{0[0]}{0[1]}".format([1, 2])
"{0[x]}".format({"y": 1})
"{a}{b}".format_map({"a": 1, "b": 2})
"{}".format(missing)
d.get("a")
d.get("zz")
d.get("zz", 1)
d.get()
d.get("a", 1, 2)
d.keys()|list
d.values()|sum
d.items()|sort
d.items()|first
d.items()[0]
d.keys()[0]
d.keys()|length
d.keys()|join
"a" in d.keys()
("a", 1) in d.items()
d.copy() == d
l.index(2)
l.count(3)
l.sort()
l.reverse()
l.insert(0, 1)
l.extend([1])
(1, 2).count(1)
(1, 2).index(2)
s.nope()
42.nope
"a" * 3 ~ "b"
("a" * 3)|length
s[0]|upper ~ s[1:]
s|upper|lower|title
sp|trim|upper|replace("P", "x")
ls|map("lower")|sort|unique|join(",")
users|map(attribute="name")|map("lower")|sort|join(",")
l|map("string")|map("int")|sum
"a,b;c"|replace(";", ",")|trim
(1, 2)|join("-")
[s, u]|map("length")|list
[["a", 1], ["b", 2]]|map("last")|sum
dict([["a", 1], ["b", 2]])
dict(users|map(attribute="name")|map("list")|map("batch", 3)|map("first")|map("join")|map("list")|map("first")|list)
"1,2,3".split(",")|map("int")|sum
"x" is in "xyz"
l|select("lt", 3)|sort|list
s|upper("x")
s|trim("a", "b")
s|replace
s|default("a", "b", "c")
s|first(1)
""".strip("\n").split("\n")

FLOATS = [1.0, 0.1, 1 / 3, 1e15, 1e16, 1e17, 123456789012345.6, 1234567890123456.7, 1e-4, 1e-5, 9.999e-5, 1e21, 1e22, 1e23, 5e-324, 2.2250738585072014e-308,
          1.7976931348623157e308, 4.35, 0.3, 2.675, 1e100, -1.5e-10, 100.0, 1e2, 12345678.9, 0.5, 1e-7, 3.0e8]


def cases(rng):
    for e in EXPRESSIONS:
        yield "{{ " + e + " }}", DATA
    yield "{{ x }}|{{ x|tojson }}|{% for f in x %}{{ f }};{{ f|tojson }};{{ f|string }} {% endfor %}", {"x": FLOATS}
    randoms = [rng.uniform(-1, 1) * 10 ** rng.randint(-30, 30) for _ in range(200)]
    yield "{{ x|tojson }}|{{ x }}", {"x": randoms}
    yield "{% for f in x %}{{ '%.3f %.0f %e %g %.10g'|format(f, f, f, f, f) }} {{ f|round(2) }} {{ f|round }};{% endfor %}", {
        "x": [rng.uniform(-1000, 1000) for _ in range(60)] + [0.5, 1.5, 2.5, 0.125, 0.375, 2.675, -0.5, -1.5]}
    yield "{{ x|tojson }}|{{ x }}", {"x": [0, -1, 2**31, -2**31, 2**53 + 1, 2**63 - 1, -2**63, 2**64 - 1]}
    # Strings of every kind, through everything that takes a string.
    alphabet = list("aB3 _-'\"\\\n\t{}%<>&/") + ["é", "ß", "😀", "\u2028", "\u00a0", "中", "\x01", "\r", "İ", "ﬁ"]
    strings = ["".join(rng.choice(alphabet) for _ in range(rng.randint(0, 14))) for _ in range(80)]
    for filters in ("tojson", "list", "reverse", "trim", "length", "tojson(ensure_ascii=true)", "e", "lower", "replace('a', 'é')", "indent(1)",
                    "center(12)", "wordcount", "first", "last", "string"):
        yield "{% for s in x %}[{{ s|" + filters + " }}]{% endfor %}", {"x": strings}
    for method in ("split()", "split(' ')", "splitlines()", "strip()", "upper()", "find('a')", "isalpha()", "isprintable()", "islower()", "[1:4]", "[::-1]",
                   "[-3:]", "partition('a')", "rsplit(none, 1)", "swapcase()", "replace('', '.')", "ljust(5, '*')", "isdigit()", "isspace()"):
        dot = "" if method.startswith("[") else "."
        yield "{% for s in x %}[{{ s" + dot + method + " }}]{% endfor %}", {"x": [s for s in strings if not set(s) & set("ﬁİ")]}
    yield "{{ x }}", {"x": strings}
    yield "{{ x }}", {"x": {s: [s] for s in strings}}
    # Random JSON.

    def value(depth):
        kind = rng.randint(0, 7 if depth > 0 else 5)
        if kind == 0: return None
        if kind == 1: return rng.random() < 0.5
        if kind == 2: return rng.randint(-10**6, 10**6)
        if kind == 3: return rng.uniform(-1, 1) * 10 ** rng.randint(-8, 20)
        if kind in (4, 5): return rng.choice(strings)
        if kind == 6: return [value(depth - 1) for _ in range(rng.randint(0, 4))]
        return {rng.choice(strings): value(depth - 1) for _ in range(rng.randint(0, 4))}

    for _ in range(40):
        yield ("{{ x|tojson }}\n{{ x|tojson(indent=2) }}\n{{ x }}\n{{ x|tojson(sort_keys=true, ensure_ascii=true, separators=(',', ':')) }}",
               {"x": [value(4), value(3)]})
