# SPDX-License-Identifier: GPL-2.0
"""Runs in the guest: an initiator of the CRC32/UMR example that lies to a target, and a target that lies.

    crc32_umr_lies.py initiator LIE ADDRESS     prints ok if the target does what it must
    crc32_umr_lies.py target LIE PORT           prints ready, then ok when the initiator has gone
"""
from __future__ import annotations

import sys
import time
import zlib
from collections.abc import Callable

import crc32_umr_wire as wire
from scripted_peer import Endpoint, ScriptedPeer

PORT = 4048
SEND, ANSWER = 0, 512 << 10
DATA = bytes(range(256)) * 8


class Wrong(Exception):
    """The module does what it must not."""


def expect(found: object, wanted: object) -> None:
    """Compares."""
    if found != wanted:
        raise Wrong(f"found {found!r}, expected {wanted!r}")


# -- an initiator that lies ----------------------------------------------------------------------------------

def connected(peer: ScriptedPeer, address: str) -> Endpoint:
    """A connection that the target has accepted."""
    end = peer.open(address, PORT)
    event = end.connect(wire.hello())
    expect((event.name, event.private[:8]), ("RDMA_CM_EVENT_ESTABLISHED", wire.welcome()[:8]))
    return end


def ask(end: Endpoint, message: bytes) -> bytes | None:
    """Sends a message; the answer, or None if the connection ends instead."""
    end.receive(ANSWER, 64)
    end.put(SEND, message)
    end.post("send", SEND, len(message))
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        # User space is told of the end by an event; receives are not flushed before it has answered that.
        done = end.completion(20)
        if done is None:
            event = end.peer.event(0)
            if event is not None and event.name == "RDMA_CM_EVENT_DISCONNECTED":
                return None
        elif done.status:
            return None
        elif done.opcode & 128:
            return end.get(ANSWER, done.size)
    raise Wrong("neither an answer nor an end")


def ends(end: Endpoint, message: bytes) -> None:
    """The target must end the connection, and answer nothing."""
    expect(ask(end, message), None)


def status(end: Endpoint, message: bytes, wanted: int) -> None:
    """The target must answer with this status."""
    expect(ask(end, message), wire.response(7, wanted))


def honest(end: Endpoint) -> None:
    """A write and a read of block 0."""
    status(end, wire.inline_write(7, 0, DATA), wire.DONE)
    read = wire.request(7, len(DATA), wire.READ | wire.RDMA, address=end.buffer + 4096, key=end.key)
    status(end, read, wire.DONE)
    expect(end.get(4096, len(DATA) + 4), DATA + zlib.crc32(DATA).to_bytes(4, "little"))


def kept(end: Endpoint, message: bytes, wanted: int) -> None:
    """A write that is refused changes nothing."""
    honest(end)
    status(end, message, wanted)
    read = wire.request(7, len(DATA), wire.READ | wire.RDMA, address=end.buffer + 4096, key=end.key)
    status(end, read, wire.DONE)
    expect(end.get(4096, len(DATA)), DATA)


def breaks(end: Endpoint, message: bytes) -> None:
    """As `ends`, when block 0 is there."""
    honest(end)
    ends(end, message)


def refused(private: bytes) -> Callable[[ScriptedPeer, str], None]:
    """A connection that the target must refuse."""
    def play(peer: ScriptedPeer, address: str) -> None:
        expect(peer.open(address, PORT).connect(private).name, "RDMA_CM_EVENT_REJECTED")
    return play


def one_too_many(peer: ScriptedPeer, address: str) -> None:
    """The fifth connection."""
    for _ in range(4):
        connected(peer, address)
    refused(wire.hello())(peer, address)


def no_receive(peer: ScriptedPeer, address: str) -> None:
    """A response that is never taken: the target gives up."""
    end = connected(peer, address)
    message = wire.inline_write(7, 0, DATA)
    end.put(SEND, message)
    end.post("send", SEND, len(message))
    done = end.completion()
    expect(done and done.status, 0)
    deadline = time.monotonic() + 60
    while (event := peer.event(1000)) is None or event.name != "RDMA_CM_EVENT_DISCONNECTED":
        if time.monotonic() > deadline:
            raise Wrong("the target waits without end")


def dies(peer: ScriptedPeer, address: str) -> None:
    """Many requests, and then nothing any more."""
    end = connected(peer, address)
    message = wire.inline_write(7, 0, DATA)
    end.put(SEND, message)
    for _ in range(4):
        end.post("send", SEND, len(message))
    peer.close()


def on(play: Callable[..., None], message: bytes | Callable[[Endpoint], bytes],
       *more: int) -> Callable[[ScriptedPeer, str], None]:
    """A lie in one message on a connection of its own."""
    def run(peer: ScriptedPeer, address: str) -> None:
        end = connected(peer, address)
        play(end, message(end) if callable(message) else message, *more)
    return run


WRITE_RDMA, READ_RDMA = wire.WRITE | wire.RDMA, wire.READ | wire.RDMA
# Its name, what is logged of it, and what it does.
LIES: dict[str, tuple[str, Callable[[ScriptedPeer, str], None]]] = {
    "bit_of_the_number": ("checksum of a header", on(ends, wire.request(7, 2048, WRITE_RDMA, flip=0))),
    "bit_of_the_size": ("checksum of a header", on(ends, wire.request(7, 2048, WRITE_RDMA, flip=65))),
    "bit_of_the_type": ("checksum of a header", on(ends, wire.request(7, 2048, WRITE_RDMA, flip=80))),
    "bit_of_the_key": ("checksum of a header", on(ends, wire.request(7, 2048, WRITE_RDMA, flip=250))),
    "bit_of_the_checksum": ("checksum of a header", on(ends, wire.request(7, 2048, WRITE_RDMA, flip=311))),
    "unknown_type": ("type 0x03", on(ends, wire.request(7, 2048, 3))),
    "inlined_read": ("type 0x00", on(ends, wire.request(7, 2048, wire.READ))),
    "no_data": ("about no data", on(ends, wire.request(7, 0, WRITE_RDMA))),
    "empty_message": ("a message of 0 bytes", on(ends, b"")),
    "one_byte": ("a message of 1 bytes", on(ends, b"\1")),
    "payload_cut": ("a message of 1063 bytes where 2087",
                    on(ends, wire.request(7, 2048, wire.WRITE, payload=DATA[:1024]))),
    "payload_too_long": ("a message of 2087 bytes where 1063",
                         on(ends, wire.request(7, 1024, wire.WRITE, payload=DATA))),
    "longer_than_the_receive": ("", on(ends, wire.request(7, 65535, wire.WRITE, payload=bytes(66000)))),
    "inlined_with_memory": ("names memory", on(ends, wire.request(7, 2048, wire.WRITE, payload=DATA, key=5))),
    "read_with_a_signature": ("to read with a checksum", on(ends, wire.request(7, 2048, READ_RDMA, signature=9))),
    "memory_that_wraps": ("beyond the last address",
                          on(ends, wire.request(7, 2048, READ_RDMA, address=(1 << 64) - 2000, key=5))),
    "write_with_a_wrong_key": ("", on(ends, lambda end: wire.request(7, 2048, WRITE_RDMA, address=end.buffer,
                                                                     key=end.key ^ 0x100))),
    "read_with_a_wrong_key": ("", on(breaks, lambda end: wire.request(7, 2048, READ_RDMA, address=end.buffer,
                                                                    key=end.key ^ 0x100))),
    "read_beyond_the_memory": ("", on(breaks, lambda end: wire.request(
        7, 2048, READ_RDMA, address=end.buffer + (1 << 20) - 2050, key=end.key))),
    "bit_of_the_payload": ("its data has the checksum",
                           on(kept, wire.inline_write(7, 0, b"\1" + DATA[1:], zlib.crc32(DATA)), wire.PAYLOAD)),
    "bit_of_the_memory": ("its data has the checksum", on(kept, lambda end: wire.request(
        7, 2048, WRITE_RDMA, address=end.buffer + 8192, key=end.key, signature=1), wire.PAYLOAD)),
    "block_behind_the_last": ("", on(kept, wire.inline_write(7, 4096, DATA), wire.RANGE)),
    "blocks_across_the_end": ("", on(kept, wire.inline_write(7, 4095, bytes(5000)), wire.RANGE)),
    "block_of_64_bits": ("", on(kept, wire.inline_write(7, (1 << 64) - 1, DATA), wire.RANGE)),
    "block_never_written": ("chunk 4000 is bad", on(status, lambda end: wire.request(
        7, 2048, READ_RDMA, 4000, address=end.buffer, key=end.key), wire.BAD_CHUNK)),
    "other_protocol": ("of another protocol", refused(wire.hello(b"RTRS"))),
    "other_version": ("of version 2", refused(wire.hello(version=2))),
    "no_hello": ("of another protocol", refused(b"")),
    "one_too_many": ("connection refused: there are 4", one_too_many),
    "no_receive": ("", no_receive),
    "dies": ("", dies),
}


# -- a target that lies --------------------------------------------------------------------------------------

def taken(peer: ScriptedPeer, port: int, private: bytes) -> Endpoint:
    """The connection of an initiator."""
    peer.listen(port)
    print("ready", flush=True)
    event = peer.event(60_000)
    if event is None or event.name != "RDMA_CM_EVENT_CONNECT_REQUEST":
        raise Wrong(f"no initiator: {event}")
    expect(event.private[:6], wire.hello())
    end = peer.accept(event.endpoint, private)
    end.receive(ANSWER, 65_600)
    return end


def gone(peer: ScriptedPeer) -> None:
    """The initiator must go."""
    deadline = time.monotonic() + 60
    while (event := peer.event(1000)) is None or event.name != "RDMA_CM_EVENT_DISCONNECTED":
        if time.monotonic() > deadline:
            raise Wrong("the initiator does not go")


def heard(end: Endpoint) -> tuple[int, int, int, int, int]:
    """The request that comes."""
    while (done := end.completion()) is not None:
        if done.opcode & 128:
            return wire.parse(end.get(ANSWER, done.size))
    raise Wrong("no request")


def answers(answer: Callable[[Endpoint, int, int, int, int], bytes], private: bytes = wire.welcome()) \
        -> Callable[[ScriptedPeer, int], None]:
    """A target that answers the first request in this way."""
    def play(peer: ScriptedPeer, port: int) -> None:
        end = taken(peer, port, private)
        number, size, _kind, address, key = heard(end)
        message = answer(end, number, size, address, key)
        if message:
            end.put(SEND, message)
            end.post("send", SEND, len(message))
        gone(peer)
    return play


def welcomes(private: bytes) -> Callable[[ScriptedPeer, int], None]:
    """A target that accepts with this."""
    def play(peer: ScriptedPeer, port: int) -> None:
        taken(peer, port, private)
        gone(peer)
    return play


def gives(end: Endpoint, data: bytes, address: int, key: int) -> None:
    """Writes data to the initiator's memory."""
    end.put(8192, data)
    end.post("write", 8192, len(data), address, key)


def wrong_signature(end: Endpoint, number: int, size: int, address: int, key: int) -> bytes:
    """Data with the checksum of other data."""
    gives(end, bytes(size) + b"\1\2\3\4", address, key)
    return wire.response(number)


def other_data(end: Endpoint, number: int, size: int, address: int, key: int) -> bytes:
    """Other data, with its checksum."""
    data = b"\7" * size
    gives(end, data + zlib.crc32(data).to_bytes(4, "little"), address, key)
    return wire.response(number)


def hangs_up(end: Endpoint, *_request: int) -> bytes:
    """Nothing.

    The request may come before the message that establishes the connection (RTU): the kernel's connection manager
    sends no DREQ until then, and the initiator would wait for its limit of time.
    """
    event = end.peer.event(60_000)
    if event is None or event.name != "RDMA_CM_EVENT_ESTABLISHED":
        raise Wrong(f"not established: {event}")
    end.disconnect()
    return b""


def rejects(peer: ScriptedPeer, port: int) -> None:
    """A target that refuses the connection."""
    peer.listen(port)
    print("ready", flush=True)
    event = peer.event(60_000)
    if event is None:
        raise Wrong("no initiator")
    peer.reject(event.endpoint, b"")


# What the initiator says of it.
TARGETS: dict[str, tuple[str, Callable[[ScriptedPeer, int], None]]] = {
    "other_protocol": ("a peer of another protocol", welcomes(wire.welcome(magic=b"RTRS"))),
    "other_version": ("a peer of version 2", welcomes(wire.welcome(version=2))),
    "no_chunks": ("has no chunks or no receives", welcomes(wire.welcome(chunks=0))),
    "rejects": ("no connection", rejects),
    "other_number": ("a response to request 99 where 1 is", answers(lambda *_: wire.response(99))),
    "unknown_status": ("status 77, which does not exist", answers(lambda _e, n, *_: wire.response(n, 77))),
    "short_response": ("a message of 8 bytes where 9", answers(lambda _e, n, *_: wire.response(n)[:8])),
    "long_response": ("a message of 10 bytes where 9", answers(lambda _e, n, *_: wire.response(n) + b"\0")),
    "says_that_it_failed": ("target's medium failed", answers(lambda _e, n, *_: wire.response(n, wire.IO))),
    "wrong_signature": ("what was read has the checksum", answers(wrong_signature)),
    "other_data": ("byte 0 is not the one that belongs", answers(other_data)),
    "hangs_up": ("the connection is lost", answers(hangs_up)),
    "says_nothing": ("the target does not answer", answers(lambda *_: b"")),
}


def others_are_served(address: str) -> None:
    """Soon after a lie an honest initiator gets in, and out again."""
    deadline = time.monotonic() + 30
    while True:
        with ScriptedPeer() as peer:
            end = peer.open(address, PORT)
            if end.connect(wire.hello()).name == "RDMA_CM_EVENT_ESTABLISHED":
                honest(end)
                return
        if time.monotonic() > deadline:
            raise Wrong("others are not let in")


def main() -> None:
    """Plays one lie."""
    side, name, where = sys.argv[1:]
    with ScriptedPeer() as peer:
        if side == "initiator":
            LIES[name][1](peer, where)
        else:
            TARGETS[name][1](peer, int(where))
    if side == "initiator":
        others_are_served(where)
    print("ok")


if __name__ == "__main__":
    main()
