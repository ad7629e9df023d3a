# SPDX-License-Identifier: Apache-2.0
"""Runs a handler on AWS's runtime client: `python -m quickthaw.snapshot.bootstrap package.module.function`.

What `python -m awslambdaric` does, with four seams of our own: orjson writes the results, a
StreamedResponse is streamed, an initialised process waits where AWS would capture it (under
AWS_LAMBDA_INITIALIZATION_TYPE=snap-start; for our own engines at a gate), and the connection to the Runtime
API is made only after that.
"""

import gc
import os
import sys

from quickthaw.snapshot.marks import mark


def main(arguments: list[str]) -> None:
    """Initialise the handler that `arguments` name, then answer events until the process is ended."""
    mark("interpreter start")
    # Imports make many objects and next to no garbage: looking for it is 6 % of an init. On again when ready.
    gc.disable()
    _search_working_folder_last()

    # Here, below the mark, so that their cost has a name in the timeline.
    from quickthaw.snapshot import client, config, errors, streaming

    mark("awslambdaric")
    try:
        setup = config.SnapshotConfig.from_process(arguments, os.environ)
    except errors.BootstrapError as exc:
        sys.exit(f"quickthaw bootstrap: {exc}")
    streaming.enable()
    config.prepare(os.environ)
    if setup.is_captured:
        # Before the user's folder can be searched, and so that `hooks` makes anew before all other hooks do.
        import orjson  # noqa: F401 - the first result would, in each clone

        from quickthaw.snapshot import forks, gate, hooks, transport, warmup  # noqa: F401

        if setup.restore_gate is None:
            client.prepare_transport()
    # A user's handler finds the user's modules first. Ours needs none: numpy must not be a file called so.
    sys.path.insert(len(sys.path) if setup.handler.startswith("quickthaw.") else 0, setup.task_root)
    client.run(setup)


def _search_working_folder_last() -> None:
    """Undo what `python -m` did: a user's own json.py must not stand in for the one that is imported here."""
    if sys.path[0] == os.getcwd():
        sys.path.append(sys.path.pop(0))


if __name__ == "__main__":
    main(sys.argv)
