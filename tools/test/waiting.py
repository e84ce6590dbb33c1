# SPDX-License-Identifier: GPL-2.0
"""Lines for people who wait: now and then one says which stages run, how many have ended, and how long the rest
takes."""
import json
import pathlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from vmlab.progress import TOLD_SECONDS, minutes


def before(folder: pathlib.Path, tier: str) -> dict[str, float]:
    """Seconds of each stage when this tier last ran here; nothing if it never did."""
    for file in sorted(folder.glob("stages-*.json"), reverse=True):
        try:
            kept = json.loads(file.read_text(encoding="ascii"))
            if kept["tier"] == tier:
                return {str(name): float(seconds) for name, seconds in kept["stages"].items()}
        except (OSError, ValueError, KeyError, AttributeError):
            continue    # of a run that was broken off
    return {}


class Waiting:
    """Use as a context manager around the stages; `beside` tells for itself when nothing else runs."""

    def __init__(self, names: Sequence[str], beside: str, lanes: int, before: Mapping[str, float],
                 say: Callable[[str], None], pause: float = TOLD_SECONDS) -> None:
        self._left, self._planned, self._beside, self._lanes = list(names), len(names), beside, lanes
        self._before, self._say, self._pause = before, say, pause
        self._running: dict[str, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tell, daemon=True)

    def begin(self, name: str) -> None:
        """A stage begins."""
        self._running[name] = time.monotonic()

    def end(self, name: str) -> None:
        """Notes the end of a stage."""
        self._running.pop(name, None)
        self._left.remove(name)

    def _seconds_left(self, now: float) -> float:
        """Estimates that the rest takes as long as last time: two at a time, and the virtual machines beside them."""
        def left(name: str) -> float:
            return max(0.0, self._before.get(name, 0.0) - (now - self._running.get(name, now)))
        others = sum(left(name) for name in self._left if name != self._beside)
        return max(others / self._lanes, left(self._beside) if self._beside in self._left else 0.0)

    def line(self, now: float) -> str:
        """All of it; no time if no run has shown one."""
        running = ", ".join(f"{name} ({now - began:.0f} s)" for name, began in list(self._running.items()))
        rest = f", about {minutes(self._seconds_left(now))} left" if self._before else ""
        return f"## {self._planned - len(self._left)} of {self._planned} stages{rest}; running: {running}"

    def _tell(self) -> None:
        while not self._over.wait(self._pause):
            if set(self._running) - {self._beside}:
                self._say(self.line(time.monotonic()))

    def __enter__(self) -> "Waiting":
        self._thread.start()
        return self

    def __exit__(self, *_why: object) -> None:
        self._over.set()
        self._thread.join()
