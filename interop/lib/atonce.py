"""Requests of a script, sent at once to a block device (Linux AIO, O_DIRECT) or to an NBD export.

A line of a script is `R|W SECTOR SECTORS`, or `wait MILLISECONDS`. The requests between two waits
are submitted together, so that a scheduler has all of them before the device has ended the second of the script. Printed is
how many were done, or `late` when the device was faster and the order depends on it.

  atonce.py SCRIPT /dev/DEVICE | nbd+unix://…
"""

import ctypes
import mmap
import os
import struct
import sys
import time

IO_SETUP, IO_GETEVENTS, IO_SUBMIT = 206, 208, 209  # x86_64
PREAD, PWRITE = 0, 1


def script(path):
    """Batches of (write, first byte, length), with how long to wait before each, in seconds."""
    batches, wait = [(0.0, [])], 0.0
    for line in open(path):
        words = line.split()
        if words[0] == "wait":
            batches.append((int(words[1]) / 1000, []))
        else:
            batches[-1][1].append((words[0] == "W", int(words[1]) * 512, int(words[2]) * 512))
    return batches


def to_device(path, batches):
    """How many requests were done, and how many of them before the last was submitted."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(path, os.O_RDWR | os.O_DIRECT)
    memory = mmap.mmap(-1, 1 << 20)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    context = ctypes.c_ulong(0)
    assert libc.syscall(IO_SETUP, 1024, ctypes.byref(context)) == 0, "io_setup"
    blocks, asked = [], 0
    events = ctypes.create_string_buffer(32 * 64)

    def ended(least):
        """How many have ended; waits for `least` of them."""
        no_time = ctypes.byref((ctypes.c_long * 2)(0, 0)) if least == 0 else None
        count = libc.syscall(IO_GETEVENTS, context, least, 64, events, no_time)
        assert count >= least, "io_getevents"
        for each in range(count):
            result = struct.unpack_from("<q", events, 32 * each + 16)[0]
            assert result > 0, f"a request ended with {result}"
        return count

    for wait, batch in batches:
        time.sleep(wait)
        new = []
        for write, start, length in batch:
            block = struct.pack("<QIihhIQQqQII", asked + len(new), 0, 0, PWRITE if write else PREAD, 0, fd,
                                address, length, start, 0, 0, 0)
            new.append(ctypes.create_string_buffer(block, len(block)))
        pointers = (ctypes.c_void_p * len(new))(*[ctypes.addressof(block) for block in new])
        sent = libc.syscall(IO_SUBMIT, context, len(new), pointers)
        assert sent == len(new), f"io_submit took {sent} of {len(new)}"
        blocks += new
        asked += len(new)
    early = done = ended(0)
    while done < asked:
        done += ended(1)
    return done, early


def to_export(uri, batches):
    """How many requests were done, and how many of them before the last was taken."""
    import nbd

    client = nbd.Client(uri)
    asked = 0
    for wait, batch in batches:
        time.sleep(wait)
        # In one segment, so that the server finds all of them when it looks.
        client.sock.sendall(b"".join(
            nbd.request(nbd.WRITE if write else nbd.READ, asked + index, start, length,
                        payload=bytes(length) if write else b"")
            for index, (write, start, length) in enumerate(batch)))
        asked += len(batch)
    # A read behind the end is refused at once, in its turn: whatever is answered later was taken
    # before.
    last = asked
    client.sock.sendall(nbd.request(nbd.READ, last, client.size, 4096))
    lengths = dict(enumerate(length for _, batch in batches for _, _, length in batch))
    writes = dict(enumerate(write for _, batch in batches for write, _, _ in batch))
    early = None
    for answered in range(asked + 1):
        magic, error, handle = struct.unpack(">IIQ", client.exactly(16))
        assert magic == 0x67446698, f"reply magic {magic:#x}"
        if handle == last:
            assert error, "a read behind the end was answered"
            early = answered
            continue
        assert error == 0, f"request {handle}: error {error}"
        if not writes[handle]:
            client.exactly(lengths[handle])
    return asked, early


if __name__ == "__main__":
    batches = script(sys.argv[1])
    send = to_device if sys.argv[2].startswith("/dev/") else to_export
    done, early = send(sys.argv[2], batches)
    print(done if early < 2 else "late")
