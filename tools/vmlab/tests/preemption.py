# SPDX-License-Identifier: GPL-2.0
"""The tests with the most contention between threads, in a fully preemptible kernel.

All other tests run with the kernel's default, which is lazy preemption.
"""
from __future__ import annotations

from collections.abc import Callable

import pytest

from vmlab import seed, tier
from vmlab.again import again
from vmlab.checks import eq
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.tests import failover, paths, paths_server

SMP = 2
TIER = tier.ALL

AGAIN = (
    failover.test_d1_with_two_paths_and_changing_policies,
    paths.test_everything_at_once_under_load,
)
# One of these is in each run, by chance.
CHOSEN = seed.fresh().choice(AGAIN)
AGAIN_LONG = (
    failover.test_d1_d2_no_spurious_errors_under_any_policy,
    paths.test_modules_unload_in_every_state,
    paths.test_d14_writes_that_cannot_be_sent,
)
AGAIN_WITH_C = (paths_server.test_paths_of_a_c_client_come_and_go_under_load,)


def preemption(lab: Lab) -> list[str]:
    """The kind of preemption of each machine."""
    kind = ("grep -q debugfs /proc/mounts || mount -t debugfs none /sys/kernel/debug; "
            r"sed 's/.*(\(.*\)).*/\1/' /sys/kernel/debug/sched/preempt")
    return [machine.run(kind).strip() for machine in lab.machines]


@needs()
def test_the_default_is_lazy(pair: Lab) -> None:
    """All the other tests run with it."""
    eq(preemption(pair), ["lazy", "lazy"])


@needs(preempt="full")
def test_the_kernel_may_be_preempted_anywhere(pair: Lab) -> None:
    """The tests of this file run with it."""
    eq(preemption(pair), ["full", "full"])


@pytest.mark.parametrize(("test", "title"), [
    *(again(test, tier.ALL if test is CHOSEN else tier.LONG) for test in AGAIN),
    *(again(test, tier.LONG) for test in AGAIN_LONG)])
@needs(preempt="full", timeout=300)
def test_again(pair: Lab, test: Callable[[Lab], None], title: str) -> None:
    """A test of another file in machines with full preemption."""
    del title       # for the list of tests
    test(pair)


@pytest.mark.parametrize(("test", "title"), [again(test, tier.LONG) for test in AGAIN_WITH_C])
@needs(preempt="full", own_modules=True, timed=True, timeout=300)
def test_again_with_c(pair: Lab, test: Callable[[Lab], None], title: str) -> None:
    """The same for a test with a C peer, beside which nothing else runs."""
    del title       # for the list of tests
    test(pair)
