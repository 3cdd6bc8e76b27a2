#!/usr/bin/env python3
"""Kills of a server with a write-back cache, under one writer that flushes now and then.

    flushed.py WEFT WORK NAME TURNS SHAPE MEMBER…

A turn writes with several requests outstanding, none of which overlaps another, and is killed in the
middle. Each sector carries the number of its write. After the restart each sector is read: it has the
last write that was answered before a flush that was answered, or with FUA, or any later one. Over
all turns something that was answered and not flushed has to be lost, else nothing was shown.
"""

import os
import random
import signal
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import nbd  # noqa: E402

SECTOR = 512
SECTORS = 24 * 2048
DEPTH = 8


def words(first, count, number):
    return b"".join(struct.pack("<QQ", number, sector) * 32 for sector in range(first, first + count))


class Server:
    def __init__(self, weft, work, name, bare, members, *options):
        self.uri = f"nbd+unix:///{name}?socket={work}/{name}.sock"
        options = [*options, "--bare"] if bare else [*options]
        command = [weft, "serve", "--name", name, "--listen", self.uri, *options, *members]
        log = open(f"{work}/{name}.log", "ab")
        # Requests in flight outlive a killed process, its lock with them.
        for _ in range(100):
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
            line = self.process.stdout.readline()
            if line.startswith("ready "):
                return
            self.process.wait()
            time.sleep(0.1)
        sys.exit(f"serve was not ready: {line!r}")

    def end(self, number):
        self.process.send_signal(number)
        return self.process.wait(120)


class Turn:
    """What a writer did until it was killed."""

    def __init__(self, uri, rng, must, issued):
        self.client = nbd.Client(uri)
        self.rng, self.must, self.issued = rng, must, issued
        self.answered = {}  # sector → number, since the last flush
        self.outstanding = {}  # handle → (kind, first, count, number)
        self.flushes = self.writes = 0

    def run(self):
        try:
            while True:
                while len(self.outstanding) < DEPTH:
                    self.send()
                self.reply()
        except (OSError, ConnectionError, struct.error):
            pass

    def send(self):
        handle = self.client.handle + 1
        if self.rng.random() < 0.02:
            self.outstanding[handle] = ("flush", dict(self.answered), 0, 0)
            self.client.send(nbd.FLUSH)
            return
        count = self.rng.choice([1, 3, 8, 8, 8, 8, 16, 64, 256])
        first = self.rng.randrange(0, SECTORS - count)
        if count >= 8:
            first = first // 8 * 8
        for kind, start, length, _ in self.outstanding.values():
            if kind != "flush" and first < start + length and start < first + count:
                return
        number = len(self.issued) + 1
        self.issued.append((first, count))
        fua = nbd.FUA if self.rng.random() < 0.05 else 0
        self.outstanding[handle] = ("fua" if fua else "write", first, count, number)
        self.client.send(nbd.WRITE, first * SECTOR, count * SECTOR, fua, words(first, count, number))

    def reply(self):
        handle, error, _ = self.client.reply()
        kind, first, count, number = self.outstanding.pop(handle)
        assert not error, f"{kind} at sector {first}: error {error}"
        if kind == "flush":
            self.flushes += 1
            for sector, covered in first.items():
                self.must[sector] = max(self.must.get(sector, 0), covered)
            return
        self.writes += 1
        for sector in range(first, first + count):
            self.answered[sector] = number
            if kind == "fua":
                self.must[sector] = number


def judge(uri, must, issued, answered):
    """Reads all sectors; how many answered ones are lost. What was read is what is there from now on."""
    client, lost = nbd.Client(uri), 0
    for start in range(0, SECTORS, 2048):
        data = client.read(start * SECTOR, 2048 * SECTOR)
        for sector in range(start, start + 2048):
            part = data[(sector - start) * SECTOR:(sector - start + 1) * SECTOR]
            number, place = struct.unpack_from("<QQ", part)
            assert part == struct.pack("<QQ", number, place) * 32, f"sector {sector} is torn"
            assert number >= must.get(sector, 0), (
                f"sector {sector}: write {number}, and {must[sector]} was flushed")
            if number:
                first, count = issued[number - 1]
                assert place == sector and first <= sector < first + count, f"sector {sector}: of {place}"
            lost += number < answered.get(sector, 0)
            must[sector] = number
    client.flush()
    client.close()
    return lost


def main():
    weft, work, name, turns, shape, *members = sys.argv[1:]
    bare, rng, must, issued = shape == "bare", random.Random(14), {}, []
    flushes = writes = lost = 0
    server = Server(weft, work, name, bare, members)
    client = nbd.Client(server.uri)
    client.zero(0, SECTORS * SECTOR)
    client.close()
    server.end(signal.SIGTERM)
    for number in range(int(turns)):
        server = Server(weft, work, name, bare, members, "--write-back", "8M")
        turn = Turn(server.uri, rng, must, issued)
        writer = threading.Thread(target=turn.run, daemon=True)
        writer.start()
        writer.join(rng.uniform(0.3, 1.5))
        assert writer.is_alive(), "the writer ended"
        server.end(signal.SIGKILL)
        writer.join(30)
        # What is there is read with and without a cache.
        options = [["--write-back", "8M"], []][number % 2] + ["--accept-lost-writes"]
        server = Server(weft, work, name, bare, members, *options)
        lost += judge(server.uri, must, issued, turn.answered)
        assert server.end(signal.SIGTERM) == 0, "serve after SIGTERM"
        flushes, writes = flushes + turn.flushes, writes + turn.writes
    # Planted fault: a flush that was not asked for is missed.
    server = Server(weft, work, name, bare, members)
    planted = False
    try:
        judge(server.uri, {**must, 4711: len(issued) + 1}, issued, {})
    except AssertionError:
        planted = True
    server.end(signal.SIGTERM)
    assert planted, "a write that was never made is not missed"
    print(f"# {shape}: {writes} writes, {flushes} flushes, {lost} sectors lost that were not flushed")
    assert flushes >= int(turns) * 2 and writes >= int(turns) * 100, "too little was asked"
    assert lost > 0, "nothing was lost: the cache kept nothing"


main()
