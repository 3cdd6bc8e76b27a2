#!/usr/bin/env python3
"""Reads `weft status --json` on stdin and prints what a suite asks for, one word per line.

A key that the command does not show is asked for on the control socket itself.

  status.py NAME KEY…    KEY of the server (frames_held, tokens_outstanding, clients, pid, …), else of
                         the volume (mismatch_cnt, sync_action, degraded, …); or one of
                         read_min (least sectors read of an in-sync member),
                         member_sectors (data sectors of each member, from size and level)
"""

import json
import os
import socket
import sys


def servers(value):
    """Every object below `value` that has volumes."""
    if isinstance(value, dict):
        if isinstance(value.get("volumes"), list):
            yield value
        for below in value.values():
            yield from servers(below)
    elif isinstance(value, list):
        for below in value:
            yield from servers(below)


def find(document, name):
    for server in servers(document):
        for volume in server["volumes"]:
            if volume.get("name") == name:
                return server, volume
    sys.exit(f"no volume {name} in {json.dumps(document)}")


def from_socket(name):
    """All that the server knows of itself."""
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(os.path.join(os.environ["XDG_RUNTIME_DIR"], "weft", f"{name}.sock"))
        control.sendall(b'{"v":2,"cmd":"status"}\n')
        answer = json.loads(control.makefile().readline())
    return answer["status"]


def main(name, *keys):
    server, volume = find(json.load(sys.stdin), name)
    parity = {"raid4": 1, "raid5": 1, "raid6": 2}.get(volume.get("level"), 0)
    for key in keys:
        if key == "read_min":
            value = min(m["sectors_read"] for m in volume["members"] if m["state"] == "in_sync")
        elif key == "member_sectors":
            value = volume["size"] // 512 // (volume["slots"] - parity)
        elif key in volume or key in server:
            value = volume[key] if key in volume else server[key]
        else:
            value = from_socket(name)[key]
        print(value)


main(*sys.argv[1:])
