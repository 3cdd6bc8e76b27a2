#!/usr/bin/env python3
"""Bad ranges of members, and the blocks of the volume that cannot be read for them.

  planted.py blocks MEMBER GONE SLOT FIRST:COUNT…   those blocks (of 4096 bytes), one a line, if slots GONE
                                                    (as 1 or 0,2) are missing and SLOT cannot read COUNT
                                                    sectors from FIRST of its data on; MEMBER is any of them
  planted.py bytes MEMBER FIRST:COUNT…              those ranges, "FIRST LENGTH" in bytes of the member
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import stripes  # noqa: E402


def main(command, member, *rest):
    geometry = stripes.Geometry(stripes.read_superblock(member))
    if command == "bytes":
        for word in rest:
            first, count = map(int, word.split(":"))
            print((geometry.data_offset + first) * 512, count * 512)
        return
    gone, slot = {int(word) for word in rest[0].split(",")}, int(rest[1])
    assert len(gone) == geometry.parities, "so many are missing that every other block counts"
    touched = set()
    for word in rest[2:]:
        first, count = map(int, word.split(":"))
        touched.update(range(first // 8, (first + count + 7) // 8))
    blocks = set()
    for stripe in touched:
        full_stripe, within = divmod(stripe * 8, geometry.chunk)
        for index, data_slot in enumerate(geometry.data_slots(full_stripe)):
            if data_slot in gone | {slot}:
                sector = (full_stripe * geometry.data_members + index) * geometry.chunk + within
                blocks.add(sector // 8)
    print(*sorted(blocks), sep="\n")


main(*sys.argv[1:])
