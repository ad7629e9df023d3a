# SPDX-License-Identifier: Apache-2.0
import re
from pathlib import Path

import pytest

from quickthaw.handler.config import TABLES, HandlerConfig, MetricsOutput, Streaming, readme_table, trace_id
from quickthaw.handler.errors import ConfigurationError
from quickthaw.layers.errors import LayersConfigError

ROOT = Path(__file__).parents[3]


def test_the_defaults() -> None:
    config = HandlerConfig.from_env({})
    assert (config.max_tokens, config.context_tokens, config.deadline_margin_ms) == (256, None, 200)
    assert (config.kept_tokens, config.state_image) == (None, None)
    assert config.streaming is Streaming.ASKED
    assert (config.api_keys.encoded, config.api_keys_file, config.cors_origins) == ((), None, frozenset())
    assert (config.logs_requests, config.logs_prompts, config.traces) == (True, False, False)
    assert (config.metrics, config.metrics_namespace) == (MetricsOutput.PROMETHEUS, "quickthaw")
    assert config.layers.shards == "shards"


def test_every_variable_is_read() -> None:
    config = HandlerConfig.from_env(
        {
            "QUICKTHAW_MAX_TOKENS": "7",
            "QUICKTHAW_CONTEXT_TOKENS": "9",
            "QUICKTHAW_DEADLINE_MARGIN_MS": "0",
            "QUICKTHAW_KEPT_TOKENS": "0",
            "QUICKTHAW_STATE_IMAGE": "/models/x.image",
            "QUICKTHAW_STREAM": "off",
            "QUICKTHAW_API_KEYS": "one, two,",
            "QUICKTHAW_API_KEYS_FILE": "/run/keys",
            "QUICKTHAW_CORS_ORIGINS": "https://a.example,http://localhost:3000",
            "QUICKTHAW_LOG": "off",
            "QUICKTHAW_LOG_PROMPTS": "on",
            "QUICKTHAW_METRICS": "emf",
            "QUICKTHAW_METRICS_NAMESPACE": "team/a",
            "QUICKTHAW_TRACE": "otel",
            "QUICKTHAW_SHARDS": "/models/x",
            "HOME": "/ours/is/not/the/only/variable",
        }
    )
    assert (config.max_tokens, config.context_tokens, config.deadline_margin_ms) == (7, 9, 0)
    assert (config.kept_tokens, config.state_image) == (0, "/models/x.image")
    assert config.streaming is Streaming.NEVER
    assert config.api_keys.encoded == (b"one", b"two")
    assert config.api_keys_file == "/run/keys"
    assert config.cors_origins == {"https://a.example", "http://localhost:3000"}
    assert (config.logs_requests, config.logs_prompts, config.traces) == (False, True, True)
    assert (config.metrics, config.metrics_namespace) == (MetricsOutput.EMF, "team/a")
    assert config.layers.shards == "/models/x"


def test_a_key_shows_nowhere() -> None:
    assert "secret" not in repr(HandlerConfig.from_env({"QUICKTHAW_API_KEYS": "secret"}))
    with pytest.raises(ConfigurationError) as error:  # the name is misspelt
        HandlerConfig.from_env({"QUICKTHAW_API_KEY": "secret"})
    assert "secret" not in str(error.value)


def test_an_unknown_variable_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"QUICKTHAW_SHARD: did you mean QUICKTHAW_SHARDS\? "):
        HandlerConfig.from_env({"QUICKTHAW_SHARD": "x"})
    with pytest.raises(ConfigurationError, match=r"QUICKTHAW_X: allowed are .*QUICKTHAW_SHARDS"):
        HandlerConfig.from_env({"QUICKTHAW_X": "x"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("QUICKTHAW_MAX_TOKENS", "0"),
        ("QUICKTHAW_MAX_TOKENS", "1_0"),
        ("QUICKTHAW_MAX_TOKENS", "٣"),
        ("QUICKTHAW_MAX_TOKENS", ""),
        ("QUICKTHAW_CONTEXT_TOKENS", "all"),
        ("QUICKTHAW_DEADLINE_MARGIN_MS", "-1"),
        ("QUICKTHAW_DEADLINE_MARGIN_MS", "1.5"),
        ("QUICKTHAW_KEPT_TOKENS", "none"),
        ("QUICKTHAW_STATE_IMAGE", "a\0b"),
        ("QUICKTHAW_STREAM", "yes"),
        ("QUICKTHAW_API_KEYS", " , "),
        ("QUICKTHAW_API_KEYS_FILE", "a\0b"),
        ("QUICKTHAW_CORS_ORIGINS", "example.com"),
        ("QUICKTHAW_CORS_ORIGINS", "https://a.example,"),
        ("QUICKTHAW_LOG", "on"),
        ("QUICKTHAW_LOG_PROMPTS", "1"),
        ("QUICKTHAW_METRICS", "statsd"),
        ("QUICKTHAW_METRICS_NAMESPACE", ""),
        ("QUICKTHAW_METRICS_NAMESPACE", "two words"),
        ("QUICKTHAW_METRICS_NAMESPACE", "x" * 256),
        ("QUICKTHAW_TRACE", "xray"),
    ],
)
def test_a_bad_value_is_refused_with_what_is_allowed(name: str, value: str) -> None:
    allowed = next(variable.allowed for table in TABLES for variable in table if variable.name == name)
    with pytest.raises(ConfigurationError, match=re.escape(f"{name}: {value!r}: allowed are {allowed}")):
        HandlerConfig.from_env({name: value})


def test_a_bad_value_of_the_layers_is_theirs_to_refuse() -> None:
    with pytest.raises(LayersConfigError, match="QUICKTHAW_VERIFY"):
        HandlerConfig.from_env({"QUICKTHAW_VERIFY": "maybe"})


def test_every_default_is_an_allowed_value() -> None:
    for table in TABLES:
        for variable in table:
            variable.parse(variable.default)


def test_the_trace_is_the_invocations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("_X_AMZN_TRACE_ID", raising=False)
    assert trace_id() is None
    monkeypatch.setenv("_X_AMZN_TRACE_ID", "Root=1-2-3")
    assert trace_id() == "Root=1-2-3"


def test_the_readme_has_the_table() -> None:
    readme = (ROOT / "README.md").read_text()
    _, begin, rest = readme.partition("<!-- configuration:begin -->\n")
    table, end, _ = rest.partition("\n<!-- configuration:end -->")
    assert begin, "README.md lacks <!-- configuration:begin -->"
    assert end, "README.md lacks <!-- configuration:end -->"
    assert table == readme_table(), "put the output of quickthaw.handler.config.readme_table() into README.md"


def test_the_environment_is_read_in_config_alone() -> None:
    for package in ("handler", "layers"):
        for source in (ROOT / package).glob("*.py"):
            if source.name not in ("config.py", "cli.py"):  # the command hands its own on to the function
                assert not re.search(r"os\.(environ|getenv)\b", source.read_text()), source


def test_compiled_is_refused_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match=r"QUICKTHAW_ENGINE='compiled': torch.*pip install"):
        HandlerConfig.from_env({"QUICKTHAW_ENGINE": "compiled"})
