#!/usr/bin/env python3
"""Runs fio and says what its clients got of the members of a volume while all of them wrote.

  measure.py NAME JOB.fio EXPORT=WEIGHT…

Each job of the file is a client, of the export of its own name, and writes its size= once. The window goes from
the first sample of `weft status` in which each client has written 5 % of what it will, to the last in which none
has written 90 %: outside of it some client does not ask for its share. Printed is one line of words:

  LEAST       the least that a client got of its part by weight, in percent (100: all of it)
  MOST        the most
  WRITTEN     bytes that clients wrote in the window
  SAMPLES     samples in the window
  VERIFIED    bytes that fio read back and verified, all jobs
  EXPORT=P …  share of each, in permille
"""

import json
import os
import subprocess
import sys
import time


def sizes_of(path):
    """Bytes that each job writes."""
    sizes, job = {}, None
    with open(path) as text:
        for line in map(str.strip, text):
            if line.startswith("["):
                job = line.strip("[]")
            elif line.startswith("size=") and job:
                sizes[job] = int(line[5:].rstrip("k")) * 1024
    return sizes


def sample(name):
    """(sectors that members moved, bytes written) of the clients of each export."""
    done = subprocess.run([os.environ["WEFT"], "status", "--json", name], capture_output=True, check=True)
    moved = {}
    for share in json.loads(done.stdout)["servers"][0]["volumes"][0]["shares"]:
        if share["who"] == "client" and share.get("export"):
            sectors, written = moved.get(share["export"], (0, 0))
            moved[share["export"]] = (sectors + share["sectors"], written + share["bytes_written"])
    return moved


def main(name, job, *clients):
    weights = {export: int(weight) for export, weight in (text.split("=") for text in clients)}
    sizes = sizes_of(job)
    assert set(sizes) == set(weights), (sizes, weights)
    results = job + ".json"
    with open(job + ".log", "w") as log:
        fio = subprocess.Popen(
            ["fio", "--output-format=json", f"--output={results}", job], stdout=log, stderr=log
        )
        first = last = None
        samples = 0
        while fio.poll() is None:
            now = sample(name)
            written = {export: now.get(export, (0, 0))[1] for export in weights}
            began = all(written[export] * 20 > sizes[export] for export in weights)
            ends = any(written[export] * 10 > sizes[export] * 9 for export in weights)
            if began and not ends:
                first, last, samples = first or now, now, samples + 1
            time.sleep(0.05)
    assert fio.returncode == 0, f"fio: exit {fio.returncode}: {open(job + '.log').read()[-2000:]}"
    with open(results) as text:
        text = text.read()
    jobs = json.loads(text[text.index("{") :])["jobs"]
    assert not any(it["error"] for it in jobs), "fio counts errors"
    for it in jobs:
        assert it["write"]["io_bytes"] == sizes[it["jobname"]], it["jobname"]
    assert samples >= 2, f"{samples} samples while all clients wrote"
    moved = {export: last[export][0] - first[export][0] for export in weights}
    every, weight = sum(moved.values()), sum(weights.values())
    part = {export: 100 * moved[export] * weight / (every * weights[export]) for export in weights}
    print(
        int(min(part.values())),
        -int(-max(part.values())),
        sum(last[export][1] - first[export][1] for export in weights),
        samples,
        sum(it["read"]["io_bytes"] for it in jobs),
        *(f"{export}={1000 * moved[export] // every}" for export in weights),
    )


main(*sys.argv[1:])
