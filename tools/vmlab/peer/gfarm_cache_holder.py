# SPDX-License-Identifier: GPL-2.0
"""Runs in the guest: a member of Gfarm's cooperative cache that claims to have files, and gives their pages or lies.

    gfarm_cache_holder.py FOLDER KEY COPIES MODE

FOLDER is that of the node below /proc. COPIES has the files, each named INUM-GEN-MTIME, the time in nanoseconds. It
names itself to who asks for an owner, and answers a request to a holder as the file MODE says, until that says `end`:
`waits` keeps each, and `first` those for the first page of a chunk.
Prints JSON: how often it was asked in each mode, and the keys of the queue pairs that it was asked to send to.
"""
from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import gfarm_cache_wire as wire
from gfarm_cache_liar import PAGE, Liar
from gfarm_cache_wire import Request

Part = tuple[int | None, bytes]
# What is sent instead of the fragments of the pages: none of these counts.
NOTHING = ("nothing", "miss", "late", "more", "size", "status")
# How often it says that it keeps a request, and for how long the node is to believe that: this is a slow program.
REPEAT_SECONDS, KEEP_MS, KEPT_SECONDS = 0.2, 1500, 60


def fragments(asked: Request, content: bytes) -> list[Part]:
    """Immediate and bytes of all fragments of the pages that were asked for."""
    pages = [content[n * PAGE:(n + 1) * PAGE].ljust(PAGE, b"\0") for n in range(256) if asked.pages >> n & 1]
    row, size = b"".join(pages), asked.fragment
    return [(asked.tag << 16 | k, row[k * size:(k + 1) * size]) for k in range(len(row) // size)]


class Holder(Liar):
    """Answers as a holder of all files of a folder."""

    def __init__(self, folder: str, key: str, copies: Path) -> None:
        named = [(file, *map(int, file.name.split("-"))) for file in sorted(copies.iterdir())]
        self.copies = {(inum, gen, *divmod(mtime_ns, 1_000_000_000)): file.read_bytes()
                       for file, inum, gen, mtime_ns in named}
        file, inum, gen, mtime_ns = named[0]
        super().__init__(folder, key, inum, gen, mtime_ns, str(file))
        for content in self.copies.values():
            # It is slow, and a node does not wait.
            wire.sums(content, 0, (1 << 256) - 1)
        # The last request that was answered as it should be: its fragments, and where they went.
        self.before: tuple[tuple[bytes, int, int], list[Part], bytes] | None = None
        # The requests that it keeps, each since when, and when it has said so last.
        self._kept: dict[int, tuple[Request, float]] = {}
        self._said = 0.0
        self.keys: list[int] = []

    def claim(self) -> None:
        """Tells the node, which may be the owner, that it has all pages."""
        for (inum, gen, sec, nsec), content in self.copies.items():
            pages = (1 << -(-len(content) // PAGE)) - 1
            asked = self.request.but(inum=inum, gen=gen, sec=sec, nsec=nsec, size=len(content), pages=pages)
            self.ask(asked)
            self.send(self.sealed(wire.HAVE, wire.notice(asked, 0, pages)))

    def fling(self, to: tuple[bytes, int, int], parts: list[Part]) -> None:
        """Sends fragments."""
        for imm, part in parts:
            self.data.send(to, part, imm)

    def replies_of(self, asked: Request) -> tuple[bytes, int, int]:
        """The queue pair for the replies to a request."""
        return self.node_at[0], asked.reply_qpn, asked.reply_qkey

    def reply(self, asked: Request, body: bytes, to: tuple[bytes, int, int] | None = None) -> None:
        """Replies to a request, where it says, or elsewhere."""
        self.send(self.sealed(wire.REPLY, body), to or self.replies_of(asked))

    def hold(self, asked: Request, mode: str) -> None:
        """Answers as a holder, as the mode says."""
        to = self.node_at[0], asked.qpn, asked.qkey
        content = self.copies[asked.inum, asked.gen, asked.sec, asked.nsec]
        right = fragments(asked, content)
        sums = wire.sums(content, asked.chunk, asked.pages) if asked.flags & wire.SUMS else b""
        wrong, tag = b"\xaa" * asked.fragment, asked.tag << 16
        foreign = [(None, wrong), ((asked.tag ^ 1) << 16, wrong), (tag | 0xffff, wrong), (tag | len(right), wrong),
                   (tag, wrong[1:]), (tag, b""), (tag, wrong + b"\0")] * 4
        parts: dict[str, list[Part]] = {
            "twice": [part for part in reversed(right) for _ in range(2)], "half": right[::2], "foreign": foreign,
            "damaged": [(imm, part[:9] + bytes([part[9] ^ 4]) + part[10:]) for imm, part in right]}
        none: list[Part] = []
        bare = wire.data(asked.cookie, asked.tag, asked.size, asked.pages)
        body = bare + sums
        changed = {
            "miss": wire.data(asked.cookie, asked.tag, 0, 0, wire.MISS),
            "late": wire.data(asked.cookie, asked.tag, 0, 0, wire.MISS),
            "more": wire.data(asked.cookie, asked.tag, asked.size, asked.pages | 1 << 255) + sums + sums[:4],
            "size": wire.data(asked.cookie, asked.tag, asked.size + 1, asked.pages) + sums,
            "status": wire.data(asked.cookie, asked.tag, asked.size, asked.pages, 9) + sums,
            "other": wire.data(asked.cookie + 1, asked.tag, asked.size, asked.pages) + sums,
            "unsummed": bare, "short": body[:-4], "sums": bare + bytes(b ^ 1 for b in sums)}
        if mode == "again" and self.before:
            # What it has sent for another request, with the key of then, and its reply.
            there, old, said = self.before
            self.fling(there, old)
            self.reply(asked, said)
        if mode == "garbage":
            self.fling(to, [(None, os.urandom(asked.fragment)), (tag | 5, os.urandom(asked.fragment + 1)),
                            (int.from_bytes(os.urandom(4), "little"), os.urandom(asked.fragment // 2))])
            self.public.send(self.node_at, os.urandom(164))
            # Noise, and what is for the public queue pair.
            self.public.send(self.replies_of(asked), os.urandom(164))
            for kind, other in ((wire.HELLO, wire.gossip(1, self.record())), (wire.HAVE, bytes(68))):
                self.send(self.sealed(kind, other), self.replies_of(asked))
        self.fling(to, none if mode in NOTHING else parts.get(mode, right))
        to_public = self.node_at if mode == "elsewhere" else None
        self.reply(asked, changed.get(mode, body), to_public)
        if mode == "late":
            self.fling(to, [(tag | k, wrong) for k in range(4)])
        if mode in ("right", "again"):
            self.before = to, right, body

    def keep(self) -> None:
        """Says again that it keeps what it keeps."""
        now = time.monotonic()
        if now - self._said < REPEAT_SECONDS:
            return
        self._said = now
        for cookie, (asked, since) in list(self._kept.items()):
            if now - since > KEPT_SECONDS:
                del self._kept[cookie]
            # The node may be gone by now, with all that it has counted.
            self.public.send(self.replies_of(asked), self.sealed(wire.REPLY, wire.wait(asked, KEEP_MS)))

    def answer(self, asked: Request, mode: str) -> None:
        """Answers a request."""
        if asked.role != wire.HOLDER:
            self.reply(asked, wire.redirect(asked, self.record()))
        elif mode == "waits" or (mode == "first" and asked.pages & 1):
            self._kept[asked.cookie] = asked, time.monotonic()
            self._said = 0.0
        elif mode != "silent":
            self.hold(asked, mode)

    def serve(self, mode_file: Path) -> dict[str, int]:
        """Answers until it is to end: how often it was asked as a holder, by mode."""
        held: dict[str, int] = {}
        last = ""
        while (mode := mode_file.read_text()) != "end":
            if mode != last:
                last = mode
                self.claim()
                held.setdefault(mode, 0)
                mode_file.with_name(mode_file.name + f".{mode}").touch()
            self.asked.clear()
            self.poll(5)
            for asked in self.asked:
                if asked.role == wire.HOLDER:
                    held[mode] += 1
                    self.keys.append(asked.qkey)
                self.answer(asked, mode)
            self.keep()
        return held


def main() -> None:
    """Joins, and serves."""
    folder, key, copies, mode = sys.argv[1:]
    holder = Holder(folder, key, Path(copies))
    holder.join()
    print(json.dumps({"asked": holder.serve(Path(mode)), "keys": holder.keys}))


if __name__ == "__main__":
    main()
