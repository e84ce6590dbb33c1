# SPDX-License-Identifier: GPL-2.0
"""Runs in the guest: a holder of pages that loses, repeats and reorders chosen fragments, once for each read.

    gfarm_cache_lossy.py FOLDER KEY INUM GEN FILE PATH

As gfarm_cache_liar.py; PATH is the file in the node's mount, which is read with O_DIRECT, 16 KiB at a time. Prints
JSON: for each read what was done to it, whether its bytes are right, and how many requests it took.
"""
from __future__ import annotations

import json
import mmap
import os
import struct
import sys
import threading
import time

import gfarm_cache_wire as wire
from gfarm_cache_liar import PAGE, QKEY, Liar

FRAGMENT = 1024
PAGES = 4
COUNT = PAGES * PAGE // FRAGMENT
READ_SECONDS = 40
HAVE = struct.Struct("<3Q32s")


def cases() -> list[tuple[str, list[int]]]:
    """Which fragments are sent for the first request of a read, in this order."""
    whole = list(range(COUNT))
    return [*((f"{k} is lost", [n for n in whole if n != k]) for k in whole),
            *((f"{k} comes twice", sorted([*whole, k])) for k in whole),
            *((f"{k} comes last", [*(n for n in whole if n != k), k]) for k in whole),
            ("all come in reverse", whole[::-1]), ("all but the first half are lost", whole[:COUNT // 2]),
            ("all are lost", [])]


class Lossy(Liar):
    """A member that is asked for pages, as an owner and as a holder."""

    plan: list[int] | None = None
    asked = 0

    def handle(self, body: bytes) -> None:
        """Answers a request: as an owner by naming itself, as a holder by what the plan is for the first one."""
        cookie, _inum, _gen, size, chunk, raw, _excluded, qpn, qkey, tag, length, role, *_ = wire.BODY.unpack(body)
        if role != wire.HOLDER:
            address = struct.pack("<16sHIIB", self.public.gid, 0, self.public.qpn, QKEY, 0)
            self.send(self.sealed(wire.REPLY, wire.ANSWER.pack(
                cookie, 0, raw, bytes(32), self.me, address, 0, tag, wire.REDIRECT, 0, 4)))
            return
        self.asked += 1
        pages = int.from_bytes(raw, "little")
        start = chunk * 256
        content = b"".join(self.content[(start + n) * PAGE:(start + n + 1) * PAGE].ljust(PAGE, b"\0")
                           for n in range(256) if pages >> n & 1)
        plan, self.plan = self.plan, None
        for number in range(len(content) // length) if plan is None else plan:
            self.data.send((self.node_at[0], qpn, qkey), content[number * length:(number + 1) * length],
                           tag << 16 | number)
        self.send(self.sealed(wire.REPLY, wire.ANSWER.pack(
            cookie, size, raw, bytes(32), 0, bytes(27), 0, tag, wire.DATA, 0, 4)))

    def serve(self, wait_ms: int) -> None:
        """Takes all that has come from the node."""
        came = self.public.receive(wait_ms)
        while came is not None:
            head, body = wire.opened(came[2], self.key)
            if head.kind == wire.REQUEST:
                self.handle(body)
            elif head.kind == wire.HELLO:
                nonce, _ = wire.gossiped(body)
                self.send(self.sealed(wire.MEMBERS, wire.gossip(nonce, self.record())))
            came = self.public.receive(0)

    def claim(self) -> None:
        """Tells the node, which may be the owner, that it has all pages."""
        pages = (1 << -(-len(self.content) // PAGE)) - 1
        self.ask(self.request.but(role=wire.OWNER, pages=pages))
        have = HAVE.pack(self.request.inum, self.request.gen, 0, pages.to_bytes(32, "little"))
        self.send(self.sealed(wire.HAVE, have))


def read(path: str, start: int, found: list[bytes]) -> None:
    """Reads a part of the file, not from the page cache."""
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    with mmap.mmap(-1, PAGES * PAGE) as room:
        os.preadv(file, [room], start)
        found.append(bytes(room))
    os.close(file)


def main() -> None:
    """Joins, and is asked."""
    folder, key, inum, gen, name, path = sys.argv[1:]
    holder = Lossy(folder, key, int(inum), int(gen), name)
    holder.join()
    holder.claim()
    told: list[dict[str, object]] = []
    for number, (what, plan) in enumerate(cases()):
        found: list[bytes] = []
        start = number * PAGES * PAGE
        holder.plan, holder.asked = plan, 0
        reader = threading.Thread(target=read, args=(path, start, found), daemon=True)
        began = time.monotonic()
        reader.start()
        while reader.is_alive() and time.monotonic() < began + READ_SECONDS:
            holder.serve(5)
        right = found == [holder.content[start:start + PAGES * PAGE]]
        told.append({"what": what, "right": right, "asked": holder.asked, "seconds": time.monotonic() - began})
    print(json.dumps(told))


if __name__ == "__main__":
    main()
