"""Gives an NBD export to the kernel, as `nbd-client` does: nbdattach.py URI DEVICE; ends when the
device is detached (`nbdattach.py - DEVICE`) or the server hangs up.
"""

import fcntl
import os
import sys

import nbd

# Source: linux/nbd.h
SET_SOCK, SET_BLKSIZE, DO_IT, CLEAR_SOCK = 0xAB00, 0xAB01, 0xAB03, 0xAB04
SET_SIZE_BLOCKS, DISCONNECT, SET_FLAGS = 0xAB07, 0xAB08, 0xAB0A

uri, path = sys.argv[1:]
device = os.open(path, os.O_RDWR)
if uri == "-":
    fcntl.ioctl(device, DISCONNECT)
    sys.exit()
client = nbd.Client(uri)
client.sock.setblocking(True)
fcntl.ioctl(device, SET_BLKSIZE, 512)
fcntl.ioctl(device, SET_SIZE_BLOCKS, client.size // 512)
fcntl.ioctl(device, SET_FLAGS, client.flags)
fcntl.ioctl(device, SET_SOCK, client.sock.fileno())
try:
    fcntl.ioctl(device, DO_IT)
finally:
    fcntl.ioctl(device, CLEAR_SOCK)
