#!/usr/bin/env python3
"""Loads on real volumes over NBD: weft's defaults beside md untuned, `--backend auto` beside the others.

    measure.py [--rounds N] [--seconds S] [--only TEXT] [--json] [--plant]
    measure.py --print TABLE.json

Every row of ROWS is a load (jobs of fio, in a client of their own) on a RAID 5 of four members,
and its contestants: servers of the same members, which differ in what is said after `weft serve`.
They take turns, round after round, and every second round goes backwards; a ratio is the median of
those of neighbours in time. A server is started anew for each turn: on a busy machine
one that the kernel has put badly stays so (0.5 for the same against itself, in every round). Rates
and p99 are of the first job of the load. Members are files of tmpfs, files with O_DIRECT, or files
in the page cache (`--buffered`), all written once before the first row that has them.

--plant is the twin: the first contestant of every row is held up (SIGSTOP) for nine tenths of the
time.

The table is printed worst first, with the quartiles over the rounds; where these hold 1, or are
equal to it, the row says "not told apart". --json prints one object instead: rows, each with its
rounds.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from statistics import median

WEFT = os.environ["WEFT"]
# What `weft sim --as md` sets that a load of writes notices.
MD = "stripe_size=4096 plan_rule=md priority=bypass preread_wait_max=none"
MEMBER_MIB = 128
# Of the volume's 3 × 128 MiB, without what metadata takes.
AREA_MIB = 320


def job(name, rw, bs, depth, place="", **more):
    """A section of a job file. `place`: which half of the volume, the whole if empty."""
    lines = {"rw": rw, "bs": bs, "iodepth": depth, "norandommap": 1, **more}
    lines["size"] = f"{AREA_MIB // 2 if place else AREA_MIB}m"
    if place == "high":
        lines["offset"] = f"{AREA_MIB // 2}m"
    return f"[{name}]\n" + "".join(f"{key}={value}\n" for key, value in lines.items())


LOADS = {
    "64K QD8 stream beside random 4K QD8": [
        job("stream", "write", "64k", 8, "low"),
        job("random", "randwrite", "4k", 8, "high"),
    ],
    "random 4K QD32": [job("one", "randwrite", "4k", 32)],
    "random 4K QD1": [job("one", "randwrite", "4k", 1)],
    "random 64K QD8": [job("one", "randwrite", "64k", 8)],
    "random 1M QD1": [job("one", "randwrite", "1m", 1)],
    "sequential 64K QD32": [job("one", "write", "64k", 32)],
    "sequential 64K QD16": [job("one", "write", "64k", 16)],
    "sequential 16K QD4": [job("one", "write", "16k", 4)],
    "sequential 1M QD2": [job("one", "write", "1m", 2)],
    "one 64K stream by four clients": [job("one", "write", "64k", 4, numjobs=4)],
    "random reads 4K QD32": [job("one", "randread", "4k", 32)],
    "random reads 4K QD1": [job("one", "randread", "4k", 1)],
}


def tuned(knobs):
    return [word for knob in knobs.split() for word in ("--set", knob)]


WEFT_SELF, MD_SELF = ("weft", []), ("md", tuned(MD))
FIXED = {size: (f"stripe_size={size}", tuned(f"stripe_size={size}")) for size in (4096, 65536)}
AUTO, OTHERS = ("auto", []), [("uring", ["--backend", "uring"]), ("threads", ["--backend", "threads"])]


def rows():
    """(load, members, contestants): the first against the best of the others."""
    for members in ("tmpfs", "O_DIRECT"):
        for load in LOADS:
            if "reads" not in load:
                yield load, members, [WEFT_SELF, MD_SELF]
        yield "random 4K QD32", members, [WEFT_SELF, FIXED[4096]]
        yield "random 1M QD1", members, [WEFT_SELF, FIXED[65536]]
    for members in ("tmpfs", "page cache", "O_DIRECT"):
        for load in ("random 4K QD1", "random 4K QD32", "random reads 4K QD1", "random reads 4K QD32", "random 64K QD8"):
            yield load, members, [AUTO, *OTHERS]
    # What the same differs from itself.
    yield "sequential 64K QD32", "tmpfs", [MD_SELF, ("md again", tuned(MD))]


class Volume:
    """A RAID 5 of four files, all of it written, and its server."""

    def __init__(self, members):
        base = "/dev/shm" if members == "tmpfs" else os.environ["WORK"]
        self.folder = tempfile.mkdtemp(prefix="weft-real.", dir=base)
        self.socket = tempfile.mkdtemp(prefix="weft.", dir=os.environ.get("TMPDIR", "/tmp"))
        self.uri = f"nbd+unix:///v?socket={self.socket}/v.sock"
        self.process = self.log = None
        self.buffered = ["--buffered"] if members == "page cache" else []
        self.files = [f"{self.folder}/m{n}" for n in range(4)]

    def fill(self):
        make = [WEFT, "create", "--level", "5", "--raid-devices", "4", "--member-size", f"{MEMBER_MIB}M", "--name", "v"]
        subprocess.run([*make, *self.files], check=True, capture_output=True)
        self.serve([])
        self.run([job("fill", "write", "1m", 4)], None)
        self.stop()

    def serve(self, options):
        options = [*options, *self.buffered]
        self.log = open(f"{self.folder}/log", "a+")
        self.process = subprocess.Popen(
            [WEFT, "serve", "--name", "v", "--listen", self.uri, *options, *self.files],
            stdout=subprocess.PIPE,
            stderr=self.log,
            env={**os.environ, "XDG_RUNTIME_DIR": self.socket},
        )
        ready = self.process.stdout.readline()
        if not ready.startswith(b"ready "):
            self.log.seek(0)
            raise SystemExit(f"weft serve {' '.join(options)}: {self.log.read()}")

    def run(self, jobs, seconds):
        """The first job, summed over its clients: bytes a second, p99 in ms."""
        with open(f"{self.folder}/job.fio", "w") as out:
            out.write(f"[global]\nioengine=nbd\nuri={self.uri}\nthread=1\ngroup_reporting=0\n")
            if seconds:
                out.write(f"time_based=1\nruntime={round(seconds * 1000)}ms\nramp_time=100ms\n")
            out.writelines(jobs)
        done = subprocess.run(
            ["fio", "--output-format=json", f"{self.folder}/job.fio"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr + done.stdout
        found = json.loads(done.stdout[done.stdout.index("{"):])["jobs"]
        assert not any(each["error"] for each in found), "fio counts errors"
        first = [each for each in found if each["jobname"] == found[0]["jobname"]]
        sides = [each[side] for each in first for side in ("read", "write") if each[side]["total_ios"]]
        assert sides, "fio did nothing"
        rate = sum(side["bw_bytes"] for side in sides)
        return rate, max(side["clat_ns"]["percentile"]["99.000000"] for side in sides) / 1e6

    def stop(self):
        process, self.process = self.process, None
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            status = process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        self.log.close()
        assert status == 0, f"weft serve: exit {status}"

    def end(self):
        try:
            if self.process:
                self.stop()
        finally:
            for folder in (self.folder, self.socket):
                shutil.rmtree(folder, ignore_errors=True)


class Held:
    """Stops a process for nine tenths of the time, while this lasts."""

    def __init__(self, process):
        self.process, self.over = process, threading.Event()
        self.thread = threading.Thread(target=self.hold)

    def hold(self):
        while not self.over.is_set():
            self.process.send_signal(signal.SIGSTOP)
            time.sleep(0.09)
            self.process.send_signal(signal.SIGCONT)
            time.sleep(0.01)

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def measure(load, members, volume, contestants, options):
    """One row: each contestant's rates and p99s, round by round."""
    found = [[] for _ in contestants]
    for turn in range(options.rounds):
        order = range(len(contestants)) if turn % 2 == 0 else reversed(range(len(contestants)))
        for index in order:
            volume.serve(contestants[index][1])
            is_held = options.plant and index == 0
            with Held(volume.process) if is_held else contextlib.nullcontext():
                found[index].append(volume.run(LOADS[load], options.seconds))
            volume.stop()
    rates = [[rate for rate, _ in each] for each in found]
    best = max(range(1, len(contestants)), key=lambda index: median(rates[index]))
    ratios = sorted(ours / other for ours, other in zip(rates[0], rates[best]))
    p99 = [median(p99 for _, p99 in each) for each in found]
    return {
        "load": load,
        "members": members,
        "contestant": contestants[0][0],
        "baseline": contestants[best][0],
        "ratio": round(median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
        "mb_s": round(median(rates[0]) / 1e6, 1),
        "baseline_mb_s": round(median(rates[best]) / 1e6, 1),
        "p99_ms": round(p99[0], 3),
        "baseline_p99_ms": round(p99[best], 3),
    }


def quartiles(ratios):
    last = len(ratios) - 1
    return ratios[last // 4], ratios[last - last // 4]


def printed(table):
    print(f"{'ratio':>6} {'quartiles':>12}  {'MB/s':>8} {'other':>8}  {'p99 ms':>8} {'other':>8}  load, members: contestant")
    for row in table:
        low, high = quartiles(row["ratios"])
        between, sure = f"{low:.2f}-{high:.2f}", "" if low > 1 or high < 1 else "; not told apart"
        print(
            f"{row['ratio']:6.2f} {between:>12}  {row['mb_s']:8.1f} {row['baseline_mb_s']:8.1f}  "
            f"{row['p99_ms']:8.2f} {row['baseline_p99_ms']:8.2f}  "
            f"{row['load']}, {row['members']}: {row['contestant']} against {row['baseline']}{sure}"
        )


def main():
    # Servers end with it, however it ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--only", default="", help="rows with this in their text")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--plant", action="store_true")
    parser.add_argument("--print", metavar="TABLE.json")
    options = parser.parse_args()
    if options.print:
        with open(options.print) as text:
            printed(json.load(text)["rows"])
        return
    table, volumes = [], {}
    try:
        for load, members, contestants in rows():
            text = f"{load}, {members}: {contestants[0][0]} against {contestants[1][0]}"
            if options.only not in text:
                continue
            print(text, file=sys.stderr)
            if members not in volumes:
                volumes[members] = Volume(members)
                volumes[members].fill()
            table.append(measure(load, members, volumes[members], contestants, options))
    finally:
        for volume in volumes.values():
            volume.end()
    table.sort(key=lambda row: row["ratio"])
    if options.json:
        json.dump({"rounds": options.rounds, "seconds": options.seconds, "rows": table}, sys.stdout, indent=1)
        print()
    else:
        printed(table)


main()
