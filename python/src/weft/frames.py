"""Makes pandas frames of weft's CSV and JSON. Names of columns end with their unit."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

# Columns of CSV that are no figures.
TEXTS = {"job", "direction"}

# The metrics of a sweep that have an interval.
SWEPT = ["throughput_mb_s", "mean_ns", "p50_ns", "p99_ns", "p99_9_ns"]


def of_csv(text: str) -> pd.DataFrame:
    """Frame of the output of `--csv`: a row for each job and direction."""
    import pandas as pd

    # pandas' own reader loses bits of figures, and takes a job called NA for a missing value.
    rows = csv.DictReader(io.StringIO(text))
    return pd.DataFrame(
        {name: of if name in TEXTS else number(of) for name, of in row.items()} for row in rows
    )


def number(text: str) -> int | float | str | None:
    """A figure, to the last bit; a text that is none, such as a name of a setting, as it is."""
    if text.isdigit():
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text or None


def of_sweep(sheet: Mapping[str, Any]) -> pd.DataFrame:
    """Frame of `weft.sweep/1`: a row for each job and setting, with a column for each knob.

    A metric has a column for its value, and `_low` and `_high` for its 95 % interval, which is
    missing after a single run. `attrs["best"]` has the best setting of each metric and job.
    """
    import pandas as pd

    knobs = sheet["knob"].split(", ")
    rows = []
    for job in sheet["jobs"]:
        for setting in job["settings"]:
            row: dict[str, Any] = {"job": job["job"]}
            row |= zip(knobs, setting["setting"].split(", "), strict=True)
            row["runs"] = sheet["runs"]
            row["share"] = setting["share"]
            row["requests_s"] = setting["requests_s"]
            for metric in SWEPT:
                low, high = setting[metric].get("ci95", (None, None))
                row |= {
                    metric: setting[metric]["value"],
                    f"{metric}_low": low,
                    f"{metric}_high": high,
                }
            rows.append(row)
    frame = pd.DataFrame(rows)
    for knob in knobs:
        frame[knob] = numbers(frame[knob])
    # A lack of figures is NaN, not an object.
    figures = ["share", *(f"{metric}_{end}" for metric in SWEPT for end in ("low", "high"))]
    frame[figures] = frame[figures].astype(float)
    frame.attrs = {
        "knobs": knobs,
        "seed": sheet["seed"],
        "best": {job["job"]: job["best"] for job in sheet["jobs"]},
    }
    return frame


def numbers(column: pd.Series) -> pd.Series:
    """The values of a knob as numbers, if all of them are."""
    import pandas as pd

    try:
        return pd.to_numeric(column)
    except ValueError:
        return column


def of_compare(sheet: Mapping[str, Any]) -> pd.DataFrame:
    """Frame of `weft.compare/1`: a row for each case and set.

    `gain_pct` is the change to the first set's value, with its 95 % interval where runs were
    repeated. `attrs` has the metric, the geometric means and the remarks.
    """
    import pandas as pd

    rows = []
    for row in sheet["rows"]:
        for one, cell, change in zip(sheet["sets"], row["cells"], row["changes"], strict=True):
            cell, change = cell or {}, change or {}
            low, high = change.get("ci95") or (None, None)
            rows.append(
                {
                    "group": row["group"],
                    "case": row["case"],
                    "set": one["name"],
                    "runs": len(cell.get("values", [])),
                    "mean": cell.get("mean"),
                    "spread_pct": cell.get("spread_pct"),
                    "gain_pct": change.get("gain_pct"),
                    "gain_pct_low": low,
                    "gain_pct_high": high,
                    "significant": change.get("significant"),
                    "paired": change.get("paired"),
                }
            )
    frame = pd.DataFrame(rows)
    if rows:
        figures = ["mean", "spread_pct", "gain_pct", "gain_pct_low", "gain_pct_high"]
        frame[figures] = frame[figures].astype(float)
    frame.attrs = {name: sheet[name] for name in ("metric", "by", "geometric_means", "remarks")}
    return frame


def of_reproduce(sheet: Mapping[str, Any]) -> pd.DataFrame:
    """Frame of `weft.reproduce/2`: a row for each published figure, beside the measured one.

    A verdict is missing below ten runs. `attrs` has the seed, the runs, and the hash of all that
    was measured.
    """
    import pandas as pd

    rows = []
    for row in sheet["rows"]:
        published, measured = row["published"] or {}, row["measured"] or {}
        low, high = measured.get("ci95") or (None, None)
        rows.append(
            {
                "patch": row["patch"],
                "experiment": row["experiment"],
                "case": row["case"],
                "kind": row["kind"],
                "metric": row["metric"],
                "unit": row["unit"],
                "better": row["better"],
                "published_baseline": published.get("baseline"),
                "published_patched": published.get("patched"),
                "published_gain_pct": published.get("gain_pct"),
                "baseline": measured.get("baseline"),
                "patched": measured.get("patched"),
                "gain_pct": measured.get("gain_pct"),
                "gain_pct_low": low,
                "gain_pct_high": high,
                "verdict": row["verdict"],
            }
        )
    frame = pd.DataFrame(rows, columns=REPRODUCED)
    for name in REPRODUCED[7:15]:
        frame[name] = frame[name].astype(float)
    frame.attrs = {name: sheet[name] for name in ("seed", "runs", "size", "result_sha256")}
    return frame


# Columns of a reproduction, in order.
REPRODUCED = [
    "patch",
    "experiment",
    "case",
    "kind",
    "metric",
    "unit",
    "better",
    "published_baseline",
    "published_patched",
    "published_gain_pct",
    "baseline",
    "patched",
    "gain_pct",
    "gain_pct_low",
    "gain_pct_high",
    "verdict",
]
