"""Logs of the kernel's dm-log-writes: parsed, and replayed up to any point that a power cut may leave.

A log has each write of one device with its bytes, in the order in which they became durable: what
bears FUA when it completed, all else when a flush that came later did. Where several devices were
logged, marks that were put in all logs at once say what was before what.

Source: Linux drivers/md/dm-log-writes.c
"""

import fcntl
import struct

SECTOR = 512
FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8
SUPER_SECTOR = 8  # of a version-1.2 superblock
# _IOWR(0xfd, 14, struct dm_ioctl), of 312 bytes
DM_TARGET_MSG = 3 << 30 | 312 << 16 | 0xFD << 8 | 14


def put_mark(control, device, name):
    """Sends `mark NAME` to a dm device; `control` is /dev/mapper/control, open."""
    text = f"mark {name}".encode() + b"\0"
    size = 312 + 8 + len(text)
    header = struct.pack("<3I2I2i3IQ128s129s7x", 4, 0, 0, size, 312, 0, 0, 0, 0, 0, 0, device.encode(), b"")
    buffer = bytearray(header + struct.pack("<Q", 0) + text)
    fcntl.ioctl(control, DM_TARGET_MSG, buffer, True)


class Entry:
    __slots__ = ("sector", "sectors", "flags", "data")

    def __init__(self, sector, sectors, flags, data):
        self.sector, self.sectors, self.flags, self.data = sector, sectors, flags, data

    @property
    def written(self):
        """Whether bytes are stored (a flush may bear none)."""
        return self.sectors > 0 and not self.flags & (DISCARD | MARK)


def parse(path):
    """All entries of a log."""
    with open(path, "rb") as f:
        magic, version, count, size = struct.unpack("<QQQI", f.read(28))
        assert magic == 0x6A736677736872 and version == 1, f"{path}: no log of dm-log-writes"
        assert size == SECTOR, f"{path}: sectors of {size} bytes, expected {SECTOR}"
        entries, at = [], 1
        for index in range(count):
            f.seek(at * SECTOR)
            sector, sectors, flags, length = struct.unpack("<QQQQ", f.read(32))
            data = f.read(length) if flags & MARK else b""
            at += 1
            if sectors and not flags & DISCARD:
                f.seek(at * SECTOR)
                data = f.read(sectors * SECTOR)
                assert len(data) == sectors * SECTOR, f"{path}: entry {index} is cut off"
                at += sectors
            entries.append(Entry(sector, sectors, flags, data))
    return entries


class Log:
    """The log of one member, with the places of its marks and of its superblocks."""

    def __init__(self, entries):
        self.entries = entries
        self.marks = {}  # name → how many entries are before it
        # Update count of a superblock → how many entries are before the first such.
        self.rounds = {}
        # Sectors written with FUA since the last flush but one, and the last.
        recent = [set(), set()]
        for index, entry in enumerate(entries):
            if entry.flags & FLUSH:
                recent = [recent[1], set()]
            if entry.written:
                sectors = range(entry.sector, entry.sector + entry.sectors)
                if entry.flags & FUA:
                    recent[1].update(sectors)
                else:
                    doubt = (recent[0] | recent[1]).intersection(sectors)
                    assert not doubt, f"entry {index}: which write of sector {min(doubt)} was first?"
            if entry.flags & MARK:
                self.marks[entry.data.decode()] = index
            elif entry.written and entry.sector == SUPER_SECTOR:
                self.rounds.setdefault(struct.unpack_from("<Q", entry.data, 200)[0], index)

    def epoch(self, cut):
        """Of the entries before `cut`, the first that no flush has made durable for certain."""
        for index in range(cut - 1, -1, -1):
            if self.entries[index].flags & FLUSH:
                return index + 1
        return 0


def together(logs, cuts):
    """Moves cuts of several members forward until they are of one moment: a superblock round begins when
    what went before is done on all members, so a member with one has seen the others get there."""
    cuts = list(cuts)
    rounds = [e for log in logs for e, at in log.rounds.items()]
    for events in sorted(set(rounds)):
        if any(events in log.rounds and cut > log.rounds[events] for log, cut in zip(logs, cuts)):
            cuts = [max(cut, log.rounds.get(events, 0)) for log, cut in zip(logs, cuts)]
    return cuts


class Replay:
    """The bytes of one member as its log is replayed, mark by mark."""

    def __init__(self, log, size):
        self.log, self.at = log, 0
        self.image = bytearray(size)

    def forward(self, cut):
        assert cut >= self.at, "forward only"
        for entry in self.log.entries[self.at : cut]:
            apply(self.image, entry)
        self.at = cut

    def cut(self, cut, rng=None):
        """The image at `cut`, from where `forward` has been. With `rng` the drive loses any part of what
        no flush has made durable and bears no FUA, and the last write may be torn."""
        image = bytearray(self.image)
        pieces = self.log.entries[self.at : cut]
        safe = self.log.epoch(cut) - self.at
        for index, entry in enumerate(pieces):
            if rng and index >= safe and not entry.flags & (FUA | FLUSH):
                if rng.random() < 0.5:
                    continue
                if entry.sectors > 1 and rng.random() < 0.3:
                    entry = Entry(entry.sector, rng.randrange(1, entry.sectors), entry.flags, entry.data)
            apply(image, entry)
        return image


def apply(image, entry):
    if entry.written:
        at = entry.sector * SECTOR
        image[at : at + entry.sectors * SECTOR] = entry.data[: entry.sectors * SECTOR]
    elif entry.flags & DISCARD:
        at = entry.sector * SECTOR
        image[at : at + entry.sectors * SECTOR] = bytes(entry.sectors * SECTOR)
