# SPDX-License-Identifier: GPL-2.0
"""Appends records to a file in FOLDER and makes each safe before the next, until the file OVER is there; or reads them.

    journal.py write FOLDER OVER        prints how many records were made safe
    journal.py read FOLDER              prints how many are there; fails if one is not what it was
"""
import os
import sys
import time

SIZE = 4096
PAUSE_SECONDS = 0.02        # it is not alone on the machine
WRAP = 2048     # records, then the file begins anew: a disk is small


def record(number: int) -> bytes:
    """The record of that number."""
    return (b"%08d" % number) * (SIZE // 8)


def write(folder: str, over: str) -> int:
    """Appends until it is over."""
    count = 0
    while not os.path.exists(over) or count == 0:
        if count % WRAP == 0:
            file = os.open(f"{folder}/new", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
        os.write(file, record(count))
        os.fsync(file)
        if count % WRAP == 0:
            os.rename(f"{folder}/new", f"{folder}/journal")
        count += 1
        time.sleep(PAUSE_SECONDS)
    return count


def read(folder: str) -> int:
    """Checks all records; the number after the last."""
    with open(f"{folder}/journal", "rb") as file:
        data = file.read()
    first = int(data[:8])
    parts = [data[at:at + SIZE] for at in range(0, len(data), SIZE)]
    for number, part in enumerate(parts, first):
        if part != record(number):
            sys.exit(f"record {number} is not what it was")
    return first + len(parts)


print(write(*sys.argv[2:]) if sys.argv[1] == "write" else read(sys.argv[2]))
