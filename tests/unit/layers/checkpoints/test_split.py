# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from quickthaw.layers import manifest
from quickthaw.layers.checkpoints import bfloat16, smollm2
from quickthaw.layers.checkpoints.source import TILE_BYTES
from quickthaw.layers.checkpoints.split import split
from quickthaw.layers.checkpoints.staging import Staging
from quickthaw.layers.config import Verify
from quickthaw.layers.errors import (
    CheckpointError,
    DiskFullError,
    OutputExistsError,
    SplitError,
    SplitRunningError,
    UnsupportedTokenizerError,
)
from quickthaw.layers.inspection import check_all
from quickthaw.layers.storage.regular_file import FileIdentity
from tests import models, shards

CONFIG = models.config("llama")
WEIGHTS = models.tensors(CONFIG)


@pytest.fixture
def source(tmp_path: Path) -> str:
    return str(models.write_checkpoint(tmp_path / "source", CONFIG, WEIGHTS))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "outputs").mkdir()
    return tmp_path / "outputs" / "set"


def names(out: Path) -> list[str]:
    return sorted(path.name for path in out.parent.iterdir())


class Recorder:
    """Progress that remembers."""

    def __init__(self) -> None:
        self.total_bytes = 0
        self.done_bytes = 0
        self.is_finished = False

    def start(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes

    def advance(self, size_bytes: int) -> None:
        self.done_bytes += size_bytes

    def finish(self) -> None:
        self.is_finished = True


@pytest.mark.parametrize("dtype", ["bf16", "f32", "int8", "int4"])
@pytest.mark.parametrize("name", models.CONFIGS)
def test_every_option_is_split_into_files_that_safetensors_opens(
    name: str, dtype: str, tmp_path: Path
) -> None:
    out = shards.make(tmp_path, name, dtype)

    found = manifest.read(out)
    for shard in found.shards:
        with safe_open(out / shard.file, "np") as file:
            stored = {name for name in file.keys() if not name.startswith("_pad.")}  # noqa: SIM118
        assert stored == shard.tensors.keys()
    assert check_all(out, Verify.ALWAYS) == []
    assert found.dtype == dtype


def test_bf16_is_the_nearest_and_vectors_stay_f32(source: str, out: Path) -> None:
    split(source, out)

    entry = manifest.read(out).shards[1]
    data = (out / entry.file).read_bytes()
    down, norm = entry.tensors["down"], entry.tensors["attn_norm"]
    bits = np.frombuffer(data, "<u2", 64 * 96, down.offset_bytes).reshape(down.shape)
    assert np.array_equal(bits, bfloat16.from_float32(WEIGHTS["model.layers.0.mlp.down_proj.weight"]))
    values = np.frombuffer(data, "<f4", 64, norm.offset_bytes)
    assert np.array_equal(values, WEIGHTS["model.layers.0.input_layernorm.weight"])


def test_the_same_checkpoint_gives_the_same_bytes(source: str, out: Path) -> None:
    split(source, out)
    split(source, out.with_name("again"))

    for path in out.iterdir():
        assert path.read_bytes() == (out.with_name("again") / path.name).read_bytes()


def test_the_report_and_progress_agree_with_the_files(source: str, out: Path) -> None:
    progress = Recorder()

    report = split(source, out, progress=progress)

    assert report.out == out
    assert not report.was_whole
    assert (
        report.size_bytes
        == progress.done_bytes
        == sum(path.stat().st_size for path in out.glob("*.safetensors"))
    )
    assert (
        0.5 < progress.total_bytes / progress.done_bytes < 1
    )  # headers and padding are a lot of a tiny model
    assert progress.is_finished


def test_a_second_split_does_nothing_and_says_so(source: str, out: Path) -> None:
    first = split(source, out)
    before = {path: FileIdentity.of(path.stat()) for path in out.iterdir()}

    again = split(source, out)

    assert again == (out, first.manifest, True, ())
    assert {path: FileIdentity.of(path.stat()) for path in out.iterdir()} == before


def test_what_the_request_must_ask_for_is_reported(source: str, out: Path) -> None:
    (Path(source) / "generation_config.json").write_text('{"repetition_penalty": 1.1}')

    (note,) = split(source, out).notes
    assert note.startswith("generation_config.json asks for repetition_penalty 1.1, which is not applied")
    assert split(source, out).notes == ()


def test_old_checkpoints_ask_in_the_configuration(tmp_path: Path, out: Path) -> None:
    config = CONFIG | {"no_repeat_ngram_size": 2, "repetition_penalty": 1.0}
    source = models.write_checkpoint(tmp_path / "old", config, WEIGHTS)

    assert split(str(source), out).notes == (
        "config.json asks for no_repeat_ngram_size 2, which is not applied",
    )


def test_force_replaces(source: str, out: Path) -> None:
    split(source, out, dtype="f32")

    report = split(source, out, dtype="bf16", force=True)

    assert not report.was_whole
    assert manifest.read(out).dtype == "bf16"
    assert names(out) == ["set"]


def test_another_dtype_needs_force(source: str, out: Path) -> None:
    split(source, out, dtype="f32")

    with pytest.raises(OutputExistsError, match=r"expected \S+ in bf16.*found \S+ in f32; use --force"):
        split(source, out, dtype="bf16")


def test_another_model_needs_force(source: str, out: Path) -> None:
    split(source, out)
    other = Path(source).rename(Path(source).with_name("another"))

    with pytest.raises(OutputExistsError, match=r"expected another in bf16.*found \S+ in bf16; use --force"):
        split(str(other), out)


def test_another_model_of_the_same_name_needs_force(source: str, out: Path) -> None:
    split(source, out)
    models.write_checkpoint(Path(source), CONFIG, models.tensors(CONFIG, seed=1))

    with pytest.raises(OutputExistsError, match=r"found source in bf16 of another checkpoint; use --force"):
        split(source, out)
    assert not split(source, out, force=True).was_whole
    assert split(source, out).was_whole


def test_a_set_without_its_tokenizer_needs_force(out: Path, tmp_path: Path) -> None:
    shards.make_chat(tmp_path).rename(out)
    assert split(str(tmp_path / "tiny"), out, dtype="f32").was_whole
    (out / "tokenizer.bin").unlink()

    with pytest.raises(OutputExistsError, match="damaged"):
        split(str(tmp_path / "tiny"), out, dtype="f32")


def test_smollm2_is_known_without_being_there(
    source: str, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    split(source, out)
    change = {"name": smollm2.NAME, "source": smollm2.SHA256}
    shards.edit_manifest(out, lambda record: record["model"].update(change))
    monkeypatch.setattr(smollm2, "locate", None)  # would look for it, and download it

    assert split("smollm2", out).was_whole


def test_a_damaged_set_needs_force(source: str, out: Path) -> None:
    split(source, out)
    (out / "layer-001.safetensors").unlink()

    with pytest.raises(OutputExistsError, match="damaged"):
        split(source, out)
    split(source, out, force=True)
    assert check_all(out, Verify.ALWAYS) == []

    (out / "manifest.json").write_text("{")
    with pytest.raises(OutputExistsError, match="damaged"):
        split(source, out)
    split(source, out, force=True)
    assert check_all(out, Verify.ALWAYS) == []


def test_a_set_that_lost_its_manifest_needs_force(source: str, out: Path) -> None:
    split(source, out)
    (out / "manifest.json").unlink()

    with pytest.raises(OutputExistsError, match="damaged"):
        split(source, out)
    split(source, out, force=True)
    assert check_all(out, Verify.ALWAYS) == []

    (out / "manifest.json").unlink()
    (out / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputExistsError, match="no shard set"):
        split(source, out, force=True)
    assert (out / "thesis.txt").read_text() == "years of work"


def test_a_split_with_nothing_to_do_removes_what_a_killed_one_left(source: str, out: Path) -> None:
    split(source, out)
    for suffix in ("partial", "replaced"):
        out.with_name(f".set.{suffix}").mkdir()
        (out.with_name(f".set.{suffix}") / "layer-000.safetensors").touch()

    assert split(source, out).was_whole
    assert names(out) == ["set"]


def test_a_split_with_nothing_to_do_leaves_one_that_is_at_work(source: str, out: Path) -> None:
    split(source, out)
    with Staging(out) as staging:
        assert split(source, out).was_whole
        assert staging.directory.exists()


@pytest.mark.parametrize("force", [False, True])
def test_what_is_no_shard_set_is_never_replaced(source: str, out: Path, force: bool) -> None:
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")

    with pytest.raises(OutputExistsError, match="no shard set"):
        split(source, out, force=force)
    assert (out / "thesis.txt").read_text() == "years of work"


def test_an_empty_directory_is_filled(source: str, out: Path) -> None:
    out.mkdir()

    assert not split(source, out).was_whole


def test_a_link_stays_and_what_it_leads_to_is_replaced(source: str, out: Path) -> None:
    split(source, out, dtype="f32")
    link = out.with_name("link")
    link.symlink_to(out)

    split(source, link, force=True)

    assert link.is_symlink()
    assert manifest.read(out).dtype == "bf16"
    assert names(out) == ["link", "set"]


def test_a_link_that_leads_nowhere_is_never_replaced(source: str, out: Path) -> None:
    out.symlink_to("absent")

    with pytest.raises(OutputExistsError, match="no shard set"):
        split(source, out, force=True)
    assert out.is_symlink()


def test_a_file_is_never_replaced(source: str, out: Path) -> None:
    out.write_text("kept")

    with pytest.raises(OutputExistsError):
        split(source, out, force=True)
    assert out.read_text() == "kept"


def test_an_unknown_dtype_is_refused(source: str, out: Path) -> None:
    with pytest.raises(SplitError, match=r"expected f32, bf16, .*, found 'int3'"):
        split(source, out, dtype="int3")


def test_no_source_says_what_one_is(out: Path) -> None:
    with pytest.raises(CheckpointError, match="Hugging Face directory, a GGUF file, or the word smollm2"):
        split(str(out / "absent"), out)


def test_a_source_that_is_refused_leaves_the_old_set(source: str, out: Path) -> None:
    split(source, out)
    (Path(source) / "config.json").write_text("{}")

    with pytest.raises(CheckpointError):
        split(source, out, force=True)
    assert check_all(out, Verify.ALWAYS) == []
    assert names(out) == ["set"]


def test_a_tokenizer_that_is_refused_leaves_nothing(source: str, out: Path) -> None:
    (Path(source) / "tokenizer.json").write_text('{"model": {"type": "Unigram", "vocab": []}}')

    with pytest.raises(UnsupportedTokenizerError):
        split(source, out)
    assert names(out) == []


def test_a_weight_without_a_bf16_is_refused_and_fits_f32(tmp_path: Path, out: Path) -> None:
    name = "model.layers.2.mlp.down_proj.weight"
    weights = WEIGHTS | {name: WEIGHTS[name].copy()}
    weights[name][0, 0] = np.finfo(np.float32).max
    source = str(models.write_checkpoint(tmp_path / "large", CONFIG, weights))

    with pytest.raises(SplitError, match=r"tensor down.*--dtype f32"):
        split(source, out)
    assert names(out) == []
    assert not split(source, out, dtype="f32").was_whole


def test_of_two_splits_one_is_told(source: str, out: Path) -> None:
    with Staging(out), pytest.raises(SplitRunningError):
        split(source, out)


def test_memory_stays_near_a_tile(tmp_path: Path, out: Path) -> None:
    config = models.config("llama", vocab_size=40_000, hidden_size=512, num_hidden_layers=1)
    weights = models.tensors(config)
    source = str(models.write_checkpoint(tmp_path / "large", config, weights))
    largest_bytes = weights["lm_head.weight"].nbytes
    del weights

    tracemalloc.start()
    split(source, out)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak_bytes < 6 * TILE_BYTES < largest_bytes / 3


_KILLED = """
import os, signal, sys
from pathlib import Path
from quickthaw.layers.checkpoints.split import split
from quickthaw.layers.progress import Quiet

class Killer(Quiet):
    left = int(sys.argv[3])
    def advance(self, size_bytes):
        self.left -= size_bytes
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

split(sys.argv[1], Path(sys.argv[2]), force=True, progress=Killer())
"""


@pytest.mark.parametrize("has_old", [False, True])
@pytest.mark.parametrize("after_bytes", [0, 30_000, 100_000])
def test_a_killed_split_leaves_the_old_set_or_none(
    source: str, out: Path, after_bytes: int, has_old: bool
) -> None:
    if has_old:
        split(source, out, dtype="f32")

    result = subprocess.run([sys.executable, "-c", _KILLED, source, str(out), str(after_bytes)], check=False)

    assert result.returncode == -signal.SIGKILL
    assert out.exists() == has_old
    if has_old:
        assert manifest.read(out).dtype == "f32"
        assert check_all(out, Verify.ALWAYS) == []
    split(source, out, force=True)
    assert check_all(out, Verify.ALWAYS) == []
    assert names(out) == ["set"]


_LIMITED = """
import resource, sys
from pathlib import Path
from quickthaw.layers.checkpoints.split import split
from quickthaw.layers.errors import DiskFullError

resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
try:
    split(sys.argv[1], Path(sys.argv[2]), dtype="f32", force=True)
except DiskFullError as error:
    print(error)
"""


def test_no_room_is_told_and_leaves_the_old_set(source: str, out: Path) -> None:
    split(source, out)

    result = subprocess.run(
        [sys.executable, "-c", _LIMITED, source, str(out)], capture_output=True, text=True, check=True
    )

    assert result.stdout.startswith("no room for the shard set")
    assert check_all(out, Verify.ALWAYS) == []
    assert names(out) == ["set"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_device_is_told(source: str, out: Path) -> None:
    class Filler(Recorder):
        def advance(self, size_bytes: int) -> None:
            with open("/dev/full", "wb", buffering=0) as file:
                file.write(bytes(size_bytes))

    with pytest.raises(DiskFullError):
        split(source, out, progress=Filler())
    assert names(out) == []
