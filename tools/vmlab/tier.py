# SPDX-License-Identifier: GPL-2.0
"""The tiers of the tests in virtual machines: `make test` runs those of `core`, `make test-all` those of `all` too,
`make test-long` all there are.

A test of `core` shows that a rule holds; one of `all` shows the same in more places, for longer or all at once; one of
`long` repeats what another one shows. Beside that, a length or a number of repetitions is `tier.of(60, 300)`. Tests
whose pass rate is not known yet (`needs(unproven=True)`) are skipped but in a long run, and count as skipped.
"""
from __future__ import annotations

import os
from typing import TypeVar

from vmlab.patience import is_debug_kernel

CORE, ALL, LONG = "core", "all", "long"
# What `run --tier` takes: REST is what `all` has beyond `core`.
REST = "rest"
RUNS = {CORE: (CORE,), ALL: (CORE, ALL), REST: (ALL,), LONG: (CORE, ALL, LONG)}
VARIABLE = "VMLAB_LONG"
RACES = 2       # processors of a machine in which things race
T = TypeVar("T")


def is_long() -> bool:
    """Whether this is a long run (`run --long`)."""
    return bool(os.environ.get(VARIABLE))


def of(normal: T, long: T) -> T:
    """A length or a number of repetitions for this tier."""
    return long if is_long() else normal


def processors(wanted: int) -> int:
    """The number of processors of a machine of which a test wants so many: an emulated machine of two takes half as
    much again of the host's processors as one of one, so there they are only where a race is the point. Long runs have
    twice as many; the debug kernel, which is slow and looks for races too, has two."""
    if wanted > RACES:
        return wanted
    return RACES if is_debug_kernel() else wanted * 2 if is_long() else wanted
