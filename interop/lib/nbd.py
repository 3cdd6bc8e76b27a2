"""A small NBD client for tests: plain sockets, simple replies, and every byte in the tester's hand.

Written against the NBD protocol document, apart from weft's own codec, so that both would have to be
wrong in the same way.
"""

import socket
import struct
from urllib.parse import parse_qs, unquote, urlparse

MAGIC = b"NBDMAGICIHAVEOPT"
OPT_EXPORT_NAME, OPT_ABORT, OPT_LIST, OPT_INFO, OPT_GO = 1, 2, 3, 6, 7
READ, WRITE, DISC, FLUSH, TRIM, WRITE_ZEROES = 0, 1, 2, 3, 4, 6
FUA, NO_HOLE = 1, 2
INFO_EXPORT, INFO_BLOCK_SIZE = 0, 3
REP_ACK, REP_INFO = 1, 3


class NbdError(Exception):
    """The server answered with an error."""

    def __init__(self, code):
        super().__init__(f"NBD error {code}")
        self.code = code


def connect(uri, timeout=30.0):
    """A connected socket and the export's name."""
    parts = urlparse(uri)
    name = unquote(parts.path.lstrip("/"))
    if parts.scheme == "nbd+unix":
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(timeout)
        sock.connect(parse_qs(parts.query)["socket"][0])
    else:
        sock = socket.create_connection((parts.hostname, parts.port or 10809), timeout)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock, name


def option(number, payload=b""):
    return b"IHAVEOPT" + struct.pack(">II", number, len(payload)) + payload


def go(name, number=OPT_GO):
    encoded = name.encode()
    wanted = struct.pack(">HH", 1, INFO_BLOCK_SIZE)
    return option(number, struct.pack(">I", len(encoded)) + encoded + wanted)


def request(command, handle, offset, length, flags=0, payload=b""):
    return struct.pack(">IHHQQI", 0x25609513, flags, command, handle, offset, length) + payload


class Client:
    """One connection in transmission, one request at a time (or pipelined by `send` and `reply`)."""

    def __init__(self, uri, timeout=30.0):
        self.sock, name = connect(uri, timeout)
        self.handle = 0
        assert self.exactly(16) == MAGIC, "greeting"
        (self.handshake_flags,) = struct.unpack(">H", self.exactly(2))
        self.sock.sendall(struct.pack(">I", 3) + go(name))
        self.size = None
        self.block_sizes = None
        while True:
            magic, _, kind, length = struct.unpack(">QIII", self.exactly(20))
            assert magic == 0x3E889045565A9, "option reply magic"
            payload = self.exactly(length)
            if kind == REP_ACK:
                break
            if kind != REP_INFO:
                raise NbdError(kind)
            (what,) = struct.unpack_from(">H", payload)
            if what == INFO_EXPORT:
                self.size, self.flags = struct.unpack_from(">QH", payload, 2)
            elif what == INFO_BLOCK_SIZE:
                self.block_sizes = struct.unpack_from(">III", payload, 2)
        assert self.size is not None, "no size in the answer to GO"

    def exactly(self, count):
        parts = []
        while count:
            part = self.sock.recv(min(count, 1 << 20))
            if not part:
                raise ConnectionError("the server closed the connection")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def send(self, command, offset=0, length=0, flags=0, payload=b""):
        self.handle += 1
        self.sock.sendall(request(command, self.handle, offset, length, flags, payload))
        return self.handle

    def reply(self, length=0):
        """The next simple reply: (handle, error, data)."""
        magic, error, handle = struct.unpack(">IIQ", self.exactly(16))
        assert magic == 0x67446698, f"reply magic {magic:#x}"
        return handle, error, self.exactly(length) if length and not error else b""

    def call(self, command, offset=0, length=0, flags=0, payload=b"", answer=0):
        handle = self.send(command, offset, length, flags, payload)
        found, error, data = self.reply(answer)
        assert found == handle, "handle"
        if error:
            raise NbdError(error)
        return data

    def read(self, offset, length):
        return self.call(READ, offset, length, answer=length)

    def write(self, offset, data, flags=0):
        self.call(WRITE, offset, len(data), flags, data)

    def zero(self, offset, length, flags=0):
        self.call(WRITE_ZEROES, offset, length, flags)

    def trim(self, offset, length, flags=0):
        self.call(TRIM, offset, length, flags)

    def flush(self):
        self.call(FLUSH)

    def close(self):
        try:
            self.sock.sendall(request(DISC, 0, 0, 0))
        finally:
            self.sock.close()
