#!/usr/bin/env python3
"""Runs fio against a volume with a write-back cache, and says how long its writers waited and how much was dirty.

    measure.py NAME JOB.fio [SAMPLES.csv]

Dirty bytes are sampled 20 times a second from the control socket, as `weft status --json` shows them; each is a
line of SAMPLES.csv: milliseconds, dirty, being written, written, limit. Printed is one line of words:

    P50 P99 MAX       latency of writes in µs, all writers together
    WRITES            how many there were
    SLOWEST           the fewest writes of a writer, in percent of the mean
    DIRTY             most that was dirty or being written, in bytes; 0 without a cache
    LIMIT             the limit of the cache
    SAMPLES           how many samples there are
"""

import json
import os
import socket
import subprocess
import sys
import time


def status(name):
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(os.path.join(os.environ["XDG_RUNTIME_DIR"], "weft", f"{name}.sock"))
        control.sendall(b'{"v":2,"cmd":"status"}\n')
        answer = json.loads(control.makefile().readline())
    return answer["status"]["volumes"][0].get("write_back")


def percentile(bins, part):
    """Of fio's json+ bins, {ns: count}."""
    wanted, seen = part * sum(bins.values()), 0
    for ns in sorted(bins):
        seen += bins[ns]
        if seen >= wanted:
            return ns
    return 0


def main(name, job, samples=os.devnull):
    results = job + ".json"
    command = ["fio", "--output-format=json+", f"--output={results}", job]
    begin, most, limit, count = time.monotonic(), 0, 0, 0
    with open(samples, "w") as out, open(job + ".log", "w") as log:
        fio = subprocess.Popen(command, stdout=log, stderr=log)
        while fio.poll() is None:
            cache = status(name)
            count += 1
            if cache:
                sum_now = cache["dirty"] + cache["writeback"]
                most, limit = max(most, sum_now), cache["dirty_bytes"]
                at = round((time.monotonic() - begin) * 1000)
                values = [at, cache["dirty"], cache["writeback"], cache["written"], limit]
                print(*values, sep=",", file=out)
            time.sleep(0.05)
    assert fio.returncode == 0, open(job + ".log").read()
    with open(results) as text:
        text = text.read()
    jobs = json.loads(text[text.index("{"):])["jobs"]
    bins, longest, counts = {}, 0, []
    for each in jobs:
        write = each["write"]
        counts.append(write["total_ios"])
        longest = max(longest, write["clat_ns"]["max"])
        for ns, number in write["clat_ns"].get("bins", {}).items():
            bins[int(ns)] = bins.get(int(ns), 0) + number
    assert sum(bins.values()) == sum(counts) > 0, "fio counted no write"
    slowest = min(counts) * 100 * len(counts) // sum(counts)
    latencies = [percentile(bins, part) // 1000 for part in (0.5, 0.99)]
    print(*latencies, longest // 1000, sum(counts), slowest, most, limit, count)


main(*sys.argv[1:])
