# SPDX-License-Identifier: GPL-2.0
"""Runs in the guest: a holder of pages that loses, repeats and reorders chosen fragments, once for each read.

    gfarm_cache_lossy.py FOLDER KEY INUM GEN FILE PATH

As gfarm_cache_liar.py; PATH is the file in the node's mount, which is read with O_DIRECT, 16 KiB at a time. Prints
JSON: for each read what was done to it, whether its bytes are right, how many requests it took, and how many bytes
came from the file server.
"""
from __future__ import annotations

import json
import mmap
import os
import struct
import sys
import threading
import time
from dataclasses import dataclass

import gfarm_cache_wire as wire
from gfarm_cache_liar import PAGE, QKEY, Liar

FRAGMENT = 1024
PAGES = 4
COUNT = PAGES * PAGE // FRAGMENT
READ_SECONDS = 40
CHUNK_PAGES = 256


@dataclass(frozen=True)
class Case:
    """The fate of a read: which fragments are sent for its first request, in this order, and which never."""

    what: str
    plan: list[int] | None = None
    never: frozenset[int] = frozenset()
    crosses: bool = False       # from one chunk to the next: two requests


def cases() -> list[Case]:
    """The reads."""
    whole = list(range(COUNT))
    return [*(Case(f"{k} is lost", [n for n in whole if n != k]) for k in whole),
            *(Case(f"{k} comes twice", sorted([*whole, k])) for k in whole),
            *(Case(f"{k} comes last", [*(n for n in whole if n != k), k]) for k in whole),
            Case("all come in reverse", whole[::-1]), Case("all but the first half are lost", whole[:COUNT // 2]),
            Case("all are lost", []),
            *(Case(f"{k} never comes", never=frozenset({k})) for k in range(0, COUNT, 5)),
            *(Case(f"{k} never comes, across chunks", never=frozenset({k}), crosses=True) for k in (0, 5, 9))]


class Lossy(Liar):
    """A member that is asked for pages, as an owner and as a holder."""

    case: Case | None = None        # until the first request of the read
    never: frozenset[int] = frozenset()     # from the file's begin on
    asked = 0

    def handle(self, body: bytes) -> None:
        """Answers a request: as an owner by naming itself, as a holder by what the plan is for the first one."""
        (cookie, *_content, size, chunk, raw, _excluded, qpn, qkey, tag, length, role, flags, _,
         _, reply_qpn, reply_qkey) = wire.BODY.unpack(body)
        to = self.node_at[0], reply_qpn, reply_qkey
        if role != wire.HOLDER:
            address = struct.pack("<16sHIIB", self.public.gid, 0, self.public.qpn, QKEY, 0)
            self.send(self.sealed(wire.REPLY, wire.ANSWER.pack(
                cookie, 0, raw, bytes(32), self.me, address, 0, tag, wire.REDIRECT, 0, 4)), to)
            return
        self.asked += 1
        pages = int.from_bytes(raw, "little")
        start = chunk * CHUNK_PAGES
        numbers = [start + n for n in range(CHUNK_PAGES) if pages >> n & 1]
        # By their places in the file.
        parts = [n * PAGE // length + k for n in numbers for k in range(PAGE // length)]
        case, self.case = self.case, None
        for number in range(len(parts)) if case is None or case.plan is None else case.plan:
            part = parts[number]
            if part not in self.never:
                self.data.send((self.node_at[0], qpn, qkey),
                               self.content[part * length:(part + 1) * length].ljust(length, b"\0"),
                               tag << 16 | number)
        sums = wire.sums(self.content, chunk, pages) if flags & wire.SUMS else b""
        self.send(self.sealed(wire.REPLY, wire.ANSWER.pack(
            cookie, size, raw, bytes(32), 0, bytes(27), 0, tag, wire.DATA, 0, 4) + sums), to)

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
        left = -(-len(self.content) // PAGE)
        for chunk in range(-(-left // CHUNK_PAGES)):
            pages = (1 << min(left, CHUNK_PAGES)) - 1
            left -= CHUNK_PAGES
            self.ask(self.request.but(role=wire.OWNER, chunk=chunk, pages=pages))
            self.send(self.sealed(wire.HAVE, wire.notice(self.request, chunk, pages)))

    def from_server(self) -> int:
        """The number of bytes that the node has had from file servers."""
        return int((self.folder / "stats").read_text().partition("\ngfsd_bytes ")[2].partition("\n")[0])


def read(path: str, start: int, found: list[bytes]) -> None:
    """Reads a part of the file, not from the page cache."""
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    with mmap.mmap(-1, PAGES * PAGE) as room:
        os.preadv(file, [room], start)
        found.append(bytes(room))
    os.close(file)


def main() -> None:
    """Joins, and is asked."""
    folder, key, inum, gen, mtime_ns, name, path = sys.argv[1:]
    holder = Lossy(folder, key, int(inum), int(gen), int(mtime_ns), name)
    for chunk in range(-(-len(holder.content) // (CHUNK_PAGES * PAGE))):
        # It is slow, and a node does not wait.
        wire.sums(holder.content, chunk, (1 << CHUNK_PAGES) - 1)
    holder.join()
    holder.claim()
    told: list[dict[str, object]] = []
    for number, case in enumerate(cases()):
        found: list[bytes] = []
        start = (CHUNK_PAGES - PAGES // 2 if case.crosses else number * PAGES) * PAGE
        holder.case, holder.asked = case, 0
        holder.never = frozenset(start // FRAGMENT + k for k in case.never)
        reader = threading.Thread(target=read, args=(path, start, found), daemon=True)
        before, began = holder.from_server(), time.monotonic()
        reader.start()
        while reader.is_alive() and time.monotonic() < began + READ_SECONDS:
            holder.serve(5)
        right = found == [holder.content[start:start + PAGES * PAGE]]
        told.append({"what": case.what, "right": right, "asked": holder.asked, "seconds": time.monotonic() - began,
                     "gfsd": holder.from_server() - before})
    print(json.dumps(told))


if __name__ == "__main__":
    main()
