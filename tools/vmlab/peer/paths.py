# SPDX-License-Identifier: GPL-2.0
"""Runs in the guest: `python3 paths.py NAME ADDRESS OTHER_ADDRESS` acts as a client whose paths connect and disconnect.

dm-0 is /dev/ram1, DELAY_SECONDS late; ram1 itself is exported too, so that a request can overtake another.
What is asserted here is what a server owes its client; prints "ok", or what was wrong.
"""
from __future__ import annotations

import contextlib
import errno
import glob
import subprocess
import sys
import time
from collections.abc import Callable

import messages as m
from client import Client, Closed
from scripted_peer import Event, Refused, ScriptedPeer

DELAY_SECONDS = 3.0
# With the server's default settings: a path is silent after the first, and dead after the second.
HEARTBEAT_SECONDS, DEAD_SECONDS = 1.0, 4.0
SECTOR = 512
REJECTED, ESTABLISHED = "RDMA_CM_EVENT_REJECTED", "RDMA_CM_EVENT_ESTABLISHED"
OLD, NEW = b"\x11" * SECTOR, b"\x22" * SECTOR
CASES: dict[str, Callable[[str, str], None]] = {}


class Late(Exception):
    """A busy host has delayed this program for too long: the server cannot be judged."""


def case(function: Callable[[str, str], None]) -> Callable[[str, str], None]:
    """Registers a case under its function's name."""
    CASES[function.__name__] = function
    return function


def _sector(name: str = "ram1") -> bytes:
    return subprocess.run(["dd", f"if=/dev/{name}", "bs=512", "count=1", "iflag=direct", "status=none"],
                          check=True, capture_output=True).stdout


def _paths() -> list[str]:
    return sorted(glob.glob("/sys/class/rtrs-server/*/paths/*"))


def _await(what: str, condition: Callable[[], bool], seconds: float = 10.0) -> float:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, f"not within {seconds} s: {what}"
        time.sleep(0.05)
    return time.monotonic() - began


def _rejection(event: Event) -> int:
    """The errno that a connect request was refused with."""
    assert event.name == REJECTED, f"answered {event.name}"
    return -m.parse_connect_response(event.private)["errno"]


def _two_paths(one: ScriptedPeer, two: ScriptedPeer, address: str, other: str) -> tuple[Client, Client, int, int]:
    """A session with paths a and b, and the numbers of its late and its prompt device."""
    a = Client(one, address, b"two").open()
    b = a.another_path(other, two).open()
    late, prompt = a.map(b"dm-0", chunk=0), a.map(b"ram1", chunk=0)
    b.write_device(prompt, 0, bytes(SECTOR), chunk=2)
    return a, b, late, prompt


# -- fail-over ---------------------------------------------------------------------------------------------

@case
def d26_a_write_sent_again_waits_for_the_old_one(address: str, other: str) -> None:
    """The old WRITE is in the block layer; its second copy, and what comes after it, must not overtake it."""
    with ScriptedPeer() as one, ScriptedPeer() as two:
        a, b, late, prompt = _two_paths(one, two, address, other)
        written = time.monotonic()
        a.write(5, OLD, m.io(late, 0, m.OP_WRITE, SECTOR))
        time.sleep(0.5)
        b.write(5, OLD, m.io(prompt, 0, m.OP_WRITE, SECTOR))
        assert b.answer(5, 20_000) == 0
        took = time.monotonic() - written
        assert took > DELAY_SECONDS - 0.5, f"answered {took:.2f} s after the old one was sent: it did not wait for it"
        assert a.is_closed(), "the path that the client has given up is still there"
        b.write_device(prompt, 0, NEW, chunk=6)
        time.sleep(DELAY_SECONDS + 1)
        assert _sector() == NEW, "the old WRITE was executed after the new one"
        print(f"second copy answered {took:.2f} s after the first one was sent")


@case
def d26_a_read_in_the_chunk_of_a_pending_write(address: str, other: str) -> None:
    """The READ's data must not get into the WRITE, which takes its data from the same memory."""
    with ScriptedPeer() as one, ScriptedPeer() as two:
        a, b, late, prompt = _two_paths(one, two, address, other)
        a.write(5, OLD, m.io(late, 0, m.OP_WRITE, SECTOR))
        time.sleep(0.5)
        assert b.read_device(prompt, 0, SECTOR, chunk=5) == OLD, "the READ was served before the WRITE had ended"
        assert _sector() == OLD, "the WRITE wrote the READ's data"


@case
def a_path_that_comes_later_finds_what_is_with_the_disk(address: str, other: str) -> None:
    """The old WRITE is of a time when its path was the only one, and counted no requests."""
    with ScriptedPeer() as one, ScriptedPeer() as two:
        a = Client(one, address, b"later").open()
        late, prompt = a.map(b"dm-0", chunk=0), a.map(b"ram1", chunk=0)
        written = time.monotonic()
        a.write(5, OLD, m.io(late, 0, m.OP_WRITE, SECTOR))
        time.sleep(0.3)
        b = a.another_path(other, two).open()
        if time.monotonic() - written > DELAY_SECONDS - 1:
            raise Late("the disk may have answered before the other path was there")
        b.write(5, OLD, m.io(prompt, 0, m.OP_WRITE, SECTOR))
        assert b.answer(5, 20_000) == 0
        took = time.monotonic() - written
        assert took > DELAY_SECONDS - 0.5, f"answered {took:.2f} s after the old one was sent: it did not wait for it"
        assert a.is_closed(), "the path that the client has given up is still there"


@case
def two_requests_in_one_chunk(address: str, other: str) -> None:
    """A second READ in the chunk of one that is with the disk, on the same path: no client sends that."""
    del other
    with ScriptedPeer() as one:
        a = Client(one, address, b"twice").open()
        late = a.map(b"dm-0", chunk=0)
        for _ in range(2):
            a.read(5, SECTOR, m.io(late, 0, m.OP_READ, SECTOR))
        assert a.is_closed(int(DELAY_SECONDS * 1000) + 2000), "the path is still there"


@case
def all_that_was_in_flight_is_sent_again(address: str, other: str) -> None:
    """48 requests in flight on one path, all sent again on the other: each is answered once, none is lost."""
    chunks = range(4, 52)
    with ScriptedPeer() as one, ScriptedPeer() as two:
        a, b, late, prompt = _two_paths(one, two, address, other)
        for chunk in chunks:
            a.write(chunk, bytes([chunk]) * SECTOR, m.io(late, chunk, m.OP_WRITE, SECTOR))
            time.sleep(0.005)
        for chunk in chunks:
            b.write(chunk, bytes([chunk]) * SECTOR, m.io(prompt, chunk, m.OP_WRITE, SECTOR))
            time.sleep(0.005)
        answered = _any_answers(b, len(chunks))
        assert sorted(answered) == list(chunks), f"answers for {sorted(answered)}"
        for chunk in chunks:
            assert b.read_device(prompt, chunk, SECTOR, 60) == bytes([chunk]) * SECTOR, f"sector {chunk}"
        assert a.is_closed(), "the path that the client has given up is still there"


def _any_answers(client: Client, count: int) -> list[int]:
    """Takes so many answers in any order; returns their chunks."""
    end = client.ends[1]
    chunks: list[int] = []
    while len(chunks) < count:
        got = end.completion(30_000)
        assert got is not None, f"{len(chunks)} of {count} answers"
        assert got.status == 0, f"completion status {got.status}"
        if not got.opcode & 128:
            continue
        if got.has_imm and got.imm >> 28 < 8:
            _kind, error, chunk = m.split_response(got.imm)
            assert error == 0, f"errno {error} for chunk {chunk}"
            chunks.append(chunk)
            if client.new_keys:
                key = int.from_bytes(end.get(got.request + 4, 4), "little")
                client.chunks[chunk] = (client.chunks[chunk][0], key)
        end.receive(got.request, 8)
    return chunks


@case
def nothing_hangs_behind_a_disk_that_does_not_answer(address: str, other: str) -> None:
    """The old path's WRITE never ends: other chunks are served, and the new path can be closed."""
    try:
        with ScriptedPeer() as one, ScriptedPeer() as two:
            a = Client(one, address, b"stuck").open()
            b = a.another_path(other, two).open()
            late, prompt = a.map(b"dm-0", chunk=0), a.map(b"ram1", chunk=0)
            subprocess.run(["dmsetup", "suspend", "--nolockfs", "--noflush", "late"], check=True)
            a.write(5, OLD, m.io(late, 0, m.OP_WRITE, SECTOR))
            time.sleep(0.3)
            b.write(5, OLD, m.io(prompt, 0, m.OP_WRITE, SECTOR))
            try:
                b.answer(5, 2000)
                raise AssertionError("the second copy did not wait")
            except TimeoutError:
                pass
            b.write_device(prompt, 8, NEW, chunk=7)
            b.ends[0].disconnect()
            _await("the new path is gone", lambda: not any(other in path for path in _paths()))
    finally:
        subprocess.run(["dmsetup", "resume", "late"], check=True)
    _await("the old path is gone", lambda: not _paths(), DELAY_SECONDS + 10)


# -- the fence message -------------------------------------------------------------------------------------

def _fencing(one: ScriptedPeer, two: ScriptedPeer, address: str, other: str) -> tuple[Client, Client]:
    """Two paths of a session whose client knows the fence message."""
    a = Client(one, address, b"fences")
    a.fences = True
    a.open()
    b = a.another_path(other, two).open()
    assert 0 < a.number < b.number, f"numbers {a.number} and {b.number}"
    return a, b


@case
def a_fence_message_is_answered_when_the_path_is_drained(address: str, other: str) -> None:
    """At once, whatever the disk does; what is with the disk then holds back its own copy only."""
    with ScriptedPeer() as one, ScriptedPeer() as two:
        a, b = _fencing(one, two, address, other)
        late, prompt = a.map(b"dm-0", chunk=0), a.map(b"ram1", chunk=0)
        written = time.monotonic()
        a.write(5, OLD, m.io(late, 0, m.OP_WRITE, SECTOR))
        time.sleep(0.3)
        b.fence(a.number)
        assert b.fenced() == a.number
        took = time.monotonic() - written
        assert took < DELAY_SECONDS - 0.5, f"answered after {took:.2f} s"
        assert a.is_closed(), "the path that was given up is still there"
        b.write_device(prompt, 8, NEW, chunk=7)
        b.write(5, OLD, m.io(prompt, 0, m.OP_WRITE, SECTOR))
        assert b.answer(5, 20_000) == 0
        took = time.monotonic() - written
        assert took > DELAY_SECONDS - 0.5, f"the second copy was answered after {took:.2f} s"
        # The path has ended by now, and its number is known all the same.
        _await("the old path is gone", lambda: len(_paths()) == 1)
        b.fence(a.number)
        assert b.fenced() == a.number


@case
def a_fence_message_that_makes_no_sense_closes_its_path(address: str, other: str) -> None:
    """About no path, about its own, about another session's, on an IO connection, and without an agreement."""
    lies: dict[str, Callable[[Client, Client], None]] = {
        "none": lambda a, b: b.fence(0),
        "one to come": lambda a, b: b.fence(b.number + 1),
        "the largest": lambda a, b: b.fence(0xFFFFFFF),
        "its own": lambda a, b: b.fence(b.number),
        "on an IO connection": lambda a, b: b.fence(a.number, end=1),
    }
    for what, lie in lies.items():
        with ScriptedPeer() as one, ScriptedPeer() as two:
            a, b = _fencing(one, two, address, other)
            device = a.map(b"ram1", chunk=0)
            lie(a, b)
            assert b.is_closed(), f"{what}: the path is still there"
            a.write_device(device, 0, NEW)
        _await("both are gone", lambda: not _paths())
    with ScriptedPeer() as one, ScriptedPeer() as two, ScriptedPeer() as three:
        a, b = _fencing(one, two, address, other)
        alone = Client(three, address, b"alone")
        alone.fences = True
        alone.open()
        # The other session's number 2 is none of this one.
        alone.fence(b.number)
        assert alone.is_closed(), "a foreign path: the own one is still there"
        a.write_device(a.map(b"ram1", chunk=0), 0, NEW)
        b.read_device(a.map(b"ram1", chunk=0), 0, SECTOR)
    with ScriptedPeer() as one, ScriptedPeer() as two:
        old = Client(one, address, b"old").open()
        assert old.number == 0, "a client of protocol 2.0 gets a number"
        another = old.another_path(other, two).open()
        another.fence(1)
        assert another.is_closed(), "without an agreement: the path is still there"


# -- connecting again --------------------------------------------------------------------------------------

@case
def a_newer_attempt_takes_the_place_of_a_live_path(address: str, _other: str) -> None:
    """A higher recon_cnt is admitted at once, in every state of the old path; 65535 wraps to 0."""
    with contextlib.ExitStack() as living:
        old = Client(living.enter_context(ScriptedPeer()), address, b"anew")
        old.attempt = 65535
        old.open().map(b"ram0")
        for attempt in (0, 1):
            with contextlib.ExitStack() as turn:
                new = old.anew(turn.enter_context(ScriptedPeer()), attempt)
                began = time.monotonic()
                device = new.open().map(b"ram0")
                took = time.monotonic() - began
                assert old.is_closed(), "the old path is still there"
                new.write_device(device, 0, NEW)
                assert len(_paths()) == 1, f"paths {_paths()}"
                print(f"attempt {attempt} was in after {took:.2f} s")
                if attempt == 0:
                    old = new
                    living.push(turn.pop_all())     # lives on as the old one of the next turn


@case
def d26_a_path_that_comes_back_waits_for_its_old_writes(address: str, _other: str) -> None:
    """The new path gets the info response only after the old WRITE has ended."""
    with ScriptedPeer() as one, ScriptedPeer() as two:
        old = Client(one, address, b"anew").open()
        late = old.map(b"dm-0")
        written = time.monotonic()
        old.write(5, OLD, m.io(late, 0, m.OP_WRITE, SECTOR))
        time.sleep(0.5)
        new = old.anew(two).open()
        took = time.monotonic() - written
        assert took > DELAY_SECONDS - 0.5, f"in {took:.2f} s after an old WRITE, which is still to come"
        new.write_device(new.map(b"ram1"), 0, NEW)
        time.sleep(DELAY_SECONDS + 1)
        assert _sector() == NEW, "the old WRITE was executed after the new one"


@case
def a_stale_attempt_is_refused(address: str, _other: str) -> None:
    """An older recon_cnt, and the same one again, change nothing."""
    with ScriptedPeer() as one, ScriptedPeer() as two:
        live = Client(one, address, b"stale")
        live.attempt = 7
        device = live.open().map(b"ram0")
        for attempt in (6, 7, 7 + 32768):
            found = _rejection(live.anew(two, attempt).connect_one(0))
            assert found == errno.ECONNRESET, f"attempt {attempt} was refused with {found}"
        live.write_device(device, 0, NEW)


@case
def an_unknown_client_cannot_take_the_place_of_a_path(address: str, _other: str) -> None:
    """The path's uuid under another session's, and a session of the same name: the path stays."""
    with ScriptedPeer() as one, ScriptedPeer() as two, ScriptedPeer() as three:
        live = Client(one, address, b"mine").open()
        device = live.map(b"ram0")
        thief = Client(two, address, b"mine")
        thief.uuid, thief.attempt = live.uuid, 99
        try:
            thief.open()
            raise AssertionError("an unknown client got the session's name")
        except (Closed, TimeoutError):
            assert thief.is_closed(), "an unknown client's path is open under the session's name"
        late = live.anew(three)
        late.group = b"\x55" * 16
        found = _rejection(late.connect_one(0, first=0))
        assert found == errno.ENXIO, f"refused with {found}"
        live.write_device(device, 0, NEW)


@case
def a_second_path_between_the_same_addresses(address: str, _other: str) -> None:
    """Rejected while the first one's client answers; admitted once it does not."""
    with ScriptedPeer() as one, ScriptedPeer() as two:
        live = Client(one, address, b"same").open()
        device = live.map(b"ram0")
        deadline = time.monotonic() + 4
        while time.monotonic() < deadline:
            heard = time.monotonic()
            live.write_device(device, 0, NEW)       # this client does not answer heartbeats, but is heard
            time.sleep(0.2)
        event = live.another_path(address, two).connect_one(0)
        if event.name == ESTABLISHED and time.monotonic() - heard > HEARTBEAT_SECONDS:
            raise Late("the path was silent before it was asked for again")
        found = _rejection(event)
        assert found == errno.EEXIST, f"refused with {found}"
        heard = time.monotonic()
        live.write_device(device, 0, NEW)
        time.sleep(2.5)                             # its heartbeats are not answered now
        try:
            live.another_path(address, two).open()
        except Closed:
            if time.monotonic() - heard < DEAD_SECONDS:
                raise
            raise Late("the session has ended") from None
        assert live.is_closed(), "the silent path is still there"


# -- clients that are not there ----------------------------------------------------------------------------

@case
def a_dead_client_is_noticed(address: str, other: str) -> None:
    """With default settings: both paths and the session end 4 to 8 s after the last message."""
    with ScriptedPeer() as one, ScriptedPeer() as two:
        a, b, _late, prompt = _two_paths(one, two, address, other)
        b.write_device(prompt, 0, NEW, chunk=6)
        a.write_device(prompt, 0, NEW, chunk=7)
        took = _await("the session is gone", lambda: not _paths(), 12)
        assert took > 3, f"gone after {took:.2f} s, before its heartbeats could have been missed"
        print(f"gone after {took:.2f} s")


@case
def a_path_that_is_never_finished(address: str, _other: str) -> None:
    """Only one of two connections: the path is closed 30 s later, and not before."""
    with ScriptedPeer() as one:
        half = Client(one, address, b"half")
        assert half.connect_one(0).name == ESTABLISHED
        began = time.monotonic()
        assert half.is_closed(45_000), "still there"
        took = time.monotonic() - began
        assert 25 < took < 40, f"closed after {took:.1f} s"
        print(f"closed after {took:.1f} s")


@case
def the_memory_limit_refuses_with_enomem(address: str, _other: str) -> None:
    """max_memory_mib has room for one session: the second is refused, until the first is gone."""
    with ScriptedPeer() as one, ScriptedPeer() as two:
        first = Client(one, address, b"first").open()
        found = _rejection(Client(two, address, b"second").connect_one(0))
        assert found == errno.ENOMEM, f"refused with {found}"
        first.write_device(first.map(b"ram0"), 0, NEW)
    _await("the first is gone", lambda: not _paths())

    def fits() -> bool:
        with ScriptedPeer() as three:
            try:
                return Client(three, address, b"third").open().map(b"ram0") >= 0
            except Closed:
                return False
    _await("another session fits", fits)


@case
def announced_connections_keep_no_memory_from_others(address: str, _other: str) -> None:
    """Three clients announce 350 connections each, of which two would fill max_memory_mib, and make one."""
    with ScriptedPeer() as one, ScriptedPeer() as two, ScriptedPeer() as three:
        for peer in (one, two, three):
            event = Client(peer, address, connections=350).connect_one(0)
            assert event.name == ESTABLISHED, f"answered {event.name}"


def leave_states(address: str, other: str) -> None:
    """Leaves paths of every kind behind, says "ready" and waits to be killed; the module is unloaded meanwhile."""
    with ScriptedPeer() as one, ScriptedPeer() as two, ScriptedPeer() as three, ScriptedPeer() as four:
        Client(one, address, b"half").connect_one(0)
        a = Client(two, address, b"full").open()
        late = a.map(b"dm-0")
        b = a.another_path(other, three).open()
        for chunk in range(4, 20):
            a.write(chunk, OLD, m.io(late, 0, m.OP_WRITE, SECTOR))
            time.sleep(0.005)
        b.write(5, OLD, m.io(late, 0, m.OP_WRITE, SECTOR))      # waits for a's
        again = a.anew(four)
        for cid in range(again.count):
            again.connect_one(cid)
        again.ends[0].put(0, m.info_request(b"full"))
        again.ends[0].post("send", 0, 272)                      # waits for a's end
        print("ready", flush=True)
        time.sleep(60)


if __name__ == "__main__":
    try:
        if sys.argv[1] == "leave_states":
            leave_states(*sys.argv[2:4])
        else:
            CASES[sys.argv[1]](*sys.argv[2:4])
        print("ok")
    except (AssertionError, Closed, Late, Refused, TimeoutError, OSError) as why:
        print(f"{type(why).__name__}: {why}")
        sys.exit(1)
