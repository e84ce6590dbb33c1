# SPDX-License-Identifier: GPL-2.0
"""Runs in the guest: `python3 rioc_deeds.py NAME ADDRESS [SEED]` does one thing to the store `bb` of a rioc server and
judges what it answers; prints `ok` at the end."""
from __future__ import annotations

import errno
import random
import sys
from collections.abc import Callable

import rioc_wire as w
from client import Closed
from rioc_wire import BLOCK, IO_MAX, Rioc

Deed = Callable[[str, random.Random], None]
DEEDS: dict[str, Deed] = {}
SECTOR = 512


def deed(function: Deed) -> Deed:
    """Registers one under its function's name."""
    DEEDS[function.__name__] = function
    return function


def refused(number: int, call: Callable[[], object]) -> None:
    """The call is answered with an errno."""
    try:
        call()
    except OSError as error:
        assert error.errno == number, f"{errno.errorcode.get(error.errno or 0)}, not {errno.errorcode[number]}"
    else:
        raise AssertionError(f"it was done, not {errno.errorcode[number]}")


def fill(c: Rioc, number: int) -> None:
    """Gives an object 16 blocks: each write of two bytes stores two of them."""
    for block in range(0, 16, 2):
        c.put((number, 0), (block + 1) * BLOCK - 1, b"xx", w.FLAG_CREATE)


def left() -> dict[w.Object, bytearray]:
    """Objects that a deed leaves for another one: two bytes around each second edge of a block."""
    def content(number: int) -> bytearray:
        array = bytearray((10 + number) * 2 * BLOCK)
        for at in range(BLOCK - 1, len(array), 2 * BLOCK):
            array[at:at + 2] = bytes([at // BLOCK % 251 + 1, number])
        del array[-BLOCK + 1:]
        return array
    return {(number, 5): content(number) for number in range(1, 4)}


@deed
def each_operation(address: str, chance: random.Random) -> None:
    """What each operation does, and what it refuses."""
    c = Rioc(address).begin()
    one, two, data = (10, 20), (11, 20), chance.randbytes(3 * BLOCK)
    refused(errno.ENOENT, lambda: c.stat(one))
    refused(errno.ENOENT, lambda: c.put(one, 0, data))
    c.create(one, w.FLAG_NEW)
    c.create(one)
    refused(errno.EEXIST, lambda: c.create(one, w.FLAG_NEW))
    c.put(one, 1000, data)
    assert c.stat(one) == (1000 + len(data), 4)
    assert c.get(one, 0, 5 * BLOCK) == bytes(1000) + data
    c.copy(one, BLOCK, BLOCK, two, 9 * BLOCK, w.FLAG_CREATE)
    assert c.get(two, 9 * BLOCK, BLOCK) == (bytes(1000) + data)[BLOCK:2 * BLOCK]
    assert c.get(two, 0, 100) == bytes(100) and c.stat(two) == (10 * BLOCK, 1)
    c.put(one, BLOCK, b"n" * BLOCK)
    assert c.get(two, 9 * BLOCK, BLOCK) == (bytes(1000) + data)[BLOCK:2 * BLOCK]
    refused(errno.EINVAL, lambda: c.copy(one, 0, 100, two, 50))
    c.snapshot(one, (12, 20))
    c.truncate(one, 10)
    assert c.get(one, 0, 100) == bytes(10) and len(c.get((12, 20), 0, IO_MAX)) == 1000 + len(data)
    assert c.list(1) == {one, two, (12, 20)} == c.list()
    c.ask(w.PING, size=w.ANSWER)
    c.ask(w.FLUSH, one)
    for each in (one, two, (12, 20)):
        c.delete(each)
    refused(errno.ENOENT, lambda: c.delete(one))
    assert c.list() == set()


@deed
def bytes_are_those_of_arrays(address: str, chance: random.Random) -> None:
    """Operations at random, beside the same ones on arrays of bytes."""
    c, there = Rioc(address).begin(), {}
    names = [(number, 7) for number in range(4)]
    for _ in range(250):
        of, to = chance.choice(names), chance.choice(names)
        offset = chance.choice((0, BLOCK, 3 * BLOCK, chance.randrange(60_000)))
        length = chance.choice((1, SECTOR, BLOCK, chance.randrange(1, 20_000)))
        old = there.get(of)
        what = chance.choice(("put", "put", "put", "get", "get", "get", "copy", "snapshot", "truncate", "delete"))
        if what == "put":
            data = chance.randbytes(length)
            c.put(of, offset, data, w.FLAG_CREATE)
            array = there.setdefault(of, bytearray())
            array.extend(bytes(max(offset + length - len(array), 0)))
            array[offset:offset + length] = data
        elif old is None:
            refused(errno.ENOENT, lambda of=of: c.stat(of))
        elif what == "get":
            assert c.get(of, offset, length) == old[offset:offset + length]
        elif what == "copy":
            at = offset % BLOCK + BLOCK * chance.randrange(15)
            if of == to and abs(at - offset) < length + BLOCK:
                continue
            c.copy(of, offset, length, to, at, w.FLAG_CREATE)
            array = there.setdefault(to, bytearray())
            array.extend(bytes(max(at + length - len(array), 0)))
            array[at:at + length] = old[offset:offset + length].ljust(length, b"\0")
        elif what == "snapshot" and of != to:
            c.snapshot(of, to)
            there[to] = bytearray(old)
        elif what == "truncate":
            c.truncate(of, offset)
            old.extend(bytes(max(offset - len(old), 0)))
            del old[offset:]
        elif what == "delete":
            c.delete(of)
            del there[of]
    for of, array in there.items():
        assert c.stat(of)[0] == len(array)
        assert all(c.get(of, at, 8 * BLOCK) == array[at:at + 8 * BLOCK] for at in range(0, len(array), 8 * BLOCK))
    assert c.list(3) == set(there)
    for of in there:
        c.delete(of)


@deed
def leases_end_with_their_client(address: str, _chance: random.Random) -> None:
    """A lease excludes the other client, until it is released or its client is gone."""
    mine, other = Rioc(address, name=b"mine").begin(), Rioc(address, name=b"other").begin()
    of = (1, 1)
    mine.put(of, 0, b"a" * BLOCK, w.FLAG_CREATE)
    lease = mine.lease(of, 0, 2 * BLOCK)
    refused(errno.EBUSY, lambda: other.put(of, 0, b"b" * BLOCK))
    refused(errno.EBUSY, lambda: other.get(of, BLOCK, 1))
    refused(errno.EBUSY, lambda: other.lease(of, writes=False))
    refused(errno.ESTALE, lambda: other.put(of, 0, b"b" * BLOCK, lease=lease))
    mine.put(of, 0, b"c" * BLOCK, lease=lease)
    mine.release(lease)
    refused(errno.ESTALE, lambda: mine.put(of, 0, b"d" * BLOCK, lease=lease))
    other.put(of, 0, b"e" * BLOCK)
    mine.lease(of)
    refused(errno.EBUSY, lambda: other.put(of, 0, b"f" * BLOCK))
    mine.peer.close()
    for _ in range(100):
        try:
            other.put(of, 0, b"g" * BLOCK)
            break
        except OSError as error:
            assert error.errno == errno.EBUSY, error
            other.heartbeats(0.1)
    assert other.get(of, 0, 3) == b"ggg"
    other.delete(of)


@deed
def a_copy_of_an_operation_is_answered_with_the_same(address: str, chance: random.Random) -> None:
    """Nothing is carried out twice, also for a client that has lost its path and comes back."""
    c, of = Rioc(address).begin(), (2, 2)
    message = c.head(w.CREATE, of, flags=w.FLAG_NEW, ticket=c.ticket())
    assert [c.outcome(message, chunk=chunk) for chunk in (0, 1, 0)] == [0, 0, 0]
    message = c.head(w.DELETE, of, ticket=c.ticket())
    assert [c.outcome(message) for _ in range(2)] == [0, 0]
    assert c.outcome(c.head(w.DELETE, of, ticket=c.sequences[0] - 1 << 16)) == errno.ESTALE
    assert c.outcome(c.head(w.CREATE, of, ticket=1 << 16 | w.LANES)) == errno.EINVAL
    failed = c.head(w.DELETE, of, ticket=c.ticket())
    assert [c.outcome(failed) for _ in range(2)] == [errno.ENOENT] * 2
    back = Rioc(address)
    back.uuid, back.group, back.sequences = c.uuid, c.group, c.sequences
    c.peer.close()
    back.attempt = 2
    back.begin()
    assert back.incarnation == c.incarnation != 0
    assert back.outcome(failed) == errno.ENOENT and back.number_there == c.number_there
    back.put(of, 0, chance.randbytes(100), w.FLAG_CREATE)
    back.delete(of)


@deed
def a_store_is_full(address: str, chance: random.Random) -> None:
    """ENOSPC, and what is deleted makes room; the test gives the store 1 MiB."""
    c = Rioc(address, "small").begin()
    for number in range(16):
        fill(c, number)
    refused(errno.ENOSPC, lambda: fill(c, 16))
    assert c.get((15, 0), BLOCK - 2, 5) == b"\0xx\0\0"
    c.delete((chance.randrange(16), 0))
    fill(c, 17)
    refused(errno.ENOSPC, lambda: fill(c, 18))


@deed
def old_objects_make_room(address: str, _chance: random.Random) -> None:
    """With evict=objects there is always room."""
    c = Rioc(address, "cache").begin()
    for number in range(20):
        fill(c, number)
    left = c.list()
    assert (19, 0) in left and 8 <= len(left) <= 16, left


@deed
def objects_are_left(address: str, _chance: random.Random) -> None:
    """Leaves objects that are written again and again, so that a small log is full of what is not used any more."""
    c, there = Rioc(address, name=b"before").begin(), left()
    assert c.is_durable
    for of, array in there.items():
        c.create(of)
        for turn in range(40, -1, -1):
            for at in range(BLOCK - 1, len(array), 2 * BLOCK):
                c.put(of, at, bytes([array[at] ^ turn, array[at + 1] ^ turn]))
    c.copy((1, 5), 0, 6 * BLOCK, (9, 5), 2 * BLOCK, w.FLAG_CREATE)
    c.snapshot((2, 5), (8, 5))
    c.truncate((2, 5), BLOCK)
    c.delete((3, 5))


@deed
def objects_are_found(address: str, _chance: random.Random) -> None:
    """They are all there, and go on."""
    c, there = Rioc(address, name=b"behind").begin(), left()
    there[9, 5] = bytearray(2 * BLOCK) + there[1, 5][:6 * BLOCK]
    there[8, 5] = bytearray(there[2, 5])
    del there[3, 5], there[2, 5][BLOCK:]
    assert c.list() == set(there)
    for of, array in there.items():
        assert c.stat(of)[0] == len(array), of
        found = b"".join(c.get(of, at, 8 * BLOCK) for at in range(0, len(array), 8 * BLOCK))
        assert found == array, of
    c.put((1, 5), 0, b"new")
    assert c.get((1, 5), 0, 3) == b"new"
    c.put((1, 5), 0, bytes(there[1, 5][:3]))


@deed
def a_log_fails(address: str, _chance: random.Random) -> None:
    """What cannot be made durable is EIO, and is not said to be there."""
    c = Rioc(address).begin()
    refused(errno.EIO, lambda: c.put((4, 4), 0, b"x", w.FLAG_CREATE))
    refused(errno.EIO, lambda: c.create((5, 5)))
    c.ask(w.PING, size=w.ANSWER)


@deed
def lies_are_refused(address: str, chance: random.Random) -> None:
    """Messages with a wrong field, and random ones: an errno, and the honest client beside is served."""
    honest, liar = Rioc(address, name=b"honest").begin(), Rioc(address, name=b"liar").open()
    of, good = (3, 3), chance.randbytes(BLOCK)
    assert isinstance(liar, Rioc)
    assert liar.outcome(liar.head(w.PING), w.ANSWER) == errno.ENOTCONN
    refused(errno.ENOENT, lambda: liar.attach("nowhere"))
    liar.attach()
    refused(errno.EBUSY, lambda: liar.attach("small"))
    liar.attach()
    hasty = Rioc(address, name=b"hasty").open()
    # Behind its attach, of which it does not know yet what it has attached to.
    hasty.send(w.head(w.ATTACH) + b"bb".ljust(32, b"\0"), w.ANSWER)
    hasty.send(w.head(w.CREATE, (4, 4), ticket=1 << 16 | 1), chunk=1)
    answers = dict(hasty.any_answer() for _ in range(2))
    assert answers[0] == 0 and answers[1] in (errno.ENOTCONN, errno.ENODEV), answers
    honest.put(of, 0, good, w.FLAG_CREATE)
    assert honest.list() == {of}
    ticket = liar.ticket()
    for expected, message, size, data in (
            (errno.EPROTONOSUPPORT, liar.head(w.PING, version=1), w.ANSWER, b""),
            (errno.EPROTONOSUPPORT, liar.head(w.PING, version=2)[:48], w.ANSWER, b""),
            (errno.ENODEV, liar.head(w.PING, incarnation=liar.incarnation ^ 1), w.ANSWER, b""),
            (errno.ENODEV, liar.head(w.DELETE, of, ticket=ticket, incarnation=honest.incarnation), 0, b""),
            (errno.EINVAL, liar.head(w.PING) + b"x", w.ANSWER, b""),
            (errno.EINVAL, liar.head(w.PING), w.ANSWER + 1, b""),
            (errno.EINVAL, liar.head(w.PING, lease=1), w.ANSWER, b""),
            (errno.EINVAL, liar.head(w.READ, of, 0, BLOCK), BLOCK, b""),
            (errno.EMSGSIZE, liar.head(w.READ, of, 0, IO_MAX + 1), IO_MAX + 1 + w.READ_ANSWER, b""),
            (errno.EFBIG, liar.head(w.READ, of, 1 << 62, BLOCK), BLOCK + w.READ_ANSWER, b""),
            (errno.EOPNOTSUPP, liar.head(99), 0, b""),
            (errno.EINVAL, liar.head(w.DELETE, of), 0, b""),
            (errno.EINVAL, liar.head(w.WRITE, of, 0, BLOCK, ticket=ticket), 0, good),
            (errno.EINVAL, liar.head(w.WRITE, of, 0, BLOCK, ticket=ticket) + bytes(4), 0, good[1:]),
            (errno.EFBIG, liar.head(w.TRUNCATE, of, 1 << 60, ticket=ticket), 0, b""),
            (errno.EIO, liar.head(w.WRITE, of, 1, 2, ticket=ticket) + bytes(4), 0, b"xy")):
        assert liar.outcome(message, size, data) == expected, message.hex()
    for _ in range(300):
        message = bytearray(liar.head(chance.randrange(16), of, 0, BLOCK, ticket=liar.ticket()) + chance.randbytes(4))
        message[chance.randrange(len(message))] ^= 1 << chance.randrange(8)
        if message[0] not in (w.DELETE, w.LEASE):
            liar.outcome(bytes(message[:chance.choice((56, 60))]), chance.choice((64, 160, 160 + BLOCK)),
                         chance.choice((b"", good)))
    honest.put(of, 0, good, w.FLAG_CREATE)
    assert honest.get(of, 0, BLOCK) == good
    for each in honest.list():
        honest.delete(each)


@deed
def is_answered(address: str, _chance: random.Random) -> None:
    """What needs no device is answered beside one that takes nothing."""
    c = Rioc(address, name=b"asks").begin()
    for _ in range(3):
        c.ask(w.PING, size=w.ANSWER)


@deed
def all_is_read(address: str, _chance: random.Random) -> None:
    """Reads what `objects_are_left` has left, however long its device takes."""
    c = Rioc(address, name=b"reads").begin()
    print("reads", flush=True)
    c.send(c.head(w.READ, (1, 5), 0, BLOCK), w.READ_ANSWER + BLOCK)
    assert c.answer(0, 60_000) == 0


@deed
def hold(address: str, _chance: random.Random) -> None:
    """Goes on writing until the store, or the server, is gone; then it is told so by an errno, or a closed path."""
    c, number = Rioc(address).begin(), 0
    print("holds", flush=True)
    while True:
        number += 1
        try:
            c.put((number % 50, 1), 0, bytes(64), w.FLAG_CREATE)
        except Closed:
            return
        except OSError as error:
            assert error.errno == errno.ENODEV, error
            refused(errno.ENOENT, c.attach)
            return


if __name__ == "__main__":
    DEEDS[sys.argv[1]](sys.argv[2], random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 0))
    print("ok")
