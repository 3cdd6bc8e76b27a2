"""Results of settings, kept by content: a setting that ran before is not run again.

The name of a result is a hash of everything that it depends on: the program, its arguments, and the
contents of the files that these name, with what a job file includes and takes from the environment.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from weft.run import binary_sum

# Part of the name of a result that changes with the way in which names are made.
FORM = "1"


def default_folder() -> Path:
    """Folder of results: `weft/results` in the folder for caches of this user."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "weft" / "results"


class Results:
    """A folder of results. It may be shared by processes and machines, and removed at any time."""

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = Path(folder) if folder is not None else default_folder()

    def load(self, load: str | os.PathLike[str]) -> str:
        """Path of a load, which is a file, or the text of a job file.

        A text becomes a file of this folder with the same name each time.
        """
        if not is_text(load):
            return os.fspath(load)
        text = str(load).encode()
        path = self.folder.absolute() / "jobs" / f"{hashlib.sha256(text).hexdigest()[:16]}.fio"
        if not path.exists():
            write(path, text)
        return str(path)

    def path(self, command: Sequence[str]) -> Path:
        """Where the result of a command is, or would be."""
        name = key(command)
        return self.folder / name[:2] / f"{name}.json"

    def read(self, command: Sequence[str]) -> str | None:
        """Result of a command, as the part that the command asks for; `None` if it is not there.

        The place in a sweep is no part of a result: the same setting may be the second of three
        today and the third of four tomorrow.
        """
        try:
            result = json.loads(self.path(command).read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        result["part"] = part_of(command)
        return json.dumps(result)

    def write(self, command: Sequence[str], text: str) -> None:
        """Keeps the result of a command. A reader sees all of it or nothing."""
        write(self.path(command), text.encode())


def is_text(load: str | os.PathLike[str]) -> bool:
    """Whether a load is the text of a job file, and no path."""
    return isinstance(load, str) and "\n" in load


def write(path: Path, content: bytes) -> None:
    """Writes a file and then gives it its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".new")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def part_of(command: Sequence[str]) -> list[int]:
    """Number of a part and number of parts, from its command line."""
    part = next(word for word in command if word.startswith("--part="))
    number, count = part.removeprefix("--part=").split("/")
    return [int(number), int(count)]


def key(command: Sequence[str]) -> str:
    """Hash of all that the result of a command depends on, except its place in a sweep."""
    words = [word for word in command if not word.startswith("--part=")]
    named: dict[str, str] = {}
    for word in words:
        for path in files_named(word):
            named |= contents(path)
    whole = json.dumps([FORM, binary_sum(), words, sorted(named.items())])
    return hashlib.sha256(whole.encode("utf-8", "surrogateescape")).hexdigest()


def files_named(word: str) -> Iterator[Path]:
    """Files that a word of a command line may name.

    A word may be a path, an option with a path behind `=` (`--costs=FILE*2` has a factor behind
    it), or the common beginning of blktrace's files.
    """
    texts = [word[at + 1 :] for at, letter in enumerate(word) if letter == "="]
    for text in [word, *texts]:
        candidates = [text, re.sub(r"\*[0-9.]+$", "", text)]
        if not word.startswith("-"):
            candidates += sorted(glob.glob(glob.escape(text) + ".blktrace.*"))
        for candidate in dict.fromkeys(candidates):
            path = Path(candidate)
            try:
                if path.is_file():
                    yield path
            except (OSError, ValueError):
                # A text that cannot be a path, as one that is too long.
                continue


# A job file of weft has at most 16 MiB; anything larger is a trace, which includes nothing.
JOB_FILE_MAX = 16 << 20


def contents(path: Path) -> dict[str, str]:
    """Hashes of a file, of files that it includes, and values of the environment that it takes."""
    found: dict[str, str] = {}
    waiting = [path]
    while waiting:
        file = waiting.pop()
        if str(file) in found:
            continue
        try:
            stat = file.stat()
            found[str(file)] = sum_of(str(file), stat.st_mtime_ns, stat.st_size)
            text = file.read_bytes() if stat.st_size <= JOB_FILE_MAX else b""
        except OSError:
            continue
        for name in re.findall(rb"^\s*include\s+([^;#\n]+?)\s*(?:[;#].*)?$", text, re.MULTILINE):
            waiting.append(file.parent / os.fsdecode(name))
        for name in re.findall(rb"\$\{([^}]+)\}", text):
            variable = os.fsdecode(name)
            found["$" + variable] = os.environ.get(variable, "")
    return found


@lru_cache(maxsize=4096)
def sum_of(path: str, modified: int, size: int) -> str:
    """SHA-256 of a file. It is read again when its time or size has changed."""
    del modified, size
    whole = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            whole.update(block)
    return whole.hexdigest()
