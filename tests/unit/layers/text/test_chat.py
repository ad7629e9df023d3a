# SPDX-License-Identifier: Apache-2.0
import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quickthaw.layers.errors import BrokenTemplateError, ChatRefusedError, ChatTemplateError
from quickthaw.layers.text.chat import ChatTemplate, prepare
from quickthaw.layers.text.chat_program import Declined, run
from tests.unit.layers.text.chat_templates import LLAMA2, MISTRAL, QWEN2, SMOLLM2, TEMPLATES

SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
PROGRAMS = {name: json.loads(json.dumps(prepare(source))) for name, source in TEMPLATES.items()}
HELLO = [{"role": "user", "content": "Hello"}]

text = st.text(max_size=12) | st.sampled_from(
    ["", " \n x \t", "<think>a</think>\nb", "<tool_response></tool_response>"]
)
message = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system", "tool"]), "content": text}
)
odd_value = st.none() | st.booleans() | st.integers(-9, 9) | text | st.lists(text, max_size=2)
odd_message = st.dictionaries(
    st.sampled_from(["role", "content", "tool_calls", "reasoning_content", "items", "get"]),
    odd_value,
    max_size=4,
)
conversation = st.lists(message, max_size=5)
alternating = st.lists(text, min_size=1, max_size=5).map(
    lambda texts: [{"role": ("user", "assistant")[i % 2], "content": t} for i, t in enumerate(texts)]
)
odd_conversation = st.lists(message | odd_message, max_size=3)


def outcome(template: ChatTemplate, messages: object, add_generation_prompt: bool = True) -> tuple[type, str]:
    try:
        return str, template.render(messages, add_generation_prompt=add_generation_prompt)  # type: ignore[arg-type]
    except ChatTemplateError as exc:
        return type(exc), str(exc)


@pytest.mark.parametrize("name", TEMPLATES)
@settings(max_examples=60)
@given(messages=conversation | alternating | odd_conversation, add_generation_prompt=st.booleans())
def test_a_program_prints_what_jinja2_prints_or_declines(
    name: str, messages: list[dict[str, object]], add_generation_prompt: bool
) -> None:
    variables: dict[str, object] = {**SPECIAL_TOKENS, "messages": messages, "tools": None, "documents": None}
    variables["add_generation_prompt"] = add_generation_prompt
    try:
        prepared = run(PROGRAMS[name], variables)
    except Declined:
        return
    jinja2_only = ChatTemplate(TEMPLATES[name], None, SPECIAL_TOKENS)
    assert outcome(jinja2_only, messages, add_generation_prompt) == (str, prepared)


@pytest.mark.parametrize("name", TEMPLATES)
@given(messages=alternating)
def test_an_ordinary_conversation_is_not_declined(name: str, messages: list[dict[str, str]]) -> None:
    variables = {**SPECIAL_TOKENS, "messages": messages, "add_generation_prompt": True}
    assert run(PROGRAMS[name], variables)


# --- whole templates at random: scopes, undefined names, precedence ---

NAMES = [
    "x",
    "y",
    "m",
    "ns.a",
    "messages",
    "missing",
    "loop.index0",
    "m.role",
    "m['content']",
    "messages[0].role",
]
LITERALS = ["1", "2", "'a'", "''", "' b '", "none", "true", "[]", "('a', 1)"]
OPERATORS = ["+", "-", "%", "~", "==", "!=", "<", ">=", "in", "not in", "and", "or"]
POSTFIXES = [".strip()", "[0]", "[1:]", "[::-1]", ".role", "['items']", ".split('a')[-1]"]
POSTFIXES += ["|trim", "|length", "|upper", "|default('d')", "|default('d', true)", "|tojson"]
POSTFIXES += [
    " is " + test for test in ("defined", "none", "string", "not defined", "mapping", "iterable", "true")
]
STATEMENTS = ["text\n", " {{- 'z' -}} ", "{% set ns = namespace(a='n') %}", "{% set y %}block{% endset %}"]
ASSIGNED = ["x", "y", "messages", "ns.a"]


def operations(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(OPERATORS), inner),
        st.builds("(({}){})".format, inner, st.sampled_from(POSTFIXES)),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("(not {})".format, inner),
    )


def blocks(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("{{% if {} %}}{}{{% else %}}{}{{% endif %}}".format, expression, inner, inner),
        st.builds("{{% for m in messages %}}{}{}{{% endfor %}}".format, inner, inner),
        st.builds("{{% for x in {} %}}{}{{% endfor %}}".format, expression, inner),
        st.lists(inner, min_size=2, max_size=4).map("".join),
    )


expression = st.recursive(st.sampled_from(NAMES + LITERALS), operations, max_leaves=5)
statement = st.recursive(
    st.one_of(
        st.builds("{{{{ {} }}}}".format, expression),
        st.builds("{{% set {} = {} %}}".format, st.sampled_from(ASSIGNED), expression),
        st.sampled_from(STATEMENTS),
    ),
    blocks,
    max_leaves=8,
)


@pytest.mark.filterwarnings("ignore::SyntaxWarning")  # Python's, about templates that index a number
@settings(max_examples=300)
@given(body=st.lists(statement, min_size=1, max_size=4).map("".join), messages=st.lists(message, max_size=3))
def test_a_random_template_means_the_same(body: str, messages: list[dict[str, str]]) -> None:
    source = "{% set ns = namespace(a=1) %}" + body
    program = json.loads(json.dumps(prepare(source)))
    if program is None:
        return
    variables = {"messages": messages, "tools": None, "documents": None, "add_generation_prompt": True}
    try:
        prepared = run(program, variables)
    except Declined:
        return
    assert outcome(ChatTemplate(source), messages) == (str, prepared)


# --- what a caller sees ---


def test_a_known_conversation() -> None:
    assert ChatTemplate(SMOLLM2, PROGRAMS["smollm2"]).render(HELLO) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_template_that_always_needs_jinja2_is_not_prepared() -> None:
    assert prepare("{% macro m() %}x{% endmacro %}{{ m() }}") is None
    assert prepare("{{ messages | map(attribute='role') | join }}") is None
    assert prepare("{% if %}") is None


def test_a_branch_outside_the_subset_is_left_to_jinja2() -> None:
    jinja2_only = "{{ messages | map(attribute='role') | join(',') }}"
    source = "{% if messages[0].role == 'user' %}plain{% else %}" + jinja2_only + "{% endif %}"
    template = ChatTemplate(source, prepare(source))
    assert template.render(HELLO) == "plain"
    assert template.render([{"role": "tool"}, {"role": "x"}]) == "tool,x"


@pytest.mark.parametrize("program", [None, PROGRAMS["mistral"]])
def test_what_the_template_refuses_carries_its_own_words(program: list[list[object]] | None) -> None:
    template = ChatTemplate(MISTRAL, program, SPECIAL_TOKENS)
    with pytest.raises(ChatRefusedError, match="Conversation roles must alternate user/assistant"):
        template.render([*HELLO, *HELLO])


def test_no_messages_is_a_refusal() -> None:
    with pytest.raises(ChatRefusedError, match="has no element 0"):
        ChatTemplate(LLAMA2, PROGRAMS["llama2"]).render([])


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__class__.__base__.__subclasses__() }}",
        "{% for i in range(10**9) %}x{% endfor %}",
        "{{ messages.append(1) }}",
        "{% set ns = namespace(__class__=1) %}",
        "{{ raise_exception.__globals__['json'] }}",
        "{% for message in messages %}",
    ],
)
def test_a_hostile_or_broken_template_is_stopped(source: str) -> None:
    with pytest.raises(BrokenTemplateError, match="the model's chat template cannot be run"):
        ChatTemplate(source, prepare(source)).render(HELLO)


@pytest.mark.parametrize(
    "source", ["{{ '\\ud800' }}", "\ud800", "{% macro m() %}\ud800{% endmacro %}{{ m() }}"]
)
def test_a_template_that_writes_no_text_is_broken(source: str) -> None:
    with pytest.raises(BrokenTemplateError, match=r"writes a lone surrogate, U\+D800"):
        ChatTemplate(source, prepare(source)).render(HELLO)


@pytest.mark.parametrize(
    "source", ["{{ [missing] }}", "{{ (missing, 1) }}", "{{ self }}", "{{ self is defined }}"]
)
def test_what_jinja2_prints_of_its_own_objects_is_left_to_jinja2(source: str) -> None:
    rendered = ChatTemplate(source, prepare(source)).render(HELLO)
    assert rendered.split(" at 0x")[0] == ChatTemplate(source).render(HELLO).split(" at 0x")[0]


def test_preparing_computes_nothing_of_a_template() -> None:
    prepare("{{ 'a' * 10 ** 12 }}")  # would be a terabyte


def test_the_manifest_round_trip() -> None:
    entry = {"source": MISTRAL, "program": PROGRAMS["mistral"], "bos_token": "<s>", "eos_token": None}
    assert (
        ChatTemplate.from_manifest(json.loads(json.dumps(entry))).render(HELLO) == "<s>[INST] Hello [/INST]"
    )


def test_a_prepared_template_does_not_import_jinja2() -> None:
    script = (
        "import json, sys\n"
        "from quickthaw.layers.text.chat import ChatTemplate\n"
        "program = json.loads(sys.stdin.read())\n"
        "prompt = ChatTemplate('', program).render([{'role': 'user', 'content': 'Hello'}])\n"
        "assert prompt.endswith('assistant\\n')\n"
        "assert 'jinja2' not in sys.modules\n"
    )
    program = json.dumps(prepare(QWEN2))
    subprocess.run([sys.executable, "-c", script], input=program, text=True, check=True)
