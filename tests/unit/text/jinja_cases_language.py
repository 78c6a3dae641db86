"""Cases for statements, expressions, scopes and undefined values."""

DATA = {
    "a": 1, "b": 2, "z": 0, "f": 1.5, "neg": -7, "s": "hello", "u": "héllo wörld 😀", "empty": "", "t": True, "n": None,
    "l": [3, 1, 2], "e": [], "ll": [[1, 2], [3, 4]], "d": {"x": 1, "y": "two", "items": "mine", "nested": {"k": [1, {"q": "deep"}]}},
    "m": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}, {"role": "user", "content": "bye"}],
    "words": ["b", "A", "c"], "big": 9007199254740993, "huge": 18446744073709551615,
}

EXPRESSIONS = """
1 + 2 * 3
(1 + 2) * 3
2 ** 3 ** 2
-2 ** 2
2 ** -1
2 ** 0.5
0 ** 0
7 // 2
-7 // 2
7 // -2
7.5 // 2
-7.5 // 2
7 % 3
-7 % 3
7 % -3
-7.5 % 2
7.5 % -2
1 / 2
4 / 2
1 / 3
10 / 0
10 // 0
10 % 0
10.0 / 0
10.0 // 0
10.0 % 0
1e3
1.5e-7
1e16
123456789012345680.0
1e15
0.1 + 0.2
1e300 * 1e10
-1e300 * 1e10
1_000_000
0x1F
0o17
0b101
0xff_ff
00
1.0
1.50
100.0
3.14159
1e22
1e21
2.5e-5
0.0001
0.00001
5e-324
1.7976931348623157e308
-0.0
0.0 * -1
not true
not 0
not not 1
true and false
true or false
0 or "x"
"" or none
1 and 2
1 and 0 and 2
none or e or "last"
true
false
none
True
False
None
true + true
true * 3
true / 2
-true
+true
- 5
+ 5
--5
1 == 1.0
true == 1
"1" == 1
none == false
[1, 2] == [1, 2]
[1, 2] == (1, 2)
(1, 2) == (1, 2)
{"a": 1} == {"a": 1.0}
{"a": 1, "b": 2} == {"b": 2, "a": 1}
1 != 2
1 < 2 < 3
1 < 3 < 2
3 > 2 >= 2 == 2
"a" < "b"
"Z" < "a"
"é" > "z"
"a" < "aa"
[1, 2] < [1, 3]
[1] < [1, 2]
(1, 2) < (2,)
"a" < 1
none < 1
[1] < (2,)
{} < {}
1 in [1, 2]
1 not in [1, 2]
1.0 in [1]
"ell" in s
"" in s
"x" not in s
1 in s
"x" in d
"q" in d
2 in (1, 2)
none in [none]
"a" in none
"a" in 5
missing in [1]
"a" in missing
not 1 in [2]
not "x" in d
"a" ~ "b" ~ 1 ~ none ~ true ~ 1.0
1 ~ 2
"a" ~ missing ~ "b"
"a" + "b"
"a" + 1
1 + "a"
[1] + [2]
(1,) + (2,)
[1] + (2,)
"ab" * 3
3 * "ab"
"ab" * -1
[1, 2] * 2
"a" * "b"
"a" - "b"
"a" / 2
{} + {}
none + 1
-"a"
+"a"
-none
a if t else b
a if false else b
a if false
"x" ~ (a if false)
a if t else b if t else 3
a if false else b if false else 3
(a if false else b) + 1
"%s is %d" % ("x", 3)
"%s" % "one"
"%s" % none
"%s" % [1, 2]
"%s %s" % [1, 2]
"%s %s" % (1, 2)
"%(x)s and %(y)s" % d
"%5d|%-5d|%05d|%+d|% d" % (42, 42, 42, 42, 42)
"%.2f|%8.3f|%-8.1f|%e|%g|%G" % (3.14159, 2.5, 2.5, 12345.678, 0.00001234, 1e20)
"%x %X %o %#x %#o" % (255, 255, 8, 255, 8)
"%c%c" % (65, "B")
"%r" % "it's"
"%5s|%-5s|%.2s" % ("ab", "ab", "abcdef")
"100%%" % ()
"%d%%" % 50
"%d" % 3.99
"%d" % "3"
"%d" % true
"%*d" % (5, 42)
"%.*f" % (2, 3.14159)
"%s" % ()
"%s" % (1, 2)
"abc" % 1
"abc" % [1]
"%q" % 1
"%" % 1
"%(x" % d
"%(nope)s" % d
"%i %u" % (1, 2)
"%s" % missing
"%05.1f" % 3.14159
"%+05d" % 42
"%-05d|" % 42
"%.3d" % 5
"%5c|" % "x"
l[0]
l[-1]
l[5]
l[-4]
l[true]
l["0"]
l[none]
l.0
l.1
s[0]
s[-1]
s[99]
u[1]
u[-1]
s[1:3]
s[:2]
s[2:]
s[-3:]
s[:-2]
s[::2]
s[::-1]
s[3:1]
s[3:1:-1]
s[10:20]
s[-100:100]
s[1:-1:2]
u[1:]
u[:5]
u[::-1]
l[1:]
l[:1]
l[::-1]
l[::2]
l[5:]
l[-2:]
l[-1:0:-1]
l[:]
l[0:0]
l[::0]
s[::0]
s["a":]
l[none:2]
l[missing:]
(1, 2, 3)[1:]
range(10)[2:5]|list
range(10)[-1]
range(10)[::3]|list
d[1:2]
d.x
d["x"]
d.y
d["items"]
d.items()|list|length
d.nested.k[1].q
d["nested"]["k"][0]
d.nope
d["nope"]
d.nope.nope
d["nope"]["nope"]
d.get("x")
d.get("nope")
d.get("nope", 5)
d.get(1)
d.keys()|list
d.values()|list
d.keys()
d.values()
d.items()
d.update({"x": 2})
d.pop("x")
d.clear
l.append
d.__class__
s.__class__
s._x
l.append(4)
l.pop()
l.index(1)
l.index(9)
l.count(1)
l.copy()
d.copy()
none.x
none["x"]
none.x.y
a.x
a["x"]
a[0]
f.x
t.x
missing
missing.x
missing["x"]
missing[0]
missing()
missing + 1
1 + missing
missing == 1
missing == missing2
missing != 1
missing is defined
missing is not defined
missing|default("dflt")
missing|length
missing|list
missing|join(",")
missing|upper
missing|trim
missing|int
missing|float
missing|abs
missing|string
missing|first
missing|last
missing|tojson
missing < 1
-missing
not missing
missing or 5
missing and 5
missing ~ missing
[missing]
{"a": missing}
(missing,)
missing|default
d.nope|default("x")
d.nope.deep|default("x")
[1, "a", 1.0, none, true, [2], {"k": (3,)}]
(1,)
()
(1, 2)
[]
{}
{"a": {"b": {"c": 1}}}.a.b.c
{"a": 1, "a": 2}
{1: "one", 2: "two"}
{1: "one", 1.0: "uno", true: "yes"}
{1: "one"}[1]
{none: 1}[none]
{(1, 2): "t"}[(1, 2)]
{[1]: 2}
{{}: 1}
{"a": 1,}
[1, 2,]
["it's", 'say "hi"', "both ' and \\"", "tab\\t", "nl\\n", "bs\\\\", "é", "\\x00", "\\x7f", "\\u200b", "\\xa0", "\\U0001F600"]
"tab\\tnl\\nq\\"q\\'"
'single "double"'
"double 'single'"
"\\x41\\u0042\\U00000043\\103"
"\\q\\d"
"a" "b" 'c'
"😀"|length
u|length
s|length
l|length
d|length
5|length
none|length
s.upper()
"x".join(["a", "b"])
"x".join([1])
", ".join(d)
d|list
l.0 + l.1
m[0].role
m[0]["role"]
m[-1].content
m[0].role == "user" and m[1].role == "assistant"
m|length > 2
m[0].content.upper()[0]
big
big + 1
huge
huge - 1
2 ** 63
2 ** 62
(-2) ** 63
9223372036854775807
9223372036854775808
18446744073709551615
big / 2
big // 2
big % 10
big|float
huge|string|length
range(3)
range(1, 4)
range(5, 0, -2)|list
range(0)|list
range(3)|list
range(2, 2)|list
range(1, 10)|list
range(3, -3, -1)|list
range(100001)
range(1000000000000)
range()
range("a")
range(1.5)
range(1, 2, 0)
range(3)|length
range(3)[1]
2 in range(3)
dict(a=1, b="x")
dict([("a", 1), ("b", 2)])
dict({"a": 1}, b=2)
dict()
dict([1])
namespace(a=1)
namespace({"a": 1}, b=2).b
namespace().x
namespace().x.y
namespace(a=1)["a"]
namespace(x=1) == namespace(x=1)
cycler("a", "b").current
joiner("|")()
cycler()
5 is divisibleby 5
5 is divisibleby(2)
5 is divisibleby 0
5 is odd
5 is even
4 is even and 3 is odd
5 is not odd
x is defined
a is defined and a == 1
a is undefined
a is number
f is number
t is number
a is integer
t is integer
f is float
a is float
t is boolean
a is boolean
s is string
a is string
n is none
missing is none
d is mapping
l is mapping
l is iterable
s is iterable
a is iterable
d is iterable
missing is iterable
l is sequence
s is sequence
d is sequence
a is sequence
none is sequence
missing is sequence
range(3) is sequence
l|map("upper") is sequence
l is callable
range is callable
s.upper is callable
missing is callable
t is true
t is false
a is true
f is false
false is false
a is sameas 1
n is sameas none
a is eq 1
a is equalto 1
a is == 1
a is ne 2
a is != 2
a is lt 2
a is lessthan 2
a is < 2
a is le 1
a is gt 0
a is greaterthan 0
a is ge 1
a is >= 1
a is in [1, 2]
a is not in [1, 2]
"x" is in d
s is lower
"ABC" is upper
"aBc" is lower
"123" is lower
"" is upper
"tojson" is filter
"nofilter" is filter
"defined" is test
"notest" is test
s is escaped
a is in(l)
s is string and a is integer
(a is integer) == true
not a is integer
a is integer is true
m[0].tool_calls is defined
m[0].tool_calls is not defined
m[0].content is string
m[0].tool_calls is none
f(1)
s()
a()
d()
1()
"a".nope()
s.startswith("he")
3.foo
1 if a
l|first + l|last
l | sort | join(",") ~ "!"
-l|first
-1|abs
(-1)|abs
2 * 3|string
"a" in ["a"] and "b" not in ["a"]
1 if 1 in [1] else 2
[1, 2, 3][a]
[x for x in l]
lambda: 1
a = 1
a ? b : c
1 +
(1
[1
{"a"
"unterminated
a..b
a.
| upper
a |
a | 5
a is
a is 5
a b
1 2
007
1__0
1_
0x
@
a & b
a ^ b
!a
$a
`a`
a; b
{{ a }}
a ** b ** 2
a - -b
a - - b
a+-b
""
"a" if "" else "b"
"" ~ ""
t and s or n
n and s or "d"
not (a and b)
not a and b
not a == b
a == b == false
1 < 2 and 2 < 3
1 in [1] == true
(1 in [1]) == true
"b" > "a" > "A"
u.upper()
u.title()
u.split()
"ß".upper()
"İ".lower()|length > 0
""".strip("\n").split("\n")

STATEMENTS = [
    "{% set x = 1 %}{{ x }}",
    "{% set x = 1, 2 %}{{ x }}",
    "{% set x, y = 1, 2 %}{{ x }}{{ y }}",
    "{% set (x, y) = [1, 2] %}{{ x }}{{ y }}",
    "{% set x, (y, z) = 1, (2, 3) %}{{ x }}{{ y }}{{ z }}",
    "{% set x, y = 'ab' %}{{ x }}-{{ y }}",
    "{% set x, y = [1] %}",
    "{% set x, y = [1, 2, 3] %}",
    "{% set x, y = 5 %}",
    "{% set x = y = 1 %}",
    "{% set 'a' = 1 %}",
    "{% set true = 1 %}",
    "{% set x.y = 1 %}",
    "{% set x = {} %}{% set x.y = 1 %}",
    "{% set x[0] = 1 %}",
    "{% set x %}block {{ a }}{% endset %}{{ x }}|{{ x|length }}",
    "{% set x | upper %}block{% endset %}{{ x }}",
    "{% set x | trim | replace('b', 'c') | upper %}  block  {% endset %}[{{ x }}]",
    "{% set x %}{% set y = 2 %}{{ y }}{% endset %}{{ x }}{{ y is defined }}",
    "{% set ns = namespace() %}{% set ns.x %}body{% endset %}{{ ns.x }}",
    "{% set ns = namespace(x=1) %}{% set ns.x = ns.x + 1 %}{{ ns.x }}",
    "{% set ns = namespace(x=1) %}{% set ns.y = 5 %}{{ ns.y }}{{ ns }}",
    "{% set ns = namespace(x=1) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace() %}{% set ns.a, ns.b = 1, 2 %}{{ ns.a }}{{ ns.b }}",
    "{% set ns = namespace(f=false) %}{% for i in [1,2,3] if not ns.f %}{% if i == 2 %}{% set ns.f = true %}{% endif %}{{ i }}{% endfor %}",
    "{% set ns = namespace(f=false) %}{% for i in [1,2,3] if not ns.f %}{{ loop.length }}{% if i == 2 %}{% set ns.f = true %}{% endif %}{{ i }}{% endfor %}",
    "{% set ns = namespace(f=false) %}{% for i in [1,2,3,4] if not ns.f %}{{ i }}{{ loop.last }}{% if i == 2 %}{% set ns.f = true %}{% endif %}{% endfor %}",
    "{% set ns = namespace(x=[]) %}{% for i in range(3) %}{% set ns.x = ns.x + [i] %}{% endfor %}{{ ns.x }}",
    "{% set x = 1 %}{% for i in range(3) %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}",
    "{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}",
    "{% for i in [1,2] %}{% if i == 1 %}{% set q = 'a' %}{% endif %}{{ q }}{% endfor %}{{ q is defined }}",
    "{% if a == 1 %}one{% elif a == 2 %}two{% else %}other{% endif %}",
    "{% if a == 9 %}one{% elif b == 2 %}two{% else %}other{% endif %}",
    "{% if a == 9 %}one{% elif b == 9 %}two{% elif z == 9 %}three{% else %}other{% endif %}",
    "{% if a == 9 %}one{% endif %}x",
    "{% if missing %}a{% else %}b{% endif %}",
    "{% if a, b %}yes{% endif %}",
    "{% if () %}yes{% else %}no{% endif %}",
    "{% if e %}1{% endif %}{% if l %}2{% endif %}{% if empty %}3{% endif %}{% if s %}4{% endif %}{% if {} %}5{% endif %}{% if 0.0 %}6{% endif %}{% if range(0) %}7{% endif %}{% if namespace() %}8{% endif %}",
    "{% if l|select('gt', 100) %}generators are true{% endif %}{% if not (l|select('gt', 100)|list) %}lists not{% endif %}",
    "{% if not missing.x is defined %}{% endif %}",
    "{% if true %}{% if false %}a{% else %}b{% endif %}{% endif %}",
    "{% for i in l %}{{ i }}{% endfor %}",
    "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}",
    "{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {% endfor %}",
    "{% for i in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }} {% endfor %}",
    "{% for i in range(5) %}{{ loop.cycle('a', 'b', 'c') }}{% endfor %}",
    "{% for i in range(2) %}{{ loop.cycle() }}{% endfor %}",
    "{% for i in [1,1,2,2,1] %}{{ loop.changed(i) }} {% endfor %}",
    "{% for i in [1,1,2] %}{{ loop.changed() }}{{ loop.changed(i, 'x') }} {% endfor %}",
    "{% for i in l %}{{ loop.depth }}{{ loop.depth0 }}{% for j in l %}{{ loop.depth }}{% endfor %}{% endfor %}",
    "{% for i in l %}{% set outer = loop %}{% for j in ll %}{{ outer.index }}.{{ loop.index }} {% endfor %}{% endfor %}",
    "{% for i in l %}{% for j in ll %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}",
    "{% for i in l %}{{ loop }}{% endfor %}",
    "{{ loop is defined }}{% for i in l %}{{ loop is defined }}{% endfor %}{{ loop is defined }}",
    "{% for x, y in ll %}{{ x }}-{{ y }} {% endfor %}",
    "{% for (x, y) in ll %}{{ x }}-{{ y }} {% endfor %}",
    "{% for x, y, w in ll %}{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d|items %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d|dictsort %}{{ k }};{% endfor %}",
    "{% for k in d %}{{ k }};{% endfor %}",
    "{% for k in d.keys() %}{{ k }};{% endfor %}{% for v in d.values() %}{{ v }};{% endfor %}",
    "{% for (k, v), i in [(('a', 1), 2)] %}{{ k }}{{ v }}{{ i }}{% endfor %}",
    "{% for i, (k, v) in [(2, ('a', 1))] %}{{ k }}{{ v }}{{ i }}{% endfor %}",
    "{% for c in s %}{{ c }}.{% endfor %}",
    "{% for c in u %}{{ c }}.{% endfor %}",
    "{% for i in e %}{{ i }}{% else %}none{% endfor %}",
    "{% for i in l %}{{ i }}{% else %}none{% endfor %}",
    "{% for i in missing %}{{ i }}{% else %}none{% endfor %}",
    "{% for i in none %}{% endfor %}",
    "{% for i in 5 %}{% endfor %}",
    "{% for i in true %}{% endfor %}",
    "{% for i in l if i > 1 %}{{ i }}{{ loop.index }}{{ loop.length }}{{ loop.last }} {% endfor %}",
    "{% for i in l if i > 100 %}{{ i }}{% else %}none{% endfor %}",
    "{% for i in l if loop.index > 1 %}{{ i }}{% endfor %}",
    "{% for x, y in ll if x > 1 %}{{ x }}{{ y }}{% endfor %}",
    "{% for i in l if i in [1, 2] and not i == 2 %}{{ i }}{% endfor %}",
    "{% for m_ in m if m_.role == 'user' %}{{ loop.first }}{{ m_.content }}{{ loop.last }} {% endfor %}",
    "{% for i in (l if t else e) %}{{ i }}{% endfor %}",
    "{% for i in l if t else e %}{{ i }}{% endfor %}",
    "{% for i in 1, 2, 3 %}{{ i }}{% endfor %}",
    "{% for i in (1, 2, 3) %}{{ i }}{% endfor %}",
    "{% for i in l %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in l %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in l %}{% for j in l %}{% if j == 1 %}{% break %}{% endif %}{{ i }}{{ j }} {% endfor %}{% endfor %}",
    "{% for i in l %}{{ i }}{% break %}{% else %}none{% endfor %}",
    "{% break %}",
    "{% continue %}",
    "{% if true %}{% break %}{% endif %}",
    "{% for i in l %}{% macro x() %}{% break %}{% endmacro %}{% endfor %}",
    "{% for i in l %}{% set i = i * 2 %}{{ i }}{% endfor %}",
    "{% for i in l %}{% set l = [] %}{{ i }}{% endfor %}{{ l }}",
    "{% for i in l recursive %}{{ i }}{% endfor %}",
    "{% for i in [1, [2, [3, 4]], 5] recursive %}{% if i is iterable %}({{ loop(i) }}){% else %}{{ i }}@{{ loop.depth }}{% endif %}{% endfor %}",
    "{% for i in [[1]] %}{{ loop(i) }}{% endfor %}",
    "{% for loop in l %}{% endfor %}",
    "{% for 1 in l %}{% endfor %}",
    "{% for i l %}{% endfor %}",
    "{% for i in l %}",
    "{% for i in l %}{% endif %}",
    "{% endfor %}",
    "{% if a %}",
    "{% if %}{% endif %}",
    "{% else %}",
    "{% if a %}{% else %}{% else %}{% endif %}",
    "{% if a %}{% else %}{% elif b %}{% endif %}",
    "{% macro q(x, y='d') %}<{{ x }}{{ y }}>{% endmacro %}{{ q(1) }}{{ q(1, 2) }}{{ q(x=1, y=2) }}{{ q(1, y=3) }}{{ q(y=1) }}{{ q() }}",
    "{% macro q(x) %}{{ x }}{% endmacro %}{{ q(1, 2) }}",
    "{% macro q(x) %}{{ x }}{% endmacro %}{{ q(1, z=2) }}",
    "{% macro q(x) %}{{ x }}{% endmacro %}{{ q(1, x=2) }}",
    "{% macro q() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ q(1, 2, k=3) }}",
    "{% macro q(x) %}{{ x }}{{ varargs|length }}{{ kwargs.items()|list }}{% endmacro %}{{ q(1, 2, k=3) }}",
    "{% macro q(x, y=x) %}{{ x }}{{ y }}{% endmacro %}{{ q(1) }}",
    "{% macro q(x=a) %}{{ x }}{% endmacro %}{% set a = 7 %}{{ q() }}",
    "{% macro q(x=1, y) %}{% endmacro %}",
    "{% macro q(x) %}{% if x > 0 %}{{ x }}{{ q(x - 1) }}{% endif %}{% endmacro %}{{ q(5) }}",
    "{% macro q() %}{{ undefd }}{% endmacro %}{{ q() }}|",
    "{% macro q() %}{{ a }}{% endmacro %}{{ q() }}",
    "{% set v = 1 %}{% macro q() %}{{ v }}{% endmacro %}{% set v = 2 %}{{ q() }}",
    "{% macro q() %}{% set v = 5 %}{{ v }}{% endmacro %}{{ q() }}{{ v is defined }}",
    "{% for i in l %}{% macro q() %}{{ i }}{% endmacro %}{{ q() }}{% endfor %}",
    "{% macro outer() %}{% macro inner(x) %}[{{ x }}]{% endmacro %}{{ inner(1) }}{{ inner(2) }}{% endmacro %}{{ outer() }}",
    "{% macro q() %}{{ loop is defined }}{% endmacro %}{% for i in [1] %}{{ q() }}{% endfor %}",
    "{{ q(1) }}{% macro q(x) %}{{ x }}{% endmacro %}",
    "{% macro q() %}x{% endmacro %}{{ q }}|{{ q.name }}",
    "{% macro q(x) %}{{ x is defined }}{% endmacro %}{{ q() }}{{ q(none) }}{{ q(missing) }}",
    "{% macro q(x=5) %}{{ x }}{% endmacro %}{{ q(none) }}{{ q(missing) }}|",
    "{% macro q() %}a{% endmacro %}{% set r = q() ~ q() %}{{ r }}{{ r|length }}{{ r|upper }}",
    "{% macro q(x) %}{{ x }}{{ caller() }}{{ x }}{% endmacro %}{% call q('*') %}body{% endcall %}",
    "{% macro q() %}{{ caller(1, 2) }}{% endmacro %}{% call(x, y=5) q() %}{{ x }}+{{ y }}{% endcall %}",
    "{% macro q() %}{{ caller(1) }}{% endmacro %}{% call(x, y=5) q() %}{{ x }}+{{ y }}{% endcall %}",
    "{% macro q() %}{{ caller is defined }}{% endmacro %}{{ q() }}",
    "{% macro q() %}{{ caller() }}{% endmacro %}{{ q() }}",
    "{% macro q() %}x{% endmacro %}{% call q() %}b{% endcall %}",
    "{% call 5 %}{% endcall %}",
    "{% macro q(caller) %}{{ caller }}{% endmacro %}{{ q(1) }}",
    "{% macro q(items) %}{% for i in items %}{{ caller(i) }}{% endfor %}{% endmacro %}{% call(i) q(l) %}<{{ i }}>{% endcall %}",
    "{% filter upper %}abc {{ s }}{% endfilter %}",
    "{% filter trim | upper | replace('A', 'b') %}  abc  {% endfilter %}",
    "{% filter indent(2) %}a\nb{% endfilter %}",
    "{% filter upper %}{% set x = 1 %}{{ x }}{% endfilter %}{{ x is defined }}",
    "{% with %}{% set x = 1 %}{{ x }}{% endwith %}{{ x is defined }}",
    "{% with x = 1, y = 2 %}{{ x }}{{ y }}{% endwith %}{{ x is defined }}",
    "{% with x = 1 %}{% with x = 2, y = x %}{{ x }}{{ y }}{% endwith %}{{ x }}{% endwith %}",
    "{% with x, y = (1, 2) %}{{ x }}{{ y }}{% endwith %}",
    "{% print 1, 2 %}",
    "{% generation %}text {{ a }}{% endgeneration %}",
    "{% for x in m %}{% if x.role == 'assistant' %}{% generation %}{{ x.content }}{% endgeneration %}{% else %}{{ x.content }}{% endif %}{% endfor %}",
    "{% generation %}{% set x = 1 %}{% endgeneration %}{{ x is defined }}",
    "{# comment #}a{# {{ x }} {% y %} #}b",
    "{# unterminated",
    "{{ unterminated",
    "{% unterminated",
    "{% raw %}{{ x }}{% y %}{# z #}{% endraw %}",
    "{%- raw -%}  {{ x }}  {%- endraw -%}  z",
    "{% raw %}unterminated",
    "{% raw %}{% endraw",
    "{% unknown %}",
    "{% include 'x' %}",
    "{% extends 'x' %}",
    "{% import 'x' as y %}",
    "{% do x %}",
    "{% 5 %}",
    "{% %}",
    "{{ }}",
    "{{}}",
    "{% set %}",
    "{% set x %}",
    "{% set x = %}",
    "{% for %}{% endfor %}",
    "{% macro %}{% endmacro %}",
    "{% macro q %}{% endmacro %}",
    "{% macro q(1) %}{% endmacro %}",
    "{% if a %}{% endif %}{% endif %}",
    "{% if a: %}x{% endif %}",
    "{% for i in l: %}{{ i }}{% endfor %}",
    "{{ raise_exception('boom') }}",
    "{{ raise_exception('bad: ' ~ s ~ ' <x>') }}",
    "{% if false %}{{ raise_exception('boom') }}{% endif %}ok",
    "{{ raise_exception() }}",
    "{{ strftime_now('%Y-%m-%d') }}|{{ strftime_now('%d %b %Y') }}|{{ strftime_now('%A %B %j %H:%M:%S %I %p %y %a %%') }}",
    "{{ strftime_now('') }}|{{ strftime_now('no codes') }}|{{ strftime_now('%-d %-m %e') }}|{{ strftime_now('é%Yü') }}",
    "{{ strftime_now('%D %T %F %R %n%t') }}|{{ strftime_now('%z%Z') }}|{{ strftime_now('%f') }}",
    "{% if strftime_now is defined %}D{% endif %}{% if date_string is defined %}X{% else %}Y{% endif %}",
    "{% if not date_string is defined %}{% set date_string = '26 Jul 2024' %}{% endif %}{{ date_string }}",
    "{{ no_such_function() }}",
    "{{ s|no_such_filter }}",
    "{{ s is no_such_test }}",
    "{% if no_such is defined %}{{ no_such() }}{% endif %}ok",
    "{% if 'nofilter' is filter %}{{ s|nofilter }}{% else %}fallback{% endif %}",
    "{{ no_such() if no_such is defined else 'd' }}",
    "{{ m[5].content.foo.bar }}",
    "{{ m[5].content }}",
    "{{ m[5] }}|",
    "{% for i in m[1:] %}{{ i.role }}{% endfor %}{% for i in m[:-1] %}{{ i.role }}{% endfor %}{% for i in m[::-1] %}{{ i.role[0] }}{% endfor %}",
    "{% set sys = m[0].content if m[0].role == 'system' else 'default' %}{{ sys }}",
    "{% set loop_messages = m[1:] if m[0].role == 'system' else m %}{{ loop_messages|length }}",
    "{% set ns = namespace(n=0, s=(m[0].role if m else ''), t=m[0].role if m else '') %}{{ ns.s }}{{ ns.t }}",
    "{%set x=1%}{{x}}{%-if x-%} y {%-endif-%} z",
    "{{ 'a' }}{{ 'b' }}{{- ' c ' -}}{{ 'd' }}",
    "{{ '}}' }}{{ '%}' }}{{ \"{{\" }}{{ '{%' }}{{ '#}' }}",
    "{{ {'a': {'b': 1}} }}",
    "{{ {'a': {'b': 1}}['a'] }}{{ {}}}",
    "{{ ({'a': [1, (2, {'b': 3})]}) }}",
    "a}}b%}c#}d",
    "a{b}c{ {d} }e",
    "{ { x } }",
    "{{{}}}",
    "{{ [1, 2\n, 3] }}{{ {\n'a':\n1} }}",
    "{{\n1\n+\n2\n}}",
    "{% set j = joiner(', ') %}{% for i in l %}{{ j() }}{{ i }}{% endfor %}",
    "{% set j = joiner() %}{{ j() }}{{ j() }}{{ j() }}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.reset() }}{{ c.next() }}",
    "{% set x = namespace(self=none) %}{% set x.self = x %}{{ x.self.self.self is defined }}",
    "{% set g = l|map('string') %}{{ g|list }}{{ g|list }}",
    "{% set g = l|select('odd') %}{{ g|first }}{{ g|list }}",
    "{{ range(3)|map('string')|join(',') }}{% for i in range(3)|map('string') %}{{ i }}{{ loop.length }}{{ loop.last }}{% endfor %}",
    "{{ caller() }}",
    "{{ super }}",
    "{% set a = a + 1 %}{{ a }}",
    "{% set messages2 = m %}{% for x in messages2 %}{{ x['role'] }}:{{ x['content'] }}\n{% endfor %}",
    "{{ dict(a=1, **{'b': 2}) }}{{ dict(**d).x }}",
    "{% macro q(x, y) %}{{ x }}{{ y }}{% endmacro %}{{ q(*[1, 2]) }}{{ q(**{'x': 3, 'y': 4}) }}{{ q(*[1], y=2) }}{{ q(1, *[2]) }}",
    "{{ q(**{}, 1) }}",
    "{{ q(a=1, 2) }}",
    "{{ q(1, 2,) }}{% macro q(x, y) %}{{ x }}{% endmacro %}",
    "{% macro q(x, y) %}{{ x }}{% endmacro %}{{ q(1, 2,) }}",
    "{{ dict(a=1, a=2) }}",
    "line 1\nline 2 {{ missing.x }}",
    "{{ 'x' if missing is defined and missing.x else 'y' }}",
    "{{ missing is defined and missing.x }}",
    "{{ (missing or {}).x }}|{{ (d.nope or {}).get('x', 'y') }}",
    "{% if d.nope is defined and d.nope is not none %}a{% else %}b{% endif %}",
    "{% if d.x is defined and d.x is not none %}a{% else %}b{% endif %}",
    "{% set t1, t2 = ('a', 'b') if true else ('c', 'd') %}{{ t1 }}{{ t2 }}",
    "{% set x = 'a' if false %}[{{ x }}]",
    "{% set x = ('a' 'b') %}{{ x }}",
    "{%- set ns = namespace(is_first=false, is_tool=false, system_prompt='', last='') -%}{%- for x in m -%}{%- set ns.last = x.content -%}{%- endfor -%}{{ ns.last }}",
    "{{ l[-1] }}{{ m[-1]['role'] }}{{ m[m|length - 1].role }}",
    "{{ m | map(attribute='role') | join(' ') }}{{ m | map(attribute='nope') | list }}{{ m | map(attribute='nope', default='-') | join }}",
    "{{ (m | last).role }}{{ (m | first)['content'] }}{{ m|last }}",
    "{% for g in m|groupby('role') %}{{ g.grouper }}{{ g[0] }}:{% for x in g[1] %}{{ x.content }},{% endfor %}{{ g.list|length }} {% endfor %}",
    "{{ m|selectattr('role', 'equalto', 'user')|list|length }}{{ m|rejectattr('role', 'eq', 'user')|map(attribute='content')|first }}",
    "{{ m|selectattr('nope')|list }}{{ m|selectattr('nope', 'defined')|list }}{{ m|rejectattr('nope')|list|length }}",
    "{{ 'abc' is string }}{{ {'a':1} is mapping }}{{ [1] is sequence and [1] is not string }}",
]

def cases(rng):
    for e in EXPRESSIONS:
        yield "{{ " + e + " }}", DATA
    for s in STATEMENTS:
        yield s, DATA
    # Deep but legal.
    yield "{{ " + "(" * 60 + "1" + ")" * 60 + " }}", {}
    yield "{{ " + " + ".join(["1"] * 150) + " }}", {}
    yield "{{ " + " ~ ".join(["'a'"] * 400) + " }}", {}
    yield "{{ " + "not " * 50 + "true }}", {}
    yield "{% if true %}" * 40 + "x" + "{% endif %}" * 40, {}
    yield "{% if a == 0 %}0" + "".join("{%% elif a == %d %%}%d" % (i, i) for i in range(1, 60)) + "{% endif %}", {"a": 57}
    # Random arithmetic and comparisons over small values.
    atoms = ["0", "1", "2", "3", "-1", "1.5", "0.5", "true", "none", "'a'", "'b'", "[]", "[1]", "(1,)", "{}", "x", "''", "2 ** 3", "3 ** 2"]
    binary = ["+", "-", "*", "/", "//", "%", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or", "~"]

    def expression(depth):
        if depth == 0 or rng.random() < 0.2: return rng.choice(atoms)
        kind = rng.random()
        if kind < 0.7: return f"{expression(depth - 1)} {rng.choice(binary)} {expression(depth - 1)}"
        if kind < 0.8: return f"({expression(depth - 1)})"
        if kind < 0.85: return f"not {expression(depth - 1)}"
        if kind < 0.9: return f"-{expression(depth - 1)}"
        if kind < 0.95: return f"{expression(depth - 1)} if {expression(depth - 1)} else {expression(depth - 1)}"
        return f"[{expression(depth - 1)}, {expression(depth - 1)}]"

    for _ in range(600):
        yield "{{ " + expression(rng.randint(1, 3)) + " }}", {"x": 4}
