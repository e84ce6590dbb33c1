# SPDX-License-Identifier: GPL-2.0
"""The words in which tests of the test device are written: to plug it in, to read its counts, to give it faults."""
from __future__ import annotations

from vmlab.checks import eq
from vmlab.lab import Lab

MODULE = "rdma_test_device"
CONTROL = f"/sys/class/{MODULE}/control"


def plug_in(vm: Lab, parameters: str = "") -> None:
    """Puts the test device in the place of rxe0."""
    vm.server.run("rdma link delete rxe0")
    vm.defer(vm.server.run, "mods -r && rdma link add rxe0 type rxe netdev eth0")
    vm.server.run(f"mods ours {MODULE} {parameters}")


def table(vm: Lab, name: str) -> list[dict[str, int]]:
    """The rows of one of its tables: `counts`, `engines`, `vectors`."""
    names, *rows = (line.split() for line in vm.server.read(f"{CONTROL}/{name}").splitlines())
    return [dict(zip(names, map(int, row), strict=True)) for row in rows]


def queue_pairs(vm: Lab) -> dict[str, list[dict[str, int]]]:
    """Counts of the queue pairs of each side. A connection's queue pair is made at the client first."""
    sides: dict[str, list[dict[str, int]]] = {"client": [], "server": []}
    for qp in table(vm, "counts"):
        if qp["peer"]:
            sides["client" if qp["qp"] < qp["peer"] else "server"].append(qp)
    return sides


def add_fault(vm: Lab, rule: str) -> None:
    """Adds a rule (test/test_device/proto/fault.rs)."""
    eq(vm.server.write(f"{CONTROL}/faults", rule), "", rule)


def clear_faults(vm: Lab) -> None:
    """Forgets all rules; what has not been flushed is flushed now."""
    add_fault(vm, "clear")
