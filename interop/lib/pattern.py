#!/usr/bin/env python3
"""Patterns that name where and when they were written, in every 8-byte word.

A word is (write id << 40) | (its address / 8), little endian; a word never written is zero. So a
wrong word says which write of which address landed there.

  pattern.py fill FILE BYTES ID                a file of BYTES, all by write ID
  pattern.py write URI EXPECTED SEED COUNT     COUNT random writes through NBD, recorded in EXPECTED
  pattern.py verify URI EXPECTED               reads the whole export and compares
  pattern.py turn URI EXPECTED SEED COUNT      verify, then write
  pattern.py compare EXPECTED FILE             the same for two files
"""

import os
import random
import sys
from array import array

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import nbd  # noqa: E402

MIB = 1 << 20


def words(offset, length, write_id):
    """The bytes which write `write_id` puts at `offset` (any byte, any length)."""
    start = offset // 8
    end = (offset + length + 7) // 8
    base = write_id << 40
    data = array("Q", range(base + start, base + end)).tobytes()
    return data[offset - start * 8 :][:length]


def named(word):
    value = int.from_bytes(word, "little")
    return "never written" if value == 0 else f"write {value >> 40} of byte {(value & ((1 << 40) - 1)) * 8}"


def difference(at, expected, found):
    """None, or a line on the first difference of two equally long pieces that begin at `at`."""
    if expected == found:
        return None
    index = next(i for i in range(len(expected)) if i >= len(found) or expected[i] != found[i])
    word = index // 8 * 8
    count = sum(a != b for a, b in zip(expected, found))
    return (
        f"byte {at + index}: found {named(found[word : word + 8])}, "
        f"expected {named(expected[word : word + 8])}; {count} bytes of this piece differ"
    )


def lengths(rng, sector=512):
    """A length: small ones often, chunk and stripe sized ones too, not always aligned."""
    kind = rng.random()
    if kind < 0.2:
        return rng.randrange(1, 4 * sector)
    if kind < 0.5:
        return 4096 * rng.randrange(1, 5)
    if kind < 0.8:
        return 4096 * rng.randrange(4, 33)
    return rng.randrange(1, 400) * sector


def write(uri, expected_path, seed, count):
    rng = random.Random(seed)
    client = nbd.Client(uri)
    block = client.block_sizes[0] if client.block_sizes else 1  # the least that the server takes
    if not os.path.exists(expected_path):
        with open(expected_path, "wb") as f:
            f.truncate(client.size)
    total = 0
    with open(expected_path, "r+b") as f:
        assert os.fstat(f.fileno()).st_size == client.size, "size of the expected image"
        for index in range(count):
            write_id = (seed << 16 | index) & 0xFFFFFF
            length = min(lengths(rng), client.size)
            offset = rng.randrange(0, client.size - length + 1)
            if rng.random() < 0.6:
                offset = offset // 4096 * 4096
            if index == 0:
                offset = client.size - length
            if block > 1:
                offset = offset // block * block
                length = min(-(-length // block) * block, client.size - offset)
            if rng.random() < 0.06:
                client.zero(offset, length)
                data = bytes(length)
            else:
                data = words(offset, length, write_id)
                client.write(offset, data, nbd.FUA if rng.random() < 0.05 else 0)
            f.seek(offset)
            f.write(data)
            total += length
            if rng.random() < 0.03:
                client.flush()
    client.flush()
    client.close()
    print(f"{count} writes, {total} bytes")


def verify(uri, expected_path):
    client = nbd.Client(uri)
    with open(expected_path, "rb") as f:
        size = os.fstat(f.fileno()).st_size
        assert size == client.size, f"size {client.size}, expected {size}"
        for at in range(0, size, MIB):
            expected = f.read(MIB)
            found = client.read(at, len(expected))
            wrong = difference(at, expected, found)
            if wrong:
                sys.exit(wrong)
    client.close()
    print(f"{size} bytes are equal")


def compare(expected_path, path):
    with open(expected_path, "rb") as a, open(path, "rb") as b:
        at = 0
        while True:
            expected, found = a.read(MIB), b.read(MIB)
            if len(expected) != len(found):
                sys.exit(f"lengths differ after byte {at + min(len(expected), len(found))}")
            if not expected:
                break
            wrong = difference(at, expected, found)
            if wrong:
                sys.exit(wrong)
            at += len(expected)
    print(f"{at} bytes are equal")


def main(arguments):
    command, *rest = arguments
    if command == "fill":
        path, size, write_id = rest[0], int(rest[1]), int(rest[2])
        with open(path, "wb") as f:
            for at in range(0, size, MIB):
                f.write(words(at, min(MIB, size - at), write_id))
    elif command == "write":
        write(rest[0], rest[1], int(rest[2]), int(rest[3]))
    elif command == "verify":
        verify(rest[0], rest[1])
    elif command == "turn":
        verify(rest[0], rest[1])
        write(rest[0], rest[1], int(rest[2]), int(rest[3]))
    elif command == "compare":
        compare(rest[0], rest[1])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
