# SPDX-License-Identifier: GPL-2.0
"""Tests of other files in machines with eight processors: a path has a connection for each, and what is counted for
each processor has as many counters."""
from __future__ import annotations

from collections.abc import Callable

import pytest

from vmlab import rnbd, seed, tier
from vmlab.again import again
from vmlab.checks import eq
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.tests import io, paths

SMP = 8
TIER = tier.ALL

AGAIN = (
    io.test_fio_verifies_with_several_jobs,
    paths.test_a_path_is_added_and_removed_under_load,
)
# One of these is in each run, by chance.
CHOSEN = seed.fresh().choice(AGAIN)
# Two cores that emulate sixteen processors: with KVM, or time.
AGAIN_LONG = (paths.test_everything_at_once_under_load,)


@needs()
def test_a_disk_has_a_queue_for_each_processor(pair: Lab) -> None:
    """The machines that the other tests of this file run with."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair)
    eq(len(pair.client.names(f"/sys/block/{disk.name}/mq")), SMP, "queues")
    disk.unmap()


@pytest.mark.parametrize(("test", "title"), [
    *(again(test, tier.ALL if test is CHOSEN else tier.LONG) for test in AGAIN),
    *(again(test, tier.LONG) for test in AGAIN_LONG)])
@needs(timeout=300)
def test_again(pair: Lab, test: Callable[[Lab], None], title: str) -> None:
    """A test of another file."""
    del title       # for the list of tests
    test(pair)
