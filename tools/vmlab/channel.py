# SPDX-License-Identifier: GPL-2.0
"""The host's end of the guest agent: requests with numbers, answers in any order.

A reader thread delivers answers, so a command that hangs does not keep others from being asked.
"""
from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

ANSWER_MARGIN_SECONDS = 15.0        # an agent on a busy emulated machine answers late


class MachineGone(Exception):
    """The machine does not answer (any more)."""


class AgentError(Exception):
    """The agent could not do what it was asked."""


class Pending:
    """A request whose answer is on its way."""

    def __init__(self, channel: Channel, number: int, on_part: Callable[[str], None] | None) -> None:
        self._channel, self.number, self.on_part = channel, number, on_part
        self._arrived = threading.Event()
        self._answer: dict[str, Any] | None = None

    def deliver(self, answer: dict[str, Any] | None) -> None:
        """Called by the reader: the answer, or None when none can come any more."""
        self._answer = answer
        self._arrived.set()

    @property
    def arrived(self) -> bool:
        """Whether `wait` would return at once."""
        return self._arrived.is_set()

    def arrives_within(self, seconds: float) -> bool:
        """Waits for the answer; whether `wait` would return at once then."""
        return self._arrived.wait(seconds)

    def wait(self, seconds: float) -> dict[str, Any]:
        """The answer; raises MachineGone if none comes in time."""
        if not self._arrived.wait(seconds):
            raise MachineGone(f"{self._channel.name}: no answer within {seconds:.0f} s")
        if self._answer is None:
            raise MachineGone(f"{self._channel.name}: the machine is gone")
        if "error" in self._answer:
            raise AgentError(f"{self._channel.name}: {self._answer['error']}")
        return self._answer


class Channel:
    """A unix socket to which QEMU connects the guest's port."""

    def __init__(self, name: str, path: str) -> None:
        self.name = name
        self.ready = threading.Event()
        self.gone = threading.Event()
        self._lock = threading.Lock()
        self._next = 0
        self._pending: dict[int, Pending] = {}
        self._socket: socket.socket | None = None
        if os.path.exists(path):
            os.unlink(path)
        self._port = socket.socket(socket.AF_UNIX)
        self._port.bind(path)
        self._port.listen(1)

    def accept(self, seconds: float) -> None:
        """Waits for QEMU to connect and starts to read."""
        self._port.settimeout(seconds)
        try:
            self._socket, _ = self._port.accept()
        except TimeoutError:
            raise MachineGone(f"{self.name}: QEMU did not start") from None
        finally:
            self._port.close()
        self._socket.settimeout(None)
        threading.Thread(target=self._read, name=f"agent of {self.name}", daemon=True).start()

    def ask(self, deed: str, on_part: Callable[[str], None] | None = None, **arguments: Any) -> Pending:
        """Sends a request; the caller waits for the answer when it likes."""
        with self._lock:
            self._next += 1
            pending = Pending(self, self._next, on_part)
            self._pending[self._next] = pending
            line = json.dumps({"id": self._next, "do": deed, **arguments}).encode() + b"\n"
            try:
                if self._socket is None or self.gone.is_set():
                    raise OSError
                self._socket.sendall(line)
            except OSError:
                raise MachineGone(f"{self.name}: the machine is gone") from None
        return pending

    def close(self) -> None:
        """Ends the connection; pending requests fail."""
        if self._socket is not None:
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self._end()

    def _read(self) -> None:
        assert self._socket is not None
        with self._socket.makefile("rb") as lines:
            try:
                for line in lines:
                    self._deliver(line)
            except OSError:
                pass
        self._socket.close()
        self._end()

    def _deliver(self, line: bytes) -> None:
        try:
            answer = json.loads(line)
        except ValueError:
            return      # half a line of an agent that was restarted
        if "ready" in answer:
            self.ready.set()
            return
        number = answer.pop("id", None)
        if "part" in answer:
            pending = self._pending.get(number)
            if pending and pending.on_part:
                pending.on_part(answer["part"])
            return
        pending = self._pending.pop(number, None)
        if pending:
            pending.deliver(answer)

    def _end(self) -> None:
        self.gone.set()
        with self._lock:
            waiting, self._pending = list(self._pending.values()), {}
        for pending in waiting:
            pending.deliver(None)
