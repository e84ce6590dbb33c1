# SPDX-License-Identifier: GPL-2.0
"""Runs in the guest: `python3 exports.py NAME ADDRESS` acts as clients that open, close and lose devices.

What is asserted here is what a server owes its administrator; prints "ok", or what was wrong.
"""
from __future__ import annotations

import errno
import os
import sys
import threading
import time
from collections.abc import Callable

import messages as m
from client import Client, Closed
from scripted_peer import Refused, ScriptedPeer

SECTOR = 512
# How often: see tests/server_exports.py.
OPENS, TURNS = int(os.environ["OPENS"]), int(os.environ["TURNS"])
FORCE = "/sys/class/rnbd-server/ctl/devices/ram0/sessions/{}/force_close"
CASES: dict[str, Callable[[str], None]] = {}


def case(function: Callable[[str], None]) -> Callable[[str], None]:
    """Registers a case under its function's name."""
    CASES[function.__name__] = function
    return function


def _open(client: Client, name: bytes, chunk: int = 2, mode: int = m.RW) -> tuple[int, int]:
    """OPEN; returns the errno and the device's number."""
    client.read(chunk, 56, m.open_device(name, mode))
    error = client.answer(chunk)
    return error, 0 if error else int.from_bytes(client.reply(8)[4:8], "little")


def _force(path: str) -> bool:
    try:
        with open(path, "w", encoding="ascii") as file:
            file.write("1")
        return True
    except OSError:
        return False


@case
def refused_opens(address: str) -> None:
    """Repeated OPENs of a device with another writer, and of one with a damaged sidecar; each is answered so."""
    with open("/dev/ram1", "r+b") as disk:
        disk.write(b"ferro-pi" + bytes(SECTOR - 8))
    refusals = ((b"ram0", errno.EPERM), (b"ram1", errno.EUCLEAN))
    with ScriptedPeer() as one, ScriptedPeer() as two:
        Client(one, address, b"writer").open().map(b"ram0")
        beggar = Client(two, address, b"beggar").open()
        for turn in range(OPENS):
            name, why = refusals[turn % len(refusals)]
            error, _device = _open(beggar, name)
            assert error == why, f"OPEN {turn}: errno {error}"


@case
def a_device_is_fenced_and_no_other(address: str) -> None:
    """ram0 is closed by force as soon as its file exists, while its client closes and opens it and ram1 in turn."""
    done, forced = threading.Event(), [0]

    def fence() -> None:
        path = FORCE.format("fenced")
        while not done.is_set():
            if _force(path):
                forced[0] += 1
                limit = time.monotonic() + 5
                while os.path.exists(os.path.dirname(path)) and not os.path.exists(path):
                    assert time.monotonic() < limit, "force_close has closed nothing, and its file is gone"

    with ScriptedPeer() as one:
        a = Client(one, address, b"fenced").open()
        fencer = threading.Thread(target=fence)
        fencer.start()
        try:
            for turn in range(TURNS):
                error, first = _open(a, b"ram0")
                assert not error, f"turn {turn}: ram0: errno {error}"
                a.write(3, b"", m.close_device(first))
                assert a.answer(3) == 0
                error, second = _open(a, b"ram1")
                assert not error, f"turn {turn}: ram1: errno {error}"
                # OSError if it was closed instead of ram0.
                assert len(a.read_device(second, 0, SECTOR)) == SECTOR
                a.write(3, b"", m.close_device(second))
                assert a.answer(3) == 0
        finally:
            done.set()
            fencer.join()
    print(f"ram0 was forced away {forced[0]} times")
    assert forced[0], "the file was never there in time"


def _send_close(client: Client, chunk: int, device: int) -> None:
    client.write(chunk, b"", m.close_device(device))


@case
def a_number_is_closed_before_it_is_known(address: str) -> None:
    """OPEN of four devices at a time, and CLOSE of their numbers meanwhile: every message succeeds."""
    names = (b"ram0", b"ram1", b"ram2", b"ram3")
    with ScriptedPeer() as one:
        a = Client(one, address, b"early").open()
        for turn in range(TURNS // 16):
            answers: dict[int, int] = {}
            for chunk, name in enumerate(names, 2):
                a.read(chunk, 56, m.open_device(name, m.RO))
                for number in range(len(names)):
                    _send_close(a, 10 + 4 * chunk + number, number)
            while len(answers) < 5 * len(names):
                chunk, error = a.any_answer()
                answers[chunk] = error
            failed = {chunk: error for chunk, error in answers.items() if error}
            assert not failed, f"turn {turn}: errno by chunk: {failed}"
            for number in range(len(names)):
                _send_close(a, 2, number)
                assert a.answer(2) == 0, f"turn {turn}: CLOSE of {number}"


@case
def a_device_is_opened_while_its_last_user_closes_it(address: str) -> None:
    """Two sessions open and close one device: the folder of the export comes and goes between them."""
    failed: list[str] = []

    def use(name: bytes) -> None:
        with ScriptedPeer() as peer:
            client = Client(peer, address, name).open()
            for turn in range(TURNS // 4):
                client.read(2, 56, m.open_device(b"ram0", m.RO))
                error = client.answer(2)
                if error:
                    failed.append(f"turn {turn} of {name.decode()}: errno {errno.errorcode.get(error, error)}")
                    return
                _send_close(client, 3, int.from_bytes(client.reply(8)[4:8], "little"))
                assert client.answer(3) == 0

    users = [threading.Thread(target=use, args=(name,)) for name in (b"one", b"other")]
    for user in users:
        user.start()
    for user in users:
        user.join()
    assert not failed, failed


@case
def a_device_is_opened_anew_in_another_mode(address: str) -> None:
    """OPEN of a name in each mode after the other, as the CLOSE between them was lost: the device is as the last one
    asked for, also for another session that would write. The same mode again is the same device."""

    def writes(client: Client, device: int) -> int:
        try:
            client.write_device(device, 0, bytes(SECTOR))
        except OSError as why:
            return why.errno or 0
        return 0

    with ScriptedPeer() as one, ScriptedPeer() as two:
        a, b = Client(one, address, b"remapped").open(), Client(two, address, b"other").open()
        for mode, refused, others in ((m.RO, errno.EROFS, 0), (m.RW, 0, errno.EPERM), (m.RO, errno.EROFS, 0)):
            error, device = _open(a, b"ram0", mode=mode)
            assert not error, f"mode {mode}: errno {error}"
            assert _open(a, b"ram0", mode=mode) == (0, device), f"mode {mode}: another device at the second time"
            error = writes(a, device)
            assert error == refused, f"mode {mode}: a write has errno {error}"
            error, device = _open(b, b"ram0")
            assert error == others, f"mode {mode}: another session's writer has errno {error}"
            if not error:
                _send_close(b, 3, device)
                assert b.answer(3) == 0


if __name__ == "__main__":
    try:
        CASES[sys.argv[1]](sys.argv[2])
        print("ok")
    except (AssertionError, Closed, Refused, TimeoutError, OSError) as why:
        print(f"{type(why).__name__}: {why}")
        sys.exit(1)
