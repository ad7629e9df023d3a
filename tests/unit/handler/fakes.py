# SPDX-License-Identifier: Apache-2.0
"""A model of bytes with a written script: token ids are bytes of UTF-8, 256 ends an answer."""
# ruff: noqa: ARG002 - they have the arguments of what they stand for

import codecs
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from quickthaw.handler.config import HandlerConfig
from quickthaw.handler.session import Session
from quickthaw.layers.architecture import ModelConfig, Rope
from quickthaw.layers.arrays import Logits
from quickthaw.layers.errors import PromptTooLongError
from quickthaw.layers.kv import KeyValueCache
from quickthaw.layers.manifest import Manifest
from quickthaw.layers.spans import Spans

EOS = 256
NONE_CACHED = {"prompt_tokens_details": {"cached_tokens": 0}}
CHAT = "{% for m in messages %}{{ m.role + ':' + m.content + '\n' }}{% endfor %}"
MODEL = ModelConfig(
    family="llama",
    vocab_size=257,
    hidden_size=4,
    n_layers=1,
    n_heads=2,
    n_kv_heads=1,
    head_dim=2,
    ffn_size=4,
    norm_eps=1e-5,
    max_positions=100,
    tied_head=True,
    windows=(None,),
    rope=Rope(theta=10000.0),
    bos_token_id=None,
    eos_token_ids=(EOS,),
)


class ByteStream:
    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        return self._decoder.decode(bytes([token_id]))

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)


class ByteTokenizer:
    special_ids = frozenset({EOS})

    def token_bytes(self, token_id: int) -> bytes:
        return b"<end>" if token_id == EOS else bytes([token_id])

    def encode(self, text: str, *, add_special: bool = True, max_tokens: int | None = None) -> list[int]:
        ids = list(text.encode())
        if max_tokens is not None and len(ids) > max_tokens:
            raise PromptTooLongError(max_tokens, len(ids))
        return ids

    def stream(self, *, skip_special: bool = True) -> ByteStream:
        return ByteStream()


class ScriptedEngine:
    """Says its script, then ends; an exception in the script is raised in its place, and -1 is no opinion."""

    name = "scripted"
    before_layer: Callable[[], object]

    def __init__(self, script: Iterable[int | Exception]) -> None:
        self._script: Iterator[int | Exception] = iter(script)
        self.calls: list[Sequence[int]] = []

    def forward(self, token_ids: Sequence[int], cache: KeyValueCache) -> Logits:
        self.before_layer()
        self.calls.append(list(token_ids))
        token_id = next(self._script, EOS)
        if isinstance(token_id, Exception):
            raise token_id
        cache.take(token_ids)
        logits = np.zeros(MODEL.vocab_size, np.float32)
        if token_id >= 0:
            logits[token_id] = 50.0
        return logits


class Shards:
    def __init__(self, chat_template: str | None, name: str) -> None:
        template = None if chat_template is None else {"source": chat_template, "program": None}
        self.manifest = Manifest(name, "", MODEL, "f32", None, template, (EOS,), ())
        self.spans = Spans()
        with self.spans.timed("embedding"):
            self.bytes_mapped = self.bytes_loaded = 2
        self.n_evicted = 0

    def check_unchanged(self) -> None:
        pass

    def resident_bytes(self) -> int:
        return 1


def session(
    script: str | Iterable[int | Exception] = "",
    *,
    tokenizer: bool = True,
    chat: str | None = CHAT,
    name: str = "bytes",
    environ: dict[str, str] | None = None,
) -> tuple[Session, ScriptedEngine]:
    engine = ScriptedEngine(script.encode() if isinstance(script, str) else script)
    config = HandlerConfig.from_env(environ or {})
    fake_tokenizer = ByteTokenizer() if tokenizer else None
    return Session(Shards(chat, name), engine, fake_tokenizer, config), engine  # type: ignore[arg-type]
