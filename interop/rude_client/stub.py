#!/usr/bin/env python3
"""A least NBD server with a planted fault, to see that the checks of `rude.py` find it.

`stub.py FAULT SOCKET CONTROL FILE` serves the bytes of FILE, and an administrator's socket:
  none  nothing is wrong
  hang  waits for the payload of a write, whatever other clients have asked for
  grow  keeps what an administrator does not read: 32 MiB for each
  pile  says that it has begun 1,000 requests
"""

import os
import selectors
import socket
import struct
import sys

FAULT, SOCKET, CONTROL, FILE = sys.argv[1:]
BEGUN = 1000 if FAULT == "pile" else 2
STATUS = b'{"status":{"volumes":[{"requests_active":%d}]}' % BEGUN + b" " * 4000 + b"}\n"
OUTPUT_MAX = 32 << 20 if FAULT == "grow" else 1 << 20


class Peer:
    """A connection: what has come and is not understood yet, and what is to go out."""

    def __init__(self, sock, talk):
        self.sock, self.received, self.output = sock, bytearray(), bytearray()
        self.talk = talk(self)
        self.wanted = next(self.talk)

    def on_ready(self, events):
        if events & selectors.EVENT_READ and len(self.output) < OUTPUT_MAX:
            self.read()
        if self.output:
            try:
                del self.output[: self.sock.send(self.output, socket.MSG_DONTWAIT)]
            except BlockingIOError:
                pass

    def read(self):
        self.receive(1 << 14)
        while len(self.received) >= self.wanted:
            part = bytes(self.received[: self.wanted])
            del self.received[: self.wanted]
            self.wanted = self.talk.send(part)
            while FAULT == "hang" and len(self.received) < self.wanted and self.wanted > 28:
                self.receive(self.wanted)

    def receive(self, count):
        data = self.sock.recv(count)
        if not data:
            raise ConnectionError
        self.received += data

    def events(self):
        # A client that does not read is not read either.
        full = len(self.output) >= OUTPUT_MAX
        return (0 if full else selectors.EVENT_READ) | (selectors.EVENT_WRITE if self.output else 0)


def volume(peer):
    """The handshake and the requests of a client. Yields how many bytes are needed next."""
    peer.output += b"NBDMAGICIHAVEOPT" + struct.pack(">H", 3)
    yield 4
    while True:
        _, option, length = struct.unpack(">QII", (yield 16))
        if length:
            yield length
        reply = struct.pack(">QI", 0x3E889045565A9, option)
        if option == 7:
            peer.output += reply + struct.pack(">IIHQH", 3, 12, 0, len(content), 1)
            peer.output += reply + struct.pack(">II", 1, 0)
            break
        peer.output += reply + struct.pack(">II", (1 << 31) + 1, 0)
    while True:
        _, _, command, handle, offset, length = struct.unpack(">IHHQQI", (yield 28))
        if command == 2:
            raise ConnectionError
        if command == 1:
            content[offset : offset + length] = yield length
        peer.output += struct.pack(">IIQ", 0x67446698, 0, handle)
        if command == 0:
            peer.output += content[offset : offset + length]


def administrator(peer):
    """Every line is answered."""
    while True:
        if (yield 1) == b"\n":
            peer.output += STATUS


def listen(path):
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(path)
    sock.listen(100)
    return sock


def serve():
    selector = selectors.DefaultSelector()
    for path, talk in ((SOCKET, volume), (CONTROL, administrator)):
        selector.register(listen(path), selectors.EVENT_READ, talk)
    print("ready", flush=True)
    while True:
        for key, events in selector.select():
            if not isinstance(key.data, Peer):
                sock, _ = key.fileobj.accept()
                peer = Peer(sock, key.data)
                selector.register(sock, peer.events(), peer)
                continue
            peer = key.data
            try:
                peer.on_ready(events)
                selector.modify(peer.sock, peer.events(), peer)
            except OSError:
                selector.unregister(peer.sock)
                peer.sock.close()


content = bytearray(os.path.getsize(FILE))
with open(FILE, "rb") as f:
    f.readinto(content)
serve()
