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
    runner = on_ray.Ray(num_cpus=2, object_store_memory=100_000_000)
    yield runner
    ray.shutdown()


def parent(process: int) -> int:
    """The parent of a process; 0 if the process has ended."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def is_ours(process: int) -> bool:
    """Whether a process descends from this one."""
    while process > 1:
        if process == os.getpid():
            return True
        process = parent(process)
    return False


def running() -> tuple[list[int], list[int]]:
    """Workers of our cluster that run a setting at this moment, and the programs that they run."""
    workers, programs = [], []
    processes = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    for process in processes:
        try:
            name = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")[:2]
        except OSError:
            continue
        worker = parent(process)
        # This process runs programs itself, as for the list of settings.
        if name[1:] == [b"sim"] and worker not in (0, 1, os.getpid()) and is_ours(worker):
            workers.append(worker)
            programs.append(process)
    return workers, programs


def kill_one(what: int, killed: list[int]) -> threading.Thread:
    """Kills the first process of those that `running` returns, once there is one."""

    def kill() -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            for process in running()[what][:1]:
                os.kill(process, signal.SIGKILL)
                killed.append(process)
                return
            time.sleep(0.02)

    killer = threading.Thread(target=kill)
    killer.start()
    return killer


@pytest.mark.parametrize("what", [0, 1], ids=["worker", "program"])
def test_a_process_that_is_killed_changes_no_byte(
    what: int, cluster: on_ray.Ray, job: Path
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
    for what, noticed in ((0, ray.exceptions.WorkerCrashedError), (1, weft.WeftError)):
        # What was cancelled ends a little later.
        while running()[0]:
            time.sleep(0.02)
        killer = kill_one(what, [])
        with pytest.raises(noticed):
            weft.sweep(job, KNOBS, on=on_ray.Ray(retries=0), results=f"kept{what}")
        killer.join()


def test_a_failure_on_a_node_is_wefts_exception(cluster: on_ray.Ray, job: Path) -> None:
    with pytest.raises(weft.WeftError) as caught:
        weft.sweep(job, {"level": [5]}, on=cluster, faults="fail=1@1ms,fail=2@2ms")
    assert "--sweep=level=5" in caught.value.command


def test_another_program_on_a_node_is_refused(job: Path) -> None:
    sweep = weft.Sweep(job, {"chunk": ["64K"]})
    status, out, err = on_ray.run_setting(sweep.commands[0], "another build")
    assert (status, out) == (1, "") and "install the same wheel on each node" in err
