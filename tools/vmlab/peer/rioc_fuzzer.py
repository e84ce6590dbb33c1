# SPDX-License-Identifier: GPL-2.0
"""Runs in a guest: asks /dev/rioc for what is right, nearly right and wrong, for some seconds.

    python3 rioc_fuzzer.py SESSION SEED SECONDS

Prints what must not be: an errno that no page names, a call that takes too long, bytes outside of the program's buffer
that have changed, a length that is more than was asked for. Then the number of calls, and of those that were done.
"""
from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import random
import struct
import sys
import time

CALL = 3 << 30 | 128 << 16 | 0xb9 << 8 | 1
LAYOUT = struct.Struct("=4I 2Q QQQ 2Q Q QQQ 2I 2Q")
ATTACH, LIST, READ, WRITE, COPY, SNAPSHOT, LEASE, RELEASE = 1, 6, 7, 8, 10, 11, 13, 14
FIELDS = ("version", "kind", "flags", "lease", "high", "low", "offset", "length", "buffer", "to_high", "to_low",
          "to_offset", "size", "blocks", "boot", "state", "io_bytes_max", "reserved", "reserved2")
NARROW = {"version", "kind", "flags", "lease", "state", "io_bytes_max"}
ROOM = 300_000
CANARY = b"\xa5" * 4096
NUMBERS = (0, 1, 2, 3, 15, 16, 17, 255, 256, 4095, 4096, 4097, 114_687, 114_688, 114_689, 2**31, 2**32 - 1, 2**32,
           (2**32 - 1) << 12, ((2**32 - 1) << 12) - 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 4096)
ERRORS = {0, errno.EINVAL, errno.EFAULT, errno.EPROTONOSUPPORT, errno.EOPNOTSUPP, errno.EFBIG, errno.EMSGSIZE,
          errno.ENOENT, errno.EEXIST, errno.EBUSY, errno.ESTALE, errno.ENOSPC, errno.EDQUOT, errno.ENOTCONN}
SLOW_SECONDS = 20.0


class Fuzzer:
    """One open file."""

    def __init__(self, session: str, seed: str) -> None:
        self.chance = random.Random(seed)
        self.session = session.encode()
        self.file = os.open("/dev/rioc", os.O_RDWR)
        self.memory = bytearray(ROOM + len(CANARY))
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.calls = self.done = 0

    def right(self, kind: int) -> dict[str, int]:
        """A call that is right."""
        fields = dict.fromkeys(FIELDS, 0)
        fields |= {"version": 1, "kind": kind}
        address = self.address
        if kind == ATTACH:
            self.memory[:len(self.session)] = self.session
            fields |= {"buffer": address, "length": len(self.session)}
        elif kind not in (2, LIST, RELEASE):
            fields["low"] = self.chance.randrange(8)
        if kind == LIST:
            fields |= {"buffer": address, "length": 16 * self.chance.randrange(1, 200)}
        if kind in (READ, WRITE, COPY):
            fields |= {"offset": self.chance.randrange(1 << 20), "length": self.chance.randrange(1, ROOM)}
        if kind in (READ, WRITE):
            fields["buffer"] = address
        if kind in (COPY, SNAPSHOT):
            fields["to_low"] = 8 + self.chance.randrange(8)
        if kind == COPY:
            fields["to_offset"] = fields["offset"]
        fields["flags"] = {WRITE: 1, COPY: 1}.get(kind, 0)
        return fields

    def step(self) -> None:
        """One call, judged."""
        kind = self.chance.choice((*range(1, 15), READ, WRITE, WRITE))
        fields = self.right(kind)
        for name in self.chance.sample(FIELDS, self.chance.choice((0, 0, 1, 1, 2))):
            fields[name] = self.chance.choice(NUMBERS) % (2**32 if name in NARROW else 2**64)
        # What lies elsewhere in this program is not the kernel's to find wrong.
        room = max(0, self.address + ROOM - fields["buffer"])
        if fields["kind"] in (READ, LIST) and fields["buffer"] > 4096 and fields["length"] > room:
            fields["length"] = room
        self.memory[ROOM:] = CANARY
        asked, began = fields["length"], time.monotonic()
        call = bytearray(LAYOUT.pack(*(fields[name] for name in FIELDS)))
        failed = 0
        try:
            fcntl.ioctl(self.file, CALL, call)
        except OSError as error:
            failed = error.errno or 0
        seconds = time.monotonic() - began
        self.calls += 1
        self.done += failed == 0
        length = LAYOUT.unpack(call)[FIELDS.index("length")]
        if failed not in ERRORS or seconds > SLOW_SECONDS or self.memory[ROOM:] != CANARY or length > asked:
            print(f"{errno.errorcode.get(failed, failed)} after {seconds:.1f} s, length {length}: {fields}")
        # Another file, which has no session yet.
        if self.chance.random() < 0.02:
            os.close(self.file)
            self.file = os.open("/dev/rioc", os.O_RDWR)


def main() -> None:
    """Runs until the time is over."""
    session, seed, seconds = sys.argv[1:]
    fuzzer, until = Fuzzer(session, seed), time.monotonic() + float(seconds)
    try:
        fcntl.ioctl(fuzzer.file, CALL + 1, bytearray(128))
        print("another ioctl is taken")
    except OSError as error:
        if error.errno != errno.ENOTTY:
            print(f"another ioctl: {error}")
    while time.monotonic() < until:
        fuzzer.step()
    print(fuzzer.calls, fuzzer.done)


if __name__ == "__main__":
    main()
