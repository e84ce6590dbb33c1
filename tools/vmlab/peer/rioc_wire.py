# SPDX-License-Identifier: GPL-2.0
"""Runs in the guest: a client of rioc over the scripted RTRS client, with its messages byte by byte.

An independent second implementation: nothing here is taken from rioc/proto, so an error there cannot hide here.
"""
from __future__ import annotations

import itertools
import os
import struct
from typing import Any

import client
import messages as m
from client import Client
from scripted_peer import ScriptedPeer

client.PORT = 1235
VERSION, BLOCK, IO_MAX, LANES = 3, 4096, 112 << 10, 64
(ATTACH, PING, CREATE, DELETE, STAT, LIST, READ, WRITE, TRUNCATE, COPY, SNAPSHOT, FLUSH, LEASE, RELEASE) = range(1, 15)
CHANGES = (CREATE, DELETE, WRITE, TRUNCATE, COPY, SNAPSHOT, LEASE, RELEASE)
READS = (ATTACH, PING, STAT, LIST, READ, LEASE)
FLAG_CREATE, FLAG_NEW, FLAG_WRITER = 1, 2, 4
ANSWER, READ_ANSWER, NAME = 64, 160, 16
CRC32C = 0x82F63B78
Object = tuple[int, int]


def head(kind: int, of: Object = (0, 0), offset: int = 0, length: int = 0, flags: int = 0, lease: int = 0,
         ticket: int = 0, version: int = VERSION, incarnation: int = 0) -> bytes:
    """The 56 bytes of each message."""
    return struct.pack("<BBHIQQQQQQ", kind, version, flags, lease, ticket, incarnation, *of, offset, length)


def pieces(offset: int, data: bytes) -> list[bytes]:
    """The bytes of each block."""
    edges = [offset, *range(offset // BLOCK * BLOCK + BLOCK, offset + len(data), BLOCK), offset + len(data)]
    return [data[start - offset:end - offset] for start, end in itertools.pairwise(edges)]


def sums(offset: int, data: bytes) -> list[int]:
    """The CRC of each block's bytes."""
    return [m.crc(piece, CRC32C, 32) for piece in pieces(offset, data)]


class Rioc(Client):
    """A session that has attached to a store."""

    def __init__(self, address: str, store: str = "bb", name: bytes = b"rioc") -> None:
        super().__init__(ScriptedPeer(), address, name)
        self.store, self.sequences, self.boot, self.number_there = store, [0] * LANES, 0, 0
        self.incarnation = 0

    def begin(self) -> Rioc:
        """Connects and attaches."""
        self.open()
        self.attach()
        return self

    def attach(self, store: str = "") -> None:
        """Uses a store."""
        name = (store or self.store).encode().ljust(32, b"\0")
        answer = self.ask(ATTACH, body=name, size=ANSWER)
        kind, version, durable, backing, io_max, self.boot, self.number_there, self.incarnation = \
            struct.unpack_from("<BBBBIQI4xQ", answer)
        assert (kind, version, io_max) == (ATTACH, VERSION, IO_MAX), (kind, version, io_max)
        self.is_durable, self.has_backing = bool(durable), bool(backing)

    def head(self, kind: int, *fields: Any, **named: Any) -> bytes:
        """The head of a message to the store that it has attached to."""
        return head(kind, *fields, **{"incarnation": 0 if kind == ATTACH else self.incarnation} | named)

    def ticket(self, lane: int = 0) -> int:
        """The next number of a lane."""
        self.sequences[lane] += 1
        return self.sequences[lane] << 16 | lane

    def send(self, message: bytes, size: int = 0, data: bytes = b"", chunk: int = 0) -> None:
        """Sends a message; a read has a size."""
        if message[0] in READS:
            self.read(chunk, size, message)
        else:
            self.write(chunk, data, message)

    def outcome(self, message: bytes, size: int = 0, data: bytes = b"", chunk: int = 0) -> int:
        """Sends a message; returns the errno of its answer."""
        self.send(message, size, data, chunk)
        return self.answer(chunk)

    def ask(self, kind: int, of: Object = (0, 0), offset: int = 0, length: int = 0, flags: int = 0, lease: int = 0,
            body: bytes = b"", size: int = 0, data: bytes = b"") -> bytes:
        """Carries out an operation; what it answers. Raises OSError with the errno of the answer."""
        ticket = self.ticket() if kind in CHANGES else 0
        error = self.outcome(self.head(kind, of, offset, length, flags, lease, ticket) + body, size, data)
        if error:
            raise OSError(error, os.strerror(error))
        return self.reply(size)

    def create(self, of: Object, flags: int = 0) -> None:
        """Makes an object."""
        self.ask(CREATE, of, flags=flags)

    def delete(self, of: Object, lease: int = 0) -> None:
        """Removes one."""
        self.ask(DELETE, of, lease=lease)

    def stat(self, of: Object) -> tuple[int, int]:
        """Its bytes, and its blocks that are no holes."""
        kind, version, lease, size, blocks = struct.unpack_from("<BBxxIQQ", self.ask(STAT, of, size=ANSWER))
        assert (kind, version, lease) == (STAT, VERSION, 0)
        return size, blocks

    def list(self, count: int = 16) -> set[Object]:
        """All names, so many at a time."""
        found: set[Object] = set()
        cursor = 0
        while True:
            answer = self.ask(LIST, offset=cursor, size=ANSWER + count * NAME)
            kind, version, there, cursor = struct.unpack_from("<BBxxIQ", answer)
            assert (kind, version) == (LIST, VERSION) and there <= count, answer[:16]
            names = [struct.unpack_from("<QQ", answer, ANSWER + number * NAME) for number in range(there)]
            assert not found.intersection(names) and len(set(names)) == there, names
            found.update(names)
            if not cursor:
                return found

    def put(self, of: Object, offset: int, data: bytes, flags: int = 0, lease: int = 0) -> None:
        """Writes."""
        body = b"".join(struct.pack("<I", one) for one in sums(offset, data))
        self.ask(WRITE, of, offset, len(data), flags, lease, body, data=data)

    def get(self, of: Object, offset: int, length: int, lease: int = 0) -> bytes:
        """Reads, and checks each CRC."""
        answer = self.ask(READ, of, offset, length, lease=lease, size=READ_ANSWER + length)
        kind, version, count, there, size = struct.unpack_from("<BBHIQ", answer)
        data, rest = answer[READ_ANSWER:][:there], answer[READ_ANSWER + there:]
        found = list(struct.unpack_from("<32I", answer, 32))
        assert (kind, version) == (READ, VERSION) and there == max(min(length, size - offset), 0), answer[:16]
        assert not any(rest), "bytes behind the end"
        expected = sums(offset, data) if data else []
        assert (count, found) == (len(expected), expected + [0] * (32 - count)), "CRCs"
        return data

    def truncate(self, of: Object, size: int) -> None:
        """Sets its size."""
        self.ask(TRUNCATE, of, size)

    def copy(self, of: Object, offset: int, length: int, to: Object, at: int, flags: int = 0) -> None:
        """Copies bytes by reference."""
        self.ask(COPY, of, offset, length, flags, body=struct.pack("<QQQ", *to, at))

    def snapshot(self, of: Object, to: Object, flags: int = 0) -> None:
        """Copies an object by reference."""
        self.ask(SNAPSHOT, of, flags=flags, body=struct.pack("<QQQ", *to, 0))

    def lease(self, of: Object, offset: int = 0, length: int = 0, writes: bool = True) -> int:
        """Takes a lease."""
        answer = self.ask(LEASE, of, offset, length, FLAG_WRITER if writes else 0, size=ANSWER)
        kind, version, lease = struct.unpack_from("<BBxxI", answer)
        assert (kind, version) == (LEASE, VERSION) and lease, answer[:8]
        return int(lease)

    def release(self, lease: int) -> None:
        """Ends a lease."""
        self.ask(RELEASE, lease=lease)
