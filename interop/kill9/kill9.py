#!/usr/bin/env python3
"""Kills of a server in every state of its array, each restart judged sector by sector.

    kill9.py WEFT WORK NAME CYCLES MEMBER…

A cycle is nine turns. Each is killed while writers have requests outstanding: plainly, in a resync,
in a check, degraded, while a member is added, in a rebuild, and about when the array is marked
clean; the last is stopped in good order. Every third restart leaves members out, as many as the
level can do without.

After each kill, from the members alone:
- `weft examine` says active whenever a write was unanswered, and clean after a stop in good order;
- parity agrees with the data everywhere if it says clean, else in every stripe in which no write was
  unanswered since the array was last whole and clean.
After each restart every sector is read: every *acknowledged* write is there, for weft writes
through and a kill takes no cache away; so is every trim and write of zeros, of which one that was not
answered leaves each sector as it was, or zero; a sector that the write hole excuses may be odd, but
stays as it is (model.py).
"""

import fcntl
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import nbd  # noqa: E402
import pattern  # noqa: E402
import stripes  # noqa: E402
from model import Model  # noqa: E402

SECTOR = 512
DEPTH = 8
WINDOW = 4096  # sectors, of each writer
# An array is marked clean when nothing was written for 200 ms (safe_mode_delay); a kill sooner than
# this after an acknowledged write must find it active.
SURELY_ACTIVE = 0.1


class Writer(threading.Thread):
    """One connection: up to DEPTH writes outstanding, none overlapping another, in its own window."""

    def __init__(self, uri, model, window, seed, pauses=False):
        super().__init__(daemon=True)
        self.client = nbd.Client(uri)
        self.model, self.pauses = model, pauses
        self.low, self.high = window[0], window[0] + window[1]
        self.rng = random.Random(seed)
        self.acked = self.flushes = self.trims = 0
        self.acked_at = 0.0  # when the last write was answered
        self.outstanding = {}  # handle → (kind, first, count, id)
        # (first, count, id) acknowledged, and no flush sent since was answered.
        self.unflushed = set()
        self.error = None
        self.ending = False

    def run(self):
        try:
            while not self.ending:
                for _ in range(self.rng.randrange(1, 60) if self.pauses else 1000):
                    while len(self.outstanding) < DEPTH:
                        self.send()
                    if not self.reply() or self.ending:
                        return
                if self.pauses:
                    while self.outstanding:
                        if not self.reply():
                            return
                    time.sleep(self.rng.uniform(0.15, 0.6))
        except (OSError, ConnectionError, struct.error):
            pass
        finally:
            # What was answered before the kill still waits in the socket.
            try:
                while self.outstanding and self.error is None:
                    self.reply()
            except (OSError, ConnectionError, struct.error):
                pass

    def unanswered(self):
        return [(first, count) for kind, first, count, _ in self.outstanding.values() if kind != "flush"]

    def unanswered_trims(self):
        return sum(kind == "trim" for kind, *_ in self.outstanding.values())

    def send(self):
        if self.rng.random() < 0.06:
            self.outstanding[self.client.handle + 1] = ("flush", set(self.unflushed), 0, 0)
            self.client.send(nbd.FLUSH)
            return
        kind = self.rng.choices(["write", "trim", "zero"], [92, 5, 3])[0]
        count = self.rng.choice([1, 3, 8, 8, 8, 16, 64, 200] if kind == "write" else [8, 100, 200, 400, 700])
        first = self.rng.randrange(self.low, self.high - count)
        if count >= 8 and self.rng.random() < 0.7:
            first = first // 8 * 8
        if first < self.low:
            return
        fua = nbd.FUA if self.rng.random() < 0.08 else 0
        asked = first * SECTOR, count * SECTOR
        if kind == "trim":
            # What lies around full stripes stays, and may be written meanwhile.
            first, count = self.model.geometry.full_stripes_within(first, count)
        busy = [o for o in self.outstanding.values() if o[0] != "flush"]
        if any(first < o[1] + o[2] and o[1] < first + count for o in busy):
            return
        write_id = self.model.issue(first, count, kind != "write")
        # The handle is known before the bytes leave, so that a kill in between is judged.
        self.outstanding[self.client.handle + 1] = (kind, first, count, write_id)
        if kind == "trim":
            self.client.send(nbd.TRIM, *asked, fua)
        elif kind == "zero":
            self.client.send(nbd.WRITE_ZEROES, *asked, fua | self.rng.choice([0, nbd.NO_HOLE]))
        else:
            if fua:
                self.outstanding[self.client.handle + 1] = ("fua", first, count, write_id)
            self.client.send(nbd.WRITE, *asked, fua, pattern.words(*asked, write_id))

    def reply(self):
        handle, error, _ = self.client.reply()
        kind, first, count, write_id = self.outstanding.pop(handle)
        if error:
            self.error = f"{kind} at sector {first}: error {error}"
            return False
        if kind == "flush":
            self.flushes += 1
            self.unflushed -= first
            return True
        self.acked += 1
        self.acked_at = time.monotonic()
        self.model.cover(first, count, write_id)
        self.trims += kind == "trim" and count > 0
        if kind == "write":
            self.unflushed.add((first, count, write_id))
        return True


class Server:
    def __init__(self, weft, work, name, members, *options):
        self.weft, self.name = weft, name
        self.uri = f"nbd+unix:///{name}?socket={work}/{name}.sock"
        self.log = f"{work}/{name}.log"
        log = open(self.log, "ab")
        command = [weft, "serve", "--name", name, "--listen", self.uri, *options, *members]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        start = time.monotonic()
        line = self.process.stdout.readline()
        self.ready_seconds = time.monotonic() - start
        if not line.startswith("ready "):
            self.kill()
            sys.exit(f"serve {options} was not ready: {line!r}\n" + open(self.log).read()[-2000:])

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(60)
        assert status == 0, f"serve exited {status} after SIGTERM"

    def ask(self, command):
        """The control socket, with the command sent."""
        control = socket.socket(socket.AF_UNIX)
        control.connect(os.path.join(os.environ["XDG_RUNTIME_DIR"], "weft", f"{self.name}.sock"))
        control.sendall(json.dumps(command).encode() + b"\n")
        return control

    def status(self):
        with self.ask({"v": 2, "cmd": "status"}) as control:
            return json.loads(control.makefile().readline())["status"]["volumes"][0]

    def command(self, *words):
        """The process of `weft WORD NAME ARGUMENT…`."""
        command = [self.weft, words[0], self.name, *words[1:]]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=open(self.log, "ab"))

    def wait(self, what):
        """Until the status is as `what` says; answers it."""
        for _ in range(6000):
            volume = self.status()
            if what(volume):
                return volume
            time.sleep(0.005)
        sys.exit(f"waited in vain: {json.dumps(volume)}")


def wait_for_io(path):
    """Until no process holds the member: requests in flight outlive a killed process, its lock
    with them.

    Source: reliability.md F15
    """
    whole = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    with open(path, "r+b") as f:
        for _ in range(2000):
            try:
                fcntl.fcntl(f, fcntl.F_OFD_SETLK, whole)
                return
            except OSError:
                time.sleep(0.005)
    sys.exit(f"{path} stays locked after the kill")


def answered(control):
    """Whether a command got an answer before the server was killed."""
    with control:
        try:
            return control.recv(1) != b""
        except ConnectionError:
            return False


class Judge:
    """What the bytes of members must say after a kill or a stop."""

    def __init__(self, weft, model, members):
        self.weft, self.model, self.members = weft, model, members
        self.full_stripes = set()
        for first, count in model.windows:
            self.full_stripes.update(model.geometry.full_stripes_of(first, count))
        self.counts = Counter()

    def examined(self):
        """(path, events, state) by `weft examine`, of every member."""
        done = subprocess.run([self.weft, "examine", "--json", *self.members], capture_output=True, check=True)
        members = json.loads(done.stdout)["members"]
        assert len(members) == len(self.members), "examine tells all members"
        return [(m["member"], m["superblock"]["events"], m["superblock"]["state"]) for m in members]

    def in_sync(self):
        """slot → path of members that agree with the freshest and have all of their data, by the bytes."""
        superblocks = [stripes.read_superblock(path) for path in self.members]
        freshest = max(superblocks, key=lambda s: s.events)
        by_slot = {}
        for path, own in zip(self.members, superblocks):
            agrees = own.slot is not None and freshest.roles[own.device] == own.slot
            if agrees and own.events + 1 >= freshest.events and own.recovery_offset is None:
                by_slot[own.slot] = path
        return by_slot

    def whole(self):
        """The paths by slot, or None if a member is not in sync."""
        by_slot = self.in_sync()
        return by_slot if len(by_slot) == self.model.geometry.members else None

    def state(self):
        """What the freshest members say: `clean`, or `active`."""
        said = self.examined()
        freshest = max(events for _, events, _ in said)
        states = {state for _, events, state in said if events == freshest}
        return "clean" if states == {"clean"} else "active"

    def wrong_stripes(self):
        """The stripes with parity that disagrees, or None of an array that is not whole."""
        by_slot = self.whole()
        if by_slot is None:
            return None
        files = {slot: open(path, "rb") for slot, path in by_slot.items()}

        def read(slot, at, count):
            files[slot].seek((self.model.geometry.data_offset + at) * SECTOR)
            return files[slot].read(count * SECTOR)

        wrong = self.model.geometry.wrong_stripes(read, self.full_stripes)
        for file in files.values():
            file.close()
        return wrong

    def after_kill(self, must_be_active, count=True):
        """Answers (what is wrong, state, wrong stripes)."""
        state, wrong = self.state(), self.wrong_stripes()
        errors = []
        if must_be_active and state == "clean":
            errors.append("the members say clean, but writes were unanswered")
        allowed = set() if state == "clean" else self.model.suspect
        if wrong and wrong - allowed:
            errors.append(f"members say {state}; parity of stripes {sorted(wrong - allowed)[:5]} is wrong without excuse")
        if count:
            self.counts["killed, found " + state] += 1
            self.counts["must be active"] += must_be_active
            self.counts["parity judged"] += wrong is not None
            self.counts["stripes of wrong parity"] += len(wrong or ())
        return errors, state, wrong

    def after_stop(self, count=True):
        """Every member that is not stale says clean, with one count of events; parity agrees."""
        said = self.examined()
        freshest = max(events for _, events, _ in said)
        current = [s for s in said if s[1] + 1 >= freshest]
        errors = [f"{m} says {state}, {events} events" for m, events, state in current if state != "clean" or events != freshest]
        wrong = self.wrong_stripes()
        if wrong:
            errors.append(f"stopped, but parity of stripes {sorted(wrong)[:5]} is wrong")
        if count:
            self.counts["stopped"] += 1
            self.counts["parity judged after a stop"] += wrong is not None
        return errors


class Run:
    PLAN = ("write", "resync", "check", "degraded", "add", "rebuild", "rebuilt", "pauses", "stop")

    def __init__(self, weft, work, name, members):
        self.weft, self.work, self.name, self.members = weft, work, name, list(members)
        self.rng = random.Random(9)
        geometry = stripes.Geometry(stripes.read_superblock(members[0]))
        last = geometry.sectors - WINDOW
        self.model = Model(geometry, [(0, WINDOW), (last // 2 // 8 * 8, WINDOW), (last, WINDOW)])
        self.judge = Judge(weft, self.model, self.members)
        self.counts = Counter()
        self.slowest = 0.0
        self.unflushed = []
        self.planted = Counter()
        self.server = Server(weft, work, name, members)

    def fail(self, text, errors):
        if errors:
            sys.exit(f"{text}: {len(errors)} errors, first: " + "; ".join(errors[:3]))

    # What happens before the end of a turn

    def whole(self):
        """Missing members are added, rebuilt, and the array becomes whole and clean."""
        self.add()
        self.server.wait(lambda v: v["degraded"] == 0 and v["sync_action"] == "idle" and v["array_state"] == "clean")
        self.model.suspect.clear()

    def missing_paths(self):
        held = {m["label"] for m in self.server.status()["members"] if m["state"] != "faulty"}
        return [path for path in self.members if path not in held]

    def add(self):
        for path in self.missing_paths():
            assert self.server.command("add", "--force", path).wait(30) == 0, "weft add"

    def turn(self, kind, number):
        """One turn up to its kill; answers whether it was stopped in good order instead."""
        server = self.server
        if kind in ("resync", "check", "rebuilt", "pauses", "stop"):
            self.whole()
        if kind == "rebuild" and server.status()["degraded"] and not any(
            m["state"] == "rebuilding" for m in server.status()["members"]
        ):
            self.add()
        windows = self.model.windows
        if kind == "pauses":
            # Alone, so that the array is marked clean in its pauses, and killed about then.
            windows = windows[number // len(self.PLAN) % len(windows) :][:1]
        writers = [
            Writer(server.uri, self.model, window, number * 8 + i, kind == "pauses")
            for i, window in enumerate(windows)
        ]
        for writer in writers:
            writer.start()
        # A write is acknowledged first, so that a member that is left out is known to be.
        while not all(writer.acked or writer.error for writer in writers):
            time.sleep(0.001)
        adding = None
        if kind == "check":
            check = server.command("check", "--no-wait")
            assert check.wait(30) == 0, "weft check"
        elif kind == "add":
            adding = server.ask({"v": 2, "cmd": "add", "members": self.missing_paths()})
            # Every other one at once, which no machine is fast enough to answer first.
            if number // len(self.PLAN) % 2:
                time.sleep(self.rng.uniform(0, 0.01))
        elif kind in ("check", "rebuild"):
            time.sleep(self.rng.uniform(0, 0.04))
        elif kind == "pauses":
            time.sleep(self.rng.uniform(0.3, 1.2))
        else:
            time.sleep(self.rng.choice([0.01, 0.05, 0.1, 0.2]))
        if kind == "stop":
            for writer in writers:
                writer.ending = True
            for writer in writers:
                writer.join(30)
        action = "add" if adding else server.status()["sync_action"]
        if kind == "stop":
            server.stop()
        else:
            killed_at = time.monotonic()
            server.kill()
            self.counts[f"killed in {action}"] += 1
        if adding:
            self.counts["killed before `add` was answered"] += not answered(adding)
        self.unflushed = []
        unanswered, recent = [], False
        for writer in writers:
            writer.join(30)
            assert not writer.is_alive(), "a writer hangs"
            if writer.error:
                sys.exit(f"turn {number}, {kind}: {writer.error}")
            self.counts["writes"] += writer.acked
            self.counts["flushes"] += writer.flushes
            self.counts["trims"] += writer.trims
            self.counts["trims unanswered at a kill"] += writer.unanswered_trims()
            self.unflushed += writer.unflushed
            unanswered += writer.unanswered()
            if kind != "stop":
                recent |= killed_at - writer.acked_at < SURELY_ACTIVE
        for path in self.members:
            wait_for_io(path)
        if kind == "stop":
            assert not unanswered, "a stop in good order answers everything"
            self.fail(f"turn {number}, stopped", self.judge.after_stop())
            self.model.suspect.clear()
            if not self.planted["stopped"]:
                self.plant_in_stopped()
            return
        self.counts["kills with writes unanswered"] += bool(unanswered)
        for first, count in unanswered:
            self.model.suspect |= self.model.geometry.stripes(first, count)
        must_be_active = bool(unanswered) and recent
        errors, state, wrong = self.judge.after_kill(must_be_active)
        self.fail(f"turn {number}, {kind}", errors)
        if state == "clean":
            self.model.suspect.clear()
        elif must_be_active and wrong is not None and not self.planted["killed"]:
            self.plant_in_killed(wrong)

    # Restarts

    def left_out(self):
        """As many members as the level can do without; those that are not in sync first."""
        in_sync = set(self.judge.in_sync().values())
        others = [path for path in self.members if path not in in_sync]
        rest = [path for path in self.members if path in in_sync]
        self.rng.shuffle(rest)
        return (others + rest)[: self.model.geometry.parities]

    def restart(self, leave_out):
        options, named = [], self.members
        state = self.judge.state()
        if leave_out:
            out = self.left_out()
            named = [path for path in self.members if path not in out]
            options = ["--run"]
            self.counts["restarts with members left out"] += 1
        degraded = leave_out or self.judge.whole() is None
        if degraded and state == "active":
            # Consent is asked for, and nothing is written without it.
            before = [os.stat(path).st_mtime_ns for path in self.members]
            command = [self.weft, "serve", "--run", "--name", "refused", "--exec", "true", *named]
            status = subprocess.run(command, capture_output=True).returncode
            after = [os.stat(path).st_mtime_ns for path in self.members]
            if status != 3 or before != after:
                sys.exit(f"dirty and degraded without --force-dirty: exit {status}, expected 3, and no write")
            self.counts["refused without --force-dirty"] += 1
            options = ["--run", "--force-dirty"]
        elif degraded:
            options = ["--run"]
        self.server = Server(self.weft, self.work, self.name, named, *options)
        self.slowest = max(self.slowest, self.server.ready_seconds)

    def kill_while(self, action, number):
        """Kills during a resync or a rebuild that the start has begun, before anything is read or written."""
        for _ in range(3):
            if self.server.status()["sync_action"] != action:
                return
            time.sleep(self.rng.uniform(0, 0.03))
            found = self.server.status()["sync_action"]
            self.server.kill()
            self.counts[f"killed in {found}"] += 1
            for path in self.members:
                wait_for_io(path)
            errors, state, _ = self.judge.after_kill(False)
            self.fail(f"turn {number}, killed in {found}", errors)
            if state == "clean":
                self.model.suspect.clear()
            self.restart(False)

    def verify(self, number, keep=True):
        in_sync = {m["slot"] for m in self.server.status()["members"] if m["state"] == "in_sync"}
        missing = set(range(self.model.geometry.members)) - in_sync
        client = nbd.Client(self.server.uri)
        verdict = self.model.verify(client.read, missing, keep)
        client.close()
        if keep:
            self.fail(f"turn {number}, read with slots {missing} missing", verdict.errors)
            self.counts["sectors read"] += verdict.sectors
            self.counts["newer than acknowledged"] += verdict.newer
            self.counts["zero by a trim or write of zeros"] += verdict.zeroed
            self.counts["excused by the write hole"] += verdict.excused
            self.counts["odd by the write hole"] += verdict.holes
            self.counts["verified with members missing"] += bool(missing)
        return verdict

    # Planted faults: each check must be able to fail

    def plant_in_killed(self, wrong):
        """Parity made wrong in a stripe where a write was unanswered, which is excused until the members are
        marked clean by hand; and in a stripe where none was, which is not."""
        self.planted["killed"] += 1
        path, geometry = self.judge.whole()[1], self.model.geometry
        candidates = [r for c in sorted(self.judge.full_stripes) for r in range(c * geometry.chunk // 8, (c + 1) * geometry.chunk // 8)]
        excused = next(r for r in candidates if r in self.model.suspect and r not in wrong)
        other = next(r for r in candidates if r not in self.model.suspect)

        def errors():
            return self.judge.after_kill(True, count=False)[0]

        self.flip(path, excused)
        assert errors() == []
        kept = [stripes.read_superblock(member) for member in self.members]
        for member in self.members:
            marked = stripes.read_superblock(member)
            marked.set_resync_offset(stripes.MAX_SECTOR)
            stripes.write_superblock(member, marked)
        found = errors()
        assert len(found) == 2 and "unanswered" in found[0] and str(excused) in found[1], found
        for member, superblock in zip(self.members, kept):
            stripes.write_superblock(member, superblock)
        self.flip(path, excused)
        self.flip(path, other)
        found = errors()
        assert len(found) == 1 and f"[{other}]" in found[0], found
        self.flip(path, other)
        assert errors() == []

    def plant_in_stopped(self):
        """A member marked active by hand, and wrong parity, in a whole array that was stopped."""
        if self.judge.whole() is None:
            return
        self.planted["stopped"] += 1
        path = self.members[2]
        superblock = stripes.read_superblock(path)
        marked = stripes.read_superblock(path)
        marked.set_resync_offset(0)
        stripes.write_superblock(path, marked)
        errors = self.judge.after_stop(count=False)
        assert len(errors) == 1 and "active" in errors[0], errors
        stripes.write_superblock(path, superblock)
        self.flip(self.judge.whole()[1], 3)
        errors = self.judge.after_stop(count=False)
        assert len(errors) == 1 and "[3]" in errors[0], errors
        self.flip(self.judge.whole()[1], 3)
        assert self.judge.after_stop(count=False) == []

    def flip(self, path, stripe):
        with open(path, "r+b") as f:
            f.seek((self.model.geometry.data_offset + stripe * 8) * SECTOR + 77)
            old = f.read(1)
            f.seek(-1, os.SEEK_CUR)
            f.write(bytes([old[0] ^ 4]))

    def plant_in_content(self):
        """A sector older than acknowledged, though no flush covers it; one of another address; a torn
        one. Each where a write hole would excuse it, and where it would not."""
        model, client = self.model, nbd.Client(self.server.uri)
        # A write that was acknowledged and never flushed: the floor of today, and not that of a
        # power cut.
        first, count, write_id = self.planted_write
        older, foreign, torn = first, first + 1, first + 2
        for sector, data in (
            (older, pattern.words(older * SECTOR, SECTOR, write_id - 1)),
            (foreign, pattern.words((foreign + 1) * SECTOR, SECTOR, write_id)),
            (torn, pattern.words(torn * SECTOR, 256, write_id) + bytes(256)),
        ):
            good = client.read(sector * SECTOR, SECTOR)
            client.write(sector * SECTOR, data)
            errors = self.verify(0, keep=False).errors
            assert len(errors) == 1 and f"sector {sector}:" in errors[0], errors
            slot, _, stripe = model.geometry.place(sector)
            model.suspect = {stripe}
            # The hole excuses it while its own member is missing, and not while another is.
            for missing, expected in (({slot}, 0), ({(slot + 1) % model.geometry.members}, 1)):
                verdict = model.verify(client.read, missing, keep=False)
                assert len(verdict.errors) == expected and verdict.holes == 1 - expected, verdict.errors
            model.suspect = {stripe + 1000}
            assert len(model.verify(client.read, {slot}, keep=False).errors) == 1, "another stripe is no excuse"
            model.suspect = set()
            client.write(sector * SECTOR, good)
            self.planted["content"] += 1
        verdict = self.verify(0, keep=False)
        assert verdict.errors == [] and verdict.newer == 0
        client.close()

    def plant_in_trims(self):
        """What was written before a trim that was answered; what was written around it, zero; half of a
        sector of a trim that was not answered, of which nothing and all is right."""
        model, client = self.model, nbd.Client(self.server.uri)
        low, length = model.windows[0]
        first, count = model.geometry.full_stripes_within(low, length // 2)
        write_id = model.issue(low, length // 2)
        client.write(low * SECTOR, pattern.words(low * SECTOR, length // 2 * SECTOR, write_id))
        model.cover(low, length // 2, write_id)
        trim_id = model.issue(first, count, zero=True)

        def after(sector, data):
            good = client.read(sector * SECTOR, SECTOR)
            client.write(sector * SECTOR, data)
            errors = self.verify(0, keep=False).errors
            client.write(sector * SECTOR, good)
            assert all(f"sector {sector}:" in error for error in errors), errors
            return len(errors)

        def written(sector, length=SECTOR):
            return pattern.words(sector * SECTOR, length, write_id)

        sector = first + 5
        assert after(sector, bytes(SECTOR)) == 0, "the trim was sent"
        assert after(sector, written(sector, 256) + bytes(256)) == 1, "it does not tear sectors"
        # Its ends are not full stripes.
        client.trim((first - 1 if first > low else first) * SECTOR, (count + 2) * SECTOR)
        assert self.verify(0, keep=False).errors == []
        assert after(sector, written(sector)) == 0, "the trim is not answered yet"
        model.cover(first, count, trim_id)
        assert after(sector, bytes(SECTOR)) == 0
        assert after(sector, written(sector)) == 1, "it was answered"
        assert after(first + count, bytes(SECTOR)) == 1, "that was not trimmed"
        assert self.verify(0).zeroed >= count
        self.planted["trims"] += 3
        client.close()

    def run(self, cycles):
        turns = cycles * len(self.PLAN)
        try:
            for number in range(turns):
                kind = self.PLAN[number % len(self.PLAN)]
                self.turn(kind, number)
                self.restart(leave_out=number % 3 == 2)
                if kind in ("write", "pauses"):
                    self.kill_while("resync", number)
                elif kind in ("add", "rebuild"):
                    self.kill_while("recover", number)
                self.verify(number)
            self.end(turns)
        finally:
            if self.server.process.poll() is None:
                self.server.kill()

    def end(self, turns):
        self.whole()
        # The last turn's writes were acknowledged, some of them without a flush.
        writer = Writer(self.server.uri, self.model, self.model.windows[0], 1)
        for _ in range(20):
            writer.send()
        while writer.outstanding:
            assert writer.reply(), writer.error
        writer.client.close()
        self.planted_write = next((f, c, i) for f, c, i in writer.unflushed
                                  if c >= 8 and all(self.model.floor[s] == i for s in range(f, f + c)))
        self.fail("at the end", self.verify(turns).errors)
        self.plant_in_content()
        self.plant_in_trims()
        self.whole()
        self.server.stop()
        self.fail("stopped at the end", self.judge.after_stop())
        counts = self.counts + self.judge.counts
        for text in sorted(counts):
            print(f"# {text}: {counts[text]}")
        print(f"# ready in {self.slowest:.2f} s at most")
        print(f"# planted and found: {dict(self.planted)}")
        # The run must have been able to find something.
        kills = counts["killed, found active"] + counts["killed, found clean"]
        cycles = turns // len(self.PLAN)
        # How many kills leave writes unanswered, and how soon after the last answer, is up to the
        # machine's speed: a floor of each, and no share of all kills.
        for text, least in (
            ("must be active", 3 * cycles),
            ("kills with writes unanswered", 6 * cycles),
            ("parity judged", 3 * cycles),
            ("parity judged after a stop", 1),
            ("restarts with members left out", 3 * cycles),
            ("refused without --force-dirty", 3 * cycles),
            ("verified with members missing", 3 * cycles),
            ("excused by the write hole", 1),
            ("newer than acknowledged", 1),
            ("writes", 200 * cycles),
            ("flushes", 10 * cycles),
            ("trims", 5 * cycles),
            ("trims unanswered at a kill", cycles),
            ("zero by a trim or write of zeros", 1000 * cycles),
            ("killed in check", 1),
            ("killed in recover", 1),
            ("killed in resync", 1),
            ("killed in add", cycles),
            ("killed before `add` was answered", 1),
        ):
            assert counts[text] >= least, f"{text}: {counts[text]}, expected at least {least}"
        assert self.planted == {"killed": 1, "stopped": 1, "content": 3, "trims": 3}, self.planted
        assert counts["excused by the write hole"] * 4 < counts["sectors read"], "too much is excused"
        print(f"# {kills} kills")


def main(weft, work, name, cycles, *members):
    Run(weft, work, name, members).run(int(cycles))


main(*sys.argv[1:])
