"""Chat templates: what they may use, what they give, and that a hostile one does nothing but raise."""

from __future__ import annotations

import ctypes
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tiny_llm.text import template_worker
from tiny_llm.text.template import ChatTemplate, ChatTemplateError

HELLO = [{"role": "user", "content": "Hello"}]
CHATML = (
  "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
  "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def render(source: str, messages: Any = HELLO, **variables: Any) -> str:
  template = ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"})
  try:
    return template.render(messages, **variables)
  finally:
    template.close()


def test_chatml() -> None:
  messages = [{"role": "system", "content": "Be brief."}, *HELLO]
  text = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n"
  assert render(CHATML, messages) == text + "<|im_start|>assistant\n"
  assert render(CHATML, messages, add_generation_prompt=False) == text


@pytest.mark.parametrize(
  ("source", "text"),
  [
    ("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", "<s>Hello</s>"),
    # trim_blocks and lstrip_blocks
    ("a\n  {% if true %}\nb\n  {% endif %}\nc", "a\nb\nc"),
    # loopcontrols
    (
      "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}"
      "{% endfor %}",
      "02",
    ),
    ("{{ {'b': '<é>', 'a': 1} | tojson }}", '{"b": "<é>", "a": 1}'),
    ("{{ [1] | tojson(indent=2) }}", "[\n  1\n]"),
    ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "1"),
    ("{% generation %}{{ messages[0].content }}{% endgeneration %}", "Hello"),
    ("{% if tools %}x{% endif %}{{ enable_thinking | default('unset') }}", "unset"),
    ("{{ messages[0]['nothing'] }}{{ nothing }}", ""),
    ("{{ '\\ud800' }}", "?"),
  ],
)
def test_what_templates_may_use(source: str, text: str) -> None:
  assert render(source) == text


def test_the_time_of_day() -> None:
  before = datetime.now().strftime("%Y-%m-%d")
  assert before <= render("{{ strftime_now('%Y-%m-%d') }}") <= datetime.now().strftime("%Y-%m-%d")


def test_tools_and_other_variables() -> None:
  tools = [{"type": "function", "function": {"name": "f"}}]
  assert json.loads(render("{{ tools | tojson }}", tools=tools)) == tools
  assert render("{{ enable_thinking }}", enable_thinking=False) == "False"


def test_a_template_refuses() -> None:
  with pytest.raises(ChatTemplateError, match="refuses the messages: roles must alternate"):
    render("{{ raise_exception('roles must alternate') }}")


def test_a_template_that_is_wrong() -> None:
  with pytest.raises(ChatTemplateError, match="TemplateSyntaxError"):
    render("{% for %}")
  with pytest.raises(ChatTemplateError, match="UndefinedError"):
    render("{{ nothing.at.all }}")


def test_a_file_without_a_template() -> None:
  with pytest.raises(ChatTemplateError, match="no chat template"):
    ChatTemplate.from_metadata({})
  with pytest.raises(ChatTemplateError, match="no chat template"):
    ChatTemplate.from_metadata({"tokenizer.chat_template": 7})
  template = ChatTemplate.from_metadata({"tokenizer.chat_template.tool_use": "T"}, name="tool_use")
  assert template.render(HELLO) == "T"
  template.close()


def test_messages_that_are_no_json() -> None:
  with pytest.raises(ChatTemplateError, match="no JSON"):
    render("x", [{"role": "user", "content": object()}])


# *** hostile ones ***

ESCAPES = [
  "{{ ''.__class__.__mro__[1].__subclasses__() }}",
  "{{ self.__init__.__globals__ }}",
  "{{ cycler.__init__.__globals__.os.system('touch PATH') }}",
  "{{ lipsum.__globals__['os'].popen('touch PATH').read() }}",
  "{{ namespace.__init__.__globals__ }}",
  "{{ (messages | attr('__class__')).__base__ }}",
  "{{ ''|attr('\\x5f\\x5fclass\\x5f\\x5f')|attr('mro') }}",
  "{{ '{0.__class__}'.format(1) }}",
  "{{ '{x.__class__.__init__.__globals__}'.format_map({'x': cycler}) }}",
  "{{ strftime_now.__globals__ }}",
  "{{ raise_exception.__globals__['sys'].exit() }}",
  "{{ joiner.__init__.__globals__['__builtins__']['open']('PATH', 'w') }}",
  "{% for x in ().__class__.__base__.__subclasses__() %}{{ x }}{% endfor %}",
  "{{ messages.append(1) }}",
  "{{ messages[0].update({'role': 'system'}) }}",
  "{% include '/etc/passwd' %}",
  "{% import 'os' as os %}",
  "{% extends '/etc/passwd' %}",
]


@pytest.mark.parametrize("source", ESCAPES)
def test_ways_out_of_the_sandbox(source: str, tmp_path: Path) -> None:
  path = tmp_path / "written"
  try:
    text = render(source.replace("PATH", str(path)))
  except ChatTemplateError:
    pass
  else:  # the sandbox may make it undefined, which renders as nothing
    assert text.strip() == "", text
  assert not path.exists()


ENDLESS = [
  "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}"
  "{% endfor %}",
  "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
  "{{ 9 ** 9 ** 9 }}",
  "{{ 'x' * 10 ** 12 }}",
  "{{ '%1000000000000d' % 1 }}",
  "{{ 'x' | center(10 ** 12) }}",
  "{{ lipsum(n=10 ** 9) }}",
  "{% set ns = namespace(s='x' * 1000) %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
  "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
  "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l | tojson }}",
  "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
  "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(99) }}",
  "{{ (range(99999) | list * 99999) | length }}",
  "{{ [1] | batch(10 ** 12, 'x') | list }}",
  "(" * 100_000,
  "{{ " + "(" * 20_000 + ")" * 20_000 + " }}",
  "{{ " + "-" * 50_000 + "1 }}",
  "{% if 1 %}" * 20_000,
]


@pytest.mark.parametrize("source", ENDLESS, ids=range(len(ENDLESS)))
def test_templates_without_end(source: str) -> None:
  template = ChatTemplate(source, seconds=0.7)
  try:
    text = template.render(HELLO)
  except ChatTemplateError as error:
    assert "cannot be rendered" in str(error)
  else:
    assert len(text) <= 8 << 20
  # the next conversation has a process of its own again
  template.source = "ok"
  template.seconds = 60
  assert template.render(HELLO) == "ok"
  template.close()


def test_a_closed_template_starts_again_when_it_is_asked() -> None:
  template = ChatTemplate("{{ messages[0].content }}")
  template.close()
  assert template.render(HELLO) == "Hello"
  template.close()
  template.close()


def test_the_process_goes_with_the_template() -> None:
  template = ChatTemplate("x")
  process = template._process
  del template
  assert process.wait(30) != 0


def test_limits_of_windows_have_the_size_that_its_header_gives_them() -> None:
  """JOBOBJECT_EXTENDED_LIMIT_INFORMATION, of 64 bits."""
  limits = template_worker.limits_of(512 << 20)
  assert ctypes.sizeof(limits) == 144 and type(limits).ProcessMemoryLimit.offset == 112
  assert limits.ProcessMemoryLimit == 512 << 20 and limits.ActiveProcessLimit == 1
