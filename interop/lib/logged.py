#!/usr/bin/env python3
"""A verifying writer over logged members, and the judge of every point that a power cut may leave.

  logged.py write URI TRACE EPOCHS DEVICE…    writes in epochs that end with a flush; what was sent
                                              and answered goes to TRACE, marks to the dm devices
  logged.py mark TRACE DEVICE…                one mark more
  logged.py weft WEFT LOGS TRACE COUNT        judges COUNT points by weft, and plants faults
  logged.py md LOGS TRACE COUNT SOME LOOP…    SOME of those points, by the kernel's md on loop devices

A point is a cut of each member's log between two neighbouring marks. Half of them lose, beyond that,
any part of what was not flushed. Every write that a flush or FUA covers before the first mark must be
there, whole; one that was sent before the second may be. Parity agrees if the members say clean, else
in every stripe that has no write which was sent and not covered.
"""

import copy
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import logwrites  # noqa: E402
import nbd  # noqa: E402
import pattern  # noqa: E402
import stripes  # noqa: E402
from model import Model  # noqa: E402

SECTOR = 512
WINDOW = 768  # sectors, eight full stripes
DEPTH = 6


def windows(sectors):
    """Both ends are written without FUA, the middle with it: a log does not say whether a write that
    bears FUA, which is logged when it completes, came before or after one that a flush made durable."""
    return [(0, WINDOW), (sectors // 2 // WINDOW * WINDOW, WINDOW), (sectors - WINDOW, WINDOW)]


# The writer


class Trace:
    """What was sent, answered and marked, in that order; kept in a file over several runs."""

    def __init__(self, path, devices):
        self.path, self.devices = path, devices
        self.events = json.load(open(path)) if os.path.exists(path) else []
        self.control = os.open("/dev/mapper/control", os.O_RDWR)

    def count(self, kind):
        return sum(event[0] == kind for event in self.events)

    def mark(self):
        name = f"m{self.count('mark')}"
        for device in self.devices:
            logwrites.put_mark(self.control, device, name)
        self.events.append(("mark", name))

    def save(self):
        with open(self.path, "w") as f:
            json.dump(self.events, f)


def write(uri, path, epochs, *devices):
    trace = Trace(path, devices)
    write_id = trace.count("write")
    rng = random.Random(write_id + 7)
    client = nbd.Client(uri)
    outstanding = {}

    def reply():
        handle, error, _ = client.reply()
        assert not error, f"request {handle}: error {error}"
        trace.events.append(outstanding.pop(handle))

    trace.mark()
    for epoch in range(int(epochs)):
        for index in range(rng.randrange(6, 16)):
            while len(outstanding) >= DEPTH:
                reply()
            count = rng.choice([1, 3, 8, 8, 16, 16, 64, 200])
            place = rng.choice((0, 0, 0, 1, 2, 2, 2))
            low, length = windows(client.size // SECTOR)[place]
            first = low + rng.randrange(0, length - count + 1)
            if count >= 8 and rng.random() < 0.7:
                first = first // 8 * 8
            busy = [o for o in outstanding.values() if o[0] == "ack"]
            if any(first < o[1] + o[2] and o[1] < first + count for o in busy):
                continue
            write_id += 1
            fua = nbd.FUA if place == 1 else 0
            data = pattern.words(first * SECTOR, count * SECTOR, write_id)
            trace.events.append(("write", write_id, first, count))
            outstanding[client.handle + 1] = ("ack", first, count, write_id, bool(fua))
            client.send(nbd.WRITE, first * SECTOR, len(data), fua, data)
            if index == 5:
                trace.mark()
        trace.events.append(("flush",))
        outstanding[client.handle + 1] = ("flushed",)
        client.send(nbd.FLUSH)
        while ("flushed",) in outstanding.values():
            reply()
        trace.mark()
        if epoch % 3 == 2:  # the array is marked clean meanwhile, and dirty by the next write
            while outstanding:
                reply()
            time.sleep(0.7)
            trace.mark()
    while outstanding:
        reply()
    client.close()
    trace.save()
    print(f"{write_id} writes, {trace.count('flushed')} flushes, {trace.count('mark')} marks so far")


# Points


class Recording:
    """The logs of all members, and the trace of their writer."""

    def __init__(self, folder, path):
        count = sum(name.startswith("log") for name in os.listdir(folder))
        self.logs = [logwrites.Log(logwrites.parse(f"{folder}/log{i}")) for i in range(count)]
        self.size = int(open(f"{folder}/size").read())
        self.trace = [tuple(event) for event in json.load(open(path))]
        self.marks = [event[1] for event in self.trace if event[0] == "mark"]
        for log in self.logs:
            assert list(log.marks)[: len(self.marks)] == self.marks, "every log has every mark"
        replay = logwrites.Replay(self.logs[0], self.size)
        replay.forward(self.logs[0].marks[self.marks[0]])
        block = replay.image[stripes.SUPER : stripes.SUPER + 4096]
        self.geometry = stripes.Geometry(stripes.Superblock(block))

    def without(self, dropped):
        """The same, without entries for which `dropped(member, index, entry)` holds."""
        other = copy.copy(self)
        other.logs = [
            logwrites.Log([e for i, e in enumerate(log.entries) if not dropped(member, i, e)])
            for member, log in enumerate(self.logs)
        ]
        return other

    def last_point(self):
        return len(self.marks) - 2, [log.marks[self.marks[-1]] for log in self.logs], None

    def points(self, count):
        """(interval, cuts, seed or None), in the order of time: spread over the entries of all logs."""
        rng = random.Random(11)
        boundaries = []
        for member, log in enumerate(self.logs):
            for interval in range(len(self.marks) - 1):
                low, high = log.marks[self.marks[interval]], log.marks[self.marks[interval + 1]]
                boundaries += [(interval, member, cut) for cut in range(low, high + 1)]
        chosen = boundaries if len(boundaries) <= count else rng.sample(boundaries, count)
        points = []
        for number, (interval, member, cut) in enumerate(sorted(chosen)):
            cuts = []
            for other, log in enumerate(self.logs):
                low, high = log.marks[self.marks[interval]], log.marks[self.marks[interval + 1]]
                cuts.append(cut if other == member else rng.choice([low, high, rng.randint(low, high)]))
            points.append((interval, logwrites.together(self.logs, cuts), number if number % 2 else None))
        return points


def model_at(recording, interval):
    """The model between the mark `interval` and the next: what was covered before the first must be
    there, what was sent before the second may be."""
    geometry = recording.geometry
    model = Model(geometry, windows(geometry.sectors))
    first, second = recording.marks[interval], recording.marks[interval + 1]
    answered, flushing, before = [], [], True
    sent = {}
    for event in recording.trace:
        kind = event[0]
        if kind == "mark":
            if event[1] == first:
                before = False
            if event[1] == second:
                break
        elif kind == "write":
            sent[event[1]] = (event[2], event[3])
            model.next_id = event[1] - 1
            assert model.issue(event[2], event[3]) == event[1]
        elif kind == "ack" and before:
            if event[4]:
                model.cover(*event[1:4])
                sent.pop(event[3], None)
            else:
                answered.append(tuple(event[1:4]))
        elif kind == "flush":
            flushing, answered = answered, []
        elif kind == "flushed" and before:
            for entry in flushing:
                model.cover(*entry)
                sent.pop(entry[2], None)
    for place in sent.values():
        model.suspect |= geometry.stripes(*place)
    return model


def walk(recording, points):
    """(number, images, model, say clean, wrong stripes) of each point; points are in the order of time."""
    replays = [logwrites.Replay(log, recording.size) for log in recording.logs]
    geometry, at = recording.geometry, None
    full_stripes = sorted({stripe for w in windows(geometry.sectors) for stripe in geometry.full_stripes_of(*w)})
    for number, (interval, cuts, seed) in enumerate(points):
        if interval != at:
            for replay in replays:
                replay.forward(replay.log.marks[recording.marks[interval]])
            model, at = model_at(recording, interval), interval
        rng = None if seed is None else random.Random(seed)
        images = [replay.cut(cut, rng) for replay, cut in zip(replays, cuts)]
        superblocks = [stripes.Superblock(image[stripes.SUPER : stripes.SUPER + 4096]) for image in images]
        freshest = max((s for s in superblocks if s.right), key=lambda s: s.events)

        def read(slot, first, count):
            start = (geometry.data_offset + first) * SECTOR
            return images[slot][start : start + count * SECTOR]

        yield number, images, model, freshest.clean, geometry.wrong_stripes(read, full_stripes)


def of_parity(model, clean, wrong):
    """What is wrong with parity, in words."""
    excused = set() if clean else model.suspect
    found = sorted(wrong - excused)
    return [f"members say {'clean' if clean else 'active'}, parity of stripes {found[:5]} is wrong"] if found else []


def content(model, data, missing=()):
    return model.verify(lambda at, length: data[at : at + length], missing, keep=False)


# By weft


class Weft:
    def __init__(self, program, folder, members):
        self.program = program
        self.files = [f"{folder}/point.{i}" for i in range(members)]
        self.counts = Counter()

    def store(self, images):
        for path, image in zip(self.files, images):
            with open(path, "wb") as f:
                f.write(image)

    def run(self, *words):
        done = subprocess.run([self.program, *words], capture_output=True)
        return done.returncode, done.stdout, done.stderr.decode(errors="replace")[-300:]

    def judge(self, recording, points, deep=True):
        """What is wrong, in words."""
        errors = []
        for number, images, model, clean, wrong in walk(recording, points):
            self.store(images)
            found = of_parity(model, clean, wrong)
            status, data, said = self.run("cat", *self.files)
            found += content(model, data).errors if status == 0 else [f"weft cat: exit {status}, {said}"]
            self.counts["points"] += 1
            self.counts["clean"] += clean
            self.counts["with stripes of wrong parity"] += bool(wrong)
            self.counts["that lost a part of what was not flushed"] += points[number][2] is not None
            if deep and number % 8 == 0:
                found += self.degraded(model, number // 8 % len(self.files))
            if deep and number % 40 == 0:
                found += self.served(model)
            errors += [f"point {number}, {points[number]}: {error}" for error in found[:2]]
        return errors

    def degraded(self, model, gone):
        rest = [path for slot, path in enumerate(self.files) if slot != gone]
        status, data, said = self.run("cat", "--force-dirty", *rest)
        if status:
            return [f"weft cat without {gone}: exit {status}, {said}"]
        suspect = model.suspect
        superblocks = [stripes.read_superblock(path) for path in rest]
        clean = max((s for s in superblocks if s.right), key=lambda s: s.events).clean
        if clean:
            model.suspect = set()
        verdict = content(model, data, {gone})
        model.suspect = suspect
        self.counts["read without a member"] += 1
        self.counts["sectors read without a member"] += verdict.sectors
        self.counts["sectors excused there by the write hole"] += verdict.excused
        return [f"without {gone}: {error}" for error in verdict.errors]

    def served(self, model):
        """weft serves it, resyncs, counts no mismatch, and leaves it clean."""
        script = f"{self.program} wait point >&2 && {self.program} check point >&2"
        status, _, said = self.run("serve", "--name", "point", "--exec", script, *self.files)
        if status:
            return [f"weft serve, wait and check: exit {status}, {said}"]
        status, data, said = self.run("cat", *self.files)
        states = {stripes.read_superblock(path).clean for path in self.files}
        self.counts["served, resynced and checked"] += 1
        return content(model, data).errors + ([] if states == {True} else ["stopped, and not clean"])


def weft(program, folder, path, count):
    count = int(count)
    recording = Recording(folder, path)
    points = recording.points(count)
    judge = Weft(program, folder, len(recording.logs))
    errors = judge.judge(recording, points)
    print("; ".join(f"{text}: {judge.counts[text]}" for text in judge.counts))
    if errors:
        sys.exit(f"{len(errors)} errors, first: " + "; ".join(errors[:3]))
    assert judge.counts["points"] >= count, f"{judge.counts['points']} points, expected {count}"
    for text in ("clean", "with stripes of wrong parity", "served, resynced and checked", "sectors excused there by the write hole"):
        assert judge.counts[text] > 0, f"{text}: none"
    plant(program, folder, recording, points)


def plant(program, folder, recording, points):
    """Logs that lack a flushed write of data, one of parity, every mark of dirtiness."""
    judge = Weft(program, folder, len(recording.logs))
    last = [recording.last_point()]
    assert judge.judge(recording, last, deep=False) == [], "control: the last point"
    geometry = recording.geometry
    looked_for = {"was acknowledged", "is wrong"}
    for member, log in enumerate(recording.logs):
        seen = set()
        for index in range(len(log.entries) - 1, -1, -1):
            entry = log.entries[index]
            at = entry.sector - geometry.data_offset
            if not entry.written or at < 0:
                continue
            # The rest of one with an overwritten beginning still hides what was written before.
            hidden = entry.sector in seen
            seen.update(range(entry.sector, entry.sector + entry.sectors))
            if hidden or not looked_for or not any(entry.data) or index > log.marks[recording.marks[-1]]:
                continue
            dropped = recording.without(lambda m, i, e: (m, i) == (member, index))
            errors = judge.judge(dropped, [dropped.last_point()], deep=False)
            assert errors, f"entry {index} of member {member} was dropped, and nothing was found"
            looked_for -= {text for text in looked_for if any(text in error for error in errors)}
    assert not looked_for, looked_for

    def marks_dirty(_, __, entry):
        if not entry.written or entry.sector != logwrites.SUPER_SECTOR:
            return False
        return not stripes.Superblock(entry.data).clean

    never_dirty = recording.without(marks_dirty)
    errors = judge.judge(never_dirty, never_dirty.points(100), deep=False)
    assert any("members say clean, parity" in error for error in errors), errors[:3]
    print("planted and found: a write of data and one of parity that were lost after a flush, and no dirty mark")


# By the kernel, in the guest


def md(folder, path, count, some, *loops):
    recording = Recording(folder, path)
    points = recording.points(int(count))
    some = int(some)
    step = len(points) // some
    chosen = points[step // 2 :: step][:some]
    sysfs = "/sys/block/md0/md/"
    resyncs = cleans = 0
    environment = dict(os.environ, MDADM_NO_UDEV="1")

    def read(name):
        with open(sysfs + name) as f:
            return f.read().strip()

    def idle():
        for _ in range(1200):
            if read("sync_action") == "idle" and read("resync_start") == "none":
                return
            time.sleep(0.05)
        sys.exit("the kernel's sync does not end")

    for number, images, model, clean, _ in walk(recording, chosen):
        for loop, image in zip(loops, images):
            with open(loop, "r+b") as f:
                f.write(image)
                os.fsync(f.fileno())
        command = ["mdadm", "--assemble", "--run", "/dev/md0", *loops]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        text = f"point {chosen[number]}"
        if done.returncode or read("degraded") != "0":
            sys.exit(f"{text}: mdadm --assemble --run: exit {done.returncode}, {done.stderr}")
        cleans += clean
        resyncs += read("sync_action") != "idle" or read("resync_start") != "none"
        idle()
        with open("/dev/md0", "rb") as f:
            data = {}
            for low, length in model.windows:
                f.seek(low * SECTOR)
                data[low] = f.read(length * SECTOR)

        def piece(at, length):
            low = max(low for low in data if low * SECTOR <= at)
            return data[low][at - low * SECTOR :][:length]

        errors = model.verify(piece, keep=False).errors
        if errors:
            sys.exit(f"{text}: {errors[:3]}")
        with open(sysfs + "sync_action", "w") as f:
            f.write("check")
        idle()
        if read("mismatch_cnt") != "0":
            sys.exit(f"{text}: mismatch_cnt {read('mismatch_cnt')}")
        for _ in range(50):
            if subprocess.run(["mdadm", "--stop", "/dev/md0"], capture_output=True, env=environment).returncode == 0:
                break
            time.sleep(0.1)
    print(f"{len(chosen)} points: {cleans} clean, {resyncs} seen in a resync")


def main(command, *rest):
    if command == "mark":
        trace = Trace(rest[0], rest[1:])
        trace.mark()
        trace.save()
    else:
        {"write": write, "weft": weft, "md": md}[command](*rest)


if __name__ == "__main__":
    main(*sys.argv[1:])
