# SPDX-License-Identifier: GPL-2.0
"""Modules that stay loaded from one test to the next.

A test asks for modules with parameters (`rnbd.load_server`, `load_client`). While its lab shares them, what an earlier
test has loaded in the same way is used again; what was loaded otherwise is unloaded first. `Modules` also knows how
many RDMA objects there are in a machine whose modules are loaded and serve nothing: what a test may leave behind.
"""
from __future__ import annotations

from collections.abc import Mapping
from weakref import WeakKeyDictionary

from vmlab import oracle
from vmlab.lab import Lab
from vmlab.machine import Machine
from vmlab.phases import phase

LOAD_SECONDS = 120.0
UNLOAD_SECONDS = 90.0
# The module whose presence shows that a part is there.
WITNESS = {"server": "rnbd_server", "client": "rnbd_client", "gfarm": "gfarm_ra",
           "crc32_umr": "crc32_umr_target"}

Parts = Mapping[str, str]


class Modules:
    """The modules that are loaded in the machines of one lab, as far as the tests' words have loaded them."""

    def __init__(self) -> None:
        self.shared = False
        self._parts: dict[str, dict[str, str]] = {}
        self._idle: dict[tuple[str, tuple[tuple[str, str], ...]], oracle.Resources] = {}

    def load(self, machine: Machine, part: str, line: str) -> None:
        """Has `line` (a command) load the modules of a part, unless they are there."""
        with phase("load"):
            parts = self._parts.setdefault(machine.name, {})
            if self.shared and part in parts:
                if parts[part] != line:
                    machine.run("mods -r", UNLOAD_SECONDS)
                    parts.clear()
                elif self._is_there(machine, part):
                    return
                # Else a test has unloaded it by itself, with others perhaps. What it has loaded meanwhile stays.
                for gone in [name for name in parts if not self._is_there(machine, name)]:
                    del parts[gone]
            machine.run(line, LOAD_SECONDS)
            parts[part] = line
            if self.shared and (key := self._key(machine)) not in self._idle:
                self._idle[key] = oracle.resources(machine)

    def unload(self, machine: Machine) -> None:
        """Unloads all modules under test of a machine."""
        with phase("unload"):
            self._parts.pop(machine.name, None)
            machine.run("mods -r", UNLOAD_SECONDS)

    def forget(self, machine: Machine) -> None:
        """No module is loaded any more: the machine was booted, or a test unloaded them."""
        self._parts.pop(machine.name, None)

    def idle(self, machine: Machine) -> oracle.Resources | None:
        """RDMA objects of the machine as it is loaded now; None if nothing is loaded."""
        return self._idle.get(self._key(machine)) if self._parts.get(machine.name) else None

    def witnesses(self, machine: Machine) -> list[str]:
        """The modules that have to be there still."""
        return [WITNESS[part] for part in self._parts.get(machine.name, {})]

    @staticmethod
    def _is_there(machine: Machine, part: str) -> bool:
        return machine.exists(f"/sys/module/{WITNESS[part]}/initstate")

    def _key(self, machine: Machine) -> tuple[str, tuple[tuple[str, str], ...]]:
        return machine.name, tuple(sorted(self._parts[machine.name].items()))


_OF: WeakKeyDictionary[Lab, Modules] = WeakKeyDictionary()


def of(lab: Lab) -> Modules:
    """The modules of a lab."""
    return _OF.setdefault(lab, Modules())


def shared_in(machine: Machine) -> bool:
    """Whether modules stay loaded in this machine."""
    return any(modules.shared for lab, modules in _OF.items() if machine in lab.machines)
