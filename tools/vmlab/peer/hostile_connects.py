# SPDX-License-Identifier: GPL-2.0
"""Runs in the guest: false connection requests and false first messages, before a path exists.

`python3 hostile_connects.py NAME ADDRESS`. What the server must do stands in the decorator: REJECTED with an
errno in the private data, or CLOSED after it had accepted. An honest session must work afterwards.
"""
from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable

import messages as m
from client import Client, Closed
from scripted_peer import Event, ScriptedPeer

CLOSED = "closed"
IMPATIENCE_MS = 2000
# Longer than such a client waits for its answer.
HOLDER_SECONDS = 4
REJECTED = "RDMA_CM_EVENT_REJECTED"
HostileConnect = Callable[[Client], Event | None]
HOSTILE_CONNECTS: dict[str, tuple[object, HostileConnect]] = {}


def hostile_connect(expected: object) -> Callable[[HostileConnect], HostileConnect]:
    """Registers a false start under its function's name."""
    def register(function: HostileConnect) -> HostileConnect:
        HOSTILE_CONNECTS[function.__name__] = (expected, function)
        return function
    return register


@hostile_connect(errno.ECONNRESET)
def wrong_magic(c: Client) -> Event:
    """A client with another protocol."""
    return c.connect_one(0, magic=0xDEAD)


@hostile_connect(errno.ECONNRESET)
def wrong_major_version(c: Client) -> Event:
    """RTRS 3.0."""
    return c.connect_one(0, version=0x0300)


@hostile_connect(errno.ECONNRESET)
def connection_id_out_of_range(c: Client) -> Event:
    """Connection 2 of 2."""
    return c.connect_one(2)


@hostile_connect(errno.ECONNRESET)
def no_connections_at_all(c: Client) -> Event:
    """cid_num 0."""
    return c.connect_one(0, connections=0)


@hostile_connect(errno.ECONNRESET)
def too_many_connections(c: Client) -> Event:
    """cid_num 65535."""
    return c.connect_one(0, connections=65535)


@hostile_connect(errno.ECONNRESET)
def another_number_of_connections(c: Client) -> Event:
    """The second connection announces three, the first announced two."""
    c.connect_one(0)
    return c.connect_one(1, connections=3)


@hostile_connect(errno.ECONNRESET)
def the_same_connection_twice(c: Client) -> Event:
    """Connection 0 again."""
    c.connect_one(0)
    return c.connect_one(0)


@hostile_connect(errno.ENXIO)
def a_further_path_of_no_session(c: Client) -> Event:
    """first_conn 0 with a group that the server does not know."""
    return c.connect_one(0, first=0)


@hostile_connect(None)
def private_data_of_every_length(c: Client) -> Event | None:
    """0 to 55 random bytes; the CM pads them, so they are judged by what they say."""
    for size in range(0, 56, 5):
        event = Client(c.peer, c.address).connect_one(0, private=os.urandom(size) or b"\0")
        if event.name != REJECTED:
            raise AssertionError(f"{size} random bytes were answered {event.name}")
    return None


@hostile_connect(CLOSED)
def info_before_all_connections(c: Client) -> None:
    """INFO_REQ when only the first of two connections exists (CVE-2024-50062)."""
    c.connect_one(0)
    c.info(timeout_ms=IMPATIENCE_MS)


def _with_info(c: Client, data: bytes) -> None:
    for cid in range(c.count):
        c.connect_one(cid)
    c.info(data, IMPATIENCE_MS)


@hostile_connect(CLOSED)
def d10_session_name_without_end(c: Client) -> None:
    """255 bytes and no NUL."""
    _with_info(c, m.info_request(b"a" * 255))


@hostile_connect(CLOSED)
def session_name_with_a_slash(c: Client) -> None:
    """It would be a folder in sysfs."""
    _with_info(c, m.info_request(b"a/b"))


@hostile_connect(CLOSED)
def session_name_with_a_dot(c: Client) -> None:
    """So would this."""
    _with_info(c, m.info_request(b".."))


@hostile_connect(CLOSED)
def session_without_a_name(c: Client) -> None:
    """Nothing but NUL."""
    _with_info(c, m.info_request(b""))


@hostile_connect(CLOSED)
def session_name_of_somebody_else(c: Client) -> None:
    """The name belongs to another group, whose client answers heartbeats."""
    with ScriptedPeer() as other:
        holder = Client(other, c.address, b"taken").open()
        there = threading.Thread(target=holder.heartbeats, args=(HOLDER_SECONDS,))
        there.start()
        try:
            _with_info(c, m.info_request(b"taken"))
        finally:
            there.join()


@hostile_connect(CLOSED)
def info_of_another_type(c: Client) -> None:
    """The first message is not an INFO_REQ."""
    _with_info(c, m.info_request(b"scripted", kind=7))


@hostile_connect(CLOSED)
def info_cut_short(c: Client) -> None:
    """Ten bytes."""
    _with_info(c, m.info_request(b"scripted")[:10])


def judge(name: str, address: str) -> str:
    """Returns "" or what was wrong with the server's answer."""
    expected, function = HOSTILE_CONNECTS[name]
    with ScriptedPeer() as liar:
        client = Client(liar, address, b"hostile")
        try:
            event = function(client)
            verdict = _rejection(event, expected) if event and isinstance(expected, int) else ""
            closed = False
        except Closed:
            closed = True
        except TimeoutError:
            # No answer to the first message: the connection manager knows whether the path is closed.
            closed = client.is_closed()
        if expected == CLOSED:
            verdict = "" if closed else "the path was not closed"
        elif closed:
            verdict = "the path was closed"
    with ScriptedPeer() as honest:
        Client(honest, address, b"afterwards").open().map(b"ram0")
    return verdict


def _rejection(event: Event, expected: int) -> str:
    if event.name != REJECTED:
        return f"answered {event.name}, expected a rejection"
    answer = m.parse_connect_response(event.private)
    found = (answer["magic"], answer["errno"])
    return "" if found == (m.MAGIC, -expected) else f"rejected with (magic, errno) {found}, expected errno {-expected}"


if __name__ == "__main__":
    problem = judge(sys.argv[1], sys.argv[2])
    print(problem or "ok")
    sys.exit(1 if problem else 0)
