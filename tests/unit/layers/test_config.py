# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os

import pytest

from quickthaw.layers.config import VARIABLES, LayersConfig, Verify
from quickthaw.layers.errors import LayersConfigError


def test_an_empty_environment_gives_the_defaults() -> None:
    config = LayersConfig.from_env({})

    assert config.shards == "shards"
    assert config.verify is Verify.FIRST
    assert config.cache == f"/tmp/quickthaw-{os.getuid()}"
    assert config.n_threads is None


def test_the_default_cache_follows_tmpdir() -> None:
    assert LayersConfig.from_env({"TMPDIR": "/scratch"}).cache == f"/scratch/quickthaw-{os.getuid()}"


def test_lambda_says_how_much_memory_there_is() -> None:
    environ = {"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "1769"}

    assert LayersConfig.from_env(environ).memory_mib == 1769
    assert LayersConfig.from_env({**environ, "QUICKTHAW_MEMORY_MIB": "300"}).memory_mib == 300


def test_every_variable_can_be_set() -> None:
    config = LayersConfig.from_env(
        {
            "QUICKTHAW_SHARDS": "/mnt/model",
            "QUICKTHAW_VERIFY": "always",
            "QUICKTHAW_CACHE": "/var/cache",
            "QUICKTHAW_CACHE_MIB": "512",
            "QUICKTHAW_MAP": "copy",
            "QUICKTHAW_MEMORY_MIB": "300",
            "QUICKTHAW_PRELOAD": "first:40%",
            "QUICKTHAW_THREADS": "3",
        }
    )

    assert config == LayersConfig("/mnt/model", Verify.ALWAYS, "/var/cache", 512, True, 300, 40, 3)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("QUICKTHAW_SHARDS", ""),
        ("QUICKTHAW_SHARDS", "a\0b"),
        ("QUICKTHAW_SHARDS", "s3://"),
        ("QUICKTHAW_SHARDS", "gs://bucket/x"),
        ("QUICKTHAW_VERIFY", "sometimes"),
        ("QUICKTHAW_CACHE_MIB", "-1"),
        ("QUICKTHAW_MAP", "mmap"),
        ("QUICKTHAW_MEMORY_MIB", "0"),
        ("QUICKTHAW_PRELOAD", "all"),
        ("QUICKTHAW_PRELOAD", "first:"),
        ("QUICKTHAW_PRELOAD", "first:0%"),
        ("QUICKTHAW_PRELOAD", "first:101%"),
        ("QUICKTHAW_PRELOAD", "first:auto%"),
        ("QUICKTHAW_PRELOAD", "50%"),
        ("QUICKTHAW_THREADS", "0"),
        ("QUICKTHAW_THREADS", "many"),
        ("QUICKTHAW_THREADS", "1_0"),
        ("QUICKTHAW_THREADS", " 2"),
        ("QUICKTHAW_THREADS", "1025"),
    ],
)
def test_a_bad_value_is_refused_naming_variable_value_and_what_is_allowed(name: str, value: str) -> None:
    with pytest.raises(LayersConfigError) as caught:
        LayersConfig.from_env({name: value})

    allowed = next(variable.allowed for variable in VARIABLES if variable.name == name)
    assert name in str(caught.value)
    assert repr(value) in str(caught.value)
    assert allowed in str(caught.value)


def test_the_table_names_each_field_once() -> None:
    assert [variable.field for variable in VARIABLES] == list(LayersConfig._fields)
