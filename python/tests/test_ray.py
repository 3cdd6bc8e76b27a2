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
LONG = JOB.replace("20ms", "4s")
KNOBS = {"stripe_size": ["4K", "64K"], "chunk": ["64K", "128K", "256K"]}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[on_ray.Ray]:
    runner = on_ray.Ray(num_cpus=2, object_store_memory=100_000_000)
    yield runner
    ray.shutdown()


def is_ours(process: int) -> bool:
    """Whether a process descends from this one."""
    while process > 1:
        if process == os.getpid():
            return True
        try:
            stat = Path(f"/proc/{process}/stat").read_text()
        except OSError:
            return False
        process = int(stat.rpartition(")")[2].split()[1])
    return False


def workers_that_run() -> list[int]:
    """Workers of our cluster that wait for a weft at this moment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].startswith(b"ray::run_setting") and is_ours(int(path.parent.name)):
            found.append(int(path.parent.name))
    return found


def test_a_worker_that_is_killed_changes_no_byte(cluster: on_ray.Ray, job: Path) -> None:
    job.write_text(LONG)
    killed: list[int] = []

    def kill() -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until and not killed:
            for worker in workers_that_run()[:1]:
                os.kill(worker, signal.SIGKILL)
                killed.append(worker)
            time.sleep(0.01)

    killer = threading.Thread(target=kill)
    killer.start()
    sweep = weft.Sweep(job, KNOBS).run(cluster)
    killer.join()
    assert len(killed) == 1
    words = [f"--sweep={knob}={','.join(values)}" for knob, values in KNOBS.items()]
    assert sweep.merged(json=True) == weft.run("sim", job, *words, json=True)


def test_without_another_try_the_killed_worker_is_noticed(cluster: on_ray.Ray, job: Path) -> None:
    job.write_text(LONG)
    once = on_ray.Ray(retries=0)

    def kill() -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if running := workers_that_run():
                os.kill(running[0], signal.SIGKILL)
                return
            time.sleep(0.01)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(ray.exceptions.WorkerCrashedError):
        weft.sweep(job, KNOBS, on=once)
    killer.join()


def test_a_failure_on_a_node_is_wefts_exception(cluster: on_ray.Ray, job: Path) -> None:
    with pytest.raises(weft.WeftError) as caught:
        weft.sweep(job, {"level": [5]}, on=cluster, faults="fail=1@1ms,fail=2@2ms")
    assert "--sweep=level=5" in caught.value.command


def test_another_program_on_a_node_is_refused(job: Path) -> None:
    sweep = weft.Sweep(job, {"chunk": ["64K"]})
    status, out, err = on_ray.run_setting(sweep.commands[0], "another build")
    assert (status, out) == (1, "") and "install the same wheel on each node" in err
