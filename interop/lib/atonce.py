"""Requests of a script, sent at once to a block device (Linux AIO, O_DIRECT) or to an NBD export.

A line of a script is `R|W SECTOR SECTORS`, or `wait MILLISECONDS`. The requests between two waits
are submitted together, so that a scheduler has all of them before the device has ended one.

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
    """Answers how many requests were done."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(path, os.O_RDWR | os.O_DIRECT)
    memory = mmap.mmap(-1, 1 << 20)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    context = ctypes.c_ulong(0)
    assert libc.syscall(IO_SETUP, 1024, ctypes.byref(context)) == 0, "io_setup"
    blocks, asked, done = [], 0, 0
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
    events = ctypes.create_string_buffer(32 * 64)
    while done < asked:
        count = libc.syscall(IO_GETEVENTS, context, 1, 64, events, None)
        assert count > 0, "io_getevents"
        for each in range(count):
            result = struct.unpack_from("<q", events, 32 * each + 16)[0]
            assert result > 0, f"a request ended with {result}"
        done += count
    return done


def to_export(uri, batches):
    """Answers how many requests were done."""
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
    lengths = dict(enumerate(length for _, batch in batches for _, _, length in batch))
    writes = dict(enumerate(write for _, batch in batches for write, _, _ in batch))
    for _ in range(asked):
        magic, error, handle = struct.unpack(">IIQ", client.exactly(16))
        assert magic == 0x67446698 and error == 0, f"request {handle}: error {error}"
        if not writes[handle]:
            client.exactly(lengths[handle])
    return asked


if __name__ == "__main__":
    batches = script(sys.argv[1])
    send = to_device if sys.argv[2].startswith("/dev/") else to_export
    print(send(sys.argv[2], batches))
