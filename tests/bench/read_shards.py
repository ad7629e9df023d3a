# SPDX-License-Identifier: Apache-2.0
"""All tensors of a shard set in memory, as others get them there; prints the milliseconds after imports."""

import sys
import time
from pathlib import Path
from threading import Thread

BLOCK_BYTES = 4 << 20


def eager(paths: list[Path]) -> None:
    """`file.read()`, one file after the other."""
    kept = [path.read_bytes() for path in paths]
    del kept


def safetensors_mmap(paths: list[Path]) -> None:
    """safetensors' own mmap, every page touched."""
    from safetensors import safe_open

    for path in paths:
        with safe_open(path, "np") as file:
            for name in file.keys():  # noqa: SIM118 - it is no dict
                file.get_tensor(name).ravel()[::1024].sum()


def runai(paths: list[Path]) -> None:
    """Run:ai Model Streamer, with its own defaults."""
    from runai_model_streamer import SafetensorsStreamer

    with SafetensorsStreamer() as streamer:
        streamer.stream_files([str(path) for path in paths])
        for _name, _tensor in streamer.get_tensors():
            pass


def concurrent(paths: list[Path], n_threads: int) -> None:
    """Blocks of 4 MiB into nothing: the best that this storage does."""
    blocks = iter([(path, at) for path in paths for at in range(0, path.stat().st_size, BLOCK_BYTES)])

    def read() -> None:
        buffer = bytearray(BLOCK_BYTES)
        for path, at in blocks:
            with open(path, "rb", buffering=0) as file:
                file.seek(at)
                file.readinto(buffer)

    threads = [Thread(target=read) for _ in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> None:
    how, directory = sys.argv[1:]
    paths = sorted(Path(directory).glob("*.safetensors"))
    if how == "safetensors":
        import safetensors  # noqa: F401

        read = safetensors_mmap
    elif how == "runai":
        import runai_model_streamer  # noqa: F401

        read = runai
    elif how == "eager":
        read = eager
    else:
        read = lambda paths: concurrent(paths, int(how))  # noqa: E731
    begin_s = time.monotonic()
    read(paths)
    print((time.monotonic() - begin_s) * 1e3)


if __name__ == "__main__":
    main()
