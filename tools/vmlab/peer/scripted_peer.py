# SPDX-License-Identifier: GPL-2.0
"""Runs in the guest: drives the scripted peer (scripted_peer.c), which executes valid and invalid commands."""
from __future__ import annotations

import subprocess
from dataclasses import dataclass

PROGRAM = "/tmp/peer/scripted_peer"
WAIT_MS = 10_000


class Refused(Exception):
    """The scripted peer could not execute the command; has the reason."""


@dataclass(frozen=True)
class Event:
    """An event of the connection manager."""

    name: str
    endpoint: int
    status: int
    private: bytes


@dataclass(frozen=True)
class Completion:
    """A work completion. `status` 0 is success, 5 is a flushed request."""

    status: int
    opcode: int
    size: int
    imm: int
    flags: int
    request: int

    @property
    def has_imm(self) -> bool:
        """Whether it has immediate data."""
        return bool(self.flags & 2)


class ScriptedPeer:
    """One process of the scripted peer; its endpoints are connections."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                         bufsize=1)

    def say(self, *words: object) -> list[str]:
        """Gives one command; returns the words of its answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        answer = self._process.stdout.readline().split()
        if not answer or answer[0] != "ok":
            raise Refused(f"{words[0]}: {' '.join(answer[1:]) or 'the peer has died'}")
        return answer[1:]

    def event(self, timeout_ms: int = WAIT_MS) -> Event | None:
        """The next event of any endpoint; None when there is none in time."""
        event = self._event(self.say("event", timeout_ms))
        return None if event.name == "none" else event

    @staticmethod
    def _event(words: list[str]) -> Event:
        private = words[-1]
        return Event("_".join(words[:-3]), int(words[-3]), int(words[-2]),
                     b"" if private == "-" else bytes.fromhex(private))

    def open(self, address: str, port: int) -> Endpoint:
        """Resolves an address and makes a queue pair; nothing is sent yet."""
        number, buffer, key = self.say("open", address, port)
        return Endpoint(self, int(number), int(buffer, 0), int(key, 0))

    def listen(self, port: int) -> int:
        """Listens; connect requests come as events."""
        return int(self.say("listen", port)[0])

    def accept(self, number: int, private: bytes) -> Endpoint:
        """Accepts a connect request with any private data."""
        buffer, key = self.say("accept", number, private.hex() or "-")
        return Endpoint(self, number, int(buffer, 0), int(key, 0))

    def reject(self, number: int, private: bytes) -> None:
        """Rejects a connect request with any private data."""
        self.say("reject", number, private.hex() or "-")

    def close(self) -> None:
        """Ends the process; the kernel tears its connections down, as after a crash."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> ScriptedPeer:
        return self

    def __exit__(self, *_why: object) -> None:
        self.close()


@dataclass(frozen=True)
class Endpoint:
    """One connection with 1 MiB of registered memory at `buffer` under `key`."""

    peer: ScriptedPeer
    number: int
    buffer: int
    key: int

    def connect(self, private: bytes) -> Event:
        """Sends the connect request; the event says how it was answered."""
        return ScriptedPeer._event(self.peer.say("connect", self.number, private.hex() or "-"))

    def receive(self, offset: int = 0, size: int = 0, count: int = 1) -> None:
        """Posts receives; with a size, one after the other from `offset` of the memory on."""
        self.peer.say("receive", self.number, offset, size, count)

    def put(self, offset: int, data: bytes) -> None:
        """Writes into the memory."""
        for start in range(0, len(data), 32768):
            self.peer.say("set", self.number, offset + start, data[start:start + 32768].hex())

    def get(self, offset: int, size: int) -> bytes:
        """Reads from the memory."""
        word = self.peer.say("get", self.number, offset, size)[0]
        return b"" if word == "-" else bytes.fromhex(word)

    def post(self, kind: str, offset: int, size: int, address: int = 0, key: int = 0,
             imm: int | None = None) -> None:
        """Posts "send", "write" or "sendinv" of part of the memory."""
        self.peer.say("post", self.number, kind, offset, size, address, key, "-" if imm is None else imm)

    def completion(self, timeout_ms: int = WAIT_MS) -> Completion | None:
        """The next work completion; None when there is none in time."""
        words = self.peer.say("completion", self.number, timeout_ms)
        return None if words[0] == "none" else Completion(*(int(word, 0) for word in words))

    def barrage(self, count: int, seed: int, memory_bits: int) -> tuple[int, int, int]:
        """Sends so many random messages (barrage.h); returns how many were sent, answered, refused."""
        sent, answered, refused = map(int, self.peer.say("barrage", self.number, count, seed, memory_bits))
        return sent, answered, refused

    def disconnect(self) -> None:
        """Disconnects in an orderly way."""
        self.peer.say("disconnect", self.number)
