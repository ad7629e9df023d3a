# SPDX-License-Identifier: Apache-2.0
"""What quantising costs the real model's answers, on a text; docs/benchmarks.md has the figures."""

from pathlib import Path

from tests.divergence import divergence, log_probabilities


def test_smollm2(smollm2_shards: Path, smollm2_int8_shards: Path, smollm2_int4_shards: Path) -> None:
    reference = log_probabilities(smollm2_shards)
    for shard_set, most in ((smollm2_int8_shards, 0.02), (smollm2_int4_shards, 0.01)):
        found = divergence(reference, log_probabilities(shard_set))
        assert found.kl < most, shard_set
        assert found.agreement >= 0.9, shard_set
