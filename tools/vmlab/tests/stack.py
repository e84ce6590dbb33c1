# SPDX-License-Identifier: GPL-2.0
"""Tests that go the longest chains of calls, in machines whose kernel measures the depth of its stacks (stack.py).

The judge fails a test that leaves less than the reserve. Any other test is measured by `run --append stacktrace`.
"""
from __future__ import annotations

from collections.abc import Callable

import pytest

from vmlab import rnbd, seed, stack, tier
from vmlab.again import again
from vmlab.checks import ge, ok
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.tests import gfarm_cache_devices, io, paths, pi_store

SMP = 2
TIER = tier.ALL

OF_EACH_RUN = (gfarm_cache_devices.test_two_devices_of_one_kernel_of_which_one_goes,)
OF_TWO = (
    io.test_ext4_keeps_its_files_over_a_remap,
    paths.test_everything_at_once_under_load,
    pi_store.test_paths_fail_and_the_sidecar_is_right,
)
# One of these is in each run, by chance.
CHOSEN = seed.fresh().choice(OF_TWO)


# Machines with this argument are not woken but booted, once for all tests of the file: none is for one machine alone.
@needs(append=stack.ARGUMENT)
def test_a_disk_is_on_the_stacks(pair: Lab) -> None:
    """The kernel sees our functions: what the tests of this file do not find is not there."""
    stack.Depth.take(pair.client)
    rnbd.start(pair)
    rnbd.map_disk(pair).unmap()
    depth = stack.Depth.take(pair.client)
    ok("rnbd_client" in depth.modules, f"mapping a disk went as deep as {' '.join(depth.frames)}")
    ge(depth.bytes, 4096, "bytes of stack")
    ok("bytes of stack" in stack.Depth(stack.BYTES_MAX + 8, depth.frames).wrong, "a deeper one is not wrong")
    ok(not stack.Depth(stack.BYTES_MAX, depth.frames).wrong, "one that is not deeper is wrong")


@pytest.mark.parametrize(("test", "title"), [
    *(again(test, tier.ALL if test is CHOSEN else tier.LONG) for test in OF_TWO), *map(again, OF_EACH_RUN)])
@needs(append=stack.ARGUMENT, timeout=300)
def test_again(pair: Lab, test: Callable[[Lab], None], title: str) -> None:
    """A test of another file in machines that measure their stacks."""
    del title       # for the list of tests
    test(pair)
