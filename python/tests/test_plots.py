"""Tests of plots: what is drawn has the figures of the frame."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import pytest

import weft
from weft import plots


@pytest.fixture(autouse=True)
def closed() -> object:
    """Closes the figures of a test."""
    yield
    plt.close("all")


def test_a_sweep_is_a_line_for_each_value_of_the_other_knobs(job: Path) -> None:
    frame = weft.sweep(job, {"stripe_size": ["4K", "64K"], "raid-devices": [4, 5]}, runs=2)
    ax = plots.sweep(frame, "p99_ns")
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["raid-devices=4", "raid-devices=5"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("stripe_size", "p99, ms")
    drawn = [list(container.lines[0].get_ydata()) for container in ax.containers]
    of = frame.set_index(["raid-devices", "stripe_size"])["p99_ns"] / 1e6
    assert drawn == [[of[count, "4K"], of[count, "64K"]] for count in (4, 5)]
    ax.figure.savefig("sweep.png")
    assert Path("sweep.png").stat().st_size > 5000


def test_one_run_has_no_intervals_and_one_knob_no_legend(job: Path) -> None:
    ax = plots.sweep(weft.sweep(job, {"chunk": ["64K", "128K"]}))
    assert ax.get_legend() is None and not ax.containers[0].has_yerr


def test_a_comparison_is_a_bar_for_each_change(job: Path) -> None:
    for size in ("4K", "64K"):
        weft.run("sim", job, set={"stripe_size": size}, runs=3, results=size)
    frame = weft.compare("4K", "64K")
    ax = plots.compare(frame)
    (bar,) = ax.patches
    assert bar.get_width() == frame["gain_pct"][1]
    assert [text.get_text() for text in ax.get_yticklabels()] == [frame["case"][0] + ", 64K"]


def test_a_reproduction_has_the_published_figure_beside_the_bar() -> None:
    frame = weft.reproduce("004", only="isolated", quick=True, runs=2)
    ax = plots.reproduce(frame)
    assert [bar.get_width() for bar in ax.patches] == [-93.75]
    diamonds = next(line for line in ax.lines if line.get_label() == "published")
    assert list(diamonds.get_xdata()) == [-93.75]
