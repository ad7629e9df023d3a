# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from quickthaw.layers.config import LayersConfig
from quickthaw.layers.errors import (
    ManifestError,
    MemoryBudgetError,
    ShardDamagedError,
    ShardError,
    ShardMissingError,
    ShardReplacedError,
    ShardTruncatedError,
)
from quickthaw.layers.shard import ShardState
from quickthaw.layers.shard_set import ShardSet
from tests import models, shards


@pytest.fixture
def shard_set(tmp_path: Path) -> Path:
    return shards.make(tmp_path)


def open_set(path: Path, verify: str = "first") -> ShardSet:
    return ShardSet.open(path, shards.config(path.parent, verify))


def test_opening_maps_the_embedding_and_looks_at_no_layer(shard_set: Path) -> None:
    for path in shard_set.glob("layer-*"):
        path.unlink()

    opened = open_set(shard_set)

    assert opened.embedding.state is ShardState.READY
    assert opened.bytes_mapped == (shard_set / "embedding.safetensors").stat().st_size
    assert [span.name for span in opened.spans.take()] == ["manifest", "embedding verify", "embedding map"]
    with pytest.raises(ShardMissingError, match="layer-001"):
        opened.layer(1)


def test_tensors_are_the_checkpoints(shard_set: Path) -> None:
    weights = models.tensors(models.config("llama"))
    opened = open_set(shard_set)

    layer, name = opened.layer(1), "model.layers.1"

    assert np.array_equal(opened.embedding.tensor("head"), weights["lm_head.weight"])
    assert np.array_equal(layer.tensor("down"), weights[f"{name}.mlp.down_proj.weight"])
    parts = [weights[f"{name}.self_attn.{part}_proj.weight"] for part in "qkv"]
    assert np.array_equal(layer.tensor("qkv"), np.concatenate(parts))


def test_a_tensor_is_an_aligned_view_that_cannot_be_written(shard_set: Path) -> None:
    opened = open_set(shard_set)
    for name in ("attn_norm", "qkv", "down"):
        tensor = opened.layer(0).tensor(name)

        assert tensor.ctypes.data % 64 == 0
        assert not tensor.flags.writeable
        assert not tensor.flags.owndata
    assert opened.layer(0).tensor("qkv") is opened.layer(0).tensor("qkv")


def test_bf16_comes_as_its_bits(tmp_path: Path) -> None:
    opened = open_set(shards.make(tmp_path, dtype="bf16"))

    assert opened.layer(0).tensor("qkv").dtype == np.uint16
    assert opened.layer(0).tensor("attn_norm").dtype == np.float32


def test_asking_for_an_absent_tensor_names_it(shard_set: Path) -> None:
    layer = open_set(shard_set).layer(0)

    assert layer.has("qkv")
    assert not layer.has("qkv_bias")
    with pytest.raises(ShardError, match="no tensor qkv_bias in shard layer-000"):
        layer.tensor("qkv_bias")


def test_a_layer_is_mapped_once(shard_set: Path) -> None:
    opened = open_set(shard_set)

    assert opened.layer(2) is opened.layer(2)

    layer_spans = [span.name for span in opened.spans.take()][3:]
    assert layer_spans == ["layer-002 verify", "layer-002 map"]


def test_what_is_resident_is_mapped_first(shard_set: Path) -> None:
    opened = open_set(shard_set)
    embedding_bytes = opened.resident_bytes()
    opened.layer(0)

    assert embedding_bytes == (shard_set / "embedding.safetensors").stat().st_size
    assert opened.resident_bytes() == opened.bytes_mapped > embedding_bytes


def test_closing_keeps_views_and_refuses_the_rest(shard_set: Path) -> None:
    opened = open_set(shard_set)
    layer = opened.layer(0)
    norm = layer.tensor("attn_norm")
    copy = norm.copy()

    opened.close()

    assert np.array_equal(norm, copy)
    assert layer.state is ShardState.EVICTED
    assert opened.bytes_mapped == 0
    for use in (lambda: layer.tensor("attn_norm"), lambda: opened.layer(0), layer.check_unchanged):
        with pytest.raises(ShardError, match=r"evicted|closed"):
            use()


@pytest.mark.parametrize("verify", ["first", "always", "never"])
def test_a_truncated_shard_is_refused(shard_set: Path, verify: str) -> None:
    os.truncate(shard_set / "layer-001.safetensors", 5000)

    with pytest.raises(ShardTruncatedError, match=r"layer-001.*found 5000 bytes"):
        open_set(shard_set, verify).layer(1)


@pytest.mark.parametrize("verify", ["first", "always", "never"])
def test_swapped_layers_are_refused(shard_set: Path, verify: str) -> None:
    shutil.copy(shard_set / "layer-002.safetensors", shard_set / "layer-001.safetensors")

    with pytest.raises(ShardDamagedError if verify != "never" else ShardReplacedError, match="layer-001"):
        open_set(shard_set, verify).layer(1)


@pytest.mark.parametrize("verify", ["first", "always"])
def test_a_flipped_bit_is_refused_and_the_shard_stays_pending(shard_set: Path, verify: str) -> None:
    path = shard_set / "layer-001.safetensors"
    shards.flip_bit(path)
    opened = open_set(shard_set, verify)

    for _ in range(2):
        with pytest.raises(ShardDamagedError):
            opened.layer(1)

    shards.flip_bit(path)
    assert opened.layer(1).state is ShardState.READY


def test_a_bit_flipped_behind_a_stamp_is_refused(shard_set: Path) -> None:
    shards.settle(shard_set / "layer-001.safetensors")
    open_set(shard_set).layer(1)
    shards.flip_bit(shard_set / "layer-001.safetensors")

    with pytest.raises(ShardDamagedError):
        open_set(shard_set).layer(1)


@pytest.mark.parametrize("offset", [0, 7, 8, 20, 120])
def test_a_damaged_header_is_refused_without_verification(shard_set: Path, offset: int) -> None:
    shards.flip_bit(shard_set / "layer-001.safetensors", offset)

    with pytest.raises(ShardReplacedError, match="layer-001"):
        open_set(shard_set, "never").layer(1)


def test_a_layer_of_another_model_is_refused_without_verification(shard_set: Path, tmp_path: Path) -> None:
    config = models.config("llama", intermediate_size=98)
    source = models.write_checkpoint(tmp_path / "other", config, models.tensors(config))
    other = shards.split_into(source, tmp_path / "others")
    target = shard_set / "layer-001.safetensors"
    size_bytes = target.stat().st_size
    target.write_bytes((other / target.name).read_bytes()[:size_bytes])

    with pytest.raises(ShardReplacedError, match="does not agree with the manifest"):
        open_set(shard_set, "never").layer(1)


def test_a_ready_layer_notices_truncation(shard_set: Path) -> None:
    opened = open_set(shard_set)
    opened.layer(1)
    os.truncate(shard_set / "layer-001.safetensors", 4096)

    with pytest.raises(ShardTruncatedError):
        opened.layer(1)
    assert opened.layer(0).state is ShardState.READY


def test_a_ready_layer_notices_replacement(shard_set: Path) -> None:
    opened = open_set(shard_set)
    opened.layer(1)
    copy = shutil.copy2(shard_set / "layer-001.safetensors", shard_set / "copy")
    os.rename(copy, shard_set / "layer-001.safetensors")

    with pytest.raises(ShardReplacedError):
        opened.layer(1)


def test_the_embedding_is_looked_at_each_time(shard_set: Path) -> None:
    path = shard_set / "embedding.safetensors"
    opened = open_set(shard_set)
    path.write_bytes(path.read_bytes())

    with pytest.raises(ShardReplacedError, match="embedding"):
        _ = opened.embedding

    opened = open_set(shard_set)
    os.truncate(path, 4096)
    with pytest.raises(ShardTruncatedError, match="embedding"):
        _ = opened.embedding


def test_the_tokenizer_is_looked_at_with_the_embedding(tmp_path: Path) -> None:
    opened = open_set(shards.make_chat(tmp_path))
    stored = opened.open_tokenizer()
    assert stored is not None
    stored.file.close()
    path = Path(stored.path)
    assert opened.embedding.state is ShardState.READY
    path.write_bytes(path.read_bytes())

    for use in (lambda: opened.embedding, opened.check_unchanged):
        with pytest.raises(ShardReplacedError, match=r"tokenizer\.bin"):
            use()


def test_a_set_without_a_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ManifestError):
        open_set(tmp_path)


def test_the_tokenizer_is_verified_like_a_shard(shard_set: Path) -> None:
    assert open_set(shard_set).open_tokenizer() is None
    path = shards.add_tokenizer(shard_set, b"tables")

    stored = open_set(shard_set).open_tokenizer()
    assert stored is not None
    with stored.file as file:
        assert (os.pread(file.fileno(), 9, 0), stored.path) == (b"tables", str(path))
    shards.flip_bit(path)
    with pytest.raises(ShardDamagedError, match=r"tokenizer\.bin"):
        open_set(shard_set).open_tokenizer()


def test_a_stamped_start_imports_no_digest_and_no_splitter(shard_set: Path) -> None:
    shards.settle(shard_set / "layer-000.safetensors")
    open_set(shard_set).layer(0)
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from quickthaw.layers.config import LayersConfig\n"
        "from quickthaw.layers.shard_set import ShardSet\n"
        "ShardSet.open(Path(sys.argv[1]), LayersConfig.from_env()).layer(0)\n"
        "print(*sorted(sys.modules))\n"
    )
    environ = {"QUICKTHAW_CACHE": str(shard_set.parent / "cache")}

    result = subprocess.run(
        [sys.executable, "-c", program, str(shard_set)],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )

    imported = set(result.stdout.split())
    assert "quickthaw.layers.shard_set" in imported
    assert not imported & {
        "hashlib",
        "tempfile",
        "dataclasses",
        "safetensors",
        "gguf",
        "tqdm",
        "ssl",
        "numpy.typing",
    }
    assert not imported & {
        "quickthaw.layers.checkpoints.split",
        "quickthaw.layers.checkpoints.hugging_face_source",
        "quickthaw.layers.checkpoints.shard_file",
    }


def test_after_a_change_the_next_request_gets_what_is_there(shard_set: Path) -> None:
    opened = open_set(shard_set)
    for name, use in (("layer-001", lambda: opened.layer(1)), ("embedding", opened.check_unchanged)):
        use()
        path = shard_set / f"{name}.safetensors"
        whole = path.read_bytes()
        os.truncate(path, 4096)
        for _ in range(2):
            with pytest.raises(ShardTruncatedError, match=name):
                use()
        path.write_bytes(whole)
        use()

    shards.flip_bit(shard_set / "layer-001.safetensors")
    with pytest.raises(ShardReplacedError):
        opened.layer(1)
    with pytest.raises(ShardDamagedError):
        opened.layer(1)


def test_shards_that_others_may_write_to_are_copied(shard_set: Path) -> None:
    config = shards.config(shard_set.parent)._replace(copies=True)
    opened = ShardSet.open(shard_set, config)

    assert np.array_equal(opened.layer(1).tensor("qkv"), open_set(shard_set).layer(1).tensor("qkv"))
    opened.close()


def layer_files(shard_set: Path) -> list[Path]:
    return sorted(shard_set.glob("layer-*"))


def test_what_is_not_in_memory_is_read_ahead(shard_set: Path) -> None:
    opened = open_set(shard_set, "never")
    shards.drop_from_memory(*layer_files(shard_set))

    opened.layer(0)
    size_bytes = sum(path.stat().st_size for path in shard_set.glob("*.safetensors"))
    give_up_s = time.monotonic() + 30
    while opened.bytes_mapped < size_bytes and time.monotonic() < give_up_s:
        time.sleep(0.001)

    assert opened.bytes_mapped == opened.bytes_loaded == size_bytes
    opened.release()


def test_what_is_in_memory_is_not(shard_set: Path) -> None:
    opened = open_set(shard_set, "never")
    opened.layer(0)

    assert [span.name for span in opened.spans.take()] == ["manifest", "embedding map", "layer-000 map"]
    assert "quickthaw-prefetch" not in {thread.name for thread in threading.enumerate()}


def test_a_layer_that_cannot_be_read_ahead_is_told_of_when_it_is_needed(shard_set: Path) -> None:
    opened = open_set(shard_set)
    shards.drop_from_memory(*layer_files(shard_set))
    shards.flip_bit(shard_set / "layer-001.safetensors")

    opened.layer(0)
    opened.layer(0)
    with pytest.raises(ShardDamagedError, match="layer-001"):
        opened.layer(1)
    assert opened.layer(2).state is ShardState.READY


@pytest.mark.parametrize(
    ("preload", "n_layers"), [("none", 0), ("first:30%", 1), ("first:99%", 3), ("init", 3)]
)
def test_what_is_preloaded_is_ready_at_once(shard_set: Path, preload: str, n_layers: int) -> None:
    environ = {"QUICKTHAW_CACHE": str(shard_set.parent / "cache"), "QUICKTHAW_PRELOAD": preload}
    opened = ShardSet.open(shard_set, LayersConfig.from_env(environ))

    maps = Path("/proc/self/maps").read_text()
    mapped = [path for path in layer_files(shard_set) if str(path) in maps]

    assert mapped == layer_files(shard_set)[:n_layers]
    opened.close()


def test_a_budget_below_the_least_is_refused(shard_set: Path) -> None:
    config = shards.config(shard_set.parent)._replace(memory_mib=1)

    with pytest.raises(MemoryBudgetError, match="found 1 MiB"):
        ShardSet.open(shard_set, config)
