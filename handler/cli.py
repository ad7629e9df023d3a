# SPDX-License-Identifier: Apache-2.0
"""The `quickthaw` command. What a sub-command needs is imported when it runs."""

import argparse
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from quickthaw.handler.invoke import ColdStart

_INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it
_READER_GONE = 141  # 128 + SIGPIPE
_SPLITTING_NEEDS = ("gguf", "safetensors", "tqdm")
_CONTROL_CODES = (*range(9), *range(11, 32), *range(127, 160))  # but for tab and line feed
_FOR_TERMINALS = dict.fromkeys(_CONTROL_CODES, "\N{REPLACEMENT CHARACTER}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code. A failure is one line on stderr; --debug adds the stack."""
    arguments = _parser().parse_args(argv)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(
                errors="replace"
            )  # a model may say anything, and a terminal may be plain ASCII
    try:
        run: Callable[[argparse.Namespace], int] = arguments.run
        exit_code = run(arguments)
        sys.stdout.flush()  # here, where a reader that has gone is expected
        return exit_code
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains at exit
        return _READER_GONE
    except Exception as exc:
        from quickthaw.handler.errors import outcome

        if arguments.debug:
            traceback.print_exc()
        print(f"quickthaw: {_message(exc)}", file=sys.stderr)
        return outcome(exc).exit_code


def _message(exc: Exception) -> str:
    if isinstance(exc, ModuleNotFoundError) and exc.name in _SPLITTING_NEEDS:
        return f"splitting needs {exc.name}: install quickthaw with its extra, as in pip install '.[shard]'"
    return str(exc)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "quickthaw",
        description="Transformer inference as a serverless function: split a model, start it cold, serve it.",
        epilog="Exit codes are those of sysexits.h: 65 bad data or none, 66 a missing shard, 69 the function "
        "did not start, 70 it failed or refused the request, 73 an output that cannot be made, 78 bad "
        "configuration; 2 is a bad command line, 130 an interrupt.",
    )
    parser.add_argument("--debug", action="store_true", help="show the stack of an error")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_shard(commands.add_parser("shard", help="split a checkpoint into shards"))
    _add_inspect(commands.add_parser("inspect", help="show what a shard set holds"))
    _add_invoke(commands.add_parser("invoke", help="run one cold start and show where its time went"))
    _add_host(commands.add_parser("host", help="serve a function over HTTP"))
    return parser


def _add_shard(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", help="a Hugging Face directory, a GGUF file, or `smollm2`")
    parser.add_argument("out", type=Path, help="the directory to make")
    parser.add_argument("--dtype", choices=("bf16", "f32"), default="bf16", help="of the matrices (bf16)")
    parser.add_argument("--force", action="store_true", help="replace a shard set that is there")
    parser.set_defaults(run=_shard)


def _add_inspect(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shards", type=Path, help="a directory made by `quickthaw shard`")
    parser.add_argument("--verify", action="store_true", help="compare every byte with its digest")
    parser.set_defaults(run=_inspect)


def _add_invoke(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shards", type=Path, metavar="DIR", help="the shard set (QUICKTHAW_SHARDS)")
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--prompt", metavar="TEXT", help="text to continue")
    asked.add_argument("--prompt-ids", type=_token_ids, metavar="1,17,300", help="the same, as token ids")
    asked.add_argument("--chat", metavar="TEXT", help="a user's message, put into the model's chat template")
    asked.add_argument("--event", type=_json_file, metavar="FILE", help="any event, as JSON")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="at most this many tokens of answer")
    parser.add_argument("--temperature", type=float, metavar="T", help="0 takes the likeliest token")
    parser.add_argument("--seed", type=int, metavar="S", help="of the random choice among tokens")
    parser.add_argument("--stream", action="store_true", help="print the answer as it comes")
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object instead")
    parser.add_argument("--trace", type=_new_file, metavar="FILE", help="write the start as a Perfetto trace")
    parser.add_argument(
        "--timeout", type=_seconds, default=60.0, metavar="S", help="for init, and again after it (60)"
    )
    parser.set_defaults(run=_invoke, parser=parser)


def _add_host(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("handler", nargs="?", help="package.module.function of any Lambda handler (ours)")
    parser.add_argument(
        "--port", type=int, default=9000, metavar="N", help="on 127.0.0.1; 0 takes a free one (9000)"
    )
    parser.add_argument("--shards", type=Path, metavar="DIR", help="the shard set (QUICKTHAW_SHARDS)")
    parser.add_argument(
        "--timeout", type=_seconds, default=60.0, metavar="S", help="for init, and for each request (60)"
    )
    parser.set_defaults(run=_host)


def _token_ids(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected token ids with commas between them, found {text!r}"
        ) from None


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


def _json_file(text: str) -> object:
    try:
        return json.loads(Path(text).read_bytes())
    except (OSError, ValueError) as exc:
        raise argparse.ArgumentTypeError(f"cannot read {text}: {exc}") from exc


def _environ(arguments: argparse.Namespace) -> dict[str, str]:
    """The function's environment: ours, and the shard set that was asked for."""
    if arguments.shards is None:
        return dict(os.environ)
    return {**os.environ, "QUICKTHAW_SHARDS": str(arguments.shards.resolve())}


def _invoke(arguments: argparse.Namespace) -> int:
    output = sys.stderr if arguments.json else sys.stdout
    on_text = _Printer(output).take if arguments.stream else _ignore
    start = _run(_event(arguments), arguments, on_text)
    if arguments.stream:
        print(file=output, flush=True)
    if arguments.trace is not None:
        from quickthaw.handler.trace import trace_document

        arguments.trace.write_text(json.dumps(trace_document(start)))
    if arguments.json:
        print(json.dumps(start.to_json()))
        return 0
    from quickthaw.handler.table import format_start

    if not arguments.stream:
        token_ids = ",".join(map(str, start.answer.token_ids))  # all there is where a model has no tokenizer
        _Printer(sys.stdout).take((start.answer.text or token_ids) + "\n")
    print(format_start(start), file=sys.stderr)
    return 0


def _run(event: object, arguments: argparse.Namespace, on_text: Callable[[str], object]) -> "ColdStart":
    """Run the start. What a user's code logged is shown when it is over; under --debug everything, at once.

    A function that reports its error has also logged it, with a stack: that is left out. One that just
    ended has said why in its log, if anywhere.
    """
    from quickthaw.handler.invoke import is_own_line, run_cold_start
    from quickthaw.snapshot.errors import FunctionExitedError

    show = _Printer(sys.stderr).take
    log: list[str] = []
    on_log = show if arguments.debug else lambda line: None if is_own_line(line) else log.append(line)
    try:
        start = run_cold_start(event, _environ(arguments), arguments.timeout, on_text, on_log)
    except FunctionExitedError:
        show("".join(log))
        raise
    show("".join(log))
    return start


def _event(arguments: argparse.Namespace) -> object:
    """The event to send. What is no HTTP request is asked to stream: the first token is to be seen."""
    event: object
    if arguments.event is not None:
        event = arguments.event
    elif arguments.chat is not None:
        event = {"messages": [{"role": "user", "content": arguments.chat}]}
    else:
        event = {"prompt": arguments.prompt if arguments.prompt is not None else arguments.prompt_ids}
    named = {name: getattr(arguments, name) for name in ("max_tokens", "temperature", "seed")}
    options = {name: value for name, value in named.items() if value is not None}
    if not isinstance(event, dict) or "requestContext" in event:
        if options:
            arguments.parser.error(f"an HTTP event says {', '.join(options)} in its body; change it there")
        return event
    return {**event, **options, "stream": True}


class _Printer:
    """Prints text as it comes; to a terminal, without the control characters that could steer it."""

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._is_terminal = output.isatty()

    def take(self, text: str) -> None:
        """Print `text` now."""
        self._output.write(text.translate(_FOR_TERMINALS) if self._is_terminal else text)
        self._output.flush()


def _ignore(text: str) -> None:
    del text


def _host(arguments: argparse.Namespace) -> int:
    from quickthaw.handler.hosting import serve
    from quickthaw.handler.invoke import HANDLER

    say, log = _Printer(sys.stdout), _Printer(sys.stderr)
    handler = arguments.handler or HANDLER
    serve(
        handler,
        _environ(arguments),
        arguments.port,
        arguments.timeout,
        lambda line: say.take(line + "\n"),
        log.take,
    )
    return 0


def _shard(arguments: argparse.Namespace) -> int:
    from quickthaw.layers.checkpoints.split import split
    from quickthaw.layers.progress import for_terminal

    report = split(
        arguments.source,
        arguments.out,
        dtype=arguments.dtype,
        force=arguments.force,
        progress=for_terminal(arguments.source),
    )
    verb = "already holds" if report.was_whole else "now holds"
    manifest = report.manifest
    print(
        f"{report.out} {verb} {manifest.name} in {manifest.dtype}: "
        f"{len(manifest.shards)} shards, {report.size_bytes:,} bytes"
    )
    return 0


def _inspect(arguments: argparse.Namespace) -> int:
    from quickthaw.handler.errors import outcome
    from quickthaw.handler.inspection import describe_shards
    from quickthaw.layers import manifest
    from quickthaw.layers.config import Verify
    from quickthaw.layers.inspection import check_all
    from quickthaw.layers.progress import for_terminal

    print(describe_shards(manifest.read(arguments.shards)), flush=True)
    verify = Verify.ALWAYS if arguments.verify else Verify.NEVER
    errors = check_all(arguments.shards, verify, for_terminal("verify") if arguments.verify else None)
    for error in errors:
        print(f"quickthaw: {error}", file=sys.stderr)
    if errors:
        return outcome(errors[0]).exit_code
    if arguments.verify:
        print("every file has the bytes that the manifest records")
    return 0
