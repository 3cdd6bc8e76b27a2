#!/usr/bin/env python3
"""Writes and reads a few places of a device that is too large to be read whole.

  places.py write ID BYTES URI|DEVICE OFFSET…     BYTES at each offset, each word by its address and ID
  places.py compare ID BYTES URI|DEVICE OFFSET…   the same bytes must be there

Offsets and BYTES are multiples of 4 KiB.
"""

import mmap
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import nbd  # noqa: E402
import pattern  # noqa: E402


class Device:
    """A block device, past the page cache."""

    def __init__(self, path, length):
        self.fd = os.open(path, os.O_RDWR | os.O_DIRECT)
        self.buffer = mmap.mmap(-1, length)

    def read(self, offset, length):
        count = os.preadv(self.fd, [self.buffer], offset)
        assert count == length, f"{count} bytes at {offset}, expected {length}"
        return self.buffer[:]

    def write(self, offset, data):
        self.buffer[:] = data
        count = os.pwritev(self.fd, [self.buffer], offset)
        assert count == len(data), f"{count} bytes at {offset}, expected {len(data)}"

    def flush(self):
        os.fsync(self.fd)


def main(command, write_id, length, target, *offsets):
    write_id, length = int(write_id), int(length)
    device = nbd.Client(target) if "://" in target else Device(target, length)
    for offset in map(int, offsets):
        expected = pattern.words(offset, length, write_id)
        if command == "write":
            device.write(offset, expected)
            continue
        wrong = pattern.difference(offset, expected, device.read(offset, length))
        if wrong:
            sys.exit(wrong)
    if command == "write":
        device.flush()
    assert offsets, "no place was named"
    print(f"{command}: {len(offsets)} places, {length} bytes each")


main(*sys.argv[1:])
