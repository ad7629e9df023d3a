# SPDX-License-Identifier: Apache-2.0
"""What runs, and should not run like that: an address that is open to strangers, what makes answers slow."""

from __future__ import annotations

from quickthaw.handler.command.check.deployment import MB, Deployment, Rule, Told
from quickthaw.layers.config import Verify
from quickthaw.layers.storage.storage import is_remote

_RUN_MIB = 250  # interpreter, numpy, and a short context beside the weights
_VCPU_MIB = 1_769
_HASHED_BYTES_PER_S = 1_500 * MB


def _strangers(deployment: Deployment) -> Told:
    config, template = deployment.config, deployment.template
    if config is None or config.api_keys.encoded or config.api_keys_file is not None:
        return
    urls = template.of_type("AWS::Lambda::Url").values()
    routes = template.of_type("AWS::ApiGatewayV2::Route").values()
    if any(url.get("AuthType") == "NONE" for url in urls) or any(
        route.get("AuthorizationType", "NONE") == "NONE" for route in routes
    ):
        yield (
            "an address that lets everybody in",
            "nobody looks at who asks, and each answer is billed to you",
            "AuthType: AWS_IAM, or QUICKTHAW_API_KEYS",
        )


def _cpu(deployment: Deployment) -> Told:
    if deployment.memory_mib < _VCPU_MIB:
        yield (
            f"MemorySize of {deployment.memory_mib}",
            f"that is {deployment.memory_mib / _VCPU_MIB:.1f} of a CPU: one comes with every {_VCPU_MIB}",
            f"{_VCPU_MIB} or more",
        )


def _memory(deployment: Deployment) -> Told:
    if deployment.shard_bytes is None:
        return
    needed_mib = (deployment.shard_bytes >> 20) + _RUN_MIB
    if deployment.memory_mib < needed_mib:
        yield (
            f"MemorySize of {deployment.memory_mib} for {deployment.shard_bytes / MB:,.0f} MB of shards",
            "pages of the files that do not fit are read again for every token",
            f"{needed_mib} or more, or a smaller dtype",
        )


def _verification(deployment: Deployment) -> Told:
    config = deployment.config
    if config is None or config.layers.verify is Verify.NEVER:
        return
    seconds = (deployment.shard_bytes or 0) / _HASHED_BYTES_PER_S
    how_long = f", some {seconds:.1f} s," if seconds else ""
    yield (
        f"QUICKTHAW_VERIFY={config.layers.verify.value}",
        f"a new environment has no stamps, so it hashes every shard{how_long} while its first request waits",
        "`quickthaw inspect --verify` where the package is made, and QUICKTHAW_VERIFY=never",
    )


def _network_disk(deployment: Deployment) -> Told:
    if deployment.has_efs:
        yield (
            "shards on EFS",
            "each new environment reads them over the network, and many at once share its throughput",
            "elastic throughput; a warmer, which reads ahead; or an image, if the shards fit into 10 GB",
        )


def _bucket(deployment: Deployment) -> Told:
    config = deployment.config
    if config is None or not is_remote(config.layers.shards):
        return
    yield (
        f"shards at {config.layers.shards}",
        "each new environment fetches them, a layer at a time, while its first request waits",
        "a warmer, which fetches ahead; or an image, if the shards fit into 10 GB",
    )
    if (deployment.shard_bytes or 0) > deployment.tmp_mib << 20:
        yield (
            f"a /tmp of {deployment.tmp_mib} MiB for {(deployment.shard_bytes or 0) / MB:,.0f} MB of shards",
            "what it does not hold is fetched into memory",
            "a larger EphemeralStorage, where there is no SnapStart",
        )


def _gateway_limits(deployment: Deployment) -> Told:
    timeout_s = deployment.function.number("Timeout", 3)
    if deployment.template.of_type("AWS::ApiGatewayV2::Api") and timeout_s > 30:
        yield (
            f"an HTTP API before a function with a timeout of {timeout_s} s",
            "it gives up after 30 s and shows 503, while the function goes on and is billed",
            "the REST API or the function URL, which stream, for long answers; or a shorter max_tokens",
        )


def _pings_from_a_vpc(deployment: Deployment) -> Told:
    if deployment.function.properties.get("VpcConfig") and deployment.template.of_type("AWS::Events::Rule"):
        yield (
            "a warmer of a function in a VPC",
            "to warm more than one environment the function asks itself, which needs a way to Lambda's API",
            "an interface endpoint for Lambda in its subnets, or NAT; one environment needs neither",
        )


def _accelerator(deployment: Deployment) -> Told:
    if "AcceleratorConfig" in str(deployment.function.properties):
        yield "a GPU", "quickthaw computes on the CPU: it would stand idle", "leave it out"


OPEN: tuple[Rule, ...] = (_strangers,)
SLOW: tuple[Rule, ...] = (
    _cpu,
    _memory,
    _verification,
    _network_disk,
    _bucket,
    _gateway_limits,
    _pings_from_a_vpc,
    _accelerator,
)
