# SPDX-License-Identifier: Apache-2.0
"""Chat templates against the renderer behind `transformers.apply_chat_template`."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2.exceptions import TemplateError
from transformers.utils.chat_template_utils import render_jinja_template

from quickthaw.layers.errors import ChatRefusedError
from quickthaw.layers.text.chat import ChatTemplate, prepare
from tests.unit.layers.text.chat_templates import TEMPLATES

SPECIAL_TOKENS: dict[str, Any] = {"bos_token": "<s>", "eos_token": "</s>"}
PREPARED = {name: ChatTemplate(source, prepare(source), SPECIAL_TOKENS) for name, source in TEMPLATES.items()}
TOJSON = "{{ messages | tojson }}{{ messages[0] | tojson(indent=2) }}"
GENERATION = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{{ m.x }}{% endfor %}"

text = st.text(max_size=12) | st.sampled_from(
    ["<think>a</think>\nb", "<tool_response></tool_response>", "</s>"]
)
messages = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "system"]), "content": text}),
    max_size=5,
)


def reference(source: str, messages: list[dict[str, str]], add_generation_prompt: bool) -> str | None:
    """What transformers prints; None where the template refuses."""
    try:
        rendered: Any = render_jinja_template(
            conversations=[messages],
            chat_template=source,
            add_generation_prompt=add_generation_prompt,
            **SPECIAL_TOKENS,
        )[0]
    except TemplateError:
        return None
    return str(rendered[0])


def ours(template: ChatTemplate, messages: list[dict[str, str]], add_generation_prompt: bool) -> str | None:
    try:
        return template.render(messages, add_generation_prompt=add_generation_prompt)
    except ChatRefusedError:
        return None


@pytest.mark.parametrize("name", TEMPLATES)
@settings(max_examples=50, deadline=None)
@given(messages=messages, add_generation_prompt=st.booleans())
def test_a_template_prints_what_transformers_prints(
    name: str, messages: list[dict[str, str]], add_generation_prompt: bool
) -> None:
    expected = reference(TEMPLATES[name], messages, add_generation_prompt)
    assert ours(PREPARED[name], messages, add_generation_prompt) == expected


@pytest.mark.parametrize("source", [TOJSON, GENERATION])
def test_the_extras_of_the_environment(source: str) -> None:
    messages = [{"role": "user", "content": "é<&>\n"}]
    assert ours(ChatTemplate(source), messages, False) == reference(source, messages, False)
