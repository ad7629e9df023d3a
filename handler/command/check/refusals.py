# SPDX-License-Identifier: Apache-2.0
"""What AWS would refuse, halfway through a deployment or silently, and what the function itself would.

Source: Lambda's documentation (quotas, SnapStart, file systems, response streaming), as of November 2026.
"""

from __future__ import annotations

import re
from typing import Any

from quickthaw.handler.command.check.deployment import MB, Deployment, Rule, Told
from quickthaw.handler.config import Streaming
from quickthaw.handler.errors import ConfigurationError
from quickthaw.layers.errors import LayersConfigError
from quickthaw.snapshot.config import RESTORE_GATE

_ZIP_LIMIT_BYTES = 250 * MB
_OWN_BYTES = 80 * MB  # quickthaw and what it needs, unpacked
_TMP_MIB = 512
_ENVIRON_LIMIT_BYTES = 4096
_MOUNT = re.compile(r"/mnt/[A-Za-z0-9_.\-]+")
_RESERVED = re.compile(
    r"_HANDLER|_X_AMZN_.*|AWS_(DEFAULT_)?REGION|AWS_EXECUTION_ENV|LAMBDA_.*|AWS_LAMBDA_(?!EXEC_WRAPPER$).*"
    r"|AWS_ACCESS_KEY(_ID)?|AWS_SECRET_ACCESS_KEY|AWS_SESSION_TOKEN"
)


def _snap_start(deployment: Deployment) -> Told:
    function = deployment.function
    if not deployment.has_snap_start:
        return
    if deployment.has_efs:
        yield (
            "SnapStart with EFS",
            "a snapshot cannot hold a mounted file system",
            "put the shards into the package, or leave SnapStart out",
        )
    if deployment.tmp_mib > _TMP_MIB:
        yield (
            f"SnapStart with {deployment.tmp_mib} MB of /tmp",
            f"/tmp is part of the snapshot, up to {_TMP_MIB} MB",
            f"EphemeralStorage of {_TMP_MIB}: quickthaw writes stamps there, no shards",
        )
    if _has_provisioned_concurrency(deployment):
        yield (
            "SnapStart with provisioned concurrency",
            "an environment is restored or kept ready, not both",
            "leave one of them out",
        )
    if not _is_published(deployment):
        yield (
            "SnapStart on $LATEST",
            "only published versions have a snapshot: it would silently never be used",
            "AutoPublishAlias, or an AWS::Lambda::Version, and call the alias",
        )
    version = re.fullmatch(r"python3\.(\d+)", str(function.properties.get("Runtime", "")))
    if version is not None and int(version[1]) < 12:
        yield (
            f"SnapStart on {version[0]}",
            "of Python it knows 3.12 and newer",
            "Runtime: python3.13, and build the package for it",
        )
    if "CapacityProviderConfig" in function.properties:
        yield (
            "SnapStart on managed instances",
            "they run as long as their instance does and are never restored",
            "leave one of them out",
        )


def _has_provisioned_concurrency(deployment: Deployment) -> bool:
    properties = [deployment.function.properties, *_versions_and_aliases(deployment).values()]
    return any("ProvisionedConcurrencyConfig" in each for each in properties)


def _is_published(deployment: Deployment) -> bool:
    return "AutoPublishAlias" in deployment.function.properties or bool(_versions_and_aliases(deployment))


def _versions_and_aliases(deployment: Deployment) -> dict[str, Any]:
    found = deployment.template.of_type("AWS::Lambda::Version", "AWS::Lambda::Alias")
    return {
        name: each for name, each in found.items() if each.get("FunctionName") == deployment.function.name
    }


def _limits(deployment: Deployment) -> Told:
    function = deployment.function
    for what, value, low, high in (
        ("MemorySize", deployment.memory_mib, 128, 10_240),
        ("Timeout", function.number("Timeout", 3), 1, 900),
        ("EphemeralStorage", deployment.tmp_mib, _TMP_MIB, 10_240),
    ):
        if not low <= value <= high:
            yield f"{what} of {value}", f"Lambda has {low} to {high}", "choose one of these"


def _zip_size(deployment: Deployment) -> Told:
    if deployment.function.is_image:
        return
    config, shard_bytes = deployment.config, deployment.shard_bytes
    is_inside = config is not None and config.layers.shards.startswith("/var/task")
    if is_inside and shard_bytes is not None and shard_bytes + _OWN_BYTES > _ZIP_LIMIT_BYTES:
        yield (
            f"shards of {shard_bytes / MB:,.0f} MB in a zip",
            f"a zip holds 250 MB unpacked, of which quickthaw takes {_OWN_BYTES // MB}",
            "the image function (Package=image), or the shards on EFS",
        )


def _shards_place(deployment: Deployment) -> Told:
    config = deployment.config
    if config is None:
        return
    path, function = config.layers.shards, deployment.function
    mounts = [each.get("LocalMountPath", "") for each in function.properties.get("FileSystemConfigs", [])]
    for mount in mounts:
        if not _MOUNT.fullmatch(mount):
            yield f"a file system at {mount}", "Lambda mounts under /mnt/NAME alone", "/mnt/quickthaw"
    if mounts and not function.properties.get("VpcConfig", {}).get("SubnetIds"):
        yield (
            "EFS without a VPC",
            "a file system is reached through a mount target in its VPC",
            "VpcConfig with SubnetIds and SecurityGroupIds",
        )
    if path.startswith("/mnt/") and not any(path == m or path.startswith(f"{m}/") for m in mounts):
        yield (
            f"shards at {path}, where nothing is mounted",
            "the function would not start",
            "FileSystemConfigs, or another QUICKTHAW_SHARDS",
        )
    if path.startswith("/tmp") and (deployment.shard_bytes or 0) > deployment.tmp_mib << 20:
        yield (
            f"a shard set of {(deployment.shard_bytes or 0) / MB:,.0f} MB in /tmp",
            f"/tmp has {deployment.tmp_mib} MiB, and is empty in each new environment",
            "the shards in an image or on EFS",
        )


def _accelerator(deployment: Deployment) -> Told:
    function = deployment.function
    if "AcceleratorConfig" in str(function.properties):
        for is_wrong, what, fix in (
            (not function.is_image, "a GPU with a zip", "PackageType: Image"),
            ("arm64" in function.properties.get("Architectures", []), "a GPU on arm64", "x86_64"),
            ("CapacityProviderConfig" not in function.properties, "a GPU without a capacity provider", "one"),
        ):
            if is_wrong:
                yield what, "GPUs come with managed instances, for x86_64 images alone", fix
    if "CapacityProviderConfig" in function.properties:
        yield (
            "managed instances",
            "they set AWS_LAMBDA_MAX_CONCURRENCY, and quickthaw's bootstrap serves one request at a time",
            "a function without CapacityProviderConfig",
        )


def _environment(deployment: Deployment) -> Told:
    environ = deployment.function.variables
    for name in environ:
        if _RESERVED.fullmatch(name):
            yield f"variable {name}", "Lambda sets it itself and refuses it", "leave it out"
    size_bytes = sum(len(name.encode()) + len(value.encode()) for name, value in environ.items())
    if size_bytes > _ENVIRON_LIMIT_BYTES:
        yield (
            f"an environment of {size_bytes} bytes",
            f"Lambda takes {_ENVIRON_LIMIT_BYTES}",
            "many keys belong into a file: QUICKTHAW_API_KEYS_FILE",
        )
    if RESTORE_GATE in environ:
        yield f"variable {RESTORE_GATE}", "the function would wait for ever", "leave it out"
    try:
        deployment.read_config()
    except (ConfigurationError, LayersConfigError) as exc:
        yield "the function's configuration", str(exc), "correct it, or the function will not start"


def _streaming(deployment: Deployment) -> Told:
    config, function = deployment.config, deployment.function
    if config is None:
        return
    has_ours = function.is_image or "exec_wrapper.sh" in function.variables.get("AWS_LAMBDA_EXEC_WRAPPER", "")
    is_streaming = "response-streaming-invocations" in str(deployment.template.resources) or any(
        url.get("InvokeMode") == "RESPONSE_STREAM"
        for url in deployment.template.of_type("AWS::Lambda::Url").values()
    )
    if is_streaming and config.streaming is not Streaming.ALWAYS:
        yield (
            f"QUICKTHAW_STREAM={config.streaming.value} behind a streaming URL or API",
            "it expects a stream's form of every answer, errors too, and shows any other as text",
            "QUICKTHAW_STREAM=always",
        )
    if is_streaming and not has_ours:
        yield (
            "a streaming URL or API, without quickthaw's bootstrap",
            "the runtime's own cannot stream from Python",
            "AWS_LAMBDA_EXEC_WRAPPER=/var/task/quickthaw/snapshot/exec_wrapper.sh",
        )


RULES: tuple[Rule, ...] = (
    _snap_start,
    _limits,
    _zip_size,
    _shards_place,
    _accelerator,
    _environment,
    _streaming,
)
