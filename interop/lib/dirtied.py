"""Buffered writers, and how much is dirty meanwhile: of Linux, or of a volume with a write-back cache.

  dirtied.py FOLDER          WRITERS SECONDS SKIP SAMPLES     files in FOLDER, sampled from /proc/vmstat
  dirtied.py nbd+unix://…    WRITERS SECONDS SKIP SAMPLES     an export, sampled from its control socket

Each writer writes 64 KiB after 64 KiB of 32 MiB of its own, again and again, one after the other. Five times a
second a line goes to SAMPLES: milliseconds, pages dirty, being written, written since the start. Printed are, of the
samples after SKIP seconds: the mean of what is dirty or being written, in pages, its least and most, how many
samples there are, pages written, pages that the slowest and the fastest writer wrote, and the longest time that a
write of 64 KiB took, in milliseconds.
"""

import json
import os
import socket
import sys
import threading
import time

import nbd

BLOCK, AREA = 64 << 10, 32 << 20


class Files:
    """Linux."""

    def __init__(self, folder):
        self.folder = folder

    def writer(self, number):
        fd = os.open(os.path.join(self.folder, f"f{number}"), os.O_WRONLY | os.O_CREAT)
        return lambda at, data: os.pwrite(fd, data, at)

    @staticmethod
    def sample():
        with open("/proc/vmstat") as text:
            counts = dict(line.split() for line in text)
        return [int(counts[name]) for name in ("nr_dirty", "nr_writeback", "nr_written")]


class Export:
    """weft."""

    def __init__(self, uri):
        self.uri, self.name = uri, nbd.connect(uri)[1]

    def writer(self, number):
        client = nbd.Client(self.uri)
        return lambda at, data: client.write(number * AREA + at, data)

    def sample(self):
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(os.path.join(os.environ["XDG_RUNTIME_DIR"], "weft", f"{self.name}.sock"))
            control.sendall(b'{"v":2,"cmd":"status"}\n')
            answer = json.loads(control.makefile().readline())
        cache = answer["status"]["volumes"][0]["write_back"]
        return [cache[name] // 4096 for name in ("dirty", "writeback", "written")]


def main(where, writers, seconds, skip, samples):
    writers, seconds, skip = int(writers), float(seconds), float(skip)
    target = Export(where) if where.startswith("nbd") else Files(where)
    begin = time.monotonic()
    blocks, longest = [0] * writers, [0.0] * writers

    def write(number):
        put, data, at = target.writer(number), bytes([number + 1]) * BLOCK, 0
        while (now := time.monotonic()) - begin < seconds:
            put(at, data)
            if now - begin >= skip:
                blocks[number] += 1
                longest[number] = max(longest[number], time.monotonic() - now)
            at = (at + BLOCK) % AREA

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    sums, first, last = [], None, 0
    with open(samples, "w") as out:
        while (at := time.monotonic() - begin) < seconds:
            dirty, writeback, last = target.sample()
            print(round(at * 1000), dirty, writeback, last, sep=",", file=out)
            if at >= skip:
                first = last if first is None else first
                sums.append(dirty + writeback)
            time.sleep(0.2)
    for thread in threads:
        thread.join()
    pages = [count * BLOCK // 4096 for count in blocks]
    print(sum(sums) // len(sums), min(sums), max(sums), len(sums), last - first, min(pages), max(pages),
          round(max(longest) * 1000))


if __name__ == "__main__":
    main(*sys.argv[1:])
