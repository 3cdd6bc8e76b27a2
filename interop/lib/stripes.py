"""Stripes on the members of an array: superblock, geometry, parity against data.

Written from md's on-disk format, apart from weft's own code. RAID 5 and 6, left-symmetric, metadata
1.2. A *stripe* is what one 4 KiB block of every member makes up; it is named by that block's number
within the data of a member.
"""

import struct

SECTOR = 512
STRIPE = 8  # sectors
MAX_SECTOR = (1 << 64) - 1
SUPER = 4096  # bytes into the member
MAGIC = 0xA92B4EFC
HAS_RECOVERY_OFFSET = 2


class Superblock:
    """What the checks need of a version-1.2 superblock, and its bytes, to be changed."""

    def __init__(self, block):
        self.block = bytearray(block)
        get = lambda kind, at: struct.unpack_from("<" + kind, self.block, at)[0]
        assert get("I", 0) == MAGIC, f"superblock magic {get('I', 0):#x}, expected {MAGIC:#x}"
        self.level, self.layout = get("i", 72), get("I", 76)
        self.chunk, self.members = get("I", 88), get("I", 92)  # sectors; slots
        self.data_offset, self.data_size = get("Q", 128), get("Q", 80)  # sectors
        self.device, self.events, self.resync_offset = get("I", 160), get("Q", 200), get("Q", 208)
        self.recovery_offset = get("Q", 152) if get("I", 8) & HAS_RECOVERY_OFFSET else None
        self.roles = struct.unpack_from(f"<{get('I', 220)}H", self.block, 256)
        self.size = 256 + 2 * get("I", 220)
        self.right = get("I", 216) == self.checksum()

    def checksum(self):
        """Source: Linux drivers/md/md.c, calc_sb_1_csum: 32-bit words, then carries folded once."""
        block = bytearray(self.block[: self.size])
        block[216:220] = bytes(4)
        total = sum(struct.unpack_from(f"<{self.size // 4}I", block))
        if self.size % 4:
            total += struct.unpack_from("<H", block, self.size // 4 * 4)[0]
        return ((total & 0xFFFFFFFF) + (total >> 32)) & 0xFFFFFFFF

    @property
    def slot(self):
        """The slot that it says it has, or None."""
        role = self.roles[self.device] if self.device < len(self.roles) else 0xFFFF
        return role if role < self.members else None

    @property
    def clean(self):
        return self.resync_offset == MAX_SECTOR

    def set_resync_offset(self, sector):
        """As if the array had been marked so: MAX_SECTOR is clean, 0 is active."""
        struct.pack_into("<Q", self.block, 208, sector)
        struct.pack_into("<I", self.block, 216, self.checksum())


def read_superblock(path):
    with open(path, "rb") as f:
        f.seek(SUPER)
        return Superblock(f.read(4096))


def write_superblock(path, superblock):
    with open(path, "r+b") as f:
        f.seek(SUPER)
        f.write(superblock.block)


class Geometry:
    """Where a sector of the volume lies."""

    def __init__(self, superblock):
        assert superblock.level in (5, 6) and superblock.layout == 2, "RAID 5 or 6, left-symmetric"
        self.members = superblock.members
        self.parities = superblock.level - 4
        self.data_members = self.members - self.parities
        self.chunk = superblock.chunk
        self.data_offset = superblock.data_offset
        self.full_stripes = superblock.data_size // self.chunk
        self.sectors = self.full_stripes * self.chunk * self.data_members

    def data_slots(self, full_stripe):
        """The slots of a full stripe's data, in the order of the volume, which is that of Q too."""
        parity = self.members - 1 - full_stripe % self.members
        first = parity + self.parities
        return [(first + i) % self.members for i in range(self.data_members)]

    def place(self, sector):
        """(slot, sector of the member's data, stripe) of a sector of the volume."""
        chunk, within = divmod(sector, self.chunk)
        full_stripe, index = divmod(chunk, self.data_members)
        at = full_stripe * self.chunk + within
        return self.data_slots(full_stripe)[index], at, at // STRIPE

    def stripes(self, first, count):
        """The stripes that sectors of the volume lie in."""
        found, sector = set(), first
        while sector < first + count:
            found.add(self.place(sector)[2])
            sector = sector // STRIPE * STRIPE + STRIPE
        return found

    def full_stripes_of(self, first, count):
        """The full stripes that sectors of the volume lie in."""
        width = self.chunk * self.data_members
        return range(first // width, (first + count + width - 1) // width)

    def full_stripes_within(self, first, count):
        """(first sector, count) of what is full stripes: what a trim discards."""
        width = self.chunk * self.data_members
        start, end = -(-first // width) * width, (first + count) // width * width
        return start, max(0, end - start)

    def wrong_stripes(self, read, full_stripes):
        """The stripes of a whole array with parity that disagrees with the data; `read(slot, first sector,
        count)` gives the data of a member."""
        wrong = set()
        for full_stripe in full_stripes:
            at = full_stripe * self.chunk
            strips = [read(slot, at, self.chunk) for slot in range(self.members)]
            for stripe in self.differing(strips, self.data_slots(full_stripe)):
                wrong.add(at // STRIPE + stripe)
        return wrong

    def differing(self, strips, data_slots):
        """Which 4 KiB blocks of a full stripe disagree."""
        size = len(strips[0])
        number = [int.from_bytes(strip, "little") for strip in strips]
        syndromes = [0]
        for value in number if self.parities == 1 else (number[s] for s in data_slots):
            syndromes[0] ^= value
        if self.parities == 2:
            p, q = (data_slots[-1] + 1) % self.members, (data_slots[-1] + 2) % self.members
            total = 0
            for slot in reversed(data_slots):
                total = doubled(total, size) ^ number[slot]
            syndromes = [syndromes[0] ^ number[p], total ^ number[q]]
        found = set()
        for syndrome in syndromes:
            if syndrome:
                data, block = syndrome.to_bytes(size, "little"), STRIPE * SECTOR
                found |= {i for i in range(size // block) if any(data[i * block : (i + 1) * block])}
        return found


def doubled(value, size):
    """Every byte of a number times 2, in the field of RAID 6 (x^8 + x^4 + x^3 + x^2 + 1)."""
    ones = int.from_bytes(b"\x01" * size, "little")
    high = (value >> 7) & ones
    return ((value & (ones * 0x7F)) << 1) ^ (high * 0x1D)
