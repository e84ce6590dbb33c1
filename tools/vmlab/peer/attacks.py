# SPDX-License-Identifier: GPL-2.0
"""Runs in the guest: `python3 attacks.py NAME ADDRESS` commits one attack on a server and judges its answer.

An attack is a function of a connected, correct client; what the server must do stands in its decorator:
CLOSED (the path is closed), or the errno it must answer with. Beside the attacker an honest bystander
keeps a session open, and must be served before and after.
"""
from __future__ import annotations

import errno
import os
import random
import struct
import sys
from collections.abc import Callable

import messages as m
from client import Client, Closed
from scripted_peer import ScriptedPeer

CLOSED = "closed"
SECTOR = 512
Attack = Callable[[Client, int], object]
ATTACKS: dict[str, tuple[object, Attack]] = {}


def attack(expected: object) -> Callable[[Attack], Attack]:
    """Registers an attack under its function's name."""
    def register(function: Attack) -> Attack:
        ATTACKS[function.__name__] = (expected, function)
        return function
    return register


def _io(device: int, op: int = m.OP_READ, size: int = SECTOR, sector: int = 0) -> bytes:
    return m.io(device, sector, op, size)


# -- the transport's message -------------------------------------------------------------------------------

@attack(CLOSED)
def d5_head_across_the_end_of_the_chunk(c: Client, device: int) -> None:
    """The immediate points 2 bytes before the chunk's end: a head there would be read past it."""
    c.raw(2, 0, b"\x02\x00", c.payload(2, c.chunk_size - 2))


@attack(CLOSED)
def d5_offset_equal_to_the_chunk_size(c: Client, device: int) -> None:
    """One past the last offset; with a power of two this is bit 17 of the payload."""
    c.raw(2, 0, b"\x02\x00", c.payload(2, 0) | c.chunk_size)


@attack(CLOSED)
def d6_descriptor_longer_than_asked(c: Client, device: int) -> None:
    """A READ of one sector whose descriptor asks for a whole chunk: the rest would be stale memory."""
    end, user = c.ends[1], _io(device)
    head = m.read_head(len(user), [(end.buffer + 0x40000, end.key, c.chunk_size)])
    c.read(2, SECTOR, user, head)


@attack(CLOSED)
def d6_descriptor_of_four_gigabytes(c: Client, device: int) -> None:
    """The largest length that fits into the field."""
    end, user = c.ends[1], _io(device)
    c.read(2, SECTOR, user, m.read_head(len(user), [(end.buffer + 0x40000, end.key, 0xFFFFFFFF)]))


@attack(CLOSED)
def a_tail_that_is_too_long(c: Client, device: int) -> None:
    """A READ of which more should come with the answer than its message holds."""
    c.read_tail(2, SECTOR, m.TAIL_MAX + 1, _io(device))


@attack(CLOSED)
def a_read_that_is_all_tail(c: Client, device: int) -> None:
    """A READ whose descriptor has no room for anything."""
    c.read_tail(2, 16, 16, _io(device))


@attack(CLOSED)
def a_tail_that_was_not_asked_for(c: Client, device: int) -> None:
    """A READ whose descriptor is 16 bytes too short."""
    c.read_tail(2, SECTOR, 16, _io(device), flags=0)


@attack(0)
def a_tail_of_a_plain_device(c: Client, device: int) -> int:
    """RTRS does not know what the end of a READ's data is; without new keys no message could bring it."""
    data = bytes(range(256)) * 2
    c.write_device(device, 0, data, chunk=2)
    c.read_tail(2, SECTOR, 16, _io(device))
    try:
        error = c.answer(2)
    except Closed:
        assert not c.new_keys, "the path was closed"
        return 0
    assert c.new_keys and not error and c.reply(SECTOR - 16) + c.tail == data, (c.new_keys, error, c.tail)
    return 0


@attack(CLOSED)
def d11_user_length_past_the_offset(c: Client, device: int) -> None:
    """usr_len is larger than what lies before the head: off - usr_len would wrap (CVE-2026-97413)."""
    c.write(2, b"", b"", m.write_head(4096), 0)


@attack(CLOSED)
def d11_two_descriptors(c: Client, device: int) -> None:
    """A READ with sg_cnt 2; the C server drops it and the client waits for ever."""
    end, user = c.ends[1], _io(device)
    c.read(2, SECTOR, user, m.read_head(len(user), [(end.buffer, end.key, SECTOR)] * 2))


@attack(CLOSED)
def d11_descriptors_without_end(c: Client, device: int) -> None:
    """sg_cnt 65535 with one descriptor behind it."""
    end, user = c.ends[1], _io(device)
    c.read(2, SECTOR, user, m.read_head(len(user), [(end.buffer, end.key, SECTOR)], count=0xFFFF))


@attack(CLOSED)
def unknown_message_type(c: Client, device: int) -> None:
    """Type 77 is not a request."""
    c.write(2, bytes(SECTOR), _io(device), m.write_head(32, 77))


@attack(CLOSED)
def immediate_of_an_unknown_type(c: Client, device: int) -> None:
    """The upper four bits say 5."""
    c.raw(2, 0, bytes(64), m.imm(5, 0))


@attack(CLOSED)
def a_response_to_a_server(c: Client, device: int) -> None:
    """IO_RSP is what servers send, never what they get."""
    c.raw(2, 0, bytes(64), m.imm(m.IMM_RESPONSE, 2))


@attack(CLOSED)
def a_send_where_only_writes_belong(c: Client, device: int) -> None:
    """A SEND without immediate on an IO connection."""
    c.ends[1].put(0, bytes(16))
    c.ends[1].post("send", 0, 16)


@attack(CLOSED)
def a_second_info_request(c: Client, device: int) -> None:
    """The path is established; it cannot be named again."""
    data = m.info_request(b"other")
    c.ends[0].put(0, data)
    c.ends[0].post("send", 0, len(data))


@attack(CLOSED)
def a_write_under_a_stale_key(c: Client, device: int) -> None:
    """With always_invalidate=Y the key of the last WRITE that was not copied is gone: the adapter refuses it."""
    if not c.new_keys:
        raise Closed("keys stay valid with always_invalidate=N; nothing to attack")
    old = c.chunks[3][1]
    c.write_device(device, 0, bytes(16 * SECTOR), chunk=3)
    assert c.chunks[3][1] != old, "the key did not change"
    c.raw(3, 0, bytes(64), c.payload(3, 0), key=old)


# -- the block device's message ----------------------------------------------------------------------------

@attack(errno.EINVAL)
def d7_user_message_of_no_bytes(c: Client, device: int) -> None:
    """A well-formed WRITE that carries no block message at all."""
    c.write(2, bytes(SECTOR), b"")


@attack(errno.EINVAL)
def d7_user_message_of_three_bytes(c: Client, device: int) -> None:
    """Too short even for its type."""
    c.write(2, bytes(SECTOR), struct.pack("<HB", m.IO, 0))


@attack(errno.EINVAL)
def d7_io_message_cut_short(c: Client, device: int) -> None:
    """The type says IO, half of the fields are missing."""
    c.write(2, bytes(SECTOR), _io(device, m.OP_WRITE)[:12])


@attack(errno.EINVAL)
def d7_open_message_cut_short(c: Client, device: int) -> None:
    """The name would be read out of the chunk's old contents."""
    c.read(2, 56, m.open_device(b"ram0")[:20])


@attack(errno.EINVAL)
def d7_device_name_without_end(c: Client, device: int) -> None:
    """255 bytes and no NUL."""
    c.read(2, 56, m.open_device(b"a" * 255))


@attack(errno.EINVAL)
def d7_room_for_half_an_answer(c: Client, device: int) -> None:
    """OPEN with a descriptor of 16 bytes for an answer of 56."""
    c.read(2, 16, m.open_device(b"ram0"))


@attack(0)
def reserved_bytes_of_noise(c: Client, device: int) -> int:
    """A C client's stack: the answers have zeroes where they had them, and so has OPEN's."""
    c.read(2, 36, m.session_info(magic=0xA5A5A5A5, nonce=7, boot=8, rest=b"\xa5" * 8))
    error = c.answer(2)
    assert c.reply(36)[5:] == bytes(31), f"the answer to noise was {c.reply(36).hex()}"
    c.read(2, 56, m.open_device(b"ram0"))
    error = error or c.answer(2)
    assert c.reply(56)[46:] == bytes(10), f"OPEN was answered with {c.reply(56).hex()}"
    return error


@attack(0)
def a_nonce_comes_back(c: Client, device: int) -> int:
    """Whatever it is; what is behind it in the message does not count."""
    for nonce in (0, 1, (1 << 64) - 1):
        c.read(2, 36, m.session_info(magic=m.EXTENSION, nonce=nonce, boot=nonce, rest=b"\xff" * 8))
        error = c.answer(2)
        magic, back, boot, rest = struct.unpack_from("<IQQ8s", c.reply(36), 8)
        assert (error, magic, back, rest) == (0, m.EXTENSION, nonce, bytes(8)) and boot not in (0, nonce)
    c.read(2, 56, m.open_device(b"ram0"))
    error = c.answer(2)
    assert c.reply(56)[55] >> 4 == 3, f"OPEN was answered with {c.reply(56).hex()}"
    return error


@attack(errno.EINVAL)
def unknown_block_message(c: Client, device: int) -> None:
    """Type 99."""
    c.write(2, b"", struct.pack("<HHI", 99, 0, device))


@attack(errno.EROFS)
def d8_write_to_a_read_only_mapping(c: Client, device: int) -> None:
    """The device was opened ro; a correct client never writes to it."""
    other = c.map(b"ram1", m.RO)
    c.write(2, b"\xff" * SECTOR, _io(other, m.OP_WRITE))


@attack(errno.EROFS)
def d8_discard_on_a_read_only_mapping(c: Client, device: int) -> None:
    """Discarding is writing."""
    other = c.map(b"ram1", m.RO)
    c.write(2, b"", _io(other, m.OP_DISCARD, 4096))


@attack(errno.EROFS)
def d8_write_zeroes_on_a_read_only_mapping(c: Client, device: int) -> None:
    """So is writing zeroes."""
    other = c.map(b"ram1", m.RO)
    c.write(2, b"", _io(other, m.OP_WRITE_ZEROES, 4096))


@attack(errno.EINVAL)
def d9_write_without_data(c: Client, device: int) -> None:
    """bi_size says a sector, no byte came."""
    c.write(2, b"", _io(device, m.OP_WRITE))


@attack(errno.EINVAL)
def d9_read_without_data(c: Client, device: int) -> None:
    """A READ without a descriptor cannot bring anything."""
    c.read(2, 0, _io(device, m.OP_READ), m.read_head(32, []))


@attack(errno.EINVAL)
def d9_size_that_is_not_the_data(c: Client, device: int) -> None:
    """bi_size of 64 KiB with one sector of data."""
    c.write(2, bytes(SECTOR), _io(device, m.OP_WRITE, 65536))


@attack((errno.EINVAL, errno.EOPNOTSUPP))
def d9_unknown_operation(c: Client, device: int) -> None:
    """Operation 200; the C server WARNs."""
    c.write(2, bytes(SECTOR), _io(device, 200))


@attack((errno.EINVAL, errno.EIO))
def io_that_is_not_whole_sectors(c: Client, device: int) -> None:
    """100 bytes."""
    c.write(2, bytes(100), _io(device, m.OP_WRITE, 100))


@attack((errno.EIO, errno.EINVAL))
def read_past_the_end_of_the_device(c: Client, device: int) -> None:
    """Sector 2^40 of a small disk."""
    c.read(2, SECTOR, _io(device, m.OP_READ, sector=1 << 40))


@attack((errno.EIO, errno.EINVAL))
def sector_at_the_top_of_the_range(c: Client, device: int) -> None:
    """sector * 512 overflows 64 bits."""
    c.read(2, SECTOR, _io(device, m.OP_READ, sector=(1 << 64) - 1))


@attack(errno.EINVAL)
def discard_past_the_end_of_the_device(c: Client, device: int) -> None:
    """It begins on the disk: without data its length limits nothing, up to 4 GiB."""
    c.write(2, b"", _io(device, m.OP_DISCARD, 0xFFFFFE00))


@attack(errno.EINVAL)
def write_zeroes_past_the_end_of_the_device(c: Client, device: int) -> None:
    """Behind the last sector."""
    c.write(2, b"", _io(device, m.OP_WRITE_ZEROES, SECTOR, sector=1 << 40))


@attack(errno.EINVAL)
def discard_with_data(c: Client, device: int) -> None:
    """Its length is that of its data, of which it has none."""
    c.write(2, bytes(SECTOR), _io(device, m.OP_DISCARD))


@attack(errno.ENOTCONN)
def device_that_was_never_opened(c: Client, device: int) -> None:
    """A device id that was never assigned."""
    c.read(2, SECTOR, _io(0x7FFFFFFF))


@attack(errno.ENOTCONN)
def io_after_close(c: Client, device: int) -> None:
    """The id of a device that was closed."""
    c.write(2, b"", m.close_device(device))
    assert c.answer(2) == 0
    c.read(2, SECTOR, _io(device))


@attack(errno.EINVAL)
def d7_dots_in_a_device_name(c: Client, device: int) -> None:
    """A name that would leave the search path."""
    c.read(2, 56, m.open_device(b"../dev/ram0"))


@attack(errno.EINVAL)
def access_mode_that_does_not_exist(c: Client, device: int) -> None:
    """Mode 9."""
    c.read(2, 56, m.open_device(b"ram0", 9))


@attack(0)
def random_messages(c: Client, device: int) -> int:
    """Random and mutated block messages in valid envelopes: each is answered, and the server stays intact."""
    seed, count = int(os.environ.get("SEED") or 1), int(os.environ.get("MESSAGES") or 100_000)
    sent, answered, refused = c.barrage(count, seed)
    print(f"seed {seed}: {sent} sent, {answered} answered, {refused} with an error", file=sys.stderr)
    assert sent == answered == count, f"seed {seed}: {answered} of {sent} messages answered"
    assert 0 < refused < sent, f"seed {seed}: {refused} of {sent} messages refused"
    return 0


@attack(0)
def random_envelopes(c: Client, device: int) -> int:
    """Sessions that are each ended by a random head at a random place of a chunk."""
    chance = random.Random(2)
    for turn in range(int(os.environ.get("ENVELOPES") or 40)):
        with ScriptedPeer() as liar:
            victim = Client(liar, c.address, b"envelope", 2).open()
            victim.raw(chance.randrange(64), 0, chance.randbytes(chance.choice((4, 8, 24, 64))),
                       m.imm(chance.choice((0, 0, 0, 3, 15)), chance.getrandbits(28)))
            assert victim.is_closed(), f"envelope {turn} was believed"
    return 0


# -- running one -------------------------------------------------------------------------------------------

def judge(name: str, address: str) -> str:
    """Commits the attack; returns "" or what was wrong with the server's answer."""
    expected, function = ATTACKS[name]
    with ScriptedPeer() as honest, ScriptedPeer() as liar:
        bystander = Client(honest, address, b"bystander").open()
        theirs = bystander.map(b"ram2")
        bystander.write_device(theirs, 8, b"before" + bytes(506))
        victim = Client(liar, address, b"attacker").open()
        device = victim.map(b"ram0")
        verdict = _verdict(expected, function, victim, device)
        if bystander.read_device(theirs, 8, SECTOR)[:6] != b"before":
            verdict += " the bystander's data changed"
        bystander.write_device(theirs, 8, b"after " + bytes(506))
        return verdict


def _verdict(expected: object, function: Attack, victim: Client, device: int) -> str:
    try:
        answer = function(victim, device)
        if expected == CLOSED:
            return "" if victim.is_closed() else "the path was not closed"
        if answer is None:
            answer = victim.answer(2)
    except Closed as why:
        return "" if expected == CLOSED else f"the path was closed: {why}"
    wanted = expected if isinstance(expected, tuple) else (expected,)
    return "" if answer in wanted else f"answered errno {answer}, expected {wanted}"


if __name__ == "__main__":
    problem = judge(sys.argv[1], sys.argv[2])
    print(problem or "ok")
    sys.exit(1 if problem else 0)
