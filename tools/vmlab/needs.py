# SPDX-License-Identifier: GPL-2.0
"""What a test declares at its head, and how tests are found."""
from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from vmlab.lab import Spec

TESTS = Path(__file__).resolve().parent / "tests"
TIMEOUT_SECONDS = 120.0
ATTRIBUTE = "vmlab_needs"


@dataclass(frozen=True)
class Needs:
    """What a test needs of its lab, and what it does to it."""

    spec: Spec = field(default_factory=Spec)
    timeout: float = TIMEOUT_SECONDS
    fresh: bool = False         # wants machines in which nothing has run
    disruptive: bool = False    # leaves machines that nobody else may use
    unloads: bool = True        # modules are unloaded after it, and leaks are looked for
    complaints: bool = False    # the kernel may complain: the test looks for itself
    debug: bool = False         # only the debug kernel can do it (`kdir debug`)


def needs(machines: int = 2, wires: int = 1, smp: int = 2, memory_mib: int = 1024,
          **rest: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The decorator of a test: its lab's shape, then the fields of `Needs`."""
    extra = {key: rest.pop(key) for key in ("append", "qemu_args", "icount", "disk_mib") if key in rest}
    spec = Spec(machines=machines, wires=wires, smp=smp, memory_mib=memory_mib, **extra)

    def mark(test: Callable[..., None]) -> Callable[..., None]:
        setattr(test, ATTRIBUTE, Needs(spec=spec, **rest))
        return test
    return mark


@dataclass(frozen=True)
class Case:
    """One test: `file.function_name` without its test_, the function, its needs."""

    name: str
    function: Callable[..., None]
    needs: Needs

    @property
    def title(self) -> str:
        """The first line of its documentation."""
        return (self.function.__doc__ or "").strip().partition("\n")[0]


def _cases_of(stem: str) -> list[Case]:
    """The tests of one file, in the order in which they are written."""
    module = importlib.import_module(f"vmlab.tests.{stem}")
    return [Case(f"{stem}.{name[5:]}", function, getattr(function, ATTRIBUTE, Needs()))
            for name, function in vars(module).items() if name.startswith("test_") and callable(function)]


def discover(patterns: Iterable[str] = ()) -> list[Case]:
    """All tests whose name matches one of the patterns (all without a pattern).

    A pattern without a dot names a file; "io.*" and "*unmap*" are shell patterns over the whole name.
    """
    stems = sorted(path.stem for path in TESTS.glob("*.py") if not path.stem.startswith("_"))
    cases = [case for stem in stems for case in _cases_of(stem)]
    wanted = [p.replace("/", ".").removesuffix(".py").rpartition("tests.")[2] for p in patterns]
    if not wanted:
        return cases
    return [case for case in cases
            if any(case.name.partition(".")[0] == p or fnmatchcase(case.name, p) for p in wanted)]


def grouped(cases: list[Case]) -> list[Case]:
    """The cases so ordered that those which share a lab follow each other, disruptive ones last."""
    order: dict[Spec, int] = {}
    for case in cases:
        order.setdefault(case.needs.spec, len(order))
    return sorted(cases, key=lambda case: (order[case.needs.spec], case.needs.disruptive, case.needs.fresh))
