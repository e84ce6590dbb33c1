# SPDX-License-Identifier: GPL-2.0
"""Declarations at the head of a test: what it needs."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, TypeVar

from vmlab import tier
from vmlab.lab import Spec

TIMEOUT_SECONDS = 120.0
ATTRIBUTE = "vmlab_needs"
LAB_FIELDS = ("append", "qemu_args", "icount", "disk_mib", "nvme", "memory_mib")
# Constants of a file of tests, for those of them that declare nothing else.
FILE_SMP, FILE_TIER = "SMP", "TIER"
Test = TypeVar("Test", bound=Callable[..., None])


def shape(machines: int = 2, wires: int = 2, smp: int = 1, **rest: Any) -> Spec:
    """The lab for a test: a pair always has two wires and a disk, so that all pairs are alike. `smp` is what it wants
    in `make test`."""
    del wires       # a test names the wires that it uses; one machine alone has none
    pair = {"wires": 2, "disk_mib": 64} if machines > 1 else {"wires": 1}
    return Spec(**{"machines": machines, **pair, "smp": tier.processors(smp), **rest})


def _pair() -> Spec:
    return shape()


@dataclass(frozen=True)
class Needs:
    """The needs of a test of its lab, and what it does to it."""

    spec: Spec = field(default_factory=_pair)
    tier: str = tier.CORE       # the shortest run that it is part of (tier.py)
    timeout: float = TIMEOUT_SECONDS
    own_modules: bool = False   # begins with no module loaded, and loads and unloads for itself
    timed: bool = False         # measures time, or has a C peer: nothing else may run beside it
    waits: bool = False         # mostly waits for time-outs: runs in a lab of its own beside the others
    fresh: bool = False         # wants machines in which nothing has run
    disruptive: bool = False    # leaves machines that no other test may use
    complaints: bool = False    # the kernel may complain: the test looks for itself
    unproven: bool = False      # only in `make test-long`: it does not pass every time yet
    rxe_may_die: bool = False   # pulls wires so often that rxe may fail by itself: a wait may fail then
    debug: bool = False         # only the debug kernel can do it (`kdir debug`)
    preempt: str = ""           # none, voluntary, lazy, full: how the kernel may be preempted

    @property
    def shares(self) -> bool:
        """Whether modules that an earlier test has loaded may stay loaded for it, and for the next."""
        return not (self.own_modules or self.disruptive or self.fresh)


def needs(machines: int = 2, wires: int = 2, **rest: Any) -> Callable[[Test], Test]:
    """The decorator of a test: its lab's shape, then the fields of `Needs`. Machines have one processor; a test of a
    race declares `smp=2`, a file of such tests `SMP = 2`."""
    extra = {key: rest.pop(key) for key in LAB_FIELDS if key in rest}
    own_smp = rest.pop("smp", None)

    def mark(test: Test) -> Test:
        file = getattr(test, "__globals__", {})
        spec = shape(machines, wires, own_smp or file.get(FILE_SMP, 1), **extra)
        setattr(test, ATTRIBUTE, Needs(**{"spec": spec, "tier": file.get(FILE_TIER, tier.CORE), **rest}))
        return test
    return mark


def of(test: object) -> Needs:
    """The needs that a test has declared."""
    if isinstance(test, FunctionType) and not hasattr(test, ATTRIBUTE):
        needs()(test)
    declared: Needs = getattr(test, ATTRIBUTE, Needs())
    return declared
