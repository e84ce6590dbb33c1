# SPDX-License-Identifier: GPL-2.0
"""Runs in the guest: `python3 names.py NAME ADDRESS` acts as clients that request the same session name.

dm-0 (`late`) can be suspended. What is asserted here is what a server owes a client whose path it does not
admit: an answer, soon, with the reason. Prints "ok", or what was wrong.
"""
from __future__ import annotations

import errno
import functools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import messages as m
from client import Client, Closed, NotAdmitted
from scripted_peer import Refused, ScriptedPeer

SECTOR = 512
# Longer than a refusal of a session whose rival is there takes, shorter than any time-out.
# On a host that is busy (`PATIENCE`) all takes longer.
PATIENCE = float(os.environ.get("PATIENCE", "1"))
SOON_SECONDS = 3.0 * PATIENCE
# proto/admission.rs: NAME_WAIT_MS.
WAIT_SECONDS = 10.0
CASES: dict[str, Callable[[str], None]] = {}
# Cases with the server's own heartbeats; in the others a scripted peer's silence is no death.
WITH_DEFAULTS = ("the_name_of_a_client_that_has_died", "the_name_of_a_client_that_is_there")


def case(function: Callable[[str], None]) -> Callable[[str], None]:
    """Registers a case under its function's name."""
    CASES[function.__name__] = function
    return function


def _dmsetup(*words: str) -> None:
    subprocess.run(["dmsetup", *words, "late"], check=True)


def _timed(action: Callable[[], object]) -> tuple[float, int]:
    """Seconds that it took, and the errno with which the server refused the session (0: admitted)."""
    began = time.monotonic()
    try:
        action()
    except NotAdmitted as why:
        return time.monotonic() - began, why.errno
    return time.monotonic() - began, 0


@case
def twenty_sessions_of_one_name(address: str) -> None:
    """Each is opened when the previous one has just been killed, which the server detects at the same time.

    Twenty in make test-long, else eight."""
    slowest = 0.0
    for _turn in range(int(os.environ["TURNS"])):
        with ScriptedPeer() as one:
            took, number = _timed(Client(one, address, b"again").open)
            assert not number, f"refused: {errno.errorcode[number]}"
            slowest = max(slowest, took)
    print(f"at most {slowest * 1000:.0f} ms")


@case
def the_name_of_a_session_that_ends(address: str) -> None:
    """The old one's request is at the disk: the new one waits for its end and is admitted then."""
    try:
        with ScriptedPeer() as one:
            a = Client(one, address, b"ending").open()
            late = a.map(b"dm-0")
            _dmsetup("suspend", "--nolockfs", "--noflush")
            a.read(5, SECTOR, m.io(late, 0, m.OP_READ, SECTOR))
            time.sleep(0.3)
        resume = threading.Timer(3, _dmsetup, ("resume",))
        with ScriptedPeer() as two:
            resume.start()
            took, number = _timed(Client(two, address, b"ending").open)
            resume.join()
            assert not number, f"refused: {errno.errorcode[number]}"
            assert 2 < took < 8 * PATIENCE, f"admitted after {took:.2f} s"
    finally:
        _dmsetup("resume")


@case
def the_name_of_a_session_that_does_not_end(address: str) -> None:
    """The disk does not answer: EBUSY after a defined time, so the client may retry later."""
    try:
        with ScriptedPeer() as one:
            a = Client(one, address, b"stuck").open()
            late = a.map(b"dm-0")
            _dmsetup("suspend", "--nolockfs", "--noflush")
            a.read(5, SECTOR, m.io(late, 0, m.OP_READ, SECTOR))
            time.sleep(0.3)
        with ScriptedPeer() as two:
            took, number = _timed(lambda: _open_patiently(Client(two, address, b"stuck"), 20_000))
            assert number == errno.EBUSY, f"refused with {errno.errorcode.get(number, number)}"
            assert took < WAIT_SECONDS + SOON_SECONDS, f"refused after {took:.2f} s"
    finally:
        _dmsetup("resume")


def _open_patiently(client: Client, timeout_ms: int) -> None:
    for cid in range(client.count):
        event = client.connect_one(cid)
        if event.name != "RDMA_CM_EVENT_ESTABLISHED":
            raise Closed(f"connection {cid}: {event.name} {event.status}")
    client.info(timeout_ms=timeout_ms)


@case
def the_name_of_a_client_that_is_there(address: str) -> None:
    """It answers heartbeats: EPERM at once, and the holder of the name is not affected."""
    with ScriptedPeer() as one, ScriptedPeer() as two:
        a = Client(one, address, b"there").open()
        device = a.map(b"ram1")
        there = threading.Thread(target=a.heartbeats, args=(7,))
        there.start()
        time.sleep(1)
        took, number = _timed(Client(two, address, b"there").open)
        there.join()
        assert number == errno.EPERM, f"refused with {errno.errorcode.get(number, number)}"
        assert took < SOON_SECONDS, f"refused after {took:.2f} s"
        assert len(a.read_device(device, 0, SECTOR)) == SECTOR


@case
def the_name_of_a_client_that_has_died(address: str) -> None:
    """It does not answer, as after a power failure: the new one is admitted when it counts as dead."""
    with ScriptedPeer() as one, ScriptedPeer() as two:
        Client(one, address, b"dead").open()
        took, number = _timed(lambda: _open_patiently(Client(two, address, b"dead"), 20_000))
        assert not number, f"refused: {errno.errorcode[number]}"
        print(f"admitted after {took:.1f} s")


@case
def every_refusal_has_a_reason(address: str) -> None:
    """False info requests are answered with an errno, soon, and the path is disconnected after it."""
    table = ((m.info_request(b"a/b"), errno.EINVAL), (m.info_request(b".."), errno.EINVAL),
             (m.info_request(b""), errno.EINVAL), (m.info_request(b"a" * 255), errno.EINVAL),
             (m.info_request(b"x", kind=7), errno.ECONNRESET), (m.info_request(b"x")[:10], errno.ECONNRESET))
    for data, expected in table:
        with ScriptedPeer() as one:
            client = Client(one, address, b"false")
            for cid in range(client.count):
                client.connect_one(cid)
            took, number = _timed(functools.partial(client.info, data))
            assert number == expected, f"{data[:8]!r}: refused with {errno.errorcode.get(number, number)}"
            assert took < SOON_SECONDS, f"{data[:8]!r}: refused after {took:.2f} s"
            assert client.is_closed(), f"{data[:8]!r}: the path was not closed"
    with ScriptedPeer() as one:
        client = Client(one, address, b"early")
        client.connect_one(0)
        took, number = _timed(client.info)
        assert (number, took < SOON_SECONDS) == (errno.ECONNRESET, True), f"early: {number} after {took:.2f} s"
        assert client.is_closed(), "early: the path was not closed"


def hold(address: str) -> None:
    """Has the name `held`, and is there; says "ready"."""
    with ScriptedPeer() as one:
        client = Client(one, address, b"held").open()
        print("ready", flush=True)
        client.heartbeats(60)


if __name__ == "__main__":
    try:
        {"hold": hold, **CASES}[sys.argv[1]](sys.argv[2])
        print("ok")
    except (AssertionError, Closed, Refused, TimeoutError, OSError) as why:
        print(f"{type(why).__name__}: {why}")
        sys.exit(1)
