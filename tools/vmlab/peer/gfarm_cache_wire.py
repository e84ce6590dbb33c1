# SPDX-License-Identifier: GPL-2.0
"""The messages of Gfarm's cooperative cache, right or wrong: written from Documentation/gfarm-cache-protocol.md."""
from __future__ import annotations

import functools
import ipaddress
import struct
from dataclasses import dataclass, replace

REQUEST, REPLY, HELLO, MEMBERS, HAVE = 1, 2, 3, 4, 5
DATA, REDIRECT, FETCH, OTHER_OWNER, WAIT, BUSY, MISS, REFUSED = range(1, 9)
OWNER, NAMED_OWNER, HOLDER = 0, 1, 2
RETRY, SUMS = 1, 2
PAGE = 4096
HEAD = struct.Struct("<4sHHQQQ")
BODY = struct.Struct("<3QqI2Q32s32sIIHHBBH4sII")
NOTICE = struct.Struct("<2QqIQ32s")
ANSWER = struct.Struct("<QQ32s32sQ27sBHHHH")
MASK = (1 << 64) - 1
CRC32C = 0x82f63b78


def _entry(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ (CRC32C if value & 1 else 0)
    return value


TABLE = tuple(map(_entry, range(256)))


@functools.cache
def crc32c(data: bytes) -> int:
    """CRC-32C; it takes its time, and the same bytes are asked for again and again."""
    crc = 0xffffffff
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xffffffff


def sums(content: bytes, chunk: int, pages: int) -> bytes:
    """Sums behind the fields of a reply with pages of a chunk: of what each has of the file."""
    numbers = [chunk * 256 + n for n in range(256) if pages >> n & 1]
    return b"".join(struct.pack("<I", crc32c(content[n * PAGE:(n + 1) * PAGE])) for n in numbers)


def siphash(key: bytes, data: bytes) -> int:
    """SipHash-2-4."""
    first, second = struct.unpack("<QQ", key)
    v = [first ^ 0x736f6d6570736575, second ^ 0x646f72616e646f6d, first ^ 0x6c7967656e657261,
         second ^ 0x7465646279746573]

    def turn(word: int, bits: int) -> int:
        return (word << bits | word >> (64 - bits)) & MASK

    def mix(count: int) -> None:
        a, b, c, d = v
        for _ in range(count):
            a, c = (a + b) & MASK, (c + d) & MASK
            b, d = turn(b, 13) ^ a, turn(d, 16) ^ c
            a = turn(a, 32)
            c, a = (c + b) & MASK, (a + d) & MASK
            b, d = turn(b, 17) ^ c, turn(d, 21) ^ a
            c = turn(c, 32)
        v[:] = a, b, c, d

    whole = len(data) // 8 * 8
    for (word,) in struct.iter_unpack("<Q", data[:whole]):
        v[3] ^= word
        mix(2)
        v[0] ^= word
    last = len(data) % 256 << 56 | int.from_bytes(data[whole:], "little")
    v[3] ^= last
    mix(2)
    v[0] ^= last
    v[2] ^= 0xff
    mix(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


@dataclass(frozen=True)
class Head:
    """The head before each body."""

    kind: int
    source: int
    to: int
    sequence: int
    magic: bytes = b"gfcc"
    version: int = 5


def seal(head: Head, body: bytes, key: bytes) -> bytes:
    """A datagram."""
    covered = HEAD.pack(head.magic, head.version, head.kind, head.source, head.to, head.sequence) + body
    return covered + struct.pack("<Q", siphash(key, covered))


def opened(datagram: bytes, key: bytes) -> tuple[Head, bytes]:
    """Head and body of a datagram, whose code has to be right."""
    covered, code = datagram[:-8], datagram[-8:]
    assert struct.unpack("<Q", code)[0] == siphash(key, covered), "the code of a node is wrong"
    magic, version, kind, source, to, sequence = HEAD.unpack(covered[:HEAD.size])
    return Head(kind, source, to, sequence, magic, version), covered[HEAD.size:]


@dataclass(frozen=True)
class Request:
    """The body of a request."""

    cookie: int
    inum: int
    gen: int
    sec: int
    nsec: int
    size: int
    chunk: int = 0
    pages: int = 1
    excluded: tuple[int, int, int, int] = (0, 0, 0, 0)
    qpn: int = 0
    qkey: int = 0
    tag: int = 7
    fragment: int = 0
    role: int = OWNER
    flags: int = 0
    timeout: int = 200
    reasons: bytes = bytes(4)
    reply_qpn: int = 0
    reply_qkey: int = 0

    def but(self, **fields: object) -> Request:
        """The same with other fields."""
        return replace(self, **fields)      # type: ignore[arg-type]

    def body(self) -> bytes:
        """Its bytes."""
        return BODY.pack(self.cookie, self.inum, self.gen, self.sec, self.nsec, self.size, self.chunk,
                         self.pages.to_bytes(32, "little"),
                         struct.pack("<4Q", *self.excluded), self.qpn, self.qkey, self.tag, self.fragment, self.role,
                         self.flags, self.timeout, self.reasons, self.reply_qpn, self.reply_qkey)


def request(body: bytes) -> Request:
    """Reads the body of a request."""
    words = list(BODY.unpack(body))
    words[7], words[8] = int.from_bytes(words[7], "little"), struct.unpack("<4Q", words[8])
    return Request(*words)


@dataclass(frozen=True)
class Reply:
    """The answer of a node."""

    cookie: int
    size: int
    pages: int
    tag: int
    status: int
    detail: int
    credits: int


def reply(body: bytes) -> Reply:
    """Reads the body of a reply."""
    cookie, size, pages, _fetch, _holder, _address, _depth, tag, status, detail, credits = ANSWER.unpack(
        body[:ANSWER.size])
    return Reply(cookie, size, int.from_bytes(pages, "little"), tag, status, detail, credits)


def data(cookie: int, tag: int, size: int, pages: int = 1, status: int = DATA) -> bytes:
    """The body of a reply that announces pages of a file, without their sums."""
    return ANSWER.pack(cookie, size, pages.to_bytes(32, "little"), bytes(32), 0, bytes(27), 0, tag, status, 0, 4)


def wait(asked: Request, wait_ms: int) -> bytes:
    """The body of a reply that the request is kept, and will be told so again within this time."""
    return ANSWER.pack(asked.cookie, 0, bytes(32), bytes(32), 0, bytes(27), 0, asked.tag, WAIT, wait_ms, 4)


def redirect(asked: Request, record: Record) -> bytes:
    """The body of a reply that names a node for all pages that were asked for."""
    return ANSWER.pack(asked.cookie, 0, asked.pages.to_bytes(32, "little"), bytes(32), record.node,
                       record.packed()[8:35], 0, asked.tag, REDIRECT, 0, 4)


@dataclass(frozen=True)
class Record:
    """The record of a node, as nodes tell it each other."""

    node: int
    gid: bytes
    qpn: int
    qkey: int
    boot: int
    standing: int = 0
    incarnation: int = 0
    group: int = 1

    def packed(self) -> bytes:
        """Its bytes."""
        return struct.pack("<Q16sHIIBBIIB", self.node, self.gid, 0, self.qpn, self.qkey, 0, self.standing,
                           self.boot, self.incarnation, self.group)


def notice(of: Request, chunk: int, pages: int) -> bytes:
    """The body of a notice that the sender has pages of the content of a request."""
    return NOTICE.pack(of.inum, of.gen, of.sec, of.nsec, chunk, pages.to_bytes(32, "little"))


def gossip(nonce: int, sender: Record, others: tuple[Record, ...] = (), count: int | None = None,
           reserved: int = 0) -> bytes:
    """The body of a Hello or of Members."""
    head = struct.pack("<IHBB", nonce, 0, len(others) if count is None else count, reserved)
    return head + b"".join(record.packed() for record in (sender, *others))


def gossiped(body: bytes) -> tuple[int, Record]:
    """The number and the sender of a Hello or of Members."""
    nonce, = struct.unpack_from("<I", body)
    node, gid, _lid, qpn, qkey, _sl, *rest = struct.unpack_from("<Q16sHIIBBIIB", body, 8)
    return nonce, Record(node, gid, qpn, qkey, rest[1], rest[0], *rest[2:])


def address_of(line: str) -> tuple[bytes, int, int]:
    """GID, queue pair and key of a line of ibaddr."""
    fields = dict(word.split("=") for word in line.split())
    return ipaddress.IPv6Address(fields["gid"]).packed, int(fields["qpn"]), int(fields["qkey"])
