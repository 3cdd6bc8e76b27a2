"""Tests on a Ray cluster of this machine, with a worker that is killed on the way."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

import weft
from conftest import JOB
from weft import on_ray

# Each setting takes long enough to be found while it runs.
LONG = JOB.replace("20ms", "1s")
KNOBS = {"stripe_size": ["4K", "64K"], "chunk": ["64K", "128K"]}


@pytest.fixture(scope="module")
def cluster() -> Iterator[on_ray.Ray]:
    # Workers have a niceness of 15 by default, and would stand still beside other work.
    os.environ["RAY_worker_niceness"] = "0"
    yield on_ray.Ray(num_cpus=2, object_store_memory=100_000_000)
    ray.shutdown()


def stat(process: int) -> tuple[str, int]:
    """State and parent of a process; `X` and 0 if the process has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "X", 0
    return fields[0], int(fields[1])


def is_ours(process: int) -> bool:
    """Whether a process descends from this one."""
    while process > 1:
        if process == os.getpid():
            return True
        process = stat(process)[1]
    return False


def running() -> Iterator[tuple[int, int]]:
    """Workers of our cluster that run a setting at this moment, with the programs that they run."""
    for process in [int(path.name) for path in Path("/proc").glob("[0-9]*")]:
        try:
            name = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")[:2]
        except OSError:
            continue
        worker = stat(process)[1]
        # This process runs programs itself, as for the list of settings.
        if name[1:] == [b"sim"] and worker not in (0, 1, os.getpid()) and is_ours(worker):
            yield worker, process


def is_stopped(process: int) -> bool:
    """Stops a process, so that it cannot end by itself any more. Returns false if it has ended."""
    try:
        os.kill(process, signal.SIGSTOP)
    except ProcessLookupError:
        return False
    while (state := stat(process)[0]) not in "TXZ":
        time.sleep(0.001)
    return state == "T"


def kill_one(what: str, killed: list[int]) -> threading.Thread:
    """Kills a worker that runs a setting, or the program that it runs, once there is one."""

    def kill() -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until and not killed:
            for worker, program in running():
                if is_stopped(program):
                    if what == "worker":
                        os.kill(worker, signal.SIGKILL)
                    os.kill(program, signal.SIGKILL)
                    killed.append(program)
                    break
            time.sleep(0.02)

    killer = threading.Thread(target=kill)
    killer.start()
    return killer


@pytest.mark.parametrize("what", ["worker", "program"])
def test_a_process_that_is_killed_changes_no_byte(
    what: str, cluster: on_ray.Ray, job: Path
) -> None:
    job.write_text(LONG)
    killed: list[int] = []
    killer = kill_one(what, killed)
    sweep = weft.Sweep(job, KNOBS).run(cluster)
    killer.join()
    assert len(killed) == 1
    words = [f"--sweep={knob}={','.join(values)}" for knob, values in KNOBS.items()]
    assert sweep.merged(json=True) == weft.run("sim", job, *words, json=True)


def test_without_another_try_the_killed_worker_is_noticed(cluster: on_ray.Ray, job: Path) -> None:
    del cluster
    job.write_text(LONG)
    kinds = {"worker": ray.exceptions.WorkerCrashedError, "program": weft.WeftError}
    for what, noticed in kinds.items():
        # What was cancelled ends a little later.
        while list(running()):
            time.sleep(0.02)
        killer = kill_one(what, [])
        with pytest.raises(noticed):
            weft.sweep(job, KNOBS, on=on_ray.Ray(retries=0), results=what)
        killer.join()


def test_a_failure_on_a_node_is_wefts_exception(cluster: on_ray.Ray, job: Path) -> None:
    with pytest.raises(weft.WeftError) as caught:
        weft.sweep(job, {"level": [5]}, on=cluster, faults="fail=1@1ms,fail=2@2ms")
    assert "--sweep=level=5" in caught.value.command


def test_another_program_on_a_node_is_refused(job: Path) -> None:
    sweep = weft.Sweep(job, {"chunk": ["64K"]})
    status, out, err = on_ray.run_setting(sweep.commands[0], "another build")
    assert (status, out) == (1, "") and "install the same wheel on each node" in err
