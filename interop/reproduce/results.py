#!/usr/bin/env python3
"""Results of `weft reproduce --json`: those at hand, and those recorded in `experiments/results/`.

    results.py cases FILE              cases of FILE, one a line: patch, case
    results.py sums FILE RUNS          the same, with the hash of the first RUNS runs of each case
    results.py seeds FILE              cases with equal first and second runs, which have two seeds
    results.py same FILE               compares FILE with the record: the first three runs of each
                                       case; if it has verdicts, every row, too
    results.py record FILE             writes the record of each patch in FILE
    results.py pages [--update]        compares tables and plots of the pages with the record

A record has the rows with all of their figures, and a hash of the first three runs of each case in
place of the runs. Its first line has the command that made it.
"""

import hashlib
import json
import math
import re
import sys

import plots
from figures import (
    ROOT,
    is_shown,
    measured,
    own,
    published,
    record_path,
    sheet_of,
    verdict,
    with_interval,
)

PAGES = [ROOT / "docs" / "reproduce.md", ROOT / "experiments" / "later.md"]
FIRST_RUNS = 3


def cases_of(sheet):
    """Runs of each column, by patch and case."""
    return {
        (experiment["patch"], case["case"]): case["runs"]
        for experiment in sheet["experiments"]
        for case in experiment["cases"]
    }


def sum_of(columns, count):
    """Hash of the first `count` runs of a case."""
    assert len(columns) >= 2, columns
    first = {name: runs[:count] for name, runs in columns.items()}
    for name, runs in first.items():
        assert len(runs) == count, f"{name}: found {len(runs)} runs, expected {count}"
        assert all(runs), f"{name}: a run without a value"
    return hashlib.sha256(json.dumps(first, sort_keys=True).encode()).hexdigest()


def record(path):
    sheet = sheet_of(path)
    assert not sheet["no_verdicts"], sheet["no_verdicts"]
    cases = cases_of(sheet)
    for experiment in sheet["experiments"]:
        patch = experiment["patch"]
        name = patch if patch[0] == "0" and len(patch) == 3 else f"experiments/{patch}.toml"
        quick = " --quick" if sheet["size"] == "quick" else ""
        made = {
            "command": f"weft reproduce {name}{quick} --runs {sheet['runs']} --json",
            "schema": sheet["schema"],
            "seed": sheet["seed"],
            "experiment_sha256": experiment["sha256"],
            "rows": [row for row in sheet["rows"] if row["patch"] == patch],
            "own_policies": experiment["own_policies"],
            "first_runs_sha256": {
                case: sum_of(runs, FIRST_RUNS) for (of, case), runs in cases.items() if of == patch
            },
        }
        text = json.dumps(made, indent=1, ensure_ascii=False, sort_keys=False)
        # A list of numbers is one line.
        numbers = re.compile(r"\[\s+([-\d.,\s]+?)\s+\]")
        text = numbers.sub(lambda found: f"[{' '.join(found[1].split())}]", text)
        record_path(patch, sheet["size"]).write_text(text + "\n")


def same(path):
    """Prints the number of cases and rows that are as recorded; fails at the first other one."""
    sheet = sheet_of(path)
    cases, rows = cases_of(sheet), 0
    for (patch, case), runs in cases.items():
        recorded = record_path(patch, sheet["size"])
        if sum_of(runs, FIRST_RUNS) != sheet_of(recorded)["first_runs_sha256"][case]:
            sys.exit(f"{patch} {case}: other runs than {recorded.name} has")
    for experiment in [] if sheet["no_verdicts"] else sheet["experiments"]:
        patch = experiment["patch"]
        found = [row for row in sheet["rows"] if row["patch"] == patch]
        recorded = sheet_of(record_path(patch, sheet["size"]))
        if experiment["own_policies"] != recorded["own_policies"]:
            sys.exit(f"{patch}: weft's own policies compare otherwise than is recorded")
        known = recorded["rows"]
        assert len(found) == len(known), f"{patch}: found {len(found)} rows, expected {len(known)}"
        for row, expected in zip(found, known):
            if row != expected:
                sys.exit(f"{patch} {row['cell']}: found {row}, expected {expected}")
            rows += 1
    print(f"{len(cases)} cases, {rows} rows")


def seeds(path):
    for (patch, case), columns in cases_of(sheet_of(path)).items():
        if all(runs[0] == runs[1] for runs in columns.values()):
            print(patch, case)


# Tables and plots of the pages.


def table(patches, sizes):
    """Table of the published figures of some patches, in one size or several."""
    head = ["patch", "figure", "published"]
    for size in sizes:
        head += [f"{size} size", "verdict", "weft's own, to the better of both"]
    lines = [head, ["---"] * len(head)]
    for patch in patches:
        of_sizes = [sheet_of(record_path(patch, size))["rows"] for size in sizes]
        for rows in zip(*of_sizes, strict=True):
            assert len({row["cell"] for row in rows}) == 1, [row["cell"] for row in rows]
            if is_shown(rows[0]):
                name = f"{rows[0]['experiment']}: {rows[0]['case']}"
                line = [patch, name, published(rows[0])]
                for row in rows:
                    line += [measured(row), verdict(row), own(row)]
                lines.append(line)
    # A column is left out if all of its cells are empty.
    kept = [any(line[at] for line in lines[2:]) for at in range(len(head))]
    lines = [[cell for cell, keep in zip(line, kept) if keep] for line in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def own_table(patches, sizes):
    """Table of weft's own policies in every quantity that a patch was for."""
    lines = [["patch", "policy", "", "better", "worse", "quantities", "worst"]]
    lines.append(["---"] * len(lines[0]))
    (size,) = sizes
    for patch in patches:
        for policy in sheet_of(record_path(patch, size))["own_policies"]:
            answers = [of["answer"] for of in policy["quantities"]]
            beyond = "beyond" if policy["is_beyond"] else "not beyond"
            counts = [str(answers.count("better")), str(answers.count("worse")), str(len(answers))]
            lines.append([patch, policy["column"], beyond, *counts, worst(policy)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def worst(policy):
    """The quantity in which a policy is worst; empty if it is worse in none."""
    worse = [of for of in policy["quantities"] if of["answer"] == "worse"]
    if not worse:
        return ""
    of = max(worse, key=lambda it: abs(math.log(1 + it["gain_pct"] / 100)))
    metric = of["metric"].replace("_", " ")
    return f"{of['case']}, {metric}: {with_interval(of)} to {of['best']}"


MARK = re.compile(
    r"<!-- (?P<kind>results|own): (?P<patches>[\w ]+); (?P<sizes>[\w ]+) -->\n(?P<table>(?:\|.*\n)*)"
)


def pages(update):
    tables = 0
    for page in PAGES:
        text = page.read_text()

        def fresh(found):
            nonlocal tables
            tables += 1
            make = {"results": table, "own": own_table}[found["kind"]]
            made = make(found["patches"].split(), found["sizes"].split())
            return f"<!-- {found['kind']}: {found['patches']}; {found['sizes']} -->\n{made}"

        wanted = MARK.sub(fresh, text)
        if update:
            page.write_text(wanted)
        elif wanted != text:
            for line, (old, new) in enumerate(zip(text.splitlines(), wanted.splitlines()), 1):
                if old != new:
                    sys.exit(f"{page.name}:{line}: found {old!r}, expected {new!r}")
            sys.exit(f"{page.name}: found another number of rows than the record has")
    drawn = plots.drawings()
    for picture, wanted in drawn.items():
        path = ROOT / "docs" / "pictures" / picture
        if update:
            path.write_text(wanted)
        elif not path.is_file() or path.read_text() != wanted:
            sys.exit(f"{picture}: not the plot of the record; results.py pages --update draws it")
    print(f"{tables} tables, {len(drawn)} plots")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["cases", path]:
            # What is compared: all loads that were published.
            names = [case for _, case in cases_of(sheet_of(path))]
            for load in ("dd", "tiobench", "dbench", "fio-4k", "fio-1m", "isolated"):
                assert any(name.startswith(load) for name in names), f"no case of {load}: {names}"
            for patch, case in cases_of(sheet_of(path)):
                print(patch, case)
        case ["sums", path, count]:
            for (patch, case), runs in cases_of(sheet_of(path)).items():
                print(patch, case, sum_of(runs, int(count)))
        case ["seeds", path]:
            seeds(path)
        case ["same", path]:
            same(path)
        case ["record", path]:
            record(path)
        case ["pages"]:
            pages(update=False)
        case ["pages", "--update"]:
            pages(update=True)
        case _:
            sys.exit(__doc__)
