# SPDX-License-Identifier: Apache-2.0
"""What can go wrong between a checkpoint and a token: one class for each thing a caller might do differently.

LayersError
├── LayersConfigError            a QUICKTHAW_* variable of this package has a bad value
├── CheckpointError              the source of a split cannot be read, or lacks or adds a tensor
│   └── UnsupportedModelError    it can be read, but asks for a computation that is not implemented
├── SplitError                   a shard set could not be written
│   ├── OutputExistsError        the output directory holds something else
│   ├── SplitRunningError        another process is writing the same output
│   └── DiskFullError            no room, or a size limit was hit
├── ManifestError                manifest.json is absent, malformed, or describes impossible shards
│   └── ManifestVersionError     it was written by a newer quickthaw
├── TokenizerError               a tokenizer cannot be read or written
│   ├── TokenizerMissingError    the source has none
│   ├── UnsupportedTokenizerError        it does something that is not implemented
│   └── TokenizerTablesError     the file of its tables is damaged, or is none
│       └── TokenizerTablesVersionError  that file has another format version
├── PromptError                  a prompt is not Unicode text
│   └── PromptTooLongError       a prompt has more tokens than are allowed
├── LogitsError                  an engine computed something that is no number
├── BatchError                   a batch does not compute for a request
│   ├── BatchFullError           every place in it is taken, and too many wait already
│   ├── BatchClosedError         it computes no more
│   └── AbandonedError           nobody waits for the answer any more
├── ChatTemplateError            the model's chat template could not be rendered
│   ├── ChatRefusedError         the template refuses these messages (its own message says why)
│   └── BrokenTemplateError      the template is malformed, or reached for what the sandbox forbids
├── MemoryBudgetError            the memory that was given is too little for any answer
└── ShardError                   a shard, or the tensor asked of it, is not there
    ├── ShardMissingError        the file is absent
    ├── ShardTruncatedError      the file is shorter (or longer) than the manifest says
    ├── ShardReplacedError       the file is not the manifest's, or changed after it was mapped
    ├── ShardDamagedError        the bytes do not have the digest the manifest records
    ├── MappingError             the file system refuses to map the file
    └── StorageError             its storage fails to give it; the next time may be better
        └── StorageTimeoutError  it takes too long
"""

from __future__ import annotations

import os


class LayersError(Exception):
    """Base of this package's errors; a message reads: what failed, where, expected, found, what next."""

    def __init__(
        self,
        failure: str,
        *,
        where: str | os.PathLike[str] | None = None,
        expected: object = None,
        found: object = None,
        advice: str | None = None,
    ) -> None:
        self.failure = failure
        self.where = None if where is None else os.fspath(where)
        self.expected = expected
        self.found = found
        self.advice = advice
        super().__init__(self._message())

    def _message(self) -> str:
        message = self.failure if self.where is None else f"{self.failure}: {self.where}"
        if self.expected is not None:
            message += f": expected {self.expected}"
        if self.found is not None:
            message += f"{':' if self.expected is None else ','} found {self.found}"
        return message if self.advice is None else f"{message}; {self.advice}"


class LayersConfigError(LayersError):
    """A QUICKTHAW_* variable of this package has a bad value."""


class CheckpointError(LayersError):
    """The source of a split cannot be read, or lacks or adds a tensor."""


class UnsupportedModelError(CheckpointError):
    """The checkpoint asks for a computation that is not implemented."""


class SplitError(LayersError):
    """A shard set could not be written."""


class OutputExistsError(SplitError):
    """The output directory holds something that a split may not replace."""


class SplitRunningError(SplitError):
    """Another process is writing the same output."""


class DiskFullError(SplitError):
    """There is no room for the shard set, or a size limit was hit."""


class ManifestError(LayersError):
    """manifest.json is absent, malformed, or describes impossible shards."""


class ManifestVersionError(ManifestError):
    """manifest.json was written by a newer quickthaw."""


class TokenizerError(LayersError):
    """A tokenizer cannot be read or written."""


class TokenizerMissingError(TokenizerError):
    """The source has no tokenizer."""


class UnsupportedTokenizerError(TokenizerError):
    """The source's tokenizer does something that is not implemented."""


class TokenizerTablesError(TokenizerError):
    """The file of tokenizer tables is damaged, or is none."""


class TokenizerTablesVersionError(TokenizerTablesError):
    """The file of tokenizer tables has another format version."""


class PromptError(LayersError):
    """A prompt is not Unicode text."""


class PromptTooLongError(PromptError):
    """A prompt has more tokens than are allowed; `fewest_tokens` may be less than it would really take."""

    def __init__(self, max_tokens: int, fewest_tokens: int) -> None:
        self.max_tokens = max_tokens
        self.fewest_tokens = fewest_tokens
        super().__init__(
            "the prompt is too long",
            expected=f"at most {max_tokens} tokens",
            found=f"at least {fewest_tokens}",
            advice="shorten it",
        )


class LogitsError(LayersError):
    """An engine computed logits that are no numbers: damaged weights, or an overflow."""


class BatchError(LayersError):
    """A batch does not compute for a request."""


class BatchFullError(BatchError):
    """Every place in the batch is taken, and too many wait already; later it may be better."""


class BatchClosedError(BatchError):
    """The batch computes no more: its process is about to end."""


class AbandonedError(BatchError):
    """Nobody waits for the answer any more."""


class ChatTemplateError(LayersError):
    """The model's chat template could not be rendered."""


class ChatRefusedError(ChatTemplateError):
    """The chat template refuses these messages; its own message says why."""


class BrokenTemplateError(ChatTemplateError):
    """The chat template is malformed, or reached for what the sandbox forbids."""


class MemoryBudgetError(LayersError):
    """The memory that this process was given is too little for any answer of this model."""


class ShardError(LayersError):
    """A shard, or the tensor asked of it, is not there."""


class ShardMissingError(ShardError):
    """A shard's file is absent."""


class ShardTruncatedError(ShardError):
    """A shard's file has not the size that the manifest records."""


class ShardReplacedError(ShardError):
    """A shard's file is not the one the manifest describes, or changed after it was mapped."""


class ShardDamagedError(ShardError):
    """A shard's bytes do not have the digest that the manifest records."""


class MappingError(ShardError):
    """The file system refuses to map a shard's file."""


class StorageError(ShardError):
    """A shard's storage fails to give it: an I/O error, a server's. The next time may be better."""


class StorageTimeoutError(StorageError):
    """A shard's storage takes too long."""
