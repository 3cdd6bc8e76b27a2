"""Sweeps by settings that run alone, on any runner, and are merged into what weft itself prints."""

from __future__ import annotations

import json
import os
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from weft import frames
from weft.local import Local, Runner
from weft.results import Results, key
from weft.run import WeftError, run, words_of

if TYPE_CHECKING:
    import pandas as pd


class Sweep:
    """Every combination of values of some knobs, each under the same load.

    Settings that ran before, here or in another sweep, are taken from the results that were kept.
    """

    def __init__(
        self,
        load: str | os.PathLike[str],
        knobs: Mapping[str, Sequence[object]],
        *,
        runs: int = 1,
        command: str = "sim",
        results: str | os.PathLike[str] | None = None,
        **options: object,
    ) -> None:
        """Lists the settings; none is run yet.

        Args:
            load: Path of a job file or its text; with `command="replay"` path of a trace.
            knobs: What `--sweep` takes, with its values.
            runs: Runs of each setting; three say whether a difference is more than chance.
            command: `"sim"` or `"replay"`.
            results: Folder of results; by default `weft/results` in the user's cache.
            options: Further options of the command.

        Raises:
            WeftError: There is no such setting, or weft does not know the options.
        """
        self.results = Results(results)
        swept = {"sweep": [f"{knob}={','.join(map(str, of))}" for knob, of in knobs.items()]}
        words = [command, self.results.load(load), *words_of({**options, "runs": runs, **swept})]
        if any(not letter.isprintable() for word in words for letter in word):
            raise ValueError(f"{words}: found a control character, expected printable text")
        lines = run(*words, "--list").splitlines()
        # The first word is the program, which the runner knows.
        self.commands: list[list[str]] = [shlex.split(line)[1:] for line in lines]

    def missing(self) -> list[list[str]]:
        """Commands without a result that is kept."""
        return [command for command in self.commands if self.results.read(command) is None]

    def run(self, on: Runner | None = None) -> Sweep:
        """Runs what is missing. Each result is kept as soon as it is there.

        Args:
            on: Where to run; by default as many processes of this machine as it has CPUs.

        Raises:
            WeftError: A setting failed. What has run until then is kept.
        """
        missing = self.missing()
        # A file that changes meanwhile changes the key: nothing is kept under the new one.
        keys = [key(command) for command in missing]
        if missing:
            for at, text in (on or Local())(missing):
                if key(missing[at]) == keys[at]:
                    self.results.write(missing[at], text)
        return self

    def merged(self, **form: object) -> str:
        """What `weft merge` makes of the results: the bytes that the sweep would have printed.

        Args:
            form: Options of `weft merge`, as `json=True` or `report="page.html"`.

        Raises:
            WeftError: A result is missing.
        """
        parts = [self.results.read(command) for command in self.commands]
        missing = parts.count(None)
        if missing:
            count = len(parts)
            raise WeftError(f"{missing} of {count} settings have not run", 1, self.commands[0])
        with tempfile.TemporaryDirectory(prefix="weft.") as folder:
            path = Path(folder) / "parts.json"
            path.write_text("\n".join(part for part in parts if part is not None))
            return run("merge", path, **form)

    def frame(self) -> pd.DataFrame:
        """The merged results: a row for each job and setting."""
        return frames.of_sweep(json.loads(self.merged(json=True)))


def sweep(
    load: str | os.PathLike[str],
    knobs: Mapping[str, Sequence[object]],
    *,
    on: Runner | None = None,
    **options: object,
) -> pd.DataFrame:
    """Runs a sweep and returns a row for each job and setting.

    Args:
        load: Path of a job file or its text; with `command="replay"` path of a trace.
        knobs: What `--sweep` takes, with its values, as `{"stripe_size": ["4K", "64K"]}`.
        on: Where to run: `Local(processes)`, `weft.on_ray.Ray()`, or a function like these.
        options: `runs`, `command` and `results`, as `Sweep` has them, and options of the command.

    Raises:
        WeftError: A setting failed. What has run until then is kept, and is not run again.
    """
    return Sweep(load, knobs, **options).run(on).frame()  # type: ignore[arg-type]
