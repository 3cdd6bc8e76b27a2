"""Writes a GUID partition table to an image: gpt.py IMAGE FIRST-LAST… (sectors of 512 bytes)."""

import struct
import sys
import uuid
import zlib

LINUX_RAID = uuid.UUID("A19D880F-05FC-4D3B-A006-743F0F84911E")

with open(sys.argv[1], "r+b") as disk:
    sectors = disk.seek(0, 2) // 512
    entries = b""
    for partition in sys.argv[2:]:
        first, last = map(int, partition.split("-"))
        entry = LINUX_RAID.bytes_le + uuid.uuid4().bytes_le + struct.pack("<QQQ", first, last, 0)
        entries += entry.ljust(128, b"\0")
    entries = entries.ljust(128 * 128, b"\0")
    identity = uuid.uuid4().bytes_le

    def header(own, other, array):
        """One copy, with its sum."""
        def fields(crc):
            return struct.pack(
                "<8sIIIIQQQQ16sQIII", b"EFI PART", 0x10000, 92, crc, 0, own, other, 34, sectors - 34,
                identity, array, 128, 128, zlib.crc32(entries))
        return fields(zlib.crc32(fields(0)))

    for own, other, array in ((1, sectors - 1, 2), (sectors - 1, 1, sectors - 33)):
        disk.seek(own * 512)
        disk.write(header(own, other, array))
        disk.seek(array * 512)
        disk.write(entries)
    disk.seek(446)
    disk.write(struct.pack("<BBBBBBBBII", 0, 0, 2, 0, 0xEE, 255, 255, 255, 1, min(sectors - 1, 2**32 - 1)))
    disk.seek(510)
    disk.write(b"\x55\xaa")
