# SPDX-License-Identifier: GPL-2.0
"""Runs in the guest: `python3 admin.py NAME ADDRESS` plays a client whose messages have to wait at the server.

dm-0 (`late`) is suspended in each case once it is open: its requests wait, and so does a CLOSE of it.
What is asserted here is what a server owes its client; prints "ok", or what was wrong.
"""
from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import messages as m
from client import Client, Closed
from scripted_peer import Refused, ScriptedPeer

SECTOR = 512
CASES: dict[str, Callable[[str], None]] = {}


def case(function: Callable[[str], None]) -> Callable[[str], None]:
    """Registers a case under its function's name."""
    CASES[function.__name__] = function
    return function


def _suspend() -> None:
    subprocess.run(["dmsetup", "suspend", "--nolockfs", "--noflush", "late"], check=True)


def _resume() -> None:
    subprocess.run(["dmsetup", "resume", "late"], check=True)


@contextmanager
def _suspended() -> Iterator[None]:
    """Makes requests to `late` wait as long as it lasts."""
    _suspend()
    try:
        yield
    finally:
        _resume()


def _sessions() -> list[str]:
    place = "/sys/class/rtrs-server"
    return sorted(os.listdir(place)) if os.path.isdir(place) else []


def _acknowledged(client: Client, seconds: float) -> float:
    """Sends a heartbeat; returns how long the server took to acknowledge it."""
    end = client.ends[0]
    began = time.monotonic()
    client.raw(0, 0, b"", m.imm(m.IMM_HEARTBEAT, 0), end=0)
    while time.monotonic() - began < seconds:
        got = end.completion(100)
        if got and got.has_imm and m.split_response(got.imm)[0] == m.IMM_HEARTBEAT_ACK:
            return time.monotonic() - began
    raise AssertionError(f"a heartbeat was not acknowledged within {seconds} s")


def _answers(client: Client, count: int, timeout_ms: int = 20_000) -> dict[int, int]:
    """Takes so many answers in any order; returns the errno of each chunk."""
    end = client.ends[1]
    answers: dict[int, int] = {}
    while len(answers) < count:
        got = end.completion(timeout_ms)
        assert got, f"{len(answers)} of {count} answers"
        if got.status:
            raise Closed(f"completion status {got.status}")
        if got.opcode & 128:
            end.receive(got.request, 8)
            if got.has_imm:
                _kind, number, chunk = m.split_response(got.imm)
                assert chunk not in answers, f"chunk {chunk} was answered twice"
                answers[chunk] = number
                if client.new_keys:
                    key = int.from_bytes(end.get(got.request + 4, 4), "little")
                    client.chunks[chunk] = (client.chunks[chunk][0], key)
    return answers


@case
def heartbeats_are_answered_while_a_close_waits(address: str) -> None:
    """CLOSE of a device with a request in flight, on the admin connection: heartbeats and requests continue."""
    with ScriptedPeer() as one:
        a = Client(one, address, b"closer").open()
        late, prompt = a.map(b"dm-0"), a.map(b"ram1")
        with _suspended():
            a.read(5, SECTOR, m.io(late, 0, m.OP_READ, SECTOR))
            # Requests of one connection are taken in their order, so the first one is under way then; the CLOSE comes
            # over another connection, and would overtake it.
            assert len(a.read_device(prompt, 0, SECTOR, chunk=7)) == SECTOR
            a.raw(6, 0, m.close_device(late) + m.write_head(8), a.payload(6, 8), end=0)
            took = _acknowledged(a, 15)
            print(f"acknowledged after {took * 1000:.0f} ms")
            assert len(a.read_device(prompt, 0, SECTOR, chunk=7)) == SECTOR
            _resume()
            assert _answers(a, 1) == {5: 0}, "the request that was under way"
            assert not a.is_closed(500), "the path was closed"


@case
def messages_are_served_in_the_order_of_their_coming(address: str) -> None:
    """CLOSE, then OPEN of the same name: the device that the answer names serves requests."""
    with ScriptedPeer() as one:
        a = Client(one, address, b"order").open()
        late = a.map(b"dm-0")
        with _suspended():
            a.read(5, SECTOR, m.io(late, 0, m.OP_READ, SECTOR))
            time.sleep(0.2)
            a.write(6, b"", m.close_device(late))
            time.sleep(0.2)
            a.read(7, 56, m.open_device(b"dm-0"))
            time.sleep(0.5)
            _resume()
            assert _answers(a, 3) == {5: 0, 6: 0, 7: 0}
            again = int.from_bytes(a.reply(8)[4:8], "little")
            assert len(a.read_device(again, 0, SECTOR)) == SECTOR


@case
def as_many_messages_as_there_are_chunks_wait(address: str) -> None:
    """Every chunk but one carries a message, all behind a CLOSE that waits; each is answered once."""
    with ScriptedPeer() as one:
        a = Client(one, address, b"many").open()
        late = a.map(b"dm-0")
        with _suspended():
            a.read(0, SECTOR, m.io(late, 0, m.OP_READ, SECTOR))
            time.sleep(0.2)
            count = min(len(a.chunks), 200)
            for chunk in range(1, count):
                a.write(chunk, b"", m.close_device(late if chunk == 1 else 1000 + chunk))
                time.sleep(0.002)
            time.sleep(0.5)
            _resume()
            assert _answers(a, count) == dict.fromkeys(range(count), 0)
            a.map(b"ram1", chunk=3)


@case
def a_write_that_was_copied_cannot_be_changed(address: str) -> None:
    """The client keeps the key, and writes other data into the chunk while the disk has the request."""
    with ScriptedPeer() as one:
        a = Client(one, address, b"changer").open()
        late, prompt = a.map(b"dm-0"), a.map(b"ram1")
        for size in (SECTOR, 8 * SECTOR):
            key = a.chunks[5][1]
            with _suspended():
                a.write(5, b"A" * size, m.io(late, 0, m.OP_WRITE, size))
                # Requests of one connection are taken in their order, so that one is under way then.
                assert len(a.read_device(prompt, 0, SECTOR, chunk=7)) == SECTOR
                a.raw(5, 0, b"B" * size, None)
                # What was posted before it has been written when this one has come.
                assert len(a.read_device(prompt, 0, SECTOR, chunk=7)) == SECTOR
                _resume()
                assert _answers(a, 1) == {5: 0}, "the write"
            assert a.chunks[5][1] == key, "the key has changed"
            assert a.read_device(late, 0, size) == b"A" * size, "what the disk has"


@case
def a_session_ends_while_a_close_waits(address: str) -> None:
    """The client disconnects: the session ends when the disk has answered, and its name is free then."""
    with ExitStack() as until_the_end:
        with ScriptedPeer() as one:
            a = Client(one, address, b"leaver").open()
            late = a.map(b"dm-0")
            until_the_end.enter_context(_suspended())
            a.read(5, SECTOR, m.io(late, 0, m.OP_READ, SECTOR))
            time.sleep(0.2)
            for chunk in range(6, 16):
                a.write(chunk, b"", m.close_device(late))
            time.sleep(0.5)
        time.sleep(1)
        assert _sessions() == ["leaver"], "the session ended before its requests"
        _resume()
        began = time.monotonic()
        while _sessions():
            assert time.monotonic() - began < 10, "the session does not end"
            time.sleep(0.05)
    with ScriptedPeer() as two:
        Client(two, address, b"leaver").open().map(b"dm-0")


def leave_waiting(address: str) -> None:
    """A CLOSE that waits, with messages behind it; says "ready" and waits to be killed."""
    with ScriptedPeer() as one:
        a = Client(one, address, b"waiting").open()
        late = a.map(b"dm-0")
        _suspend()
        a.read(5, SECTOR, m.io(late, 0, m.OP_READ, SECTOR))
        time.sleep(0.2)
        for chunk in range(6, 16):
            a.write(chunk, b"", m.close_device(late))
        time.sleep(0.5)
        print("ready", flush=True)
        time.sleep(60)


if __name__ == "__main__":
    try:
        if sys.argv[1] == "leave_waiting":
            leave_waiting(sys.argv[2])
        else:
            CASES[sys.argv[1]](sys.argv[2])
        print("ok")
    except (AssertionError, Closed, Refused, TimeoutError, OSError) as why:
        print(f"{type(why).__name__}: {why} {errno.errorcode.get(getattr(why, 'errno', 0) or 0, '')}")
        sys.exit(1)
