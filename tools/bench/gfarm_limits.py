# SPDX-License-Identifier: GPL-2.0
"""The cost of Gfarm's mount, in the figures of events.py: of a file that is opened, read and closed, and of a page that
comes from another node.

One guest has the servers, a mount without the cache and two nodes. Guest time is instructions (-icount), so what is
done by time, such as the probes of members, is as often in each run.
"""
from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Callable

import counting
import events
import gfarm_peers
from counting import Counted, Symbols
from events import PerIo

from vmlab import gfarm_mount, gfarm_speed
from vmlab.gfarm import Gfarm
from vmlab.gfarm_mount import put_random
from vmlab.gfarm_node import Node
from vmlab.lab import Lab, Spec
from vmlab.machine import Machine

OPENED, PAGE = "Gfarm, file opened, read and closed", "Gfarm, page from a node"
# A file in the page cache, and how often it is opened; files that a node reads from another one, in MiB.
SMALL, TIMES = "small", (40, 240)
MIB = (1, 5)
FRAGMENT = 1024


class _Guest:
    """A guest under the plugin."""

    def __init__(self, machine: Machine, base: pathlib.Path) -> None:
        self._machine, self._base, self._marks = machine, base, 0

    def run(self, command: str) -> Counted:
        """Counts what is executed while a command runs."""
        self._machine.run(f"sleep 0.5; /tmp/mark; {command} > /dev/null; sleep 0.1; /tmp/mark", gfarm_speed.SECONDS)
        self._marks += 2
        return Counted.read(self._base.with_name(f"{self._base.name}.{self._marks - 1}"))


def _opened(guest: _Guest, program: str, plain: gfarm_mount.Mount) -> tuple[Counted, Counted]:
    runs = [guest.run(f"python3 -I -S {program} cycle {plain.at}/{SMALL} {times}") for times in (TIMES[0], *TIMES)]
    return runs[1], runs[2]


def _pages(guest: _Guest, program: str, one: Node, other: Node, servers: Gfarm) -> tuple[Counted, Counted]:
    for mib in MIB:
        gfarm_peers.read(servers, one, f"mib{mib}")
    runs = []
    # The first one is of what is done for the first time only.
    for mib in (MIB[0], *MIB):
        gfarm_peers.forget(other, f"mib{mib}")
        runs.append(guest.run(f"python3 -I -S {program} read {other.at}/mib{mib}"))
    return runs[1], runs[2]


def measure(say: Callable[[str], None]) -> tuple[dict[str, PerIo], Symbols]:
    """The cells, and the guest's symbols."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        base = pathlib.Path(name) / "counts"
        count, mark = counting.compile_tools(pathlib.Path(name))
        spec = Spec(machines=1, smp=1, accel="tcg,thread=single", append="nokaslr noreplace-smp",
                    icount=gfarm_peers.ICOUNT, qemu_args=("-plugin", f"file={count},out={base},detail=1"))
        with Lab(spec) as lab:
            say("counting: Gfarm's servers begin")
            servers = gfarm_mount.start(lab)
            lab.server.push(mark, "/tmp/mark")
            servers.run("chmod 755 /tmp/mark")
            put_random(servers, SMALL, gfarm_peers.PAGE_BYTES)
            for mib in MIB:
                put_random(servers, f"mib{mib}", mib << 20)
            program, guest = servers.push(gfarm_speed.PROGRAM), _Guest(lab.server, base)
            index = gfarm_peers.gid_index(lab.server, "IPv4")
            with gfarm_peers.mounts(servers, f"ib_mtu={FRAGMENT},ib_gid={index}") as (plain, one, other):
                symbols = Symbols(servers.run("cat /proc/kallsyms", 120))
                found = {}
                for cell, runs, more in (
                        (OPENED, _opened(guest, program, plain), TIMES[1] - TIMES[0]),
                        (PAGE, _pages(guest, program, one, other, servers), (MIB[1] - MIB[0]) * gfarm_peers.MIB_PAGES)):
                    say(f"counted {cell}")
                    found[cell] = events.per_io(*runs, more, symbols, gfarm_peers.MODULES)
                return found, symbols
