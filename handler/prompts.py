# SPDX-License-Identifier: Apache-2.0
"""Prompts as they were asked → token ids that the model can take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os.path import commonprefix
from typing import NamedTuple

from quickthaw.handler.errors import ContextLengthError, FieldError
from quickthaw.handler.generation import Generation
from quickthaw.layers.errors import PromptTooLongError
from quickthaw.layers.text.chat import ChatTemplate
from quickthaw.layers.text.tokenizer import Tokenizer


class Prompt(NamedTuple):
    """At least one token, and the text as it was written, if it was text."""

    ids: Sequence[int]
    text: str | None = None


class PromptReader:
    """Knows what this model's prompts may be."""

    def __init__(
        self, tokenizer: Tokenizer | None, template: ChatTemplate | None, vocab_size: int, context_tokens: int
    ) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._vocab_size = vocab_size
        self._room = context_tokens - 1  # for at least one token of answer

    def read(self, request: Generation) -> list[Prompt]:
        """Raises: FieldError, ContextLengthError, ChatTemplateError."""
        if request.messages is not None:
            text = self._render(request.messages)
            return [Prompt(self._encode("messages", text, add_special=False))]
        names = (
            ["prompt"] if len(request.prompts) == 1 else [f"prompt[{i}]" for i in range(len(request.prompts))]
        )
        return [self._read(name, prompt) for name, prompt in zip(names, request.prompts, strict=True)]

    def read_shared(self, request: Generation) -> Sequence[int]:
        """The tokens that requests like this one begin with: those common to its prompts; of a chat, those up
        to what its user says last.

        Raises: as `read`; FieldError when there are none.
        """
        if request.messages is None:
            prompts = self.read(request)
        else:
            said = request.messages[:-1] if request.messages[-1]["role"] == "user" else request.messages
            asked = [[*said, {"role": "user", "content": text}] for text in "ab"]
            prompts = [prompt for each in asked for prompt in self.read(request._replace(messages=each))]
        shared: Sequence[int] = commonprefix([list(prompt.ids) for prompt in prompts])
        if not shared:
            raise FieldError("prompt", "prompts that begin alike", "none")
        return shared

    def check_id(self, field: str, token_id: int) -> None:
        """Raises: FieldError when it is no token."""
        if not 0 <= token_id < self._vocab_size:
            raise FieldError(field, f"a token id from 0 to {self._vocab_size - 1}", str(token_id))

    def _read(self, field: str, prompt: str | Sequence[int]) -> Prompt:
        if isinstance(prompt, str):
            return Prompt(self._encode(field, prompt, add_special=True), prompt)
        return Prompt(self._checked(field, prompt))

    def _render(self, messages: Sequence[Mapping[str, str]]) -> str:
        if self._template is None:
            raise FieldError("messages", "a prompt: this model has no chat template", "messages")
        return self._template.render(messages)

    def _encode(self, field: str, text: str, *, add_special: bool) -> list[int]:
        if self._tokenizer is None:
            raise FieldError(field, "a list of token ids: this model has no tokenizer", "text")
        try:
            ids = self._tokenizer.encode(text, add_special=add_special, max_tokens=self._room)
        except PromptTooLongError as exc:
            found = f"{exc.fewest_tokens} or more"
            raise ContextLengthError(field, f"at most {self._room} tokens", found) from exc
        if not ids:
            raise FieldError(field, "at least one token", "none")
        return ids

    def _checked(self, field: str, ids: Sequence[int]) -> Sequence[int]:
        if not ids:
            raise FieldError(field, "at least one token", "none")
        if len(ids) > self._room:
            raise ContextLengthError(field, f"at most {self._room} tokens", str(len(ids)))
        for index, token_id in enumerate(ids):
            self.check_id(f"{field}[{index}]", token_id)
        return ids
