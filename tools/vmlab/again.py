# SPDX-License-Identifier: GPL-2.0
"""A test of one file as a case of another, which has other machines."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from vmlab import tier
from vmlab.lab import Lab


def again(test: Callable[[Lab], None], in_tier: str = tier.ALL) -> Any:
    """The case, for a table of `test` and `title`: named after both, titled by the test's documentation."""
    name = f"{test.__module__.rpartition('.')[2]}_{test.__name__.removeprefix('test_')}"
    return pytest.param(test, (test.__doc__ or "").strip().partition("\n")[0], id=name,
                        marks=pytest.mark.tier(in_tier))
