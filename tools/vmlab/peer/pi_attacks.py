# SPDX-License-Identifier: GPL-2.0
"""Runs in the guest: `python3 pi_attacks.py ADDRESS` lies to a server about protection information.

Each lie is answered with the errno that stands beside it; the session goes on, and the blocks that were right stay so.
"""
from __future__ import annotations

import errno
import os
import random
import struct
import sys

import messages as m
from client import Client
from scripted_peer import ScriptedPeer

BLOCK = 4096
CRC64 = 2


def ask(c: Client, message: bytes, size: int) -> tuple[int, bytes]:
    """An admin message: the errno, and the answer."""
    c.read(2, size, message)
    error = c.answer(2)
    return error, b"" if error else c.reply(size)


def opened(c: Client, name: bytes, pi: int) -> int:
    """Opens a device with protection information; its number."""
    error, answer = ask(c, m.open_device(name, pi=pi), 56)
    assert not error, error
    return int(struct.unpack_from("<I", answer, 4)[0])


def write(c: Client, data: bytes, tuples: bytes, message: bytes) -> int:
    """A WRITE of data and tuples; the errno."""
    c.write(3, data + tuples, message)
    return c.answer(3)


def read(c: Client, device: int, sector: int, size: int, tuples_size: int, flip: int = 0) -> int:
    """A READ that has room for data and tuples; the errno."""
    c.read(3, size + tuples_size, m.protected_io(device, sector, m.OP_READ, size, b"", tuples_size, flip))
    return c.answer(3)


def lies(c: Client, device: int, plain: int) -> list[tuple[str, int, int]]:
    """Tries messages, most of them wrong, and returns what was tried, what was answered, what should have been."""
    data = random.Random(1).randbytes(2 * BLOCK)
    tuples = m.crc64_tuples(data, 64)
    io = m.protected_io
    right = io(device, 64, m.OP_WRITE, 2 * BLOCK, tuples)
    found = [("a right one", write(c, data, tuples, right), 0)]

    def wrote(what: str, expected: int, message: bytes, tuples: bytes = tuples, data: bytes = data) -> None:
        found.append((what, write(c, data, tuples, message), expected))

    wrote("no tuples and no seal", errno.EILSEQ, m.io(device, 64, m.OP_WRITE, 2 * BLOCK), b"")
    wrote("no tuples", errno.EINVAL, io(device, 64, m.OP_WRITE, 2 * BLOCK), b"")
    for size in (0, 1, 16, 31, 33, 48, 2048):
        end = (data + tuples)[len(data) + len(tuples) - size:]
        wrote(f"{size} bytes of tuples", errno.EINVAL, io(device, 64, m.OP_WRITE, 2 * BLOCK, end))
    wrote("more tuples than data", errno.EILSEQ, io(device, 64, m.OP_WRITE, 2 * BLOCK, tuples, 65535))
    wrote("half of the tuples", errno.EILSEQ, right, tuples[:16])
    wrote("tuples of a block more", errno.EINVAL, right, tuples[:16] + tuples)
    wrote("a block without tuples", errno.EINVAL, io(device, 64, m.OP_WRITE, 2 * BLOCK, data[-32:]), b"")
    wrote("512 bytes", errno.EINVAL, io(device, 64, m.OP_WRITE, 512, tuples[:16]), tuples[:16], data[:512])
    wrote("between two intervals", errno.EINVAL, io(device, 65, m.OP_WRITE, 2 * BLOCK, tuples))
    wrote("another seal", errno.EILSEQ, io(device, 64, m.OP_WRITE, 2 * BLOCK, tuples, flip=1 << 31))
    wrong = m.crc64_tuples(data, 64, flip=1)
    wrote("another checksum", errno.EILSEQ, io(device, 64, m.OP_WRITE, 2 * BLOCK, wrong), wrong)
    half = tuples[:16] + wrong[16:]
    wrote("another checksum of the second", errno.EILSEQ, io(device, 64, m.OP_WRITE, 2 * BLOCK, half), half)
    wrote("the address of others", errno.EILSEQ, io(device, 72, m.OP_WRITE, 2 * BLOCK, tuples))
    wrote("another message than was sealed", errno.EILSEQ, right[:8] + struct.pack("<Q", 128) + right[16:])
    wrote("more than fits", errno.EINVAL, io(device, 64, m.OP_WRITE, 0xFFFFFE00, tuples))
    wrote("a discard with tuples", errno.EINVAL, io(device, 64, m.OP_DISCARD, BLOCK, tuples[:16]), tuples[:16], b"")
    wrote("a discard without a seal", errno.EILSEQ, m.io(device, 64, m.OP_DISCARD, BLOCK), b"", b"")
    wrote("tuples for a device without", errno.EINVAL, io(plain, 64, m.OP_WRITE, 2 * BLOCK, tuples))
    found.append(("a read without tuples", read(c, device, 64, BLOCK, 0), errno.EINVAL))
    for size in (8, 15, 17, 32, 2048):
        found.append((f"a read with {size} bytes", read(c, device, 64, BLOCK, size), errno.EINVAL))
    found.append(("a read with another seal", read(c, device, 64, BLOCK, 16, 4), errno.EILSEQ))
    found.append(("a read of a device without", read(c, plain, 64, BLOCK, 16), errno.EINVAL))
    for pi in (4, 5, 128, 255):
        found.append((f"asks for {pi}", ask(c, m.open_device(b"ram2", pi=pi), 56)[0], errno.EINVAL))
    found.append(("a right read", read(c, device, 64, 2 * BLOCK, 32), 0))
    kept = c.reply(2 * BLOCK + 32) == data + tuples
    found.append(("the blocks are what they were", int(kept), 1))
    for count, tail in ((2, 32), (2, 8), (2, m.TAIL_MAX), (1, 1), (1, 15), (1, 17)):
        size = count * (BLOCK + 16)
        c.read_tail(3, size, tail, io(device, 64, m.OP_READ, count * BLOCK, b"", count * 16))
        found.append((f"a right read with a tail of {tail} bytes", c.answer(3), 0))
        whole = data[:count * BLOCK] + tuples[:count * 16]
        found.append((f"what it brings, of {count}", int(c.reply(size - tail) + c.tail == whole), 1))
    c.read_tail(3, BLOCK + 16, 16, io(device, 64, m.OP_READ, BLOCK, b"", 16, 4))
    found.append(("a read with a tail and another seal", c.answer(3), errno.EILSEQ))
    found.append(("no tail with an error", len(c.tail), 0))
    escape = b"\xff" * 32
    wrote("an escape", 0, io(device, 256, m.OP_WRITE, 2 * BLOCK, escape), escape)
    return found


def chance(c: Client, device: int, turns: int) -> None:
    """Mutated messages: each is answered."""
    dice = random.Random(int(os.environ.get("SEED") or 1))
    data = bytes(BLOCK)
    tuples = m.crc64_tuples(data, 512)
    for turn in range(turns):
        message = bytearray(m.protected_io(device, 512, m.OP_WRITE, BLOCK, tuples))
        for _ in range(dice.randrange(1, 4)):
            message[dice.randrange(len(message))] ^= 1 << dice.randrange(8)
        whole = data + tuples + bytes(dice.choice((0, 0, 0, 16, 512)))
        c.write(3, whole[:dice.choice((len(whole), len(whole), BLOCK, 512, 16))], bytes(message))
        error = c.answer(3)
        assert error in (0, errno.EINVAL, errno.EILSEQ, errno.ENOTCONN, errno.EOPNOTSUPP, errno.EIO), (turn, error)
        if error == 0 and message[4:8] == bytes(4):
            # Two flips of one bit. The other device takes requests without tuples.
            assert bytes(message) == m.protected_io(device, 512, m.OP_WRITE, BLOCK, tuples), (turn, message.hex())


def a_c_client(peer: ScriptedPeer, address: str) -> None:
    """Without a nonce the byte in OPEN is noise, and the answer has zeroes."""
    c = Client(peer, address, b"noise").open()
    ask(c, m.session_info(), 36)
    error, answer = ask(c, m.open_device(b"ram3", pi=0xA5), 56)
    assert error == 0 and answer[46:] == bytes(10), (error, answer.hex())
    device = int(struct.unpack_from("<I", answer, 4)[0])
    c.write_device(device, 8, b"plain" + bytes(507))


def main(address: str) -> str:
    """All of it; returns "" or what was wrong."""
    with ScriptedPeer() as peer:
        a_c_client(peer, address)
    with ScriptedPeer() as liar:
        c = Client(liar, address, b"liar").open()
        error, _ = ask(c, m.session_info(magic=m.EXTENSION, nonce=7), 36)
        assert not error, error
        error, answer = ask(c, m.open_device(b"ram0", pi=CRC64), 56)
        assert error == 0 and answer[46:48] == b"\x11\x0c", (error, answer.hex())
        device = int(struct.unpack_from("<I", answer, 4)[0])
        found = lies(c, device, opened(c, b"ram1", 0))
        chance(c, device, int(os.environ.get("MESSAGES") or 300))
        # Asked for something else, the device is opened anew.
        error, answer = ask(c, m.open_device(b"ram0"), 56)
        assert error == 0 and answer[46:48] == bytes(2), (error, answer.hex())
        return ", ".join(f"{what}: {got} instead of {wanted}" for what, got, wanted in found if got != wanted)


if __name__ == "__main__":
    problem = main(sys.argv[1])
    print(problem or "ok")
    sys.exit(1 if problem else 0)
