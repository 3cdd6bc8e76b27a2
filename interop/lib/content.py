"""Sum of what files hold: `content.py FILE…` prints a line that is the same while every byte is.

Holes and zeros are skipped, and the sum is a CRC-32 of each 64 KiB: in the emulated guest of the
kernel lab SHA-256 takes a minute for the zeros of four sparse disks.
"""

import os
import sys
import zlib

PIECE = 64 << 10


def pieces(file):
    """Offset and bytes of each piece that may hold something."""
    size = os.fstat(file).st_size
    at = 0
    while at < size:
        try:
            data = os.lseek(file, at, os.SEEK_DATA)
        except OSError:  # a hole up to the end
            return
        end = os.lseek(file, data, os.SEEK_HOLE)
        for at in range(max(at, data // PIECE * PIECE), end, PIECE):
            yield at, os.pread(file, PIECE, at)
        at += PIECE


def sum_of(name):
    file = os.open(name, os.O_RDONLY)
    total = 0
    for at, piece in pieces(file):
        if piece.count(0) < len(piece):
            total = zlib.crc32(b"%d %d" % (at, zlib.crc32(piece)), total)
    total = f"{os.fstat(file).st_size}:{total:08x}"
    os.close(file)
    return total


print(*map(sum_of, sys.argv[1:]))
