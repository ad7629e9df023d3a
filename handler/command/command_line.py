# SPDX-License-Identifier: Apache-2.0
"""What may be typed after `quickthaw`, and what it means."""

import argparse
import json
import re
import sys
from pathlib import Path

_SHARD_SET = "the shard set: a directory made by `quickthaw shard`, or s3://bucket/prefix"


def make_parser() -> argparse.ArgumentParser:
    """What `quickthaw` takes; `command` of what it returns is the sub-command's name."""
    parser = argparse.ArgumentParser(
        "quickthaw",
        description="Transformer inference as a serverless function: split a model, start it cold, serve it.",
        epilog="Exit codes are those of sysexits.h: 65 bad data or none, 66 a missing shard, 69 the function "
        "did not start, 70 it failed or refused the request, 73 an output that cannot be made, 78 bad "
        "configuration; 2 is a bad command line, 130 an interrupt.",
    )
    parser.add_argument("--version", action=_ShowVersion, nargs=0, help="show the version and exit")
    parser.add_argument("--debug", action="store_true", help="show the stack of an error")
    commands = parser.add_subparsers(required=True, dest="command", metavar="COMMAND")
    _add_shard(commands.add_parser("shard", help="split a checkpoint into shards"))
    _add_inspect(commands.add_parser("inspect", help="show what a shard set holds"))
    _add_push(commands.add_parser("push", help="put a shard set into S3"))
    _add_pull(commands.add_parser("pull", help="get a shard set out of S3"))
    _add_check(commands.add_parser("check", help="say what AWS would refuse, what is slow, what it costs"))
    _add_invoke(commands.add_parser("invoke", help="run one cold start and show where its time went"))
    _add_host(commands.add_parser("host", help="serve a function over HTTP"))
    _add_serve(commands.add_parser("serve", help="answer many requests at once, in one process"))
    _add_snapshot(
        commands.add_parser("snapshot", help="put an initialised function on disk, and bring it back")
    )
    return parser


class _ShowVersion(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version  # 20 ms, which no command needs

        print("quickthaw", version("quickthaw"))
        parser.exit()


def _add_shard(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", help="a Hugging Face directory, a GGUF file, or `smollm2`")
    parser.add_argument("out", type=Path, help="the directory to make")
    parser.add_argument(
        "--dtype",
        choices=("bf16", "f32", "int8", "int4", "int4-128"),
        default="bf16",
        help="of the matrices (bf16); int4 has groups of 32 columns, int4-128 of 128",
    )
    parser.add_argument("--force", action="store_true", help="replace a shard set that is there")


def _add_inspect(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shards", help=_SHARD_SET)
    parser.add_argument("--verify", action="store_true", help="compare every byte with its digest")


def _add_push(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shards", type=Path, help="a directory made by `quickthaw shard`")
    parser.add_argument("url", type=_s3_url, help="s3://bucket/prefix")
    parser.add_argument("--force", action="store_true", help="replace another shard set that is there")


def _add_pull(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", type=_s3_url, help="s3://bucket/prefix")
    parser.add_argument("out", type=Path, help="the directory to make")
    parser.add_argument("--force", action="store_true", help="replace another shard set that is there")


def _add_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--template", type=Path, metavar="FILE", help="a SAM or CloudFormation template (template.yaml)"
    )
    parser.add_argument(
        "--parameters",
        type=_assignment,
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="what it is deployed with, as in `sam deploy --parameter-overrides`",
    )
    parser.add_argument(
        "--env",
        type=Path,
        metavar="FILE",
        help="NAME=VALUE lines that are added to the function's environment",
    )
    parser.add_argument("--shards", metavar="SET", help=_SHARD_SET + ", to be served")


def _add_invoke(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shards", metavar="SET", help=_SHARD_SET + " (QUICKTHAW_SHARDS)")
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--prompt", metavar="TEXT", help="text to continue")
    asked.add_argument("--prompt-ids", type=_token_ids, metavar="1,17,300", help="the same, as token ids")
    asked.add_argument("--chat", metavar="TEXT", help="a user's message, put into the model's chat template")
    asked.add_argument("--event", type=_json_file, metavar="FILE", help="any event, as JSON (-: stdin)")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="at most this many tokens of answer")
    parser.add_argument("--temperature", type=float, metavar="T", help="0 takes the likeliest token")
    parser.add_argument("--seed", type=int, metavar="S", help="of the random choice among tokens")
    parser.add_argument("--stream", action="store_true", help="print the answer as it comes")
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object instead")
    parser.add_argument("--trace", type=_new_file, metavar="FILE", help="write the start as a Perfetto trace")
    parser.add_argument(
        "--timeout", type=_seconds, default=60.0, metavar="S", help="for init, and again after it (60)"
    )
    parser.set_defaults(parser=parser)  # for what is wrong only together


def _add_host(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Serve a Lambda function on this machine, as HTTP and as Lambda's Invoke API: "
        'boto3.client("lambda", endpoint_url="http://127.0.0.1:9000").invoke(FunctionName="function"). '
        "What the host knows of itself is at /_quickthaw/ (JSON) and /_quickthaw/metrics (Prometheus)."
    )
    parser.add_argument("handler", nargs="?", help="module.function of any Lambda handler (ours)")
    parser.add_argument(
        "--task-root", type=_folder, metavar="DIR", help="the folder of the function's code (this one)"
    )
    parser.add_argument("--shards", metavar="SET", help=_SHARD_SET + " (QUICKTHAW_SHARDS)")
    parser.add_argument(
        "--port", type=int, default=9000, metavar="N", help="on 127.0.0.1; 0 takes a free one (9000)"
    )
    parser.add_argument("--name", default="function", help="what clients call it (function)")
    starts = parser.add_argument_group("starts")
    starts.add_argument(
        "--start",
        choices=("cold", "zygote", "criu"),
        default="cold",
        help="how a process comes to be: by its own init, or after one init by fork, or from a snapshot on "
        "disk (cold)",
    )
    starts.add_argument(
        "--warmup-event",
        type=_file,
        metavar="FILE",
        help="an event, JSON, that the function answers before it is captured",
    )
    starts.add_argument(
        "--capture-dir",
        type=Path,
        metavar="DIR",
        help="where criu keeps what it captured, for this host and later ones (a folder that ends with it)",
    )
    starts.add_argument(
        "--max-instances",
        type=_count,
        metavar="N",
        help="at most this many processes, each with one request at a time (1 for ours, which uses every "
        "core by itself; else one for each core)",
    )
    starts.add_argument(
        "--min-warm", type=_count_or_none, default=1, metavar="N", help="keep this many ready (1)"
    )
    starts.add_argument(
        "--idle-timeout",
        type=_seconds,
        default=300.0,
        metavar="S",
        help="end the others when they had no request for so long (300)",
    )
    limits = parser.add_argument_group("limits")
    limits.add_argument(
        "--timeout", type=_seconds, default=60.0, metavar="S", help="for init, and for each request (60)"
    )
    limits.add_argument(
        "--memory-mib", type=_count, metavar="M", help="end a process that takes more (no limit)"
    )
    limits.add_argument(
        "--max-waiting",
        type=_count_or_none,
        default=256,
        metavar="N",
        help="refuse requests with 429 when so many wait for a process (256)",
    )
    parser.set_defaults(parser=parser)


def _add_serve(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Serve a model in one process, over the function's HTTP API: requests are computed together, join "
        "and leave between two tokens, and those that were begun are answered before it ends."
    )
    parser.add_argument("--shards", metavar="SET", help=_SHARD_SET + " (QUICKTHAW_SHARDS)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="what computes (cpu)")
    parser.add_argument("--address", default="127.0.0.1", metavar="IP", help="to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, default=9000, metavar="N", help="0 takes a free one (9000)")
    parser.add_argument(
        "--max-batch", type=_count, default=16, metavar="N", help="compute so many answers together (16)"
    )
    parser.add_argument(
        "--max-wait-ms",
        type=_count_or_none,
        default=5,
        metavar="MS",
        help="how long a step waits for an answer whose last token is on its way to its client (5)",
    )
    parser.add_argument(
        "--max-waiting",
        type=_count_or_none,
        default=256,
        metavar="N",
        help="refuse requests with 429 when so many wait for a place (256)",
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=60.0,
        metavar="S",
        help="for each request, and at the end for those that were begun (60)",
    )


def _add_snapshot(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(required=True, dest="action", metavar="ACTION")
    _add_snapshot_capture(
        actions.add_parser("capture", help="run a function's init and put it on disk (CRIU)")
    )
    _add_snapshot_restore(actions.add_parser("restore", help="serve what was captured, or have it answer"))
    inspect = actions.add_parser("inspect", help="show what was captured, and whether it is out of date")
    inspect.add_argument("directory", type=Path, help="a directory made by `quickthaw snapshot capture`")
    _add_snapshot_image(actions.add_parser("image", help="compute what a plain start need not (state image)"))


def _add_snapshot_image(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", type=_new_file, help="the file to make; QUICKTHAW_STATE_IMAGE then names it")
    parser.add_argument("--shards", metavar="SET", help=_SHARD_SET + " (QUICKTHAW_SHARDS)")
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--chat-system", metavar="TEXT", help="the system prompt that chats begin with")
    asked.add_argument(
        "--event", type=_json_file, metavar="FILE", help="a request of the kind, as JSON (-: stdin)"
    )


def _add_snapshot_capture(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, help="the directory to make, or a capture to replace")
    parser.add_argument("handler", nargs="?", help="module.function of any Lambda handler (ours)")
    parser.add_argument(
        "--task-root", type=_folder, metavar="DIR", help="the folder of the function's code (this one)"
    )
    parser.add_argument("--shards", metavar="SET", help=_SHARD_SET + " (QUICKTHAW_SHARDS)")
    parser.add_argument(
        "--warmup-event",
        type=_file,
        metavar="FILE",
        help="an event, JSON, that the function answers before it is captured",
    )
    parser.add_argument("--timeout", type=_seconds, default=60.0, metavar="S", help="for init (60)")


def _add_snapshot_restore(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, help="a directory made by `quickthaw snapshot capture`")
    served = parser.add_mutually_exclusive_group()
    served.add_argument(
        "--port", type=int, default=9000, metavar="N", help="serve on 127.0.0.1; 0 takes a free one (9000)"
    )
    served.add_argument(
        "--event", type=_json_file, metavar="FILE", help="print the answer to this event instead (-: stdin)"
    )
    parser.add_argument(
        "--timeout", type=_seconds, default=60.0, metavar="S", help="for a start, and for each request (60)"
    )


def _token_ids(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected token ids with commas between them, found {text!r}"
        ) from None


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, found {text}")
    return name, value


def _s3_url(text: str) -> str:
    if not re.fullmatch(r"s3://[^/]+(/.*)?", text):
        raise argparse.ArgumentTypeError(f"expected s3://bucket/prefix, found {text}")
    return text


def _new_file(text: str) -> Path:
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"cannot make a file at {text}")
    return path


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"expected seconds, more than 0, found {text}")
    return seconds


def _count(text: str) -> int:
    number = _count_or_none(text)
    if number == 0:
        raise argparse.ArgumentTypeError("expected at least 1, found 0")
    return number


def _count_or_none(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a number, found {text}")
    return int(text)


def _folder(text: str) -> Path:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"no such folder: {text}")
    return Path(text)


def _file(text: str) -> Path:
    _json_file(text)
    return Path(text)


def _json_file(text: str) -> object:
    try:
        return json.loads(sys.stdin.buffer.read() if text == "-" else Path(text).read_bytes())
    except (OSError, ValueError) as exc:
        raise argparse.ArgumentTypeError(f"cannot read {text}: {exc}") from exc
