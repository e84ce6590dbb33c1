# SPDX-License-Identifier: GPL-2.0
"""The two tiers of the tests in virtual machines: `make test` and `make test-long`.

Every test is in both, but for those whose pass rate is not known yet (`needs(unproven=True)`): they are skipped in
`make test`, and count as skipped. Else what differs is how often and for how long: a test says `tier.of(60, 300)`.
"""
from __future__ import annotations

import os
from typing import TypeVar

VARIABLE = "VMLAB_LONG"
T = TypeVar("T")


def is_long() -> bool:
    """Whether this is a long run (`run --long`)."""
    return bool(os.environ.get(VARIABLE))


def of(normal: T, long: T) -> T:
    """A length or a number of repetitions for this tier."""
    return long if is_long() else normal
