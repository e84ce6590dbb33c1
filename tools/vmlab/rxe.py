# SPDX-License-Identifier: GPL-2.0
"""Faults of rxe by itself, which no driver above it can mend (Documentation/failover.md, "With rxe")."""
from __future__ import annotations

from vmlab.machine import Machine


def dead(resources: str) -> list[str]:
    """The devices of which the connection manager's queue pair has failed, by the words of `rdma resource show qp`."""
    found = []
    for line in resources.splitlines():
        words = line.split()
        if "GSI" in words and words[words.index("state") + 1] == "ERR":
            found.append(words[1].split("/")[0])
    return found


def dead_devices(machine: Machine) -> list[str]:
    """The dead devices of a machine: over them no connection is made until they are made anew."""
    return dead(machine.run("rdma resource show qp"))
