# SPDX-License-Identifier: GPL-2.0
"""Waits for servers in each way there is, is killed, and unmounts; runs in a guest.

    gfarm_killed.py MOUNT READY GO [WAY...]

Opens the files `blocked0` to `blocked2` of the mount, makes READY, and goes on when GO is there: by then the servers do
not answer any more. Prints the seconds from SIGKILL to the end for each way (null: it has not waited), those that
another task takes to have the kernel drop inodes then, and those of the unmount. With WAYs, these only, each a second
after the one before, and all of them with `blocked0`.
"""
from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import signal
import sys
import time
from collections.abc import Callable

AT, READY, GO, *WAYS = sys.argv[1:]
NAMED = f"{AT}/blocked0"
# How long a wait has to last before it counts as one, and how long the end of one is waited for.
WAITS_S, ENDS_S = 2.0, 100.0
STEP_S = 1.0 if WAYS else 0.0
# More than the reads of a file that may wait: with a `readahead=` as large, the task that asks for them waits. Or less
# than what a mapping is met by.
LEN = 64 << 10 if WAYS else 64 << 20


def ways() -> dict[str, Callable[[], object]]:
    """Calls that wait for a gfsd, with files that are open, and calls that wait for gfmd."""
    cached, direct, mapped = (os.open(f"{AT}/blocked{0 if WAYS else number}", os.O_RDONLY | flags)
                              for number, flags in enumerate((0, os.O_DIRECT, 0)))
    seen = mmap.mmap(mapped, 0, prot=mmap.PROT_READ)
    seen.madvise(mmap.MADV_RANDOM)
    if WAYS:
        # It is open at the gfsd.
        os.pread(cached, 1, 5 << 20)
    # All the memory of the reads with O_DIRECT is aligned.
    room = mmap.mmap(-1, 3 << 20)
    _pipe, into = os.pipe()
    return {
        "read": lambda: os.pread(cached, LEN, 0),
        "O_DIRECT": lambda: os.preadv(direct, [room], 0),
        "splice": lambda: os.splice(direct, into, 64 << 10, 1 << 20),
        "fault": lambda: seen[4 << 20],
        "open": lambda: os.open(NAMED, os.O_RDONLY),
        "stat": lambda: os.stat(NAMED),
        "ls": lambda: os.listdir(AT),
        "statfs": lambda: os.statvfs(AT),
    }


def start(way: Callable[[], object]) -> int:
    """A process that goes one way, and ends."""
    child = os.fork()
    if child == 0:
        try:
            way()
        finally:
            os._exit(0)
    return child


def has_ended(child: int) -> bool:
    """Whether it has ended; asked once only after that."""
    return os.waitpid(child, os.WNOHANG)[0] != 0


def kill(children: dict[str, int]) -> dict[str, float | None]:
    """Kills those that wait; the seconds until each has ended."""
    took: dict[str, float | None] = {name: None for name, child in children.items() if has_ended(child)}
    left = {name: child for name, child in children.items() if name not in took}
    began = time.monotonic()
    for child in left.values():
        os.kill(child, signal.SIGKILL)
    while left and time.monotonic() - began < ENDS_S:
        for name in [name for name, child in left.items() if has_ended(child)]:
            took[name] = round(time.monotonic() - began, 2)
            del left[name]
        time.sleep(0.01)
    return took | dict.fromkeys(left, ENDS_S)


def drop_inodes() -> None:
    """Has the kernel give up the inodes that nobody uses, as when memory is short."""
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
        file.write("2")


def seconds_of(deed: Callable[[], object]) -> float:
    """The seconds that a process takes for something, which is not waited for without end."""
    child, began = start(deed), time.monotonic()
    while time.monotonic() - began < ENDS_S and not has_ended(child):
        time.sleep(0.01)
    return round(time.monotonic() - began, 2)


def main() -> None:
    """Goes all the ways."""
    tried = ways()
    with open(READY, "x", encoding="ascii"):
        pass
    while not os.path.exists(GO):
        time.sleep(0.02)
    children = {}
    for name in WAYS or tried:
        children[name] = start(tried[name])
        time.sleep(STEP_S)
    time.sleep(WAITS_S)
    took: dict[str, float | None] = {}
    # The last one is not to be freed by the end of another.
    for name in reversed(WAYS):
        took |= kill({name: children.pop(name)})
    took |= kill(children)
    tried.clear()
    os.closerange(3, 64)
    took["drop_caches"] = seconds_of(drop_inodes)
    began = time.monotonic()
    libc = ctypes.CDLL(None, use_errno=True)
    while libc.umount2(AT.encode(), 0):
        if ctypes.get_errno() != errno.EBUSY or time.monotonic() - began > ENDS_S:
            raise OSError(ctypes.get_errno(), "umount")
        time.sleep(0.01)
    print(json.dumps(took | {"umount": round(time.monotonic() - began, 2)}))


if __name__ == "__main__":
    main()
