"""The model of a volume under verifying writers: what each 512-byte sector may hold.

The *floor* of a sector is the newest write that must be there; a write issued later may be there
too, whole. Every word of a sector names its write and address (pattern.py), so that a sector of
another address or of two writes is told apart. What was read once becomes the floor: a second read
must not differ.

A *write hole* is the one excuse. While an array is dirty, a stripe in which a write was unanswered may
have parity that disagrees, and what is reconstructed from it, for a member that is missing, may be
anything. What was found there is kept in `odd`: from then on that must be there.

A trim, or a write of zeros, is a write of sectors that are zero; of a trim that is the part which
is full stripes, for weft leaves its ends as they are.
"""

import struct
import threading
from array import array

import pattern

SECTOR = 512


class Model:
    def __init__(self, geometry, windows):
        """`windows` are the (first sector, count) that are written; nothing else is looked at."""
        self.geometry = geometry
        self.windows = windows
        self.floor = array("Q", bytes(8 * geometry.sectors))
        self.issued = {}  # sector → ids issued above the floor
        self.zeros = set()  # ids that leave zeros
        self.odd = {}  # sector → bytes that a write hole left
        self.suspect = set()  # stripes with parity that may disagree
        self.next_id = 0
        self.lock = threading.Lock()

    def issue(self, first, count, zero=False):
        with self.lock:
            self.next_id += 1
            if zero:
                self.zeros.add(self.next_id)
            for sector in range(first, first + count):
                self.issued.setdefault(sector, []).append(self.next_id)
            return self.next_id

    def cover(self, first, count, write_id):
        """The write must be there: nothing older may be seen."""
        with self.lock:
            for sector in range(first, first + count):
                if write_id > self.floor[sector]:
                    self.floor[sector] = write_id
                    self.odd.pop(sector, None)

    def suspected(self, sector, missing):
        """Whether a write hole excuses what is read there while the slots `missing` are reconstructed."""
        if not missing or not self.suspect:
            return False
        slot, _, stripe = self.geometry.place(sector)
        return slot in missing and stripe in self.suspect

    def judge(self, sector, data):
        """The id found in a sector, or an error in words."""
        odd = self.odd.get(sector)
        if odd is not None and data == odd:
            return 0, None
        found = struct.unpack_from("<Q", data)[0] >> 40
        if found and data != pattern.words(sector * SECTOR, SECTOR, found):
            return None, f"sector {sector}: begins with {pattern.named(data[:8])} but is not whole or not its own"
        if not found and data != bytes(SECTOR):
            return None, f"sector {sector}: neither zero nor a pattern: {data[:16].hex()}"
        floor = self.floor[sector]
        if not found and odd is None and floor in self.zeros:
            return floor, None
        if not found:
            found = max((i for i in self.issued.get(sector, ()) if i in self.zeros), default=0)
        if odd is not None and found not in self.issued.get(sector, ()):
            return None, f"sector {sector}: found write {found}, which is not what was read there before"
        if found < floor:
            return None, f"sector {sector}: found write {found}, but write {floor} was acknowledged"
        if found != floor and found not in self.issued.get(sector, ()):
            return None, f"sector {sector}: found write {found}, which was never issued there"
        return found, None

    def verify(self, read, missing=(), keep=True):
        """Reads every window by `read(offset, length)`; `missing` are the slots that are
        reconstructed. With `keep`, what was found becomes the floor."""
        verdict = Verdict()
        piece = 1024
        for low, count in self.windows:
            for first in range(low, low + count, piece):
                sectors = min(piece, low + count - first)
                data = read(first * SECTOR, sectors * SECTOR)
                verdict.sectors += sectors
                for index in range(sectors):
                    sector = first + index
                    content = data[index * SECTOR : (index + 1) * SECTOR]
                    found, error = self.judge(sector, content)
                    excused = bool(missing) and self.suspected(sector, missing)
                    verdict.excused += excused
                    if error and excused:
                        verdict.holes += 1
                        if keep:
                            self.odd[sector], self.floor[sector] = content, 0
                    elif error:
                        verdict.errors.append(error)
                    else:
                        verdict.newer += found != self.floor[sector]
                        verdict.zeroed += found in self.zeros
                        if keep:
                            if found:
                                self.odd.pop(sector, None)
                            self.floor[sector] = found
        if keep:
            self.issued.clear()
        return verdict


class Verdict:
    def __init__(self):
        self.errors = []
        self.sectors = self.newer = self.zeroed = 0
        self.excused = self.holes = 0  # sectors that might be wrong; that were
