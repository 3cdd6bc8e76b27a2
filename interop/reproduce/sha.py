"""What did `weft reproduce --json` measure?

    sha.py FILE cases               its cases, one a line: patch, case
    sha.py FILE PATCH CASE RUNS     the hash of the first RUNS runs of each column of a case
    sha.py FILE all RUNS            that of every case, one a line: patch, case, hash
    sha.py FILE verdicts            verdicts of its rows, if it has any, one a line: patch, verdict, row
"""

import hashlib
import json
import sys

sheet = json.load(open(sys.argv[1]))
cases = {
    (experiment["patch"], case["case"]): case["runs"]
    for experiment in sheet["experiments"]
    for case in experiment["cases"]
}


def sha(patch, case, count):
    columns = {name: runs[:count] for name, runs in cases[patch, case].items()}
    assert len(columns) >= 2, columns
    for name, runs in columns.items():
        assert len(runs) == count, f"{case}, {name}: found {len(runs)} runs, expected {count}"
        assert all(run for run in runs), f"{case}, {name}: a run without a value"
    return hashlib.sha256(json.dumps(columns, sort_keys=True).encode()).hexdigest()


if sys.argv[2] == "cases":
    # What is compared: all loads that were published.
    names = [case for _, case in cases]
    for load in ("dd", "tiobench", "dbench", "fio-4k", "fio-1m", "isolated"):
        assert any(name.startswith(load) for name in names), f"no case of {load} in {names}"
    for patch, case in cases:
        print(patch, case)
elif sys.argv[2] == "verdicts":
    for row in sheet["rows"]:
        if row["verdict"]:
            print(row["patch"], row["verdict"], row["experiment"], row["case"])
elif sys.argv[2] == "all":
    for patch, case in cases:
        print(patch, case, sha(patch, case, int(sys.argv[3])))
else:
    print(sha(sys.argv[2], sys.argv[3], int(sys.argv[4])))
