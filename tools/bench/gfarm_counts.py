# SPDX-License-Identifier: GPL-2.0
"""Guest instructions of Gfarm's two clients: per MiB that is read, and per file that is opened, read and closed.

As in counting.py: (a long run - a short run) / the difference of what they have done. The servers are in the same
guest, and do the same for both clients.
"""
from __future__ import annotations

import dataclasses
import pathlib
import tempfile
from collections.abc import Callable

import counting
import gfarm_clients
from counting import Symbols

from vmlab import gfarm_speed
from vmlab.gfarm import Gfarm
from vmlab.gfarm_mount import put_random
from vmlab.lab import Lab, Spec

# The modules of the kernel's mount; what they call is the kernel's. FUSE is built into Debian's kernel.
MODULES = ("gfarm_ra", "vfs_ext", "net_ext", "kernel_ext")
CLIENTS = ("gfarm_ra", "gfarm2fs")
Totals = dict[tuple[str, str], float]


@dataclasses.dataclass(frozen=True)
class Case:
    """A job of peer/gfarm_speed.py with a short and a long run, and how many units each does."""

    title: str
    job: str
    short: tuple[str, ...]
    long: tuple[str, ...]
    units: tuple[int, int]
    cold: bool

    @property
    def more(self) -> int:
        """The units that the long run does more."""
        return self.units[1] - self.units[0]


CASES = (
    Case("MiB of a file, cold", "read", ("mib8",), ("mib24",), (8, 24), True),
    Case("MiB of a file in the page cache", "read", ("mib8",), ("mib24",), (8, 24), False),
    Case("small file: attributes, open, read, close, cold", "scan", ("few",), ("many",), (40, 160), True),
    Case("open, read and close of a file in the page cache", "cycle", ("few/00001", "50"), ("few/00001", "250"),
         (50, 250), False),
)


@dataclasses.dataclass(frozen=True)
class Cost:
    """Instructions per unit: in the client's modules, in the kernel beside, and in programs."""

    modules: float
    kernel: float
    user: float

    @property
    def all(self) -> float:
        """The sum of all."""
        return self.modules + self.kernel + self.user

    @classmethod
    def of(cls, totals: Totals) -> Cost:
        """Sums of counts by (module, function)."""
        own = sum(value for (module, _), value in totals.items() if module in MODULES)
        user = sum(value for (module, _), value in totals.items() if module == "user")
        return cls(own, sum(totals.values()) - own - user, user)


class Counter:
    """A guest under the plugin, with both mounts."""

    def __init__(self, gfarm: Gfarm, base: pathlib.Path) -> None:
        self._gfarm, self._base, self._marks = gfarm, base, 0
        self._symbols = Symbols(gfarm.run("cat /proc/kallsyms", 120))

    def _run(self, at: str, case: Case, arguments: tuple[str, ...]) -> dict[tuple[str, str], int]:
        """Counts of one run. What was dropped before, or was read, is in the counts of no run."""
        name, *rest = arguments
        program = self._gfarm.push(gfarm_speed.PROGRAM)
        first = "sync; echo 3 > /proc/sys/vm/drop_caches" if case.cold else "true"
        line = f"python3 -I -S {program} {case.job} {at}/{name} {' '.join(rest)} > /dev/null"
        self._gfarm.run(f"{first}; sleep 1; /tmp/mark; {line}; sleep 0.2; /tmp/mark", gfarm_speed.SECONDS)
        self._marks += 2
        return counting.read_counts(self._base.with_name(f"{self._base.name}.{self._marks - 1}"), self._symbols)

    def case(self, at: str, case: Case) -> Totals:
        """Instructions per unit by (module, function)."""
        for arguments in (case.short, case.long):
            self._run(at, case, arguments)      # what is done for the first time only
        short, long = (self._run(at, case, arguments) for arguments in (case.short, case.long))
        return {key: (long.get(key, 0) - short.get(key, 0)) / case.more for key in short.keys() | long.keys()}


def measure(say: Callable[[str], None]) -> dict[tuple[str, str], Totals]:
    """{(title of a case, client): {(module, function): instructions per unit}}."""
    results = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        base = pathlib.Path(name) / "counts"
        count, mark = counting.compile_tools(pathlib.Path(name))
        spec = Spec(machines=1, smp=1, accel="tcg,thread=single",
                    append="nokaslr", qemu_args=("-plugin", f"file={count},out={base}"))
        with Lab(spec) as lab, gfarm_clients.both(lab) as (gfarm, _mount, pair):
            lab.server.push(mark, "/tmp/mark")
            gfarm.run("chmod 755 /tmp/mark")
            say("counting: making the files")
            for mib in CASES[0].units:
                put_random(gfarm, f"mib{mib}", mib << 20)
            for folder, files in zip(("few", "many"), CASES[2].units, strict=True):
                gfarm_speed.make(gfarm, f"{pair.fuse}/{folder}", files)
            counter = Counter(gfarm, base)
            for case in CASES:
                for client, at in zip(CLIENTS, (pair.kernel, pair.fuse), strict=True):
                    say(f"counting: {case.title}, {client}")
                    results[case.title, client] = counter.case(at, case)
    return results
