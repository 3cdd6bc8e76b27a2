#!/usr/bin/env python3
"""Everything that a client should not do. See `run`."""

import json
import multiprocessing
import os
import random
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import nbd  # noqa: E402
import pattern  # noqa: E402

# The part of the volume that rude clients may write to; good clients' data are elsewhere, except
# that what is written here are the expected bytes, so that any prefix of it changes nothing.

# What a good client waits for one request at most beside an attack, and by how many KiB the
# server's memory may grow: measured are 1.6 s with ten processes to a CPU, and 1 MiB.
WAIT_MAX = 5.0
GROWTH_MAX = 64 << 10
# How many of the flood's zeroes the server may have begun: two slices at a time
# (`weft-runtime/src/serve/turns.rs`), with room for another rule. A server without turns begins
# hundreds, and the members are quick enough that a good client is still answered within WAIT_MAX.
BEGUN_MAX = 8


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
    # Less than a full stripe: the answer is yes, and nothing changes.
    assert refused(client, nbd.TRIM, 511, 4096) == 0
    # Unknown.
    assert refused(client, 99, 0, 0) in (EINVAL, ENOTSUP)
    assert refused(client, nbd.READ, 0, 512, 0x4000) in (EINVAL, ENOTSUP), "unknown flag"
    # Unaligned to one byte, over sector, block, chunk and stripe edges.
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
        good = nbd.Client(uri, timeout=WAIT_MAX)
        assert good.read(turn << 16, 65536) == expected[turn << 16 :][:65536]
        good.write(turn << 16, expected[turn << 16 :][:65536])
        good.flush()
        good.close()
    client.sock.shutdown(socket.SHUT_RDWR)
    client.sock.close()
    thread.join(10)
    print("deaf fine")


def in_transmission(uri, structured=False):
    """A socket on which requests may be sent; with block status if `structured`."""
    sock, name = nbd.connect(uri)
    sock.sendall(struct.pack(">I", 3))
    if structured:
        encoded, context = name.encode(), b"base:allocation"
        query = struct.pack(">I", len(encoded)) + encoded + struct.pack(">II", 1, len(context)) + context
        sock.sendall(nbd.option(8) + nbd.option(10, query))
    sock.sendall(nbd.go(name))
    # Until the acknowledgement of GO; `recv` may bring no more than what was asked for.
    greeting = 18
    while greeting:
        greeting -= len(sock.recv(greeting))
    while True:
        header = exactly(sock, 20)
        _, option, kind, length = struct.unpack(">QIII", header)
        exactly(sock, length)
        assert kind < 1 << 31, ("option refused", option, kind)
        if (option, kind) == (nbd.OPT_GO, nbd.REP_ACK):
            return sock


def exactly(sock, count):
    parts = b""
    while len(parts) < count:
        part = sock.recv(count - len(parts))
        assert part, "hung up"
        parts += part
    return parts


def stalled_writes(uri, size):
    """Two writes of 32 MiB that are announced, and of which nothing comes."""
    socks = [in_transmission(uri) for _ in range(2)]
    for sock in socks:
        sock.sendall(nbd.request(nbd.WRITE, 1, 0, 32 << 20))
    # Each may take what it can before the good client asks for anything.
    time.sleep(0.5)
    return socks


def deaf_readers(uri, size):
    """Sixteen clients with 64 reads of a MiB each, which read no reply."""
    socks = [in_transmission(uri) for _ in range(16)]
    for sock in socks:
        sock.sendall(b"".join(nbd.request(nbd.READ, i, (i % 16) << 20, 1 << 20) for i in range(64)))
        time.sleep(0.05)
    return socks


def silence(uri, size):
    """As many connections as there are places, which say nothing; one drips options."""
    socks = [nbd.connect(uri)[0] for _ in range(64)]
    socks[0].sendall(struct.pack(">I", 3))

    def drip():
        try:
            while True:
                socks[0].sendall(nbd.option(nbd.OPT_LIST))
                time.sleep(0.02)
        except OSError:
            pass

    threading.Thread(target=drip, daemon=True).start()
    return socks


def deaf_administrators(control):
    """Eight administrators who ask for the status and read nothing."""
    socks = []
    for _ in range(8):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(control)
        sock.settimeout(0.5)
        socks.append(sock)

        def ask(sock=sock):
            try:
                while True:
                    sock.sendall(b'{"v":2,"cmd":"status"}\n' * 1000)
            except OSError:
                pass

        threading.Thread(target=ask, daemon=True).start()
    time.sleep(2)
    return socks


def flood(uri, requests, structured):
    """Sixteen clients that send these requests, and read what comes."""
    socks = [in_transmission(uri, structured) for _ in range(16)]

    def drain(sock):
        try:
            while sock.recv(1 << 16):
                pass
        except OSError:
            pass

    def send(sock):
        try:
            sock.sendall(requests)
        except OSError:
            pass

    for sock in socks:
        sock.settimeout(None)
        threading.Thread(target=drain, args=(sock,), daemon=True).start()
        threading.Thread(target=send, args=(sock,), daemon=True).start()
    time.sleep(0.2)
    return socks


def block_status_flood(uri, size):
    return flood(uri, b"".join(nbd.request(7, i, 0, size) for i in range(3000)), True)


def zeroes_flood(uri, size):
    """The upper half is zeroed, stored, again and again."""
    half = size // 2 // 65536 * 65536
    return flood(uri, b"".join(nbd.request(nbd.WRITE_ZEROES, i, half, size - half, 2) for i in range(1000)), False)


ATTACKS = {
    "stalled": stalled_writes,
    "deaf": deaf_readers,
    "silent": silence,
    "block-status": block_status_flood,
    "zeroes": zeroes_flood,
}


def attacker(attack, uri, control, size, pipe):
    """A process of its own, so that the good client does not wait for Python."""
    make = ATTACKS.get(attack)
    socks = make(uri, size) if make else deaf_administrators(control)
    pipe.send("begun")
    pipe.recv()
    for sock in socks:
        try:
            sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        sock.close()


def requests_begun(control):
    """How many requests the volume has begun and not answered."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(WAIT_MAX)
        sock.connect(control)
        sock.sendall(b'{"v":2,"cmd":"status"}\n')
        with sock.makefile("rb") as answers:
            answer = json.loads(answers.readline())
    return sum(volume["requests_active"] for volume in answer["status"]["volumes"])


def memory_peak(pid):
    """KiB that the process had at most so far."""
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return int(next(line for line in f if line.startswith("VmHWM:")).split()[1])


def timed(call, *args):
    """What the call returns, and how long it took; an error if that was too long."""
    begun = time.monotonic()
    try:
        value = call(*args)
    except TimeoutError:
        raise AssertionError(f"no answer within {WAIT_MAX:.0f} s") from None
    took = time.monotonic() - begun
    assert took <= WAIT_MAX, f"no answer within {WAIT_MAX:.0f} s: it took {took:.1f} s"
    return value, took


def beside(attack, uri, control, server, expected):
    """A good client beside an attack: each request is answered in time, what it reads is verified, and
    the server's memory does not grow. Of a flood of zeroes few are begun at a time."""
    good = nbd.Client(uri, timeout=WAIT_MAX)
    before = memory_peak(server)
    fork = multiprocessing.get_context("fork")
    here, there = fork.Pipe()
    process = fork.Process(target=attacker, args=(attack, uri, control, good.size, there))
    process.start()
    try:
        assert here.poll(60) and here.recv() == "begun", "the attack did not begin"
        worst, done, begun = 0.0, 0, 0
        for turn in range(40):
            at, length = turn * 0x31000 % (len(expected) // 2 - (1 << 20)), (4096, 65536, 1 << 20)[turn % 3]
            data, took = timed(good.read, at, length)
            worst = max(worst, took)
            assert data == expected[at : at + length], (attack, at, length)
            _, took = timed(good.write, at, data)
            worst = max(worst, took)
            if turn % 10 == 0:
                # A client that comes now is served too.
                late, took = timed(nbd.Client, uri, WAIT_MAX)
                data, more = timed(late.read, at, 4096)
                assert data == expected[at : at + 4096]
                late.close()
                worst = max(worst, took, more)
            done += 2
            if attack == "zeroes":
                begun = max(begun, requests_begun(control))
        timed(good.flush)
        growth = memory_peak(server) - before
        assert growth <= GROWTH_MAX, f"the server grew by {growth} kB"
        if attack == "zeroes":
            assert 1 <= begun <= BEGUN_MAX, f"{begun} zeroes were begun at a time"
        here.send("over")
        process.join(10)
    finally:
        process.kill()
    good.close()
    of_it = f", {begun} of it begun at a time" if begun else ""
    print(f"{attack}: {done} requests beside it, the slowest {worst:.3f} s; {growth} kB more{of_it}")


def restore(uri, expected):
    """Writes again what `zeroes` has zeroed."""
    client = nbd.Client(uri)
    for at in range(0, len(expected), 1 << 20):
        client.write(at, expected[at : at + (1 << 20)])
    client.flush()
    client.close()


def main(what, uri, tcp, count, expected_path):
    # `tcp` and `count` of an attack: the control socket, and the server's process.
    with open(expected_path, "rb") as f:
        expected = f.read()
    if what.startswith("beside-"):
        beside(what.removeprefix("beside-"), uri, tcp, int(count), expected)
    elif what == "restore":
        restore(uri, expected)
    elif what == "disconnects":
        disconnects([uri, tcp], int(count), expected)
    elif what == "requests":
        requests(uri, expected)
    else:
        deaf(uri, expected)


main(*sys.argv[1:])
