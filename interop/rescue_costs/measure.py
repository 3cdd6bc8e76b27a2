#!/usr/bin/env python3
"""Costs of reading an array.

    measure.py turns N MOUNT MOUNT MEMBER…  copies of the array: weft cat, dd of the files in two mounts, the second
                                            with --direct-io; of members: cat, dd. MOUNT is PID:IMAGE, the process
                                            that serves the mount, and the file in it
    measure.py files N IMAGE MEMBER…        copies of the files of an array with the content of IMAGE: weft rescue
                                            --to, and cp -a from the file system that the kernel mounts, if it can
    measure.py memory COMMAND…              runs it, prints the most memory that it had at once, in KiB

Copies are new files in this folder. The ways take turns, round after round, each second one backwards. A ratio
is what the plain copy took divided by what the way after it took, the median of all rounds: of time, which on a
busy machine says more about the others, and of time of the processor.
"""

import os
import resource
import shutil
import statistics
import subprocess
import sys
import time

WEFT = os.environ.get("WEFT", "weft")


def spent(pid):
    """Seconds of processor that a process has had, and those of the children of this one."""
    with open(f"/proc/{pid}/stat") as stat:
        user, system = stat.read().rsplit(")", 1)[1].split()[11:13]
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK") + own.ru_utime + own.ru_stime


def costs(command, pid):
    """Seconds that pass, and seconds of processor, with those of the mount `pid`."""
    begin, before = time.monotonic(), spent(pid)
    subprocess.run(["bash", "-c", command], check=True)
    return time.monotonic() - begin, spent(pid) - before


def forget(image):
    """Drops what the kernel has cached of an image in a mount, so that it is read from the array again."""
    file = os.open(image, os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


def turns(rounds, mounts, members):
    """Prints how fast each way is beside a plain copy by the same program."""
    (cached, image), (direct, past) = (mount.split(":", 1) for mount in mounts)
    size = os.path.getsize(image)
    one = os.path.getsize(members[0])
    plain = members[:round(size / one)]
    # What a plain copy copies more, because members have metadata.
    more = one * len(plain) / size
    names = " ".join(members)
    by_cat = f"cat {' '.join(plain)} >plain.img"
    by_dd = f"for m in {' '.join(plain)}; do dd if=$m bs=1M oflag=append conv=notrunc of=plain.img; done 2>dd.log"
    # Each way, its process, and before it the plain copy that it is compared with.
    ways = {
        "weft cat": (os.getpid(), by_cat, f"'{WEFT}' cat {names} >cat.img 2>cat.log"),
        "dd from weft mount": (cached, by_dd, f"dd if='{image}' bs=1M of=mount.img 2>dd.log"),
        "dd from weft mount --direct-io": (direct, by_dd, f"dd if='{past}' bs=1M of=direct.img 2>dd.log"),
    }
    ratios = {name: [] for name in ways}
    for turn in range(rounds):
        for name in list(ways) if turn % 2 == 0 else reversed(ways):
            pid, *commands = ways[name]
            took = []
            for command in commands:
                for file in ("plain.img", "cat.img", "mount.img", "direct.img"):
                    if os.path.exists(file):
                        os.remove(file)
                forget(image)
                took.append(costs(command, pid))
            ratios[name].append([plain / way / more for plain, way in zip(*took)])
    for pid, _, way in ways.values():  # copies of each are left
        costs(way, pid)
    for name, found in ratios.items():
        elapsed, processor = map(statistics.median, zip(*found))
        print(f"{name}: {elapsed:.2f} of a plain copy of {size >> 20} MiB by time, {processor:.2f} by processor time"
              f" ({rounds} turns)")


def mount(image):
    """Mounts the file system in an image; whether the kernel does that for this process."""
    os.makedirs("files.mnt", exist_ok=True)
    command = ["mount", "-o", "loop,ro,noload", image, "files.mnt"]
    return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0


def files(rounds, image, members):
    """Prints how fast `weft rescue --to` is beside `cp -a`. Each round mounts anew, so that the file system is
    not in the cache of the kernel, though the image is."""
    ratios = []
    is_mounted = mount(image)
    if is_mounted:
        subprocess.run(["umount", "files.mnt"], check=True)
    for _ in range(rounds):
        took = []
        for by_weft in (False, True):
            shutil.rmtree("files.out", ignore_errors=True)
            if by_weft:
                took.append(costs(f"'{WEFT}' rescue {' '.join(members)} --to files.out >files.log", os.getpid()))
            elif is_mounted and mount(image):
                took.append(costs("cp -a files.mnt files.out", os.getpid()))
                subprocess.run(["umount", "files.mnt"], check=True)
        if len(took) == 2:
            ratios.append([plain / way for plain, way in zip(*took)])
    if not ratios:
        print("weft rescue --to: without a ratio, because the kernel mounts no image for this process")
        return
    elapsed, processor = map(statistics.median, zip(*ratios))
    print(f"weft rescue --to: {elapsed:.2f} of cp -a by time, {processor:.2f} by processor time ({rounds} turns)")


if sys.argv[1] == "turns":
    turns(int(sys.argv[2]), sys.argv[3:5], sys.argv[5:])
elif sys.argv[1] == "files":
    files(int(sys.argv[2]), sys.argv[3], sys.argv[4:])
else:
    subprocess.run(sys.argv[2:], check=True, stdout=subprocess.DEVNULL)
    print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
