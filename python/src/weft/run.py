"""Runs the program weft, and turns its failures into exceptions."""

from __future__ import annotations

import hashlib
import importlib.metadata
import shutil
import subprocess
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path


class WeftError(Exception):
    """A failure of weft.

    Attributes:
        message: What weft says: what was found, what was expected, what to do.
        status: Exit status: 1 failed, 2 usage, 3 refused; below 0 the signal that ended weft.
        command: Words of the command line without the program.
    """

    def __init__(self, message: str, status: int, command: Sequence[str]) -> None:
        # All arguments are passed on, so that the exception can be pickled.
        super().__init__(message, status, list(command))
        self.message = message
        self.status = status
        self.command = list(command)

    def __str__(self) -> str:
        return f"{self.message} (exit status {self.status})"


class UsageError(WeftError):
    """The command line is wrong: an option or a value that weft does not know."""


class Refused(WeftError):
    """weft refused for safety, and wrote nothing."""


class WeftWarning(UserWarning):
    """What weft says on standard error although it succeeds."""


def error_of(message: str, status: int, command: Sequence[str]) -> WeftError:
    """The exception for an exit status and for what was said on standard error."""
    # The last message is the failure; those before it are warnings.
    text = ("\n" + message.strip()).rpartition("\nweft: ")[2].strip()
    if status < 0:
        text = f"weft was ended by signal {-status}" + (f": {text}" if text else "")
    kind = {2: UsageError, 3: Refused}.get(status, WeftError)
    return kind(text, status, command)


@lru_cache(maxsize=1)
def binary() -> Path:
    """Path of the program: that of the installed wheel, else the one on PATH.

    Raises:
        FileNotFoundError: There is none.
    """
    try:
        files = importlib.metadata.files("weft") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "weft" and file.parent.name == "bin":
            path = Path(str(file.locate())).resolve()
            if path.is_file():
                return path
    found = shutil.which("weft")
    if found is None:
        raise FileNotFoundError(
            "weft: found no program in the installed package or on PATH; install the wheel, or put "
            "weft on PATH"
        )
    return Path(found).resolve()


@lru_cache(maxsize=1)
def binary_sum() -> str:
    """SHA-256 of the program, which tells builds apart."""
    return hashlib.sha256(binary().read_bytes()).hexdigest()


def words_of(options: Mapping[str, object]) -> list[str]:
    """Words of the command line for keyword arguments."""
    words = []
    for name, value in options.items():
        option = "--" + name.rstrip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(option)
        elif isinstance(value, Mapping):
            words += [f"{option}={key}={of}" for key, of in value.items()]
        elif isinstance(value, Iterable) and not isinstance(value, str):
            words += [f"{option}={one}" for one in value]
        else:
            words.append(f"{option}={value}")
    return words


def finished(command: Sequence[str]) -> tuple[int, str, str]:
    """Runs weft to its end: exit status, standard output, standard error."""
    ended = subprocess.run(
        [str(binary()), *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        check=False,
    )
    return ended.returncode, ended.stdout, ended.stderr


def run(*words: object, **options: object) -> str:
    """Runs any command of weft and returns its standard output.

    Args:
        words: The command and its arguments, as `"explain", "1M", "64K"`.
        options: Options of the command.

    Raises:
        WeftError: weft failed.
    """
    command = [str(word) for word in words] + words_of(options)
    status, out, err = finished(command)
    if status != 0:
        raise error_of(err, status, command)
    for line in err.splitlines():
        warnings.warn(line.removeprefix("weft: "), WeftWarning, stacklevel=2)
    return out
