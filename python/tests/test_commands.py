"""Tests of the commands as functions, and of failures as exceptions."""

from __future__ import annotations

import csv
import pickle
from pathlib import Path

import pytest

import weft
from conftest import JOB
from weft.run import error_of, words_of


def test_options_are_those_of_the_command_line() -> None:
    options = {"raid_devices": 6, "as_": "md", "csv": True, "json": False, "chunk": None}
    options |= {"set": {"stripe_size": "64K", "rmw_level": 1}, "sweep": ["a=1,2", "b=3"]}
    assert words_of(options) == [
        "--raid-devices=6",
        "--as=md",
        "--csv",
        "--set=stripe_size=64K",
        "--set=rmw_level=1",
        "--sweep=a=1,2",
        "--sweep=b=3",
    ]


def test_sim_has_the_figures_of_csv_to_the_last_bit(job: Path) -> None:
    frame = weft.sim(job, raid_devices=6, seed=7)
    text = weft.run("sim", job, raid_devices=6, seed=7, csv=True)
    (row,) = csv.DictReader(text.splitlines())
    assert list(frame.columns) == list(row)
    for name, value in row.items():
        assert str(frame[name][0]) == value, name
    assert frame["requests"][0] > 100
    # The text of the job is the same job.
    assert weft.sim(JOB, raid_devices=6, seed=7).equals(frame)
    assert not weft.sim(JOB, raid_devices=6, seed=8).equals(frame)


def test_settings_have_their_names_beside_figures(job: Path) -> None:
    frame = weft.sim(job, sweep="stripe_size=4K,64K")
    assert len(frame) == 2
    assert "64K" in frame.iloc[1].tolist()


def test_a_document_has_what_a_frame_leaves_out(job: Path) -> None:
    sheet = weft.document("sim", job, raid_devices=6)
    assert len(sheet["weft"]["members"]) == 6


def test_replay_tells_clients_apart(tmp_path: Path) -> None:
    lines = ["fio version 3 iolog", "0 a add", "0 b add", "0 a open", "0 b open"]
    lines += [f"{n * 500} {'ab'[n % 2]} write {n * 7919 % 4096 * 4096} 4096" for n in range(100)]
    Path("t.iolog").write_text("\n".join(lines) + "\n")
    frame = weft.replay("t.iolog", by="device")
    assert list(frame["job"]) == ["a", "b"] and list(frame["requests"]) == [50, 50]


def test_compare_has_a_row_for_each_case_and_set(job: Path) -> None:
    for size in ("4K", "64K"):
        weft.run("sim", job, set={"stripe_size": size}, runs=3, results=size)
    frame = weft.compare("4K", "64K", metric="write.clat_ns.percentile.99")
    assert list(frame["set"]) == ["4K", "64K"] and list(frame["runs"]) == [3, 3]
    base, other = frame.to_dict("records")
    assert base["gain_pct"] != base["gain_pct"], "the first set has no change"
    assert other["gain_pct"] == pytest.approx((other["mean"] / base["mean"] - 1) * 100, rel=0.2)
    assert other["gain_pct_low"] < other["gain_pct"] < other["gain_pct_high"]
    assert frame.attrs["metric"] == "write.clat_ns.percentile.99"


def test_reproduce_has_the_published_figure_beside_the_measured_one() -> None:
    frame = weft.reproduce("004", only="isolated", quick=True, runs=10)
    (row,) = frame.to_dict("records")
    assert row["patch"] == "004" and row["verdict"] == "agrees"
    assert row["published_gain_pct"] == row["gain_pct"] == -93.75
    assert len(frame.attrs["result_sha256"]) == 64


@pytest.mark.parametrize(
    ("words", "options", "kind", "status", "told"),
    [
        (("sim", "absent.fio"), {}, weft.WeftError, 1, "name a job file of fio"),
        (("sim", "job.fio"), {"no_such": 1}, weft.UsageError, 2, "unexpected argument '--no-such'"),
        (("sim", "job.fio"), {"set": {"stripe_size": "5K"}}, weft.UsageError, 2, "found 5K"),
        (("create", "small"), {"level": 1, "raid_devices": 1}, weft.UsageError, 2, ""),
        (("merge", "absent.json"), {}, weft.WeftError, 1, "absent.json: No such file"),
    ],
)
def test_a_failure_is_an_exception_with_message_and_status(
    words: tuple[str, ...],
    options: dict[str, object],
    kind: type[weft.WeftError],
    status: int,
    told: str,
    job: Path,
) -> None:
    with pytest.raises(weft.WeftError) as caught:
        weft.run(*words, **options)
    error = caught.value
    assert type(error) is kind and error.status == status
    assert told in error.message and not error.message.startswith("weft:")
    assert f"(exit status {status})" in str(error) and error.command[0] == words[0]
    # As what comes from another process.
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.args, str(again)) == (kind, error.args, str(error))


def test_a_refusal_for_safety_is_told_apart() -> None:
    weft.run("create", "m0", "m1", level=1, raid_devices=2, member_size="8M")
    with pytest.raises(weft.Refused) as caught:
        weft.run("create", "m0", "m1", level=1, raid_devices=2, member_size="8M")
    assert caught.value.status == 3


def test_a_signal_is_told() -> None:
    error = error_of("", -9, ["sim"])
    assert str(error) == "weft was ended by signal 9 (exit status -9)"


def test_what_weft_says_on_success_is_a_warning(tmp_path: Path) -> None:
    text = JOB.replace("size=16m\n", "").replace("runtime=20ms\ntime_based=1\n", "")
    with pytest.warns(weft.WeftWarning, match="goes over the whole volume; size="):
        weft.sim(text, member_size="8M")
