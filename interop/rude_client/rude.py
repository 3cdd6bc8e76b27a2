#!/usr/bin/env python3
"""Everything that a client should not do. See `run`."""

import os
import random
import socket
import struct
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import nbd  # noqa: E402
import pattern  # noqa: E402

# The part of the volume that rude clients may write to; good clients' data are elsewhere, except that
# what is written here are the expected bytes, so that any prefix of it changes nothing.


def session(name, expected, rng):
    """The bytes of a whole polite session: options, then requests; writes repeat what is there."""
    at = rng.randrange(0, len(expected) - 70000)
    small = rng.choice([1, 512, 4096, 5000])
    parts = [
        struct.pack(">I", 3),
        nbd.option(nbd.OPT_LIST),
        nbd.go(name, nbd.OPT_INFO),
        nbd.go(name),
        nbd.request(nbd.READ, 1, at, 4096),
        nbd.request(nbd.WRITE, 2, at, small, 0, expected[at : at + small]),
        nbd.request(nbd.FLUSH, 3, 0, 0),
        nbd.request(nbd.WRITE, 4, at, 65536, nbd.FUA, expected[at : at + 65536]),
        nbd.request(nbd.READ, 5, 0, 1 << 20),
        nbd.request(nbd.DISC, 6, 0, 0),
    ]
    return b"".join(parts)


def cut_points(total, rng):
    """Each byte of the handshake and of the headers once, then anywhere."""
    yield from range(0, min(total, 360))
    while True:
        yield rng.randrange(0, total + 1) if rng.random() < 0.5 else rng.randrange(0, 4800)


def disconnects(uris, count, expected):
    rng = random.Random(11)
    name = nbd.connect(uris[0])
    name[0].close()
    name = name[1]
    points = cut_points(len(session(name, expected, rng)), rng)
    made = 0
    for index in range(count):
        data = session(name, expected, rng)
        cut = next(points)
        # Mostly the unix socket; on TCP, half leave by a reset.
        sock, _ = nbd.connect(uris[index % 4 == 0])
        reset = sock.family != socket.AF_UNIX and index % 8 == 0
        if reset:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        try:
            if index % 5:
                sock.recv(18)
            sock.sendall(data[:cut])
            if index % 3 == 0:
                sock.settimeout(0.002)
                sock.recv(100)
        except OSError:
            pass  # the server may be quicker to leave
        sock.close()
        made += 1
    print(f"disconnects {made}")


def refused(client, command, offset, length, flags=0, payload=b""):
    try:
        client.call(command, offset, length, flags, payload)
    except nbd.NbdError as error:
        return error.code
    return 0


def requests(uri, expected):
    client = nbd.Client(uri)
    size = client.size
    assert size == len(expected)
    EINVAL, ENOSPC, ENOTSUP = 22, 28, 95
    # Beyond the end, by one byte and by much; a refused write's payload must have been taken.
    for offset, length in [(size, 1), (size - 1, 2), (1 << 62, 512), ((1 << 64) - 1, 4096), (size - 4096, 4097)]:
        code = refused(client, nbd.READ, offset, length)
        assert code == EINVAL, ("read", offset, length, code)
        code = refused(client, nbd.WRITE, offset, length, 0, bytes(length))
        assert code in (ENOSPC, EINVAL), ("write", offset, length, code)
        code = refused(client, nbd.WRITE_ZEROES, offset, length)
        assert code in (ENOSPC, EINVAL), ("zero", offset, length, code)
        code = refused(client, nbd.TRIM, offset, length)
        assert code == EINVAL, ("trim", offset, length, code)
    # Zero length: either outcome is allowed, but one answer comes and nothing changes.
    for command in (nbd.READ, nbd.WRITE, nbd.TRIM, nbd.WRITE_ZEROES):
        assert refused(client, command, 4096, 0) in (0, EINVAL)
    # Less than a row of chunks: the answer is yes, and nothing changes.
    assert refused(client, nbd.TRIM, 511, 4096) == 0
    # Unknown.
    assert refused(client, 99, 0, 0) in (EINVAL, ENOTSUP)
    assert refused(client, nbd.READ, 0, 512, 0x4000) in (EINVAL, ENOTSUP), "unknown flag"
    # Unaligned to one byte, over sector, block, chunk and row edges.
    for edge in (512, 4096, 65536, 3 * 65536, 524288):
        for at in range(edge - 2, edge + 2):
            for length in (1, 2, 3, 513):
                assert client.read(at, length) == expected[at : at + length], (at, length)
                client.write(at, expected[at : at + length])
                assert client.read(at, length) == expected[at : at + length], (at, length)
    client.close()

    # A length that no server should buffer, in a header with no payload behind it.
    for command in (nbd.WRITE, nbd.READ):
        sock, name = nbd.connect(uri)
        sock.sendall(struct.pack(">I", 3) + nbd.go(name) + nbd.request(command, 1, 0, 0xFFFFFFFF))
        sock.close()
    # Wrong magics: the server must hang up, not guess.
    for wrong in (b"\0" * 28, os.urandom(28), b"IHAVEOPT" * 4):
        client = nbd.Client(uri)
        client.sock.sendall(wrong)
        try:
            assert client.sock.recv(1) == b"", "an answer to nonsense"
        except ConnectionError:
            pass
        client.sock.close()
    # An option with a length of 4 GiB.
    sock, _ = nbd.connect(uri)
    sock.settimeout(10)
    sock.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", nbd.OPT_INFO, 0xFFFFFFFF))
    sock.close()
    # Half a write, then silence, while a good client works; then it leaves.
    half, name = nbd.connect(uri)
    half.sendall(struct.pack(">I", 3) + nbd.go(name) + nbd.request(nbd.WRITE, 1, 0, 65536, 0, expected[:30000]))
    good = nbd.Client(uri)
    assert good.read(0, 65536) == expected[:65536]
    good.write(0, expected[:65536])
    good.flush()
    good.close()
    half.close()
    print("requests fine")


def deaf(uri, expected):
    """Asks for much and reads nothing; a good client must still be served."""
    client = nbd.Client(uri)

    def ask():
        try:
            for index in range(2000):
                client.send(nbd.READ, index % 4 << 20, 1 << 20)
        except OSError:
            pass

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    for turn in range(20):
        good = nbd.Client(uri, timeout=20)
        assert good.read(turn << 16, 65536) == expected[turn << 16 :][:65536]
        good.write(turn << 16, expected[turn << 16 :][:65536])
        good.flush()
        good.close()
    client.sock.shutdown(socket.SHUT_RDWR)
    client.sock.close()
    thread.join(10)
    print("deaf fine")


def main(what, uri, tcp, count, expected_path):
    with open(expected_path, "rb") as f:
        expected = f.read()
    if what == "disconnects":
        disconnects([uri, tcp], int(count), expected)
    elif what == "requests":
        requests(uri, expected)
    else:
        deaf(uri, expected)


main(*sys.argv[1:])
