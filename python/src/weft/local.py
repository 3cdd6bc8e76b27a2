"""Runs the settings of a sweep on the CPUs of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Protocol

from weft.run import error_of, finished


class Runner(Protocol):
    """Runs command lines of weft, in any order and anywhere."""

    def __call__(self, commands: Sequence[Sequence[str]]) -> Iterator[tuple[int, str]]:
        """Yields the index of each command and its standard output, as soon as it has ended.

        Raises:
            WeftError: A command failed.
        """
        ...


class Local:
    """Processes of this machine, as many at a time as there are CPUs, or as `processes` says."""

    def __init__(self, processes: int | None = None) -> None:
        self.processes = processes or len(os.sched_getaffinity(0))

    def __call__(self, commands: Sequence[Sequence[str]]) -> Iterator[tuple[int, str]]:
        pool = ThreadPoolExecutor(self.processes)
        try:
            waiting = {pool.submit(finished, command): at for at, command in enumerate(commands)}
            for future in as_completed(waiting):
                at = waiting[future]
                status, out, err = future.result()
                if status != 0:
                    raise error_of(err, status, commands[at])
                yield at, out
        finally:
            # What has not begun does not begin; what runs ends by itself.
            pool.shutdown(cancel_futures=True)
