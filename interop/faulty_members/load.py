#!/usr/bin/env python3
"""Load until told to stop: 16 clients with 64 writes outstanding each, and the contents that come of it.

  load.py URI EXPECTED COUNT STOP    keeps the number of answered writes in the file COUNT; once the file STOP
                                     exists, waits for the answers, flushes, and stores all in EXPECTED
"""

import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import nbd  # noqa: E402
import pattern  # noqa: E402

CLIENTS = 16
DEPTH = 64
BLOCK = 4096


class Writer(threading.Thread):
    """Writes to every sixteenth block, at most one write of a block at a time."""

    def __init__(self, uri, number, stop):
        super().__init__(daemon=True)
        self.uri, self.number, self.stop = uri, number, stop
        self.answered, self.error = 0, None
        self.data = {}

    def run(self):
        try:
            self.write()
        except Exception as error:  # reported by main
            self.error = error

    def write(self):
        rng = random.Random(self.number)
        client = nbd.Client(self.uri, 120)
        blocks = range(self.number, client.size // BLOCK, CLIENTS)
        under_way = {}
        busy = set()
        serial = 0
        while under_way or not self.stop.is_set():
            while len(under_way) < DEPTH and not self.stop.is_set():
                block = rng.choice(blocks)
                if block in busy:
                    continue
                serial += 1
                write_id = (serial * CLIENTS + self.number) & 0xFFFFFF
                data = pattern.words(block * BLOCK, BLOCK, write_id)
                busy.add(block)
                under_way[client.send(nbd.WRITE, block * BLOCK, BLOCK, 0, data)] = block, data
            if under_way:
                handle, error, _ = client.reply()
                if error:
                    raise nbd.NbdError(error)
                block, data = under_way.pop(handle)
                busy.discard(block)
                self.data[block] = data
                self.answered += 1
        client.flush()
        client.close()


def main(uri, expected, count, stop):
    told = threading.Event()
    writers = [Writer(uri, number, told) for number in range(CLIENTS)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        if os.path.exists(stop):
            told.set()
        with open(count + ".new", "w") as file:
            file.write(f"{sum(writer.answered for writer in writers)}\n")
        os.rename(count + ".new", count)
        time.sleep(0.05)
    errors = [f"client {writer.number}: {writer.error!r}" for writer in writers if writer.error]
    if errors:
        sys.exit("\n".join(errors))
    with open(expected, "r+b") as file:
        for writer in writers:
            for block, data in writer.data.items():
                file.seek(block * BLOCK)
                file.write(data)
    print(f"{sum(writer.answered for writer in writers)} writes")


if __name__ == "__main__":
    main(*sys.argv[1:])
