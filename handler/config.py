# SPDX-License-Identifier: Apache-2.0
"""The function's environment: this package's variables, and the check that no unknown one is set."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from enum import Enum
from typing import NamedTuple

from quickthaw.handler import values
from quickthaw.handler.errors import ConfigurationError
from quickthaw.handler.http.auth import ApiKeys
from quickthaw.layers import config as layers
from quickthaw.layers.config import LayersConfig, Variable, read_variables

PREFIX = "QUICKTHAW_"


class EngineChoice(Enum):
    """What computes.

    AUTO: the interpreter at first; the compiled engine once nobody waits, where it was measured to be faster.
    INTERPRETER: the interpreter, always.
    COMPILED: the compiled engine from the start, which then takes as long as importing torch.
    """

    AUTO = "auto"
    INTERPRETER = "interpreter"
    COMPILED = "compiled"


class Streaming(Enum):
    """What is answered in Lambda's streaming form, where the bootstrap can send that.

    ASKED: what the request asks to be streamed.
    ALWAYS: every answer over HTTP, and every error, for an integration that reads nothing else.
    NEVER: nothing.
    """

    ASKED = "on"
    ALWAYS = "always"
    NEVER = "off"


class MetricsOutput(Enum):
    """Where metrics go.

    PROMETHEUS: counted, and shown at `GET /metrics`.
    EMF: that, and each request's into its line of the log, in CloudWatch's embedded metric format.
    OFF: nowhere.
    """

    PROMETHEUS = "prometheus"
    EMF = "emf"
    OFF = "off"


VARIABLES = (
    Variable(
        "max_tokens",
        "QUICKTHAW_MAX_TOKENS",
        "tokens",
        "256",
        "1 or more",
        "The longest answer to a request that names no length.",
        values.count,
    ),
    Variable(
        "context_tokens",
        "QUICKTHAW_CONTEXT_TOKENS",
        "tokens",
        "model",
        "model, or 1 or more",
        "Room for prompt and answer together, at most the model's own.",
        values.context,
    ),
    Variable(
        "deadline_margin_ms",
        "QUICKTHAW_DEADLINE_MARGIN_MS",
        "ms",
        "200",
        "0 or more",
        "Time kept for answering when the invocation's deadline ends a generation.",
        values.natural,
    ),
    Variable(
        "kept_tokens",
        "QUICKTHAW_KEPT_TOKENS",
        "tokens",
        "all",
        "all, or 0 or more",
        "How much of the last prompt and answer stays computed for a request that begins alike; 0: nothing.",
        values.limit,
    ),
    Variable(
        "state_image",
        "QUICKTHAW_STATE_IMAGE",
        "path",
        "",
        "a file made by `quickthaw snapshot image`",
        "What a start begins with: a prompt's computed beginning, and which pages to read ahead.",
        values.optional_path,
    ),
    Variable(
        "engine",
        "QUICKTHAW_ENGINE",
        "",
        "auto",
        "auto, interpreter, compiled",
        "What computes: numpy, or torch where it is installed. auto begins with numpy, and goes over to "
        "torch before a capture or with a warm-up ping, where that is faster.",
        EngineChoice,
    ),
    Variable(
        "streaming",
        "QUICKTHAW_STREAM",
        "",
        "on",
        "on, always, off",
        "Whether `stream: true` is streamed. off: behind a buffered function URL or REST API; always: behind "
        "one in streaming mode, which expects a stream's form of every answer.",
        Streaming,
    ),
    Variable(
        "api_keys",
        "QUICKTHAW_API_KEYS",
        "",
        "",
        "keys, with commas between",
        "What a request to `/v1/` may show as `authorization: Bearer KEY`; without any, all may ask.",
        ApiKeys.parse,
    ),
    Variable(
        "api_keys_file",
        "QUICKTHAW_API_KEYS_FILE",
        "path",
        "",
        "a file that may be read",
        "More of them, one on each line, read anew with each request.",
        values.optional_path,
    ),
    Variable(
        "cors_origins",
        "QUICKTHAW_CORS_ORIGINS",
        "",
        "",
        "*, or origins, with commas between",
        "Whose web pages may ask from a browser, such as `https://example.com`.",
        values.origins,
    ),
    Variable(
        "logs_requests",
        "QUICKTHAW_LOG",
        "",
        "json",
        "json, off",
        "Whether each request leaves a line in the log, beside the one of the start.",
        values.choice(json=True, off=False),
    ),
    Variable(
        "logs_prompts",
        "QUICKTHAW_LOG_PROMPTS",
        "",
        "off",
        "on, off",
        "Whether that line quotes the prompt.",
        values.choice(on=True, off=False),
    ),
    Variable(
        "metrics",
        "QUICKTHAW_METRICS",
        "",
        "prometheus",
        "prometheus, emf, off",
        "Metrics at `GET /metrics`; with emf also in the log, where CloudWatch takes them from.",
        MetricsOutput,
    ),
    Variable(
        "metrics_namespace",
        "QUICKTHAW_METRICS_NAMESPACE",
        "",
        "quickthaw",
        "1 to 255 of A-Z a-z 0-9 . - _ / # :",
        "What CloudWatch files them under.",
        values.namespace,
    ),
    Variable(
        "traces",
        "QUICKTHAW_TRACE",
        "",
        "off",
        "otel, off",
        "Whether each request leaves spans with opentelemetry-sdk, which `OTEL_*` variables configure.",
        values.choice(otel=True, off=False),
    ),
)
TABLES = (VARIABLES, layers.VARIABLES)  # snapshot/ is configured by Lambda's own variables


class HandlerConfig(NamedTuple):  # importing dataclasses would cost 7 ms of every start
    """What the environment says about requests, and about the model that answers them."""

    max_tokens: int
    context_tokens: int | None  # None: as many as the model was trained on
    deadline_margin_ms: int
    kept_tokens: int | None  # None: all of them
    state_image: str | None
    engine: EngineChoice
    streaming: Streaming
    api_keys: ApiKeys
    api_keys_file: str | None
    cors_origins: frozenset[str]
    logs_requests: bool
    logs_prompts: bool
    metrics: MetricsOutput
    metrics_namespace: str
    traces: bool
    layers: LayersConfig

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> HandlerConfig:
        """Raises: ConfigurationError, LayersConfigError; each names variable, value and what is allowed."""
        environ = os.environ if environ is None else environ
        _refuse_unknown(environ)
        read = read_variables(VARIABLES, environ, ConfigurationError)
        if read["traces"]:
            _require_opentelemetry()
        if read["engine"] is EngineChoice.COMPILED:
            _require_torch()
        return cls(**read, layers=LayersConfig.from_env(environ))


def _refuse_unknown(environ: Mapping[str, str]) -> None:
    known = {variable.name for table in TABLES for variable in table}
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in known:
            # Without its value: that may be a key, under a name that was misspelt.
            raise ConfigurationError(f"unknown variable {name}: {_advice(name, known)}")


def _advice(name: str, known: Collection[str]) -> str:
    from difflib import get_close_matches  # a start that succeeds does not need it

    allowed = f"allowed are {', '.join(sorted(known))}"
    endings = [each.removeprefix(PREFIX) for each in known]  # the beginning is alike in all
    close = get_close_matches(name.removeprefix(PREFIX), endings, n=1)
    return f"did you mean {PREFIX}{close[0]}? {allowed}" if close else allowed


def _require_opentelemetry() -> None:
    from importlib.util import find_spec

    if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
        raise ConfigurationError("QUICKTHAW_TRACE='otel': opentelemetry-sdk is not installed, pip install it")


def _require_torch() -> None:
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise ConfigurationError(
            "QUICKTHAW_ENGINE='compiled': torch is not installed, pip install 'quickthaw[torch]'"
        )


def keep_blas_single_threaded() -> None:
    """One BLAS thread unless the environment says otherwise; to be called before numpy is imported.

    The interpreter brings its own threads, and a BLAS thread pool spins against them.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def trace_id() -> str | None:
    """The X-Ray trace of the invocation at hand; awslambdaric keeps it in the environment."""
    return os.environ.get("_X_AMZN_TRACE_ID")


def instance_name() -> str:
    """What this process is called among those of its function; Lambda's log stream is of one alone."""
    return os.environ.get("AWS_LAMBDA_LOG_STREAM_NAME") or f"{os.getpid()}-{os.urandom(4).hex()}"


def memory_limit_bytes() -> int | None:
    """What Lambda gives the function, files that are cached included; None elsewhere."""
    memory_mib = layers.lambda_memory_mib(os.environ)
    return None if memory_mib is None else memory_mib << 20


def trace_exporters() -> list[str]:
    """What OpenTelemetry's own variable names, as its SDK reads it."""
    names = os.environ.get("OTEL_TRACES_EXPORTER", "otlp").split(",")
    return [name.strip() for name in names if name.strip() not in ("", "none")]


def readme_table() -> str:
    """Every variable of every package, as the Markdown table in the README."""
    rows = ["| variable | unit | default | allowed | |", "|---|---|---|---|---|"]
    rows += [
        f"| `{v.name}` | {v.unit} | {f'`{v.default}`' if v.default else ''} | {v.allowed} | {v.help} |"
        for table in TABLES
        for v in table
    ]
    return "\n".join(rows)
