#!/usr/bin/env python3
"""Where a logical volume lies, by LVM's text: docs/rescue.md's way into LVM without root.

  weft cat --length 2M MEMBER… | strings | lvmplace.py NAME

Prints byte and length of the volume's first segment. Of several versions of the text the one with the
highest `seqno` counts: the area they are in is filled round and round, so that it need not be the last.
"""

import re
import sys


def main(name):
    text = sys.stdin.read()
    versions = re.split(r"(?=^\s*seqno = )", text, flags=re.M)[1:]
    newest = max(versions, key=lambda version: int(re.match(r"\s*seqno = (\d+)", version)[1]))

    def number(key, within):
        return int(re.search(rf"^\s*{key} = (\d+)", within, re.M)[1])

    volume = re.split(rf"^\s*{name} {{", newest, flags=re.M)[1]
    extent = int(re.search(r'"pv0", (\d+)', volume)[1])
    size = number("extent_size", newest)
    first = number("pe_start", newest) + extent * size
    print(first * 512, number("extent_count", volume) * size * 512)


main(*sys.argv[1:])
