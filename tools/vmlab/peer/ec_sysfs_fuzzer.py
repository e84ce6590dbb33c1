# SPDX-License-Identifier: GPL-2.0
"""Runs in a guest beside sysfs_fuzzer.py: writes to every file that rnbd_ec has in sysfs, reads all of them, and does
IO on all arrays but the one that the test watches. The last line of its output is JSON: how often each file was
written, by errno.

    python3 ec_sysfs_fuzzer.py '{"seed": 1, "seconds": 10, "members": [...], "spare": [...]}'

The array `ec0` is in use and has its three `members`: what is written to its files may not end its IO, nor make
another array of them. Of the `spare` devices arrays are made, and stopped.
"""
from __future__ import annotations

import glob
import json
import os
import re
import sys

import sysfs_fuzzer
from sysfs_fuzzer import NUMBERS, WORDS

ASSEMBLE = "/sys/class/rnbd-ec/ctl/assemble"
NAMES = ("ec1", "ec2")
WRONG_WORDS = ("colour=red", "name=", "=", "name=a/b", f"name={'n' * 28}", "members=ram0,ram1,ram2",
               "members=/dev/ram1", f"members=/{'d' * 255}", "members=/dev/a,/dev/a,/dev/b",
               "members=/dev/a,/dev/b,/dev/c,/dev/d", "mode=make", "codec=zip", "matrix=cauchy", "force=2", "size=0x10",
               "member_timeout_ms=99", "hedge_ms=9",
               "recover_every_n=-1")
RANGES = {"recover_every_n": (0, 2**31 - 1), "fail": (0, 2)}
FAILS = ("0", "1", "2", "none", "none")


class Chance(sysfs_fuzzer.Chance):
    """The choice of what a writer writes next."""

    def right_words(self) -> list[str]:
        """Words that a line for assemble has to have. The members are spare ones, most of the time."""
        count = self.choice((2, 3, 3))
        of = self.job["members"] if self.random() < 0.1 else self.job["spare"]
        mode = self.choice(("create", "create force=1", "assemble", "assemble"))
        return [f"mode={mode}", f"name={self.choice(NAMES)}", f"members={','.join(self.sample(of, count))}"]

    def line(self) -> str:
        """A line for assemble: right, or with one thing that is wrong."""
        words = self.right_words()
        more = (f"size={self.choice(NUMBERS)}", "size=16M", f"member_timeout_ms={self.choice(NUMBERS)}",
                f"hedge_ms={self.choice(NUMBERS)}", f"recover_every_n={self.choice(NUMBERS)}", "codec=none",
                *WRONG_WORDS)
        if self.random() < 0.5:
            words += self.sample(more, self.randrange(1, 3))
        return self.choice((" ", "  ")).join(words)

    def right(self, file: str) -> str:
        """A word that the file takes."""
        name = os.path.basename(file)
        if name == "assemble":
            return self.line()
        words = {"replace": self.job["spare"], "fail": FAILS}
        return str(self.choice(words.get(name, WORDS.get(name, ("1",)))))

    def address(self) -> str:
        """A path, or nearly."""
        return self.choice((*self.job["members"], *self.job["spare"], "/dev/null", "/dev", "/", "/dev/ec1", "/dev/ec0",
                            "m0", "/dev/\x7f\n"))


class Fuzzer(sysfs_fuzzer.Fuzzer):
    """Arrays in the place of sessions and their disks."""

    ROOTS = ("/sys/class/rnbd-ec/ctl", "/sys/block/ec[0-9]*/ec", "/sys/module/rnbd_ec/parameters")
    KINDS = ((r"/ec\d+/", "/ec*/"),)
    DEVICES = "/dev/ec[1-9]"
    CONTROL = ASSEMBLE
    WRONG_WORDS = WRONG_WORDS
    RANGES = RANGES
    CHANCE = Chance

    def ends_io(self, file: str, text: bytes) -> bool:
        """Nothing that is written to an array in use ends its IO; with a member missing it may take a spare device."""
        return "/ec0/ec/fail" in file and re.search(rb"[0-2]", text) is not None

    def is_others(self, handle: int) -> bool:
        """Its name says so: no other array gets that of one which is in use."""
        return True

    def end_others(self) -> None:
        """Stops them, with those of names that nearly were too long."""
        for file in set(glob.glob("/sys/block/*/ec/stop")) - {"/sys/block/ec0/ec/stop"}:
            self.write(os.path.realpath(file), b"1")

    def brings_back(self, name: str) -> bool:
        """Tells whether a file can make an array whole again."""
        return re.search(r"/ec[1-9]/ec/replace$", name) is not None


if __name__ == "__main__":
    print(json.dumps(Fuzzer(json.loads(sys.argv[1])).run()), flush=True)
    os._exit(0)     # a thread that is stuck in the kernel must not keep the report
