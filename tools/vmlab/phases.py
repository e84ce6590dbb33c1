# SPDX-License-Identifier: GPL-2.0
"""Phases of a test, by which its time is told: the words of the tests name what they do, the runner collects it.

Phases nest; the time of an inner one is not counted in the outer one. What other threads do meanwhile is not counted.
"""
from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

BODY = "body"


class Clock:
    """Seconds by phase."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._open: list[str] = []
        self._since = time.monotonic()

    def _switch(self) -> None:
        now = time.monotonic()
        if self._open:
            phase = self._open[-1]
            self._seconds[phase] = self._seconds.get(phase, 0.0) + now - self._since
        self._since = now

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Counts the time inside for this phase."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._switch()
        self._open.append(name)
        try:
            yield
        finally:
            self._switch()
            self._open.pop()

    def take(self) -> dict[str, float]:
        """The times that were collected since the last call."""
        self._switch()
        seconds, self._seconds = self._seconds, {}
        return {name: round(value, 3) for name, value in seconds.items()}


CLOCK = Clock()
phase = CLOCK.phase
