# SPDX-License-Identifier: GPL-2.0
"""What a test declares at its head."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from vmlab.lab import Spec

TIMEOUT_SECONDS = 120.0
ATTRIBUTE = "vmlab_needs"
LAB_FIELDS = ("append", "qemu_args", "icount", "disk_mib", "nvme", "smp", "memory_mib")
Test = TypeVar("Test", bound=Callable[..., None])


def shape(machines: int = 2, wires: int = 2, **rest: Any) -> Spec:
    """The lab for a test: a pair always has two wires and a disk, so that all pairs are alike."""
    del wires       # a test names the wires that it uses; one machine alone has none
    pair = {"wires": 2, "disk_mib": 64} if machines > 1 else {"wires": 1}
    return Spec(**{"machines": machines, **pair, **rest})


def _pair() -> Spec:
    return shape()


@dataclass(frozen=True)
class Needs:
    """What a test needs of its lab, and what it does to it."""

    spec: Spec = field(default_factory=_pair)
    timeout: float = TIMEOUT_SECONDS
    own_modules: bool = False   # begins with no module loaded, and loads and unloads for itself
    timed: bool = False         # measures time, or has a C peer: nothing else may run beside it
    waits: bool = False         # mostly waits for time-outs: runs in a lab of its own beside the others
    fresh: bool = False         # wants machines in which nothing has run
    disruptive: bool = False    # leaves machines that no other test may use
    complaints: bool = False    # the kernel may complain: the test looks for itself
    unproven: bool = False      # only in `make test-long`: it does not pass every time yet
    debug: bool = False         # only the debug kernel can do it (`kdir debug`)
    preempt: str = ""           # none, voluntary, lazy, full: how the kernel may be preempted

    @property
    def shares(self) -> bool:
        """Whether modules that an earlier test has loaded may stay loaded for it, and for the next."""
        return not (self.own_modules or self.disruptive or self.fresh)


def needs(machines: int = 2, wires: int = 2, **rest: Any) -> Callable[[Test], Test]:
    """The decorator of a test: its lab's shape, then the fields of `Needs`."""
    extra = {key: rest.pop(key) for key in LAB_FIELDS if key in rest}
    declared = Needs(spec=shape(machines, wires, **extra), **rest)

    def mark(test: Test) -> Test:
        setattr(test, ATTRIBUTE, declared)
        return test
    return mark


def of(test: object) -> Needs:
    """What a test has declared."""
    declared: Needs = getattr(test, ATTRIBUTE, Needs())
    return declared
