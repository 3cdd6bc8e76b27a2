"""The commands of weft that measure, one function each."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft import frames
from weft.results import is_text
from weft.run import run

if TYPE_CHECKING:
    import pandas as pd

PathLike = str | os.PathLike[str]


def document(command: str, *words: object, **options: object) -> dict[str, Any]:
    """The JSON of any command, as a dictionary: `document("sim", "job.fio", raid_devices=6)`.

    The job file of `sim` may be a text. Of a simulation this has more than the frame: members,
    drives with all their keys, the course of a sync.

    Raises:
        WeftError: weft failed.
    """
    sheet: dict[str, Any] = json.loads(with_job(command, *words, json=True, **options))
    return sheet


def sim(job: PathLike, **options: object) -> pd.DataFrame:
    """Runs a job file of fio on a simulated array: `weft sim`.

    Args:
        job: Path of a job file, or its text.
        options: Options of `weft sim`, as `device="ssd-nvme-dc-2019"`.

    Returns:
        A row for each job and direction.

    Raises:
        WeftError: weft failed.
    """
    return frames.of_csv(with_job("sim", job, csv=True, **options))


def replay(*traces: PathLike, **options: object) -> pd.DataFrame:
    """Replays a trace on a simulated array: `weft replay`.

    Args:
        traces: Files of one trace.
        options: Options of `weft replay`, as `by="process"`.

    Returns:
        A row for each client and direction.

    Raises:
        WeftError: weft failed.
    """
    return frames.of_csv(run("replay", *traces, csv=True, **options))


def reproduce(*patches: str, **options: object) -> pd.DataFrame:
    """Measures published patches again: `weft reproduce`.

    Args:
        patches: Numbers or names of patches; none stands for all.
        options: Options of `weft reproduce`, as `quick=True` and `only="isolated"`.

    Returns:
        A row for each published figure, beside the measured one.

    Raises:
        WeftError: weft failed.
    """
    return frames.of_reproduce(document("reproduce", *patches, **options))


def compare(*runs: PathLike, **options: object) -> pd.DataFrame:
    """Compares sets of runs, case by case: `weft compare`.

    Args:
        runs: Folders with runs, or JSON outputs of fio.
        options: Options of `weft compare`, as `metric="write.clat_ns.percentile.99"`.

    Returns:
        A row for each case and set.

    Raises:
        WeftError: weft failed.
    """
    return frames.of_compare(document("compare", *runs, **options))


def with_job(command: str, *words: object, **options: object) -> str:
    """Runs a command; the text of a job file becomes a file for as long as the command runs."""
    texts = [word for word in words if isinstance(word, str) and is_text(word)]
    if not texts:
        return run(command, *words, **options)
    with tempfile.TemporaryDirectory(prefix="weft.") as folder:
        paths = []
        for at, word in enumerate(words):
            if word in texts:
                path = Path(folder) / f"job{at or ''}.fio"
                path.write_text(str(word))
                word = path
            paths.append(word)
        return run(command, *paths, **options)
