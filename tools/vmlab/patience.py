# SPDX-License-Identifier: GPL-2.0
"""Time limits are meant for a host that has nothing else to do; a busy one gets more."""
from __future__ import annotations

import os

FACTOR_MAX = 6.0


def factor() -> float:
    """How much longer than usual things may take now: the load of each processor, or `VMLAB_PATIENCE`."""
    given = os.environ.get("VMLAB_PATIENCE")
    if given:
        return float(given)
    return min(FACTOR_MAX, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


def scaled(seconds: float) -> float:
    """A time limit for the host as it is now."""
    return seconds * factor()
