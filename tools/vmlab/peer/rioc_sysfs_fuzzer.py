# SPDX-License-Identifier: GPL-2.0
"""Runs in a guest beside sysfs_fuzzer.py: writes to every file that rioc_server has in sysfs, and reads all of them.
The last line of its output is JSON: how often each file was written, by errno.

    python3 rioc_sysfs_fuzzer.py '{"seed": 1, "seconds": 10, "devices": [...]}'

The store `bb` is in use: it is not deleted.
"""
from __future__ import annotations

import json
import os
import sys
import time

import sysfs_fuzzer
from sysfs_fuzzer import NUMBERS

CONTROL = "/sys/class/rioc-server/ctl/add_store"
NAMES = ("s1", "s2", "s3")
WRONG_WORDS = ("colour=red", "name=", "=", "name=a/b", f"name={'n' * 33}", "ram_mib=-1", "ram_mib=1048577", "log=ram0",
               f"log=/{'d' * 255}", "mode=make", "force=2", "evict=all", "backing=/dev/null")


class Chance(sysfs_fuzzer.Chance):
    """What a writer writes next."""

    def right_words(self) -> list[str]:
        """What a line for add_store has to have."""
        log = f"log={self.choice(self.job['devices'])}"
        medium = ("ram_mib=1", "ram_mib=2 evict=objects", "ram_mib=2 backing=/mnt", log, f"{log} mode=create force=1")
        return [f"name={self.choice(NAMES)}", self.choice(medium)]

    def line(self) -> str:
        """A line for add_store: right, or with one thing that is wrong."""
        words = self.right_words()
        if self.random() < 0.5:
            words += self.sample((f"ram_mib={self.choice(NUMBERS)}", "mode=create", "log=/dev/null", *WRONG_WORDS), 1)
        return self.choice((" ", "  ")).join(words)

    def right(self, file: str) -> str:
        """What the file takes."""
        return self.line() if file.endswith("add_store") else self.choice(NAMES)

    def address(self) -> str:
        """A path, or nearly."""
        return self.choice((*self.job["devices"], "/dev", "/", "m0", "/dev/\x7f\n"))


class Fuzzer(sysfs_fuzzer.Fuzzer):
    """Stores in the place of sessions and their disks."""

    ROOTS = ("/sys/class/rioc-server/ctl", "/sys/module/rioc_server/parameters")
    KINDS = ((r"/stores/\w+/", "/stores/*/"),)
    CONTROL = CONTROL
    WRONG_WORDS = WRONG_WORDS
    CHANCE = Chance

    def ends_io(self, file: str, text: bytes) -> bool:
        """Only the end of the store does."""
        return file.endswith("del_store") and text.strip() == b"bb"

    def disks(self) -> None:
        """Adds and deletes stores."""
        chance = self.CHANCE(f"{self.job['seed']} stores", self.job)
        while not self.over:
            self.write(CONTROL, chance.right_line().encode())
            self.write(CONTROL.replace("add_", "del_"), chance.choice(NAMES).encode())
            self.ios += 1
            time.sleep(0.01)

    def end_others(self) -> None:
        """Deletes them, with those of names that nearly were too long."""
        for name in os.listdir(CONTROL.replace("add_store", "stores")):
            self.write(CONTROL.replace("add_", "del_"), name.encode())

    def brings_back(self, name: str) -> bool:
        """Lines do."""
        return name.endswith("add_store")


if __name__ == "__main__":
    print(json.dumps(Fuzzer(json.loads(sys.argv[1])).run()), flush=True)
    os._exit(0)     # a thread that is stuck in the kernel must not keep the report
