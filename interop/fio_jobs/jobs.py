#!/usr/bin/env python3
"""What weft makes of fio's own example jobs.

jobs.py FOLDER TABLE WORK   runs each example of FOLDER for half a second, compares with TABLE, and
                            prints the counts
jobs.py --update …          adds and corrects the rows of the examples that are there

A row is a file, a tab, and what weft does: `read`; `left out: OPTIONS`, where it runs without them;
or `refused: OPTIONS`, those that are not simulated, with the value of ioengine and rw. Options that
only an engine has which is refused are not in the table. No text of fio is: the files come from
Debian's package fio-examples.
"""
import json
import os
import re
import subprocess
import sys

# Each section gets these behind its own options, and the last value counts.
BOUNDS = "\ntime_based=1\nruntime=500ms\nramp_time=0\nstartdelay=0\n"
# Values of the variables that xnvme-compare.fio and others name in their comments.
VARIABLES = {"FIO_RW": "randread", "FIO_IODEPTH": "4", "FIO_BS": "8k", "uri": "nbd://localhost"}
# Larger than the 30 x 124 GB that cross-stripe-verify.fio spans.
VOLUME = ["--device", "hdd-2022-20tb", "-n", "4"]


def bounded(text):
    """The jobs of a file, each bounded."""
    parts = re.split(r"(?m)^(?=\s*\[)", text)
    is_job = lambda part: re.match(r"\s*\[(?!global\])", part)
    return "".join(part + BOUNDS if is_job(part) else part for part in parts)


def outcome(folder, name, work):
    """What weft does with an example, as a row of the table. Anything else raises ValueError."""
    path = os.path.join(work, name)
    with open(os.path.join(folder, name)) as source, open(path, "w") as copy:
        copy.write(bounded(source.read()))
    run = subprocess.run([os.environ["WEFT"], "sim", path, *VOLUME, "--json"], capture_output=True, text=True,
                         env={**os.environ, **VARIABLES})
    os.unlink(path)
    if run.returncode == 0:
        sheet = json.loads(run.stdout)
        if sheet["weft"]["stop"] != "done" or sheet["weft"]["requests_failed"]:
            raise ValueError(f"{name}: {sheet['weft']}")
        for job in sheet["jobs"]:
            if sum(job[way]["total_ios"] for way in ("read", "write", "trim")) == 0:
                raise ValueError(f"{name}: job {job['jobname']} made no request")
        options = re.findall(r"(?m)^weft: left out: ([^:]+): ", run.stderr)
        options = sorted({option for line in options for option in line.split(", ")})
        return f"left out: {', '.join(options)}" if options else "read"
    refused = re.findall(r"\[[^]]*\]: (\S+?)(?:=(\S+))? is not simulated: \S", run.stderr)
    if run.returncode != 2 or not refused:
        raise ValueError(f"{name}: exit {run.returncode}: {run.stderr}")
    shown = {f"{option}={value}" if option in ("ioengine", "rw") else option for option, value in refused}
    return f"refused: {', '.join(sorted(shown))}"


def read_table(path):
    with open(path) as file:
        return dict(line.rstrip("\n").split("\t") for line in file)


def main():
    update = sys.argv[1:2] == ["--update"]
    folder, path, work = sys.argv[1 + update:]
    table = read_table(path) if os.path.exists(path) else {}
    names = sorted(name for name in os.listdir(folder) if name.endswith(".fio"))
    found, faults = {}, []
    for name in names:
        try:
            found[name] = outcome(folder, name, work)
        except ValueError as error:
            faults.append(str(error))
            continue
        if found[name] != table.get(name) and not update:
            faults.append(f"{name}: found {found[name]!r}, expected {table.get(name, 'a row of the table')!r}")
    if update:
        table.update(found)
        with open(path, "w") as file:
            file.writelines(f"{name}\t{table[name]}\n" for name in sorted(table))
    for fault in faults:
        print(f"fault: {fault}")
    kinds = [text.split(":")[0] for text in found.values()]
    print(len(names), kinds.count("read"), kinds.count("left out"), kinds.count("refused"))
    return 1 if faults else 0


sys.exit(main())
