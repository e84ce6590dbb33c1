# SPDX-License-Identifier: GPL-2.0
"""Checks of tests, which say it when something is not as it should be. Used as `from vmlab.checks import eq, ok`."""
from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any, TypeVar

from vmlab.patience import is_debug_kernel, scaled

T = TypeVar("T")


class Failed(AssertionError):
    """An expectation that did not hold; the text is the report."""


class NotInTime(Failed):
    """A wait has ended without what it was for."""


class TooSlow(Failed):
    """A limit of the product was missed, and nothing but time. The test runs once more, when nothing else uses the
    host's processors (worker.py), unless nothing did."""


class ByChance(Failed):
    """An event that the protocol or the machine leaves to chance has come about, as the documents say it may, and what
    the test is about could not be seen. The test runs once more, at once."""


class WrongData(Failed):
    """Other bytes than were written, or an order that none may see. Nothing excuses that."""


class Skip(Exception):
    """The test cannot be made here; the text says why."""


def ok(value: Any, what: str) -> None:
    """Expects something true; `what` says what it would have meant."""
    if not value:
        raise Failed(what)


def eq(found: Any, wanted: Any, what: str = "") -> None:
    """Expects two equal values."""
    if found != wanted:
        raise Failed(f"{what + ': ' if what else ''}found {found!r}, expected {wanted!r}")


def in_time(value: Any, what: str) -> None:
    """Expects that a limit of the product was kept; the debug kernel, which takes several times as long, only tells."""
    if value:
        return
    if not is_debug_kernel():
        raise TooSlow(what)
    print(f"# not judged in the debug kernel: {what}", flush=True)


def ge(found: Any, least: Any, what: str = "") -> None:
    """Expects a value of at least `least`."""
    if found < least:
        raise Failed(f"{what + ': ' if what else ''}found {found!r}, expected at least {least!r}")


def matches(text: str, pattern: str, what: str = "") -> None:
    """Expects a text in which the pattern is found."""
    if not re.search(pattern, text):
        raise Failed(f"{what + ': ' if what else ''}{text!r} does not match {pattern!r}")


def raises(kind: type[BaseException], deed: Callable[[], Any], what: str = "") -> BaseException:
    """Expects that `deed` raises an exception of this kind; returns the exception."""
    try:
        deed()
    except kind as why:
        return why
    raise Failed(f"{what + ': ' if what else ''}no {kind.__name__}")


def until(deed: Callable[[], T], seconds: float, what: str, pause: float = 0.2) -> T:
    """Repeats `deed` until it answers something true, and returns that. An answer of a deed that began in time and came
    late does not tell how it is now: `deed` is asked once more."""
    began, limit = time.monotonic(), 0.0
    while True:
        # The host may have become busy meanwhile.
        limit = max(limit, scaled(seconds))
        is_over = time.monotonic() > began + limit
        value = deed()
        if value:
            return value
        if is_over:
            raise NotInTime(f"not within {seconds:g} s: {what}")
        time.sleep(pause)
