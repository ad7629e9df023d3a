# SPDX-License-Identifier: Apache-2.0
"""The `quickthaw` command, run: what a sub-command needs is imported only then."""

import argparse
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from quickthaw.handler.command.command_line import make_parser
from quickthaw.handler.command.printer import Printer
from quickthaw.handler.command.termination import ended_by_sigterm

if TYPE_CHECKING:
    from quickthaw.handler.command.invoke import ColdStart

_BAD_CONFIGURATION = 78  # EX_CONFIG
_INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it
_READER_GONE = 141  # 128 + SIGPIPE
_EXTRAS = {"gguf": "shard", "safetensors": "shard", "tqdm": "shard", "boto3": "s3"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code. A failure is one line on stderr; --debug adds the stack."""
    arguments = make_parser().parse_args(argv)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A model may say anything, and a terminal may be plain ASCII.
            stream.reconfigure(errors="replace")
    try:
        with ended_by_sigterm():
            exit_code = _COMMANDS[arguments.command](arguments)
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
    if isinstance(exc, ModuleNotFoundError) and exc.name in _EXTRAS:
        extra = _EXTRAS[exc.name]
        return f"this needs {exc.name}: install quickthaw with its extra, as in pip install '.[{extra}]'"
    return str(exc)


def _environ(arguments: argparse.Namespace) -> dict[str, str]:
    """The function's environment: ours, and the shard set that was asked for. Raises: ManifestError."""
    if arguments.shards is None:
        return dict(os.environ)
    from quickthaw.handler.command.shard_path import shard_location

    return {**os.environ, "QUICKTHAW_SHARDS": shard_location(arguments.shards)}


def _invoke(arguments: argparse.Namespace) -> int:
    output = sys.stderr if arguments.json else sys.stdout
    on_text = Printer(output).take if arguments.stream else _ignore
    start = _run(_event(arguments), arguments, on_text)
    if arguments.stream:
        print(file=output, flush=True)
    if arguments.trace is not None:
        from quickthaw.handler.command.trace import trace_document

        arguments.trace.write_text(json.dumps(trace_document(start)))
    if arguments.json:
        print(json.dumps(start.to_json()))
        return 0
    from quickthaw.handler.command.table import format_start

    if not arguments.stream:
        token_ids = ",".join(map(str, start.answer.token_ids))  # all there is where a model has no tokenizer
        Printer(sys.stdout).take_line(start.answer.text or token_ids)
    print(format_start(start), file=sys.stderr)
    return 0


def _run(event: object, arguments: argparse.Namespace, on_text: Callable[[str], object]) -> "ColdStart":
    """Run the start. What a user's code logged is shown when it is over; under --debug everything, at once.

    A function that reports its error has also logged it, with a stack: that is left out. One that just
    ended has said why in its log, if anywhere.
    """
    from quickthaw.handler.command.invoke import is_own_line, run_cold_start
    from quickthaw.snapshot.errors import FunctionExitedError

    show = Printer(sys.stderr).take
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


def _ignore(text: str) -> None:
    del text


def _host(arguments: argparse.Namespace) -> int:
    from quickthaw.handler.command.hosting import read_options, serve

    say, log = Printer(sys.stdout), Printer(sys.stderr)
    environ = _environ(arguments)
    serve(read_options(arguments, environ), environ, say.take_line, log.take)
    return 0


def _serve(arguments: argparse.Namespace) -> int:
    from quickthaw.handler.config import HandlerConfig, keep_blas_single_threaded

    keep_blas_single_threaded()
    from quickthaw.handler.command.serve import read_options, serve

    options = read_options(arguments)
    serve(options, HandlerConfig.from_env(_environ(arguments)), Printer(sys.stdout).take_line)
    return 0


def _snapshot(arguments: argparse.Namespace) -> int:
    return _SNAPSHOT_ACTIONS[arguments.action](arguments)


def _snapshot_capture(arguments: argparse.Namespace) -> int:
    from quickthaw.handler.command import snapshot_command
    from quickthaw.handler.command.invoke import HANDLER

    say, log = Printer(sys.stdout), Printer(sys.stderr)
    snapshot_command.capture(
        arguments.directory,
        arguments.handler or HANDLER,
        arguments.task_root,
        arguments.warmup_event,
        _environ(arguments),
        arguments.timeout,
        say.take_line,
        log.take,
    )
    return 0


def _snapshot_restore(arguments: argparse.Namespace) -> int:
    from quickthaw.handler.command import snapshot_command

    say, log = Printer(sys.stdout), Printer(sys.stderr)
    directory, timeout_s = arguments.directory, arguments.timeout
    if arguments.event is None:
        snapshot_command.host(directory, arguments.port, os.environ, timeout_s, say.take_line, log.take)
        return 0
    chunks = snapshot_command.answer(
        directory, arguments.event, os.environ, timeout_s, log.take_line, log.take
    )
    for chunk in chunks:
        say.take(chunk.decode(errors="replace"))
    print()
    return 0


def _snapshot_image(arguments: argparse.Namespace) -> int:
    from quickthaw.handler.config import HandlerConfig, keep_blas_single_threaded

    keep_blas_single_threaded()
    from quickthaw.handler.command.image_command import make_image

    system = [{"role": "system", "content": arguments.chat_system}]
    event = {"messages": system} if arguments.event is None else arguments.event
    print(make_image(arguments.out, HandlerConfig.from_env(_environ(arguments)), event))
    return 0


def _snapshot_inspect(arguments: argparse.Namespace) -> int:
    from quickthaw.handler.command import snapshot_command

    print(snapshot_command.describe(arguments.directory), flush=True)
    snapshot_command.check_is_current(arguments.directory, os.environ)
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
    for note in report.notes:
        print(f"quickthaw: {note}", file=sys.stderr)
    return 0


def _inspect(arguments: argparse.Namespace) -> int:
    from quickthaw.handler.command.inspection import describe_shards
    from quickthaw.handler.command.shard_path import shard_location
    from quickthaw.handler.errors import outcome
    from quickthaw.layers import manifest
    from quickthaw.layers.config import Verify
    from quickthaw.layers.inspection import check_all
    from quickthaw.layers.progress import for_terminal
    from quickthaw.layers.storage.storage import is_remote

    shards = shard_location(arguments.shards)
    print(describe_shards(manifest.read(shards)), flush=True)
    if is_remote(shards) and not arguments.verify:  # to look at a file is to fetch it
        return 0
    verify = Verify.ALWAYS if arguments.verify else Verify.NEVER
    errors = check_all(shards, verify, for_terminal("verify") if arguments.verify else None)
    for error in errors:
        print(f"quickthaw: {error}", file=sys.stderr)
    if errors:
        return outcome(errors[0]).exit_code
    if arguments.verify:
        print("every file has the bytes that the manifest records")
    return 0


def _push(arguments: argparse.Namespace) -> int:
    from quickthaw.handler.command.shard_path import check_is_shard_set
    from quickthaw.handler.command.transfer.push import push
    from quickthaw.layers.progress import for_terminal

    check_is_shard_set(arguments.shards)
    progress = for_terminal(arguments.url)
    print(push(arguments.shards, arguments.url, force=arguments.force, progress=progress))
    return 0


def _pull(arguments: argparse.Namespace) -> int:
    from quickthaw.handler.command.transfer.pull import pull
    from quickthaw.layers.progress import for_terminal

    progress = for_terminal(arguments.url)
    print(pull(arguments.url, arguments.out, force=arguments.force, progress=progress))
    return 0


def _check(arguments: argparse.Namespace) -> int:
    from quickthaw.handler.command.check.report import check, format_findings, is_refused

    found = check(arguments.template, dict(arguments.parameters), arguments.env, arguments.shards)
    print(format_findings(found) or "nothing is refused, open or slow")
    return _BAD_CONFIGURATION if is_refused(found) else 0


_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "shard": _shard,
    "inspect": _inspect,
    "push": _push,
    "pull": _pull,
    "check": _check,
    "invoke": _invoke,
    "host": _host,
    "serve": _serve,
    "snapshot": _snapshot,
}
_SNAPSHOT_ACTIONS: dict[str, Callable[[argparse.Namespace], int]] = {
    "capture": _snapshot_capture,
    "restore": _snapshot_restore,
    "inspect": _snapshot_inspect,
    "image": _snapshot_image,
}
