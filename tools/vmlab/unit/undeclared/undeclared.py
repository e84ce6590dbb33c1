# SPDX-License-Identifier: GPL-2.0
"""Tests for the test of the worker (`test_worker.py`) that do not say what they have to."""
from __future__ import annotations

import pytest

from vmlab.needs import needs


def test_silent() -> None:      # noqa: D103 -- that is the point
    # It has no documentation.
    pass


@needs(tier="never")
def test_of_no_tier() -> None:
    """Is in no run."""


@pytest.mark.parametrize("title", [pytest.param("A case.", id="case", marks=pytest.mark.tier("all"))])
def test_of_a_case(title: str) -> None:
    """A case has a title and a tier of its own."""
    del title
