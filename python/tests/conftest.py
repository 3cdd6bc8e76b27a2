"""What the tests share: loads, and a folder of their own for results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import matplotlib
import pytest

from weft import Local

matplotlib.use("Agg")

JOB = """\
[writes]
rw=randwrite
bs=4k
direct=1
ioengine=libaio
iodepth=8
size=16m
runtime=20ms
time_based=1
"""


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test works in a folder of its own, and keeps its results there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job file, named relative to the working directory."""
    (tmp_path / "job.fio").write_text(JOB)
    return Path("job.fio")


class Counted:
    """Runs on this machine, counts what it runs, and stops before the run number `stop`."""

    def __init__(self, stop: int | None = None) -> None:
        self.ran: list[Sequence[str]] = []
        self.stop = stop

    def __call__(self, commands: Sequence[Sequence[str]]) -> Iterator[tuple[int, str]]:
        for at, command in enumerate(commands):
            if len(self.ran) == self.stop:
                raise KeyboardInterrupt
            for _, text in Local(1)([command]):
                yield at, text
            self.ran.append(command)
