# SPDX-License-Identifier: GPL-2.0
"""Runs in a guest, beside sysfs_fuzzer.py: reads every file that both drivers have in sysfs again and again, until
the file `STOP` is there. Each file that is found stays open until it is gone, and is read then as well. The last line
of its output is JSON: how often each kind of file was read, by errno, and what did not end.

    python3 -S sysfs_readers.py
"""
from __future__ import annotations

import collections
import errno
import json
import os
import threading
import time

import sysfs_fuzzer

STOP = "/run/sysfs_readers.stop"
READERS = 3
GRACE_SECONDS = 20.0
PAGE = 4096


class Reader(threading.Thread):
    """Reads what is there, and what was there a moment ago."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        self.held: dict[str, int] = {}

    def read(self, name: str) -> bool:
        """Reads one file, through the handle of an earlier time if there is one; returns whether it is there."""
        try:
            if name not in self.held:
                self.held[name] = os.open(name, os.O_RDONLY)
            os.pread(self.held[name], PAGE, 0)
            said = "ok"
        except OSError as why:
            said = errno.errorcode.get(why.errno or 0, str(why.errno))
        self.counts[sysfs_fuzzer.kind_of(name)][said] += 1
        return said == "ok"

    def run(self) -> None:
        """Until there is `STOP`."""
        while not os.path.exists(STOP):
            for name in {*sysfs_fuzzer.files(), *self.held}:
                if not self.read(name) and (handle := self.held.pop(name, None)) is not None:
                    os.close(handle)


def main() -> None:
    """Starts the readers, waits for them, prints what they found."""
    readers = [Reader() for _ in range(READERS)]
    for reader in readers:
        reader.start()
    while not os.path.exists(STOP):
        time.sleep(0.1)
    last = time.monotonic() + GRACE_SECONDS
    for reader in readers:
        reader.join(max(0.1, last - time.monotonic()))
    total: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for reader in readers:
        for kind, said in reader.counts.items():
            total[kind].update(said)
    print(json.dumps({"counts": total, "stuck": sum(reader.is_alive() for reader in readers)}), flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)     # a thread that is stuck in the kernel must not keep the report
