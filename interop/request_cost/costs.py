"""Instructions for a request, from what `guest.sh` measured.

    costs.py table COSTS                          a table, with ratios to md
    costs.py ratio COSTS PATH LEVEL LOAD DEPTH    one ratio to md, in hundredths, rounded up
    costs.py floors FOLDER WEFT                   where the instructions of random writes are spent
"""

import collections
import glob
import math
import os
import re
import subprocess
import sys

# Floor → what a frame of the call chain begins with. The innermost frame that says something
# decides.
KERNEL = [
    ("drive: null_blk", ["null_", "copy_to_nullb", "copy_from_nullb", "__null_"]),
    ("md", ["raid5", "handle_stripe", "raid_run_ops", "ops_run", "md_", "async_", "xor_", "ops_complete", "raid1", "release_stripe"]),
    ("ublk", ["ublk_"]),
    ("sockets", ["unix_", "sock_", "__sys_send", "__sys_recv", "skb_", "tcp_"]),
    ("waiting and waking", ["schedule", "__schedule", "try_to_wake_up", "ep_poll", "do_epoll_wait", "wake_up", "__wake_up", "io_cqring_wait"]),
    ("block layer", ["blk_", "submit_bio", "bio_", "blkdev_", "__blkdev", "__submit_bio", "elv_", "dd_", "sbitmap"]),
    ("io_uring", ["io_", "__io_", "__do_sys_io_uring"]),
    ("aio of the load", ["aio_", "__x64_sys_io_submit", "__x64_sys_io_getevents", "do_io_getevents"]),
]
USER = [
    ("engine", ["weft_engine"]),
    ("parity and copies", ["weft_parity", "weft_compute", "__mem"]),
    ("frames (buffers)", ["weft_runtime::buffers"]),
    ("member I/O", ["weft_runtime::member_io", "weft_runtime::io"]),
    ("driver", ["weft_runtime::serve", "weft_runtime::"]),
    ("export", ["weft_export", "weft_nbd"]),
]


def rows(path):
    """(path, level, load, depth) → instructions"""
    table = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            *key, count = line.split("\t")
            table[tuple(key)] = int(count)
    return table


def ratio(table, key):
    return table[key] / table[("md", *key[1:])]


def print_table(table):
    print("| path | level | load | at a time | instructions | × md |")
    print("|---|---|---|---|---|---|")
    for key, count in table.items():
        times = f"{ratio(table, key):.2f}" if key[1] != "-" else ""
        print(f"| {' | '.join(key)} | {count:,} | {times} |")


def floor_of(frames, floors):
    for frame in frames:
        name = re.sub(r"^[<&]*", "", frame)
        for floor, starts in floors:
            if any(name.startswith(start) for start in starts):
                return floor
    return None


def floors(folder, weft):
    table = rows(os.path.join(folder, "costs"))
    root = os.path.join(folder, "root")
    os.makedirs(os.path.join(root, "tmp"), exist_ok=True)
    os.path.lexists(f"{root}/tmp/weft") or os.symlink(os.path.realpath(weft), f"{root}/tmp/weft")
    for (path, _, load, depth), whole in table.items():
        counts = collections.Counter()
        for data in glob.glob(f"{folder}/{path}-{load}-{depth}-*.data"):
            # A sample stands for as many instructions as lie between two.
            weight = int(data.rsplit("-", 1)[1].removesuffix(".data"))
            for place in samples(data, folder, root):
                counts[place] += weight
        total = sum(counts.values())
        print(f"{path}, {load}, {depth} at a time: {whole:,} instructions")
        for (side, floor), count in counts.most_common():
            if count / total * whole >= 50:
                print(f"  {side:7} {floor:32} {count / total * whole:8,.0f}")


def samples(data, folder, root):
    """The side (load or server) and the floor of each sample."""
    command = ["perf", "script", "-i", data, "--kallsyms", f"{folder}/kallsyms", "--symfs", root]
    command += ["-F", "comm,ip,sym,dso"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for sample in out.strip().split("\n\n"):
        comm, *chain = sample.split("\n")
        comm = comm.strip()
        if comm in ("swapper", "perf", "perf-exec", "awk", "bash"):
            continue
        frames = [re.match(r"\s*[0-9a-f]+ (.*) \((.*)\)$", line).groups() for line in chain]
        kernel = [name for name, dso in frames if dso.startswith("[") and dso not in ("[unknown]", "[vdso]")]
        if kernel:
            floor = "kernel: " + (floor_of(kernel, KERNEL) or "other")
        elif comm == "fio":
            floor = "fio itself"
        else:
            floor = "weft: " + (floor_of([frames[0][0]], USER) or "other")
        yield ("load" if comm == "fio" else "server"), floor


def main():
    command, *arguments = sys.argv[1:]
    if command == "floors":
        return floors(*arguments)
    table = rows(arguments[0])
    if command == "ratio":
        print(math.ceil(100 * ratio(table, tuple(arguments[1:]))))
    else:
        print_table(table)


main()
