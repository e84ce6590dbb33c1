# SPDX-License-Identifier: GPL-2.0
"""RTRS and RNBD messages byte by byte, true by default; every field may be made a lie.

An independent second implementation: nothing here is taken from rtrs/proto or rnbd/proto, so an
error there cannot hide here. Source of the layouts: drivers/infiniband/ulp/rtrs/rtrs-pri.h,
drivers/block/rnbd/rnbd-proto.h.
"""
import struct

MAGIC, VERSION = 0x1BBD, 0x0200
INFO_REQUEST, INFO_RESPONSE, WRITE, READ, RKEY = range(5)
SESSION_INFO, SESSION_INFO_RESPONSE, OPEN, OPEN_RESPONSE, IO, CLOSE = range(6)
IMM_REQUEST, IMM_RESPONSE, IMM_RESPONSE_INVALIDATED, IMM_HEARTBEAT, IMM_HEARTBEAT_ACK = 0, 1, 2, 8, 9
# Between peers that have agreed upon it in bytes that the C driver reserves.
IMM_FENCE, IMM_FENCED, FENCES = 10, 11, 0x31434E46
OP_READ, OP_WRITE, OP_FLUSH, OP_DISCARD, OP_SECURE_ERASE, OP_WRITE_ZEROES = range(6)
RO, RW, MIGRATION = range(3)
# Flags of a READ's head.
NEED_INVAL, TAIL = 1, 2
TAIL_MAX = 64
# The buffers of a client for READs of up to 4096 bytes: where a block of them begins, its bytes, and those of a buffer.
BUFFERS, BUFFER_BLOCK, BUFFER_SIZE = 1 << 30, 32768, 4096 + 64


def connect_request(uuid: bytes, group: bytes, cid: int = 0, connections: int = 2, first: int = 1,
                    magic: int = MAGIC, version: int = VERSION, reconnect: int = 1, fences: bool = False) -> bytes:
    """Private data of a connect request: 56 bytes."""
    return struct.pack("<BBHHHHH16s16sBI7x", 0, 0, magic, version, cid, connections, reconnect, uuid, group, first,
                       FENCES if fences else 0)


def connect_response(depth: int = 16, io_size: int = 126976, head_size: int = 4096, flags: int = 2,
                     error: int = 0, magic: int = MAGIC, version: int = VERSION,
                     life: tuple[int, int] = (0, 0)) -> bytes:
    """Private data of an accept or a reject: 56 bytes; `life` is the number of the path and its session."""
    return struct.pack("<HHHHIIIIIQ20x", magic, version, error & 0xFFFF, depth, io_size, head_size, flags,
                       FENCES if life[0] else 0, *life)


def parse_connect_response(data: bytes) -> dict[str, int]:
    """The fields of an accept's or reject's private data."""
    names = ("magic", "version", "errno", "depth", "io_size", "head_size", "flags")
    fields = dict(zip(names, struct.unpack_from("<HHHHIII", data), strict=True))
    fields["errno"] = -(0x10000 - fields["errno"]) if fields["errno"] & 0x8000 else fields["errno"]
    return fields


def parse_life(data: bytes) -> tuple[int, int]:
    """The number of the path and its session in an accept's private data, (0, 0) if it has none."""
    extension, number, session = struct.unpack_from("<IIQ", data, 20)
    return (number, session) if extension == FENCES else (0, 0)


def info_request(name: bytes, kind: int = INFO_REQUEST) -> bytes:
    """272 bytes; a name of 255 bytes leaves no room for its NUL."""
    return struct.pack("<H255s15x", kind, name)


def info_response(descriptors: list[tuple[int, int, int]], count: int | None = None,
                  kind: int = INFO_RESPONSE) -> bytes:
    """Header and (address, key, length) of each memory region."""
    head = struct.pack("<HH4x", kind, len(descriptors) if count is None else count)
    return head + b"".join(struct.pack("<QII", *descriptor) for descriptor in descriptors)


def parse_info_response(data: bytes) -> list[tuple[int, int, int]]:
    """(address, key, length) of each memory region."""
    _kind, count = struct.unpack_from("<HH", data)
    return [struct.unpack_from("<QII", data, 8 + 16 * i) for i in range(count)]


def parse_info_refusal(data: bytes) -> int:
    """The errno of a response without descriptors, 0 if it has some or says none."""
    _kind, count, refusal = struct.unpack_from("<HHi", data)
    return 0 if count else -refusal


def write_head(user_size: int, kind: int = WRITE) -> bytes:
    """Trailer of a WRITE."""
    return struct.pack("<HH", kind, user_size)


def read_head(user_size: int, descriptors: list[tuple[int, int, int]], flags: int = 1, kind: int = READ,
              count: int | None = None) -> bytes:
    """Trailer of a READ: at most one honest descriptor (address, key, length)."""
    head = struct.pack("<HHHH", kind, user_size, flags, len(descriptors) if count is None else count)
    return head + b"".join(struct.pack("<QII", *descriptor) for descriptor in descriptors)


def rkey_response(buffer: int, key: int, kind: int = RKEY) -> bytes:
    """8 bytes: the new key of a chunk."""
    return struct.pack("<HHI", kind, buffer, key)


EXTENSION = 0x31424646


def session_info(version: int = 2, kind: int = SESSION_INFO, magic: int = 0, nonce: int = 0, boot: int = 0,
                 rest: bytes = b"") -> bytes:
    """36 bytes; what follows the version is reserved by the C driver."""
    return struct.pack("<HHB3xIQQ8s", kind, 0, version, magic, nonce, boot, rest)


def open_device(name: bytes, mode: int = RW, kind: int = OPEN, pi: int = 0) -> bytes:
    """264 bytes; a name of 255 bytes leaves no room for its NUL. `pi` is reserved by the C driver."""
    return struct.pack("<HHBB255s3x", kind, 0, mode, pi, name)


def open_response(device: int = 0, sectors: int = 8192, hw_sectors: int = 248, segments: int = 128,
                  logical: int = 512, physical: int = 4096, zeroes: int = 0, discard: int = 0, granularity: int = 0,
                  kind: int = OPEN_RESPONSE, identity: int = 0, secure: int = 0, pi: bytes = b"") -> bytes:
    """56 bytes; the last ten are reserved by the C driver."""
    return struct.pack("<HHIQIIIIIHHHHBB2sQ", kind, 0, device, sectors, hw_sectors, zeroes, discard, granularity, 0,
                       physical, logical, segments, secure, 0, 0, pi, identity)


def io(device: int, sector: int, op: int, size: int, priority: int = 0, kind: int = IO) -> bytes:
    """32 bytes."""
    return struct.pack("<HHIQIIH6x", kind, 0, device, sector, op, size, priority)


def protected_io(device: int, sector: int, op: int, size: int, tuples: bytes = b"", tuples_size: int | None = None,
                 flip: int = 0) -> bytes:
    """32 bytes, sealed by the CRC of the first 28 and of the tuples; `flip` falsifies that."""
    start = struct.pack("<HHIQIIHH", IO, 0, device, sector, op, size, 0,
                        len(tuples) if tuples_size is None else tuples_size)
    return start + struct.pack("<I", crc(start + tuples, 0x82F63B78, 32) ^ flip)


def crc64_tuples(data: bytes, sector: int, flip: int = 0) -> bytes:
    """16 bytes for each 4096 of data: CRC64 of NVMe, application tag 0, address; `flip` falsifies the checksums."""
    blocks = (data[start:start + 4096] for start in range(0, len(data), 4096))
    return b"".join(struct.pack(">QHHI", crc(block, 0x9A6C9329AC4BC9B5, 64) ^ flip, 0, 0, sector // 8 + number)
                    for number, block in enumerate(blocks))


def crc(data: bytes, polynomial: int, bits: int) -> int:
    """A reflected CRC with inversions at both ends."""
    table = _TABLES.setdefault(polynomial, [])
    if not table:
        for byte in range(256):
            entry = byte
            for _ in range(8):
                entry = entry >> 1 ^ (polynomial if entry & 1 else 0)
            table.append(entry)
    ones = (1 << bits) - 1
    value = ones
    for byte in data:
        value = table[(value ^ byte) & 255] ^ value >> 8
    return value ^ ones


_TABLES: dict[int, list[int]] = {}


def close_device(device: int) -> bytes:
    """8 bytes."""
    return struct.pack("<HHI", CLOSE, 0, device)


def imm(kind: int, payload: int) -> int:
    """The 32-bit immediate."""
    return kind << 28 | payload & 0xFFFFFFF


def split_response(value: int) -> tuple[int, int, int]:
    """(kind, errno, request id) of a response's immediate."""
    return value >> 28, value >> 19 & 0x1FF, value & 0x7FFFF
