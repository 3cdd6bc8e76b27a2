"""Runs the settings of a sweep on a Ray cluster. Needs the extra: `pip install 'weft[ray]'`.

The wheel has to be installed on each node. Files that the command line names by relative paths are
found where Ray puts its `working_dir`; others have to be on every node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import ray

from weft.run import WeftError, binary_sum, error_of, finished


class Ray:
    """The cluster that this process is connected to, else a new one.

    A setting is run again elsewhere if its worker or node dies. Each reserves one CPU of the
    cluster, although weft has a thread for each of its runs.
    """

    def __init__(self, *, retries: int = 10, **init: Any) -> None:
        """Chooses a cluster.

        Args:
            retries: How often a setting is run again after its worker died; -1 is without an end.
            init: Arguments of `ray.init`, as `address="auto"`; by default a cluster of this
                machine's CPUs.
        """
        self.retries = retries
        self.init = init

    def __call__(self, commands: Sequence[Sequence[str]]) -> Iterator[tuple[int, str]]:
        if not ray.is_initialized():
            quiet: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False}
            ray.init(**(quiet | self.init))
        again: dict[str, Any] = {"max_retries": self.retries, "retry_exceptions": [WeftError]}
        task = ray.remote(num_cpus=1, **again)(run_setting)
        waiting = {
            task.remote(list(command), binary_sum()): at for at, command in enumerate(commands)
        }
        try:
            while waiting:
                done, _ = ray.wait(list(waiting), num_returns=1)
                for reference in done:
                    at = waiting.pop(reference)
                    try:
                        status, out, err = ray.get(reference)
                    except ray.exceptions.RayTaskError as error:
                        raise error.cause from None
                    if status != 0:
                        raise error_of(err, status, commands[at])
                    yield at, out
        finally:
            for reference in waiting:
                ray.cancel(reference)


def run_setting(command: list[str], expected: str) -> tuple[int, str, str]:
    """Runs a command on a node, if the node has the same program as the driver.

    Raises:
        WeftError: A signal ended weft, as where memory is short, so that another try may help.
    """
    if binary_sum() != expected:
        text = (
            f"found a program with SHA-256 {binary_sum()} on this node, expected {expected}; "
            "install the same wheel on each node"
        )
        return 1, "", text
    status, out, err = finished(command)
    if status < 0:
        raise error_of(err, status, command)
    return status, out, err
