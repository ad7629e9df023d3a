# SPDX-License-Identifier: Apache-2.0
"""Chat templates: messages → the text a model was trained on, equal to `transformers.apply_chat_template`'s.

A template is untrusted Jinja2 that came with the weights. When a model is split, `prepare` turns it into a
small JSON program, and a request runs that (`chat_program.py`); where the program declines, the template runs
in Jinja2's immutable sandbox, which is imported then (37 ms).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from quickthaw.layers.errors import BrokenTemplateError, ChatRefusedError
from quickthaw.layers.text.chat_program import Declined, Node, run

if TYPE_CHECKING:
    import jinja2


def prepare(source: str) -> list[Node] | None:
    """The JSON program of a template, or None where only jinja2 can render it."""
    from jinja2 import TemplateError

    from quickthaw.layers.text.chat_compiler import Compiler
    from quickthaw.layers.text.chat_sandbox import environment

    sandbox = environment()
    try:
        sandbox.from_string(source)
        return Compiler(sandbox.parse(source)).program()
    except (TemplateError, SyntaxError, RecursionError):
        return None


class ChatTemplate:
    """One model's template with the special tokens it may name."""

    def __init__(
        self,
        source: str,
        program: list[Node] | None = None,
        special_tokens: Mapping[str, str] | None = None,
    ) -> None:
        """`special_tokens`: `bos_token`, `eos_token` and so on, as text; others are undefined."""
        self._source = source
        self._program = program
        self._special_tokens = dict(special_tokens or {})
        self._compiled: jinja2.Template | None = None

    @classmethod
    def from_manifest(cls, entry: Mapping[str, Any]) -> ChatTemplate:
        """The `chat_template` object of a shard set's manifest."""
        special_tokens = {
            name: text for name, text in entry.items() if name.endswith("_token") and text is not None
        }
        return cls(entry["source"], entry.get("program"), special_tokens)

    def render(self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True) -> str:
        """The prompt for `messages`; it already holds every special token, so encode it without adding any.

        Raises: `ChatRefusedError` (these messages), `BrokenTemplateError` (any messages).
        """
        variables: dict[str, Any] = {**self._special_tokens, "messages": messages, "tools": None}
        variables |= {"documents": None, "add_generation_prompt": add_generation_prompt}
        prompt = self._run(variables)
        if prompt is None:
            prompt = self._render_in_sandbox(variables)
        try:
            prompt.encode()
        except UnicodeEncodeError as exc:
            raise BrokenTemplateError(
                f"the model's chat template writes a lone surrogate, U+{ord(prompt[exc.start]):04X}"
            ) from exc
        return prompt

    def _run(self, variables: Mapping[str, Any]) -> str | None:
        """What the prepared program prints; None where jinja2 knows, or has the better error."""
        if self._program is None:
            return None
        try:
            return run(self._program, variables)
        except Declined:
            return None

    def _render_in_sandbox(self, variables: Mapping[str, Any]) -> str:
        from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError

        from quickthaw.layers.text.chat_sandbox import environment

        try:
            if self._compiled is None:
                self._compiled = environment().from_string(self._source)
            return self._compiled.render(variables)
        except (TemplateSyntaxError, SecurityError, SyntaxError, OverflowError, RecursionError) as exc:
            raise BrokenTemplateError(f"the model's chat template cannot be run: {exc}") from exc
        except (TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as exc:
            raise ChatRefusedError(f"the model's chat template refuses these messages: {exc}") from exc
