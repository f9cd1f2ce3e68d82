#!/usr/bin/env python3
"""Writes the chat template test vectors, with Python's Jinja as the reference.

    pip install jinja2==3.1.6
    python3 scripts/chat-vectors.py ../shared/data/templates tokenizer/chat/testdata/jinja.json

The first argument is a folder with model templates (*.jinja). The environment is the
one of Hugging Face's apply_chat_template: sandboxed, trim_blocks, lstrip_blocks, loop
controls, tojson without escapes, raise_exception. The file is a list of
{"source" or "file": template, "conversation": index, "want": text}; the conversations
are those of jinja_test.go.
"""

import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

SNIPPETS = r"""
{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 3 }} {{ 2 ** 0.5 }} {{ 1.0 + 1 }} {{ 3 * 'ab' }} {{ [1] * 2 }}
{{ 'a' ~ 1 ~ true ~ 1.5 }} {{ [1, 'a'] + [2.0] }}
{% set ns = namespace(i=0) %}{% for m in messages %}{% set ns.i = ns.i + 1 %}{{ ns.i }}{{ m.role }}{% if not loop.last %}, {% endif %}{% endfor %}
{% for m in messages if m.role != 'system' %}{{ loop.index }}/{{ loop.length }} {{ loop.first }} {{ m['content'] | trim }};{% else %}none{% endfor %}
{% for m in messages %}{% if loop.index0 == 2 %}{% break %}{% endif %}{% if m.role == 'system' %}{% continue %}{% endif %}{{ m.role }}{% endfor %}
{{ messages[-1].content.strip() }}|{{ messages[-1]['content'] }}|{{ messages[0].role[0] }}{{ messages[0].role[-1] }}|{{ 'héllo'[1] }}{{ 'héllo'[1:3] }}{{ 'abcdef'[::-1] }}{{ 'abcdef'[:-2] }}
{{ messages[1:] | length }} {{ messages[:-1] | length }} {{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ messages | map(attribute='role') | join('-') }}
{{ messages | rejectattr('role', 'equalto', 'user') | map(attribute='role') | list }} {{ ['a','b','c'] | reject('equalto', 'b') | join(', ') }}
{{ 'x' in 'xyz' }} {{ 'role' in messages[0] }} {{ 3 in [1,2] }} {{ 3 not in [1,2] }} {{ 'tools' in messages[0] }}
{{ undefinedthing is defined }} {{ messages is defined }} {{ none is none }} {{ 'a' is string }} {{ messages[0] is mapping }} {{ messages is iterable }} {{ 1 is number }}
{{ '%s' }}{{ "a\nb\t\"q\" 'r' \\n" }}
{% set x = 'a' if messages[0].role == 'system' else 'b' %}{{ x }} {{ 'y' if false else 'z' }} {{ 'only' if false }}
{% macro greet(name, mark='!') %}Hi {{ name }}{{ mark }}{% endmacro %}{{ greet('Bo') }} {{ greet('Al', mark='?') }}
{% set blockval %}in {{ messages[0].role }} out{% endset %}[{{ blockval }}]
{{ {'a': 1, 'b': [1, 2, {'c': none}]} | tojson }} {{ {'b': 1, 'a': 2}.items() | list | length }}
{% for k, v in {'b': 1, 'a': 2}.items() %}{{ k }}={{ v }};{% endfor %}{% for k, v in {'z': 1, 'y': 2} | items %}{{ k }}={{ v }};{% endfor %}
{{ {'a': 1}.get('a') }} {{ {'a': 1}.get('b', 'dflt') }} {{ {'b': 1, 'a': 2}.keys() | list | join(',') }}
{{ 'Hello World'.upper() }} {{ 'Hello' | lower }} {{ 'hello world'.title() }} {{ 'hELLO' | capitalize }} {{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a,b,c'.split(',', 1) | length }}
{{ 'xxabcxx'.strip('x') }} {{ 'abc'.startswith('ab') }} {{ 'abc'.endswith('bc') }} {{ 'aXbXc'.replace('X', '-') }} {{ 'aXbXc' | replace('X', '-', 1) }} {{ '-'.join(['a','b']) }} {{ 'abc'.find('c') }}
{{ undefinedthing | default('d') }} {{ '' | default('e', true) }} {{ 0 | default(5) }}
{{ [3,1,2] | first }} {{ [3,1,2] | last }} {{ [3,1,2] | reverse | list }} {{ 'abc' | list }} {{ '12' | int + 1 }} {{ 'a\nb\n\nc' | indent(2) }} {{ 'a\nb' | indent(3, true) }}
{{ range(5) | list }} {{ range(2, 10, 3) | list }} {{ range(5, 0, -2) | list }} {{ loop is defined }}
{% if messages and messages[0].role == 'system' and not (messages | length == 1) %}yes{% elif true %}no{% endif %}
{{ (1, 2) | length }} {{ 1 < 2 and 2 > 1 or false }} {{ not true }} {{ 5 == 5.0 }} {{ 'a' < 'b' }}
{%- if true -%}   trimmed   {%- endif -%} end {#- comment -#} .
x{% raw %}{{ raw }}{% endraw %}y
{{ true }} {{ True }} {{ false }} {{ 1 if none else 2 }} {{ none is not none }} {{ (messages | length) % 2 == 0 }}
{% for i in range(3) %}{{ loop.cycle('a', 'b') }}{{ loop.revindex }}{{ loop.previtem }}{% endfor %}
{{ messages[0].missing is defined }} {{ messages[0]['missing'] is not defined }} {{ messages | length - 1 }}
{%- for message in messages -%}{{- message.role + ': ' -}}{{ message.content }}{%- endfor -%}
{{ 10 | string + '!' }} {{ 3.0 }} {{ 1e20 }} {{ 0.1 + 0.2 }} {{ 1/3 }} {{ -3 | abs }}
{{ messages|map(attribute='content')|map('trim')|join('|') }} {{ messages|selectattr('content')|list|length }} {{ [1,2,3,4]|select('odd')|list }}
{% set a, b = 1, 'x' %}{{ a }}{{ b }} {% set a, b = b, a %}{{ a }}{{ b }} {% set c, d = 'yz' %}{{ d }}{{ c }} {% set t = 1, 2 %}{{ t | length }} {% set e, f = {'k': 1, 'l': 2} %}{{ e }}{{ f }}
{% set ns = namespace() %}{% set ns.a, b = [1, 2] %}{{ ns.a }}{{ b }} {% set x, y = (3, 4) if true else (5, 6) %}{{ x }}{{ y }}
{% with a = 1, b = 'c' %}{{ a }}{{ b }}{% set a = 7 %}{{ a }}{% endwith %}{{ a is defined }} {% set a = 5 %}{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}{% with %}.{% endwith %}
{% filter upper %}a{{ 'b' }}{% for i in [1, 2] %}c{% endfor %}{% endfilter %}{% filter replace('a', 'b') | upper | trim %} banana {% endfilter %}|{% filter indent(2) %}x{{ '\n' }}y{% endfilter %}
{% macro box(t) %}<{{ t }}:{{ caller() }}>{% endmacro %}{% call box('a') %}in {{ messages[0].role }}{% endcall %}{% call box(t='b') %}{% call box('c') %}deep{% endcall %}{% endcall %}
{% macro each(l) %}{% for i in l %}{{ caller(i, mark='!') }}{% endfor %}{% endmacro %}{% set k = 9 %}{% call(n, mark='?', more='+') each([1, 2]) %}{{ n }}{{ mark }}{{ more }}{{ k }} {% endcall %}
{% macro maybe() %}{{ caller is defined }}{% endmacro %}{{ maybe() }} {% macro twice() %}{{ caller() }}{{ caller() | upper }}{% endmacro %}{% call twice() %}ab{% endcall %}
{{ '%s is %d, %i' | format('x', 5, 7.9) }} {{ '%5s|%-5s|%05d|%+d|% d|%5.2f|%.3s' | format('a', 'b', 42, 3, 4, 3.14159, 'abcdef') }} {{ '%x %X %o %%' | format(255, 255, 8) }} {{ '%(a)s-%(b)03d' | format(b=2, a='q') }}
{{ '%e %E %g %g %G' | format(12345.678, 0.00012, 0.0001, 1234567.0, 1e-10) }} {{ '%s %s %s' | format(true, 1.5, [1, 'a']) }} {{ '%d %05s' | format(true, 'x') }} {{ '%.0f %f' | format(2.5, 1) }}
{{ '%s' % 'a' }} {{ '%s-%s' % ('a', 1) }} {{ '%(k)s' % {'k': 'v'} }} {{ '100%%' % () }} {{ '%s' % [1, 2] }} {{ '%d%%' % 50 }} {{ 'né%5s|' | format('é') }}
[{{ 'ab' | center(7) }}] [{{ 'abc' | center(6) }}] [{{ 'abc' | center(2) }}] [{{ 'é' | center(4) }}] [{{ 'x'.center(4, '*') }}] [{{ 'abcd'.center(7) }}] [{{ '' | center(width=3) }}] {{ 'x' | center | length }}
{{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 2 ** -1 }} {% set a = 2 %}{% set b = 3 %}{{ a ** b ** a }} {{ 2 * a ** b }} {{ (a ** b) ** a }} {{ a ** (b ** a) }}
{% set x = 2 %}{% set n = 3 %}{% set y = [6, 7] %}{{ x * n in y }} {{ x * n not in y }} {{ x in y + [2] }} {{ 'b' in 'a' ~ 'b' }} {{ 'a' in 'xay' | upper }} {{ 'A' in ('xay' | upper) ~ 'z' and x < n }} {{ 6 not in [x * n] * 2 or true }}
{% for i in [1, 2, 3] if i in [1] + [3] %}{{ i }}{% endfor %}{% if 'a' in 'b' ~ 'a' %}y{% endif %} {{ [1 in [1] + [2], 3 in [3] * 2] }} {{ 'y' if 2 in [1] + [2] else 'n' }} {{ (1 in [0] + [1]) | string }} {{ {'k': 1 in [1] + []} }}
{% set seen = namespace(last=messages|length - 1, open=true) %}{% for m in messages[::-1] %}{% set at = (messages|length - 1) - loop.index0 %}{% if seen.open and m.role == 'user' and not (m.content.startswith('<r>') and m.content.endswith('</r>')) %}{% set seen.open = false %}{% set seen.last = at %}{% endif %}{% endfor %}{{ seen.last }}{{ seen.open }}
{% set text = '<think>\nhm\n</think>\n\nYes.' %}{% if '</think>' in text %}{{ text.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') }}|{{ text.split('</think>')[-1].lstrip('\n') }}{% endif %}|{{ (text.split('</think>')|last).lstrip('\n') }}
{%- if messages[0].role == 'system' %}{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}{%- endif %}{%- for m in messages %}{%- if (m.role == "user") or (m.role == "system" and not loop.first) or (m.role == "assistant" and not m.tool_calls) %}{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}{%- endif %}
""".strip("\n").split("\n") + [
    "  {% if true %}  \n    kept\n  {% endif %}  \nx\n",
    "{% for m in messages %}\n{{ m.role }}\n{% endfor %}\nend\n",
    "a\n\n{# c #}\n  {%- if true %}\n b\n{%- endif %}\n\n",
    "{%- set n = namespace(system='') %}\n{%- for m in messages %}\n  {%- if m.role == 'system' %}\n    {%- set n.system = '<<SYS>>\\n' + m.content + '\\n<</SYS>>\\n\\n' %}\n"
    "  {%- elif m.role == 'user' %}\n    {{- bos_token + '[INST] ' + (n.system + m.content).strip() + ' [/INST]' }}\n    {%- set n.system = '' %}\n"
    "  {%- else %}\n    {{- ' ' + m.content.strip() + ' ' + eos_token }}\n  {%- endif %}\n{%- endfor %}",
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
]

PIRATE = [
    {"role": "system", "content": "You are a pirate chatbot."},
    {"role": "user", "content": "What is the capital of France?"},
    {"role": "assistant", "content": "Paris, matey!"},
    {"role": "user", "content": " And of Italy?\n"},
]
TOOL = {"type": "function", "function": {
    "name": "weather", "description": "Weather of a \"city\", in \u00b0C & more",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1.5}}, "required": ["city"]}}}
CONVERSATIONS = [
    {"messages": PIRATE, "add_generation_prompt": True},
    {"messages": PIRATE[1:3], "add_generation_prompt": False},
    {"messages": PIRATE, "add_generation_prompt": True, "tools": [TOOL, TOOL]},
    {"messages": [{"role": "user", "content": "na\u00efve \U0001f600 <|eot_id|> {{ 1 }} \\n \"q\""}], "add_generation_prompt": True},
]


# A call and its answer, as OpenAI's clients send them but for the arguments, which templates
# have as an object.
CONVERSATIONS.append({"messages": [
    {"role": "user", "content": "How is it in K\u00f6ln?"},
    {"role": "assistant", "content": "", "tool_calls": [
        {"type": "function", "function": {"name": "weather", "arguments": {"city": "K\u00f6ln", "days": [1, 2.5, None]}}, "id": "abcdefgh1"}]},
    {"role": "tool", "content": "{\"sky\": \"<|eot_id|>\"}", "tool_call_id": "abcdefgh1"},
], "add_generation_prompt": True, "tools": [TOOL]})

# The format of Hermes and Qwen: tools in the system message, calls between tags.
HERMES = r"""
{%- if tools %}{{- '<|im_start|>system\n' }}{%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{%- endif %}
{{- "Functions, one in each line:\n<tools>" }}{%- for tool in tools %}{{- "\n" }}{{- tool | tojson }}{%- endfor %}
{{- "\n</tools>\nCalls are JSON between <tool_call></tool_call>.<|im_end|>\n" }}{%- endif %}
{%- for m in messages %}{%- if m.role == 'assistant' and m.tool_calls %}{{- '<|im_start|>assistant' }}{%- if m.content %}{{- '\n' + m.content }}{%- endif %}
{%- for call in m.tool_calls %}{%- if call.function is defined %}{%- set call = call.function %}{%- endif %}
{{- '\n<tool_call>\n{"name": "' + call.name + '", "arguments": ' }}{{- call.arguments | tojson }}{{- '}\n</tool_call>' }}{%- endfor %}{{- '<|im_end|>\n' }}
{%- elif m.role == 'tool' %}{%- if loop.index0 == 0 or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
{{- '\n<tool_response>\n' + m.content + '\n</tool_response>' }}{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\n' }}{%- endif %}
{%- elif m.role != 'system' or not tools %}{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}
""".strip()


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


def main():
    folder, out = sys.argv[1:3]
    env = environment()
    vectors = []

    def add(key, name, source, conversation):
        args = {"tools": None, "bos_token": "<s>", "eos_token": "</s>"} | CONVERSATIONS[conversation]
        vectors.append({key: name, "conversation": conversation, "want": env.from_string(source).render(**args)})

    for s in SNIPPETS:
        add("source", s, s, 0)
    for path in sorted(pathlib.Path(folder).glob("*.jinja")):
        for i in range(len(CONVERSATIONS)):
            add("file", path.name, path.read_text(), i)
    for i in range(len(CONVERSATIONS)):
        add("source", HERMES, HERMES, i)
    with open(out, "w") as f:
        json.dump(vectors, f, ensure_ascii=False, indent=1)
        f.write("\n")
    print(f"{out}: {len(vectors)} vectors")


if __name__ == "__main__":
    main()
