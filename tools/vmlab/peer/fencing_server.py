# SPDX-License-Identifier: GPL-2.0
"""Runs in the guest: `python3 fencing_server.py NAME SECONDS` is a server of several paths that knows the fence
message.

When it finds ARMED, it loses the path of the next IO request, which it does not answer, or of the OPEN that it has
kept, and answers the client's question about that path in its own way. When it finds GO it answers what it has kept.
"""
from __future__ import annotations

import os
import struct
import sys
import time

import messages as m
from scripted_peer import Endpoint, Refused, ScriptedPeer
from server import GO, SEND, Lies, Server

READY = "/tmp/peer/ready"
# What has happened, a line each.
STORY = "/tmp/peer/story"
ARMED = "/tmp/peer/armed"
SESSION = 0x5E5510
LATE_SECONDS = 1.5

TYPE_CHECKING = False
if TYPE_CHECKING:   # it would take an emulated machine a tenth of a second
    from collections.abc import Callable


class Path:
    """A life of a path: its connections, and what is left to answer on it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.ends: list[Endpoint] = []
        self.is_lost = False


class FencingServer(Server):
    """One session of any number of paths; `answer` is called with each fence message."""

    def __init__(self, peer: ScriptedPeer, answer: Callable[[FencingServer, Endpoint, int], None], holds: bool) -> None:
        # So many chunks that a second message may wait beside one that is kept.
        super().__init__(peer, Lies(depth=8), 65536)
        self.answer, self.holds, self.invalidates = answer, holds, answer is not left
        self.lives: list[Path] = []
        self.by_uuid: dict[bytes, Path] = {}
        self.path = Path(0)                         # the one that is being served
        self.settled: set[int] = set()
        self.kept_path: Path | None = None          # of the OPEN that is not answered
        self.kept_open: tuple[Endpoint, int] | None = None
        self.asked_key = 0                          # to invalidate with the next answer
        self.later_answers: list[tuple[float, Endpoint, int]] = []
        self.held: list[tuple[float, Path, Endpoint, int]] = []     # requests that are looked at later

    def say(self, line: str) -> None:
        """Tells the test what happens."""
        with open(STORY, "a", encoding="ascii") as file:
            file.write(line + "\n")

    def _accept(self, number: int, private: bytes) -> None:
        cid, uuid = struct.unpack_from("<H", private, 6)[0], private[12:28]
        if cid == 0:
            self.by_uuid[uuid] = Path(len(self.lives) + 1)
            self.lives.append(self.by_uuid[uuid])
            self.say(f"connect {len(self.lives)}")
        path = self.by_uuid[uuid]
        self.ends, self.lies.connect = path.ends, {"life": (path.number, SESSION)}
        super()._accept(number, private)

    def lose(self) -> None:
        """Ends the connections of the path that is being served."""
        self.say(f"lost {self.path.number}")
        self.path.is_lost = True
        for end in self.path.ends:
            end.disconnect()

    def fenced(self, end: Endpoint, number: int) -> None:
        """Says that a path is drained."""
        self.say(f"fenced {number}")
        self.settled.add(number)
        try:
            end.post("write", SEND, 0, 0, 0, m.imm(m.IMM_FENCED, number))
        except Refused:
            self.say("too late")

    def _fence(self, end: Endpoint, number: int) -> None:
        self.say(f"asked {number}")
        self.answer(self, end, number)

    def _request(self, end: Endpoint, imm: int) -> None:
        if self.holds and len(self.lives) > 2 and not self.held and self.path is self.lives[2]:
            # The first message of the path that has come again: it is validated.
            self.held.append((time.monotonic() + LATE_SECONDS, self.path, end, imm))
            self.say("validating")
            return
        kept = self.kept_path
        super()._request(end, imm)
        if self.kept_path is not kept:
            self.kept_open = (end, imm)

    def _keeps_open(self, user: bytes) -> bool:
        """The second or third OPEN is kept, if the test wants that."""
        name = user[6:].partition(b"\0")[0].decode()
        self.lies.open = {"device": int(name[-1])}
        self.say(f"open {name} {user[4]}")
        if self.kept_path or self.opened != KEEPERS.get(self.answer.__name__):
            return False
        self.kept_path = self.path
        return True

    def _bring(self, end: Endpoint, chunk: int, offset: int, user: bytes) -> None:
        super()._bring(end, chunk, offset, user)
        flags, _count, _address, key = struct.unpack("<HHQI", self.ends[-1].get(chunk * self.chunk + offset + 4, 16))
        self.asked_key = key if flags & m.NEED_INVAL else 0

    def respond(self, end: Endpoint, chunk: int, errno: int = 0, kind: int = m.IMM_RESPONSE) -> None:
        """Responds, with the invalidation that the client has asked for."""
        key, self.asked_key = self.asked_key, 0
        if key and self.invalidates:
            end.post("sendinv", SEND, 0, key=key)
            kind = m.IMM_RESPONSE_INVALIDATED
        super().respond(end, chunk, errno, kind)

    def _tell(self, line: str) -> None:
        unsettled = [path.number for path in self.lives if path.is_lost and path.number not in self.settled]
        self.say(f"served {self.path.number} {line} before {unsettled}")

    def run(self, seconds: float) -> None:
        """Serves until the time is over."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            event = self.peer.event(0 if self.lives else 100)
            if event and event.name == "RDMA_CM_EVENT_CONNECT_REQUEST":
                self._accept(event.endpoint, event.private)
            for path in self.lives:
                self.path, self.ends = path, path.ends
                for end in self.ends:
                    while not path.is_lost and self._poll(end):
                        pass
            self._catch_up()

    def _catch_up(self) -> None:
        now = time.monotonic()
        if os.path.exists(ARMED):
            if self.kept_path:
                self.path = self.kept_path
                self.lose()
            else:
                self.lies.at_io = _lose
            os.remove(ARMED)
        due = [answer for answer in self.later_answers if now > answer[0] or os.path.exists(GO)]
        self.later_answers = [answer for answer in self.later_answers if answer not in due]
        for _at, end, number in due:
            self.fenced(end, number)
        if self.kept_path and self.kept_open and os.path.exists(GO):
            self.path, self.ends = self.kept_path, self.kept_path.ends
            (end, imm), self.kept_open = self.kept_open, None
            super()._request(end, imm)
        for at, path, end, imm in self.held:
            if now > at and not path.is_lost:
                self.held[0] = (at + 3600, path, end, imm)
                self.path, self.ends = path, path.ends
                super()._request(end, imm)


def _lose(server: FencingServer, _end: Endpoint, _chunk: int) -> None:
    server.lose()


def validated(server: FencingServer, end: Endpoint, number: int) -> None:
    """At once. The client's question whether a path leads to the same server is answered late."""
    server.fenced(end, number)


def late(server: FencingServer, end: Endpoint, number: int) -> None:
    """Answers that the path is drained after a while."""
    server.later_answers.append((time.monotonic() + LATE_SECONDS, end, number))


def never(server: FencingServer, end: Endpoint, number: int) -> None:
    """It says so when the test has seen that nothing was sent again."""
    server.later_answers.append((time.monotonic() + 3600, end, number))


def another(server: FencingServer, end: Endpoint, number: int) -> None:
    """The first time it says so of a path that the client has not asked about."""
    server.fenced(end, number if server.settled else number + 64)


def twice(server: FencingServer, end: Endpoint, number: int) -> None:
    """The first time it answers twice, and the second answer is one to no question."""
    if not server.settled:
        server.fenced(end, number)
    server.fenced(end, number)


def left(server: FencingServer, end: Endpoint, number: int) -> None:
    """At once. It leaves the invalidation of all keys to the client, also on a path that is not up yet."""
    server.fenced(end, number)


def opens(server: FencingServer, end: Endpoint, number: int) -> None:
    """At once. It keeps the second OPEN that it gets."""
    server.fenced(end, number)


def validates_late(server: FencingServer, end: Endpoint, number: int) -> None:
    """At once. It keeps the third OPEN that it gets, of the path that has come again after two disks were mapped."""
    server.fenced(end, number)


# Those that keep an OPEN, and how many they answer before.
KEEPERS = {"opens": 1, "validates_late": 2}
ANSWERS = {answer.__name__: answer for answer in (late, never, another, twice, validated, left)}

if __name__ == "__main__":
    name = sys.argv[1]
    with ScriptedPeer() as peer:
        answer = {"opens": opens, "validates_late": validates_late}.get(name) or ANSWERS[name]
        server = FencingServer(peer, answer, answer is validated)
        if name in KEEPERS:
            server.lies.echoes, server.lies.session = True, {"boot": 1}
        open(READY, "w", encoding="ascii").close()
        server.run(float(sys.argv[2]))
