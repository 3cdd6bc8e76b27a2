"""Judges a copy by the report of `weft rescue --to`: judged.py ORIGINAL COPY REPORT.

Bytes that the report calls damaged are zeros in the copy, and every other byte of every file is that of the
original. At least one file is damaged.
"""

import json
import os
import sys

original, copy, report = sys.argv[1:]


def files(folder):
    """Names of all files in a folder."""
    return {os.path.relpath(os.path.join(at, name), folder)
            for at, _, names in os.walk(folder) for name in names}


damaged = {}
with open(report) as lines:
    for line in map(json.loads, lines):
        assert line["what"] in ("damaged", "end"), line
        if line["what"] == "damaged":
            damaged[line["path"]] = [(part["start"], part["end"]) for part in line["ranges"]]
assert damaged, "no damaged file"
assert files(copy) == files(original), files(copy) ^ files(original)
assert set(damaged) <= files(original), damaged
for name in sorted(files(original)):
    with open(os.path.join(original, name), "rb") as file:
        expected = bytearray(file.read())
    for start, end in damaged.get(name, []):
        assert start < end <= len(expected), (name, start, end)
        expected[start:end] = bytes(end - start)
    with open(os.path.join(copy, name), "rb") as file:
        assert file.read() == expected, name
print({name: sum(end - start for start, end in ranges) for name, ranges in damaged.items()})
