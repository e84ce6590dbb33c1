# SPDX-License-Identifier: GPL-2.0
"""The tests in which threads are most in each other's way, once more where the kernel may be preempted anywhere.

All other tests run with the kernel's default, which is lazy preemption.
"""
from __future__ import annotations

import functools
from collections.abc import Callable

from vmlab.checks import eq
from vmlab.lab import Lab
from vmlab.needs import ATTRIBUTE, Needs, needs
from vmlab.tests import failover, paths, paths_server

AGAIN = (
    failover.test_d1_no_spurious_errors_under_any_policy,
    failover.test_d1_with_two_paths_and_changing_policies,
    paths.test_everything_at_once_under_load,
    paths.test_modules_unload_in_every_state,
    paths.test_d14_writes_that_cannot_be_sent,
    paths_server.test_paths_of_a_c_client_come_and_go_under_load,
)


def preemption(lab: Lab) -> list[str]:
    """The kind of preemption of each machine."""
    return [machine.run("grep -q debugfs /proc/mounts || mount -t debugfs none /sys/kernel/debug; "
                        r"sed 's/.*(\(.*\)).*/\1/' /sys/kernel/debug/sched/preempt").strip() for machine in lab.machines]


@needs(wires=2)
def test_the_default_is_lazy(pair: Lab) -> None:
    """What all the other tests run with."""
    eq(preemption(pair), ["lazy", "lazy"])


@needs(wires=2, append="preempt=full")
def test_the_kernel_may_be_preempted_anywhere(pair: Lab) -> None:
    """What the tests of this file run with."""
    eq(preemption(pair), ["full", "full"])


def fully(test: Callable[[Lab], None]) -> Callable[[Lab], None]:
    """The same test in machines with full preemption."""
    known: Needs = getattr(test, ATTRIBUTE)

    @functools.wraps(test)
    def again(pair: Lab) -> None:
        test(pair)
    return needs(wires=2, append="preempt=full", timeout=known.timeout)(again)


for _test in AGAIN:
    globals()[f"test_{_test.__module__.rpartition('.')[2]}_{_test.__name__.removeprefix('test_')}"] = fully(_test)
