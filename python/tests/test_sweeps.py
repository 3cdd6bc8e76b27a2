"""Tests of sweeps: the same bytes as weft's own, results that are kept, and where they run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import weft
from conftest import JOB, Counted
from weft import results

KNOBS = {"stripe_size": ["4K", "64K"], "raid-devices": [4, 5]}


def test_a_sweep_has_the_bytes_that_weft_prints(job: Path) -> None:
    swept = ["--sweep=stripe_size=4K,64K", "--sweep=raid-devices=4,5"]
    sweep = weft.Sweep(job, KNOBS, runs=3, seed=7).run()
    for form in ({}, {"json": True}, {"csv": True}):
        native = weft.run("sim", job, *swept, runs=3, seed=7, **form)
        assert sweep.merged(**form) == native and len(native) > 300
    # A page has its own name and the command, with its options in this order.
    sweep.merged(report="page.html")
    merged = Path("page.html").read_bytes()
    weft.run("sim", job, *swept, seed=7, runs=3, report="page.html", force=True)
    assert merged == Path("page.html").read_bytes()


def test_a_frame_has_a_row_for_each_setting_with_intervals(job: Path) -> None:
    frame = weft.sweep(job, KNOBS, runs=3)
    assert list(frame["stripe_size"]) == ["4K", "4K", "64K", "64K"]
    assert list(frame["raid-devices"]) == [4, 5, 4, 5]
    assert (frame["throughput_mb_s_low"] < frame["throughput_mb_s"]).all()
    assert (frame["throughput_mb_s"] < frame["throughput_mb_s_high"]).all()
    assert frame.attrs["knobs"] == ["stripe_size", "raid-devices"]
    best = {of["metric"]: of["setting"] for of in frame.attrs["best"]["writes"]}
    at = frame["throughput_mb_s"].idxmax()
    assert best["throughput"] == f"{frame['stripe_size'][at]}, {frame['raid-devices'][at]}"
    one = weft.sweep(job, KNOBS)
    assert one["p99_ns_low"].isna().all() and one["p99_ns"].notna().all()


def test_a_trace_is_swept_as_well(tmp_path: Path) -> None:
    lines = [f"{n * 500} web write {n * 7919 % 4096 * 4096} 4096" for n in range(100)]
    Path("t.iolog").write_text("\n".join(["fio version 3 iolog", "0 web add", *lines]) + "\n")
    sweep = weft.Sweep("t.iolog", {"scheduler": ["none", "bfq"]}, command="replay").run()
    assert sweep.merged() == weft.run("replay", "t.iolog", "--sweep=scheduler=none,bfq")
    assert list(sweep.frame()["scheduler"]) == ["none", "bfq"]


def test_a_sweep_goes_on_where_it_stopped(job: Path) -> None:
    stopped = Counted(stop=3)
    with pytest.raises(KeyboardInterrupt):
        weft.sweep(job, KNOBS, on=stopped)
    with pytest.raises(weft.WeftError, match="1 of 4 settings have not run"):
        weft.Sweep(job, KNOBS).frame()
    rest, again = Counted(), Counted()
    frame = weft.sweep(job, KNOBS, on=rest)
    assert (len(stopped.ran), len(rest.ran)) == (3, 1)
    assert weft.sweep(job, KNOBS, on=again).equals(frame) and not again.ran
    # Of a sweep with one value more only the new settings are run, and its bytes are right.
    wider = KNOBS | {"stripe_size": ["16K", "4K", "64K"]}
    more = Counted()
    sweep = weft.Sweep(job, wider).run(more)
    assert len(more.ran) == 2
    words = ["--sweep=stripe_size=16K,4K,64K", "--sweep=raid-devices=4,5"]
    assert sweep.merged(json=True) == weft.run("sim", job, *words, json=True)


def test_other_contents_are_other_results(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def runs(**options: object) -> int:
        counted = Counted()
        weft.sweep(job, {"chunk": ["64K"]}, on=counted, **options)
        return len(counted.ran)

    assert (runs(), runs()) == (1, 0)
    job.write_text(JOB.replace("iodepth=8", "iodepth=${DEPTH}"))
    monkeypatch.setenv("DEPTH", "4")
    assert (runs(), runs()) == (1, 0)
    monkeypatch.setenv("DEPTH", "2")
    assert (runs(), runs()) == (1, 0)
    Path("more").write_text("iodepth=3\n")
    job.write_text(JOB + "include more ; common\n")
    assert (runs(), runs()) == (1, 0)
    Path("more").write_text("iodepth=5\n")
    assert (runs(), runs()) == (1, 0)
    Path("drive.toml").write_text('base = "hdd-2011-7200"\n[hdd]\n')
    drive = {"device": "drive.toml"}
    words = [f"--device={drive['device']}"]
    assert [str(path) for path in results.files_named(words[0])] == ["drive.toml"]
    assert (runs(seed=2), runs(seed=2), runs(results="elsewhere")) == (1, 0, 1)
    monkeypatch.setattr("weft.results.binary_sum", lambda: "another build")
    assert runs() == 1


def test_a_result_that_was_cut_off_is_run_again(job: Path) -> None:
    sweep = weft.Sweep(job, {"chunk": ["64K"]}).run()
    path = sweep.results.path(sweep.commands[0])
    path.write_bytes(path.read_bytes()[:-20])
    counted = Counted()
    sweep.run(counted)
    assert len(counted.ran) == 1
    assert sweep.merged() == weft.run("sim", job, "--sweep=chunk=64K")


def test_the_text_of_a_job_is_the_same_load_each_time() -> None:
    counted = Counted()
    weft.sweep(JOB, {"chunk": ["64K", "128K"]}, on=counted)
    os.chdir("/")
    weft.sweep(JOB, {"chunk": ["64K", "128K"]}, on=counted)
    assert len(counted.ran) == 2


def test_a_setting_that_fails_is_an_exception_and_the_others_are_kept(job: Path) -> None:
    # Two members may fail at level 6 and not at level 5.
    plan = {"faults": "fail=1@1ms,fail=2@2ms"}
    with pytest.raises(weft.WeftError) as caught:
        weft.sweep(job, {"level": [6, 5]}, on=weft.Local(1), **plan)
    assert caught.value.status in (1, 2) and "--sweep=level=5" in caught.value.command
    missing = weft.Sweep(job, {"level": [6, 5]}, **plan).missing()
    assert [[word for word in of if "level" in word] for of in missing] == [["--sweep=level=5"]]
    with pytest.raises(weft.UsageError, match="found 5K"):
        weft.sweep(job, {"stripe_size": ["5K"]})
    with pytest.raises(ValueError, match="control character"):
        weft.sweep("job\x07.fio", {"chunk": ["64K"]})
