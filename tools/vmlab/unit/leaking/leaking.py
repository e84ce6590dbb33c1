# SPDX-License-Identifier: GPL-2.0
"""Tests for the test of the worker (`test_worker.py`): one of them leaks, which shows when its modules are unloaded.

No machine is needed: the keeper that unloads is replaced.
"""
from __future__ import annotations

from vmlab.checks import ByChance, Failed, TooSlow
from vmlab.keeper import Keeper

LEAKS: list[str] = []
SLOW: list[str] = []
CHANCE: list[str] = []


def _end_sharing(_keeper: Keeper) -> list[str]:
    return [f"left behind, {leak}" for leak in LEAKS]


def _drop(_keeper: Keeper, keep_logs: bool = False) -> None:
    del keep_logs
    LEAKS.clear()


setattr(Keeper, "end_sharing", _end_sharing)    # noqa: B010 -- of the class, whichever keeper there is
setattr(Keeper, "drop", _drop)                  # noqa: B010


def test_clean() -> None:
    """Leaves nothing."""


def test_leaks() -> None:
    """Leaves something."""
    LEAKS.append("a reference")


def test_fails() -> None:
    """Leaves nothing, and fails."""
    raise Failed("on purpose")


def test_slow() -> None:
    """Is too slow the first time."""
    SLOW.append("once more")
    if len(SLOW) == 1:
        raise TooSlow("too slow on purpose")


def test_by_chance() -> None:
    """Meets a chance the first time that the documents tell of."""
    CHANCE.append("once more")
    if len(CHANCE) == 1:
        raise ByChance("a late packet")
