"""Plots of frames. Needs the extra: `pip install 'weft[plots]'`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def sweep(
    frame: pd.DataFrame,
    metric: str = "throughput_mb_s",
    *,
    job: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draws a metric of a sweep with its 95 % intervals.

    The first knob is across, and each combination of the others is a line.

    Args:
        frame: What `weft.sweep` returned.
        metric: A column, as `"p99_ns"`; nanoseconds are drawn as milliseconds.
        job: Job to draw; by default the first one.
        ax: Axes to draw on; by default new ones.
    """
    across, *others = frame.attrs["knobs"]
    of_job = frame[frame["job"] == (job if job is not None else frame["job"].iloc[0])]
    scale, unit = 1.0, metric
    if metric.endswith("_ns"):
        scale, unit = 1e6, metric.removesuffix("_ns") + ", ms"
    ax = ax if ax is not None else plt.subplots()[1]
    groups: Any = of_job.groupby(others, sort=False) if others else [((), of_job)]
    for values, line in groups:
        label = ", ".join(f"{knob}={of}" for knob, of in zip(others, values, strict=True))
        middle = line[metric] / scale
        ends = [middle - line[f"{metric}_low"] / scale, line[f"{metric}_high"] / scale - middle]
        errors = None if line[f"{metric}_low"].isna().all() else ends
        across_it = line[across].astype(str)
        ax.errorbar(across_it, middle, yerr=errors, marker="o", capsize=3, label=label or None)
    ax.set_xlabel(across)
    ax.set_ylabel(unit)
    ax.set_ylim(bottom=0)
    if others:
        ax.legend()
    return ax


def compare(frame: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draws the changes of a comparison in percent, a bar for each case and set."""
    changes = frame.dropna(subset=["gain_pct"])
    return bars(changes, changes["case"] + ", " + changes["set"], frame.attrs["metric"], ax)


def reproduce(frame: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draws measured effects in percent, each with the published one as a diamond."""
    ax = bars(frame, frame["patch"] + " " + frame["case"], "effect", ax)
    rows = range(len(frame))
    ax.plot(frame["published_gain_pct"], rows, "D", color="black", label="published", zorder=3)
    ax.legend()
    return ax


def bars(frame: pd.DataFrame, names: pd.Series, what: str, ax: Axes | None) -> Axes:
    """Draws `gain_pct` of each row as a bar, with its interval if there is one."""
    ax = ax if ax is not None else plt.subplots(figsize=(7, 1 + 0.4 * len(frame)))[1]
    gain = frame["gain_pct"]
    ends = [gain - frame["gain_pct_low"], frame["gain_pct_high"] - gain]
    rows = range(len(frame))
    errors = [end.fillna(0) for end in ends]
    ax.barh(rows, gain, xerr=errors, capsize=3, color="tab:blue", alpha=0.6)
    ax.set_yticks(rows, names)
    ax.invert_yaxis()
    ax.axvline(0, color="black", linewidth=0.8)
    ax.set_xlabel(f"{what}, %")
    return ax
