"""Rows of a record of `weft reproduce --json`, as pages and plots have them."""

import functools
import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECORDS = ROOT / "experiments" / "results"


@functools.cache
def sheet_of(path):
    return json.load(open(path))


def record_path(patch, size):
    return RECORDS / f"{patch}-{size}.json"


def marks(row):
    """Marks of a row, as `weft reproduce` prints them (docs/reproduce.md)."""
    on = row["hangs_on"]
    found = {True: ["a"], False: [], None: ["u"]}[on["assumed"]]
    return found + ["c"] * bool(on["chosen_afterwards"])


def verdict(row):
    if not row["counted"]:
        return ""
    word = row["verdict"].replace("agrees-otherwise", "agrees otherwise")
    return word + (f" ({', '.join(marks(row))})" if marks(row) else "")


def figure(value, sign=""):
    return f"{round(value, 1) + 0.0:{sign}.1f}"


def gain(percent):
    if percent is None:
        return "no magnitude"
    return f"x {figure(1 + percent / 100)}" if percent >= 100 else f"{figure(percent, '+')} %"


def with_interval(found):
    if found["gain_pct"] is None:
        return gain(None)
    times = found["gain_pct"] >= 100
    low, high = (figure(1 + end / 100 if times else end) for end in found["ci95"])
    return f"{gain(found['gain_pct'])} ({low}…{high})"


def measured(row):
    if row["kind"] != "count":
        return with_interval(row["measured"])
    runs = row["measured"]["runs"]["patched"]
    return f"{figure(row['measured']['patched'])} ({min(runs):.0f}…{max(runs):.0f})"


def own(row):
    """weft's own policy against the better one of the two columns."""
    policy = row["beyond"]
    return f"{policy['name']} {with_interval(policy['to_better'])}" if policy else ""


def published(row):
    if row["kind"] == "count":
        return "16"
    percent = row["published"]["gain_pct"]
    return "" if percent is None else gain(percent)


def is_shown(row):
    """Whether a page has the row: it claims a published figure, or a policy of weft's own is faster
    or slower there. Single cells of the mail of patch 001 have means and a count instead."""
    if row["kind"] == "count":
        return True
    assert row["verdict"] or not row["counted"], row["cell"]
    claims = row["counted"] and row["published"]["gain_pct"] is not None
    beside = row["beyond"] and row["metric"] == "throughput"
    return (claims or beside) and "/" not in row["case"]
