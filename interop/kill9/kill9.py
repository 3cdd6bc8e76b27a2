#!/usr/bin/env python3
"""kill9.py WEFT WORK NAME COUNT MEMBER…: kills a server COUNT times under writers and judges each restart.

The model, per 512-byte sector: the *floor* is the newest write that a flush (sent after the write's reply,
and answered) or FUA covers; after a kill the sector must hold the floor or a write issued later, whole.
What was found becomes the floor: a second read must not differ. Every word of a sector names its
write and address, so that a sector of another address or of two writes is told apart.
"""

import os
import random
import signal
import struct
import subprocess
import sys
import threading
import time
from array import array

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import nbd  # noqa: E402
import pattern  # noqa: E402

SECTOR = 512
DEPTH = 8


class Model:
    def __init__(self, sectors):
        self.sectors = sectors
        self.floor = array("Q", bytes(8 * sectors))
        self.issued = {}  # sector → ids issued above the floor
        self.next_id = 0
        self.lock = threading.Lock()

    def issue(self, first, count):
        with self.lock:
            self.next_id += 1
            for sector in range(first, first + count):
                self.issued.setdefault(sector, []).append(self.next_id)
            return self.next_id

    def cover(self, first, count, write_id):
        """The write is durable: nothing older may be seen."""
        with self.lock:
            for sector in range(first, first + count):
                self.floor[sector] = max(self.floor[sector], write_id)

    def judge(self, sector, data):
        """The id found in a sector, or an error in words."""
        word = struct.unpack_from("<Q", data)[0]
        found = word >> 40
        if found and data != pattern.words(sector * SECTOR, SECTOR, found):
            return None, f"sector {sector}: begins with {pattern.named(data[:8])} but is not whole or not its own"
        if not found and data != bytes(SECTOR):
            return None, f"sector {sector}: neither zero nor a pattern: {data[:16].hex()}"
        floor = self.floor[sector]
        if found < floor:
            return None, f"sector {sector}: found write {found}, but write {floor} was flushed"
        if found != floor and found not in self.issued.get(sector, ()):
            return None, f"sector {sector}: found write {found}, which was never issued there"
        return found, None

    def verify(self, client, keep=True):
        """Reads everything; answers (errors, sectors that hold something newer than the floor)."""
        errors, newer = [], 0
        piece = 2048
        for first in range(0, self.sectors, piece):
            data = client.read(first * SECTOR, piece * SECTOR)
            for index in range(piece):
                sector = first + index
                found, error = self.judge(sector, data[index * SECTOR : (index + 1) * SECTOR])
                if error:
                    errors.append(error)
                    continue
                newer += found != self.floor[sector]
                if keep:
                    self.floor[sector] = found
        if keep:
            self.issued.clear()
        return errors, newer


class Writer(threading.Thread):
    """One connection: up to DEPTH writes outstanding, none overlapping another, in its own part."""

    def __init__(self, uri, model, low, high, seed):
        super().__init__(daemon=True)
        self.client = nbd.Client(uri)
        self.model, self.low, self.high = model, low, high
        self.rng = random.Random(seed)
        self.acked = self.flushes = self.unanswered = 0
        self.error = None

    def run(self):
        outstanding = {}  # handle → (kind, first, count, id) or ("flush", acked then)
        covered = []  # answered writes that no flush covers yet
        try:
            while True:
                while len(outstanding) < DEPTH:
                    if self.rng.random() < 0.06:
                        handle = self.client.send(nbd.FLUSH)
                        outstanding[handle] = ("flush", list(covered), 0, 0)
                        continue
                    count = self.rng.choice([1, 3, 8, 8, 8, 16, 64, 200])
                    first = self.rng.randrange(self.low, self.high - count)
                    if count >= 8 and self.rng.random() < 0.7:
                        first = first // 8 * 8
                    busy = [o for o in outstanding.values() if o[0] != "flush"]
                    if any(first < o[1] + o[2] and o[1] < first + count for o in busy):
                        continue
                    write_id = self.model.issue(first, count)
                    fua = nbd.FUA if self.rng.random() < 0.08 else 0
                    data = pattern.words(first * SECTOR, count * SECTOR, write_id)
                    # The handle is known before the bytes leave, so that a kill in between is judged.
                    outstanding[self.client.handle + 1] = ("fua" if fua else "write", first, count, write_id)
                    self.client.send(nbd.WRITE, first * SECTOR, len(data), fua, data)
                handle, error, _ = self.client.reply()
                kind, first, count, write_id = outstanding.pop(handle)
                if error:
                    self.error = f"{kind} at sector {first}: error {error}"
                    return
                if kind == "flush":
                    self.flushes += 1
                    for entry in first:
                        self.model.cover(*entry)
                    done = set(first)
                    covered = [entry for entry in covered if entry not in done]
                else:
                    self.acked += 1
                    if kind == "fua":
                        self.model.cover(first, count, write_id)
                    else:
                        covered.append((first, count, write_id))
        except (OSError, ConnectionError, struct.error):
            self.unanswered = len(outstanding)


class Server:
    def __init__(self, weft, work, name, members):
        self.uri = f"nbd+unix:///{name}?socket={work}/{name}.sock"
        log = open(f"{work}/{name}.log", "ab")
        command = [weft, "serve", "--name", name, "--listen", self.uri, *members]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        start = time.monotonic()
        line = self.process.stdout.readline()
        self.ready_seconds = time.monotonic() - start
        if not line.startswith("ready "):
            self.kill()
            sys.exit(f"serve was not ready: {line!r}\n" + open(f"{work}/{name}.log").read()[-2000:])

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def main(weft, work, name, count, *members):
    count = int(count)
    rng = random.Random(9)
    server = Server(weft, work, name, members)
    client = nbd.Client(server.uri)
    model = Model(client.size // SECTOR // 2048 * 2048)
    client.close()
    acked = flushes = in_flight = newer_sectors = 0
    slowest = 0.0
    try:
        for turn in range(count):
            half = model.sectors // 2
            writers = [
                Writer(server.uri, model, 0, half, turn * 2),
                Writer(server.uri, model, half, model.sectors, turn * 2 + 1),
            ]
            for writer in writers:
                writer.start()
            time.sleep(rng.choice([0.01, 0.05, 0.1, 0.2, 0.4]))
            server.kill()
            for writer in writers:
                writer.join(30)
                assert not writer.is_alive(), "a writer hangs"
                if writer.error:
                    sys.exit(f"kill {turn}: {writer.error}")
                acked += writer.acked
                flushes += writer.flushes
            in_flight += any(writer.unanswered for writer in writers)
            server = Server(weft, work, name, members)
            slowest = max(slowest, server.ready_seconds)
            client = nbd.Client(server.uri)
            errors, newer = model.verify(client)
            client.close()
            newer_sectors += newer
            if errors:
                sys.exit(f"kill {turn}: {len(errors)} wrong sectors, first: " + "; ".join(errors[:3]))
        print(
            f"# {count} kills ({in_flight} with requests outstanding), {acked} writes and {flushes} flushes"
            f" acknowledged, {newer_sectors} sectors newer than their last flush, ready in {slowest:.2f} s at most"
        )
        # The run must have been able to find something.
        assert in_flight >= count * 3 // 5, "too few kills in the middle of writes"
        assert acked >= 20 * count and flushes >= count, "too few writes"
        assert newer_sectors > 0, "no unflushed write ever survived: suspicious"
        # Planted faults: a stale sector, a foreign sector and a torn one must each be found.
        client = nbd.Client(server.uri)
        known = [s for s in range(model.sectors) if model.floor[s] > 1][:3]
        stale, foreign, torn = known
        for sector, data in (
            (stale, pattern.words(stale * SECTOR, SECTOR, model.floor[stale] - 1)),
            (foreign, pattern.words((foreign + 1) * SECTOR, SECTOR, model.floor[foreign])),
            (torn, pattern.words(torn * SECTOR, 256, model.floor[torn]) + bytes(256)),
        ):
            good = client.read(sector * SECTOR, SECTOR)
            client.write(sector * SECTOR, data)
            errors, _ = model.verify(client, keep=False)
            assert len(errors) == 1 and f"sector {sector}:" in errors[0], errors
            client.write(sector * SECTOR, good)
        assert model.verify(client, keep=False) == ([], 0)
        client.close()
        print("# planted: a stale, a foreign and a torn sector were found")
    finally:
        server.process.send_signal(signal.SIGTERM)
        status = server.process.wait(30)
    assert status == 0, f"serve exited {status} after SIGTERM"


main(*sys.argv[1:])
