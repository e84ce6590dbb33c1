# SPDX-License-Identifier: GPL-2.0
"""Requests to a machine's block layer: the events `block_rq_issue` of one of its disks."""
from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from vmlab.machine import Machine

FOLDER = "/sys/kernel/tracing"
MOUNT = f"mountpoint -q {FOLDER} || mount -t tracefs none {FOLDER}"
# 259,0 WFS 4096 () 16 + 8 rt,0,2 [dd]
ISSUE = re.compile(r"block_rq_issue: (\d+),(\d+) (\w+) (\d+) \(.*?\) (\d+) \+ (\d+) (\S+) \[")


@dataclass(frozen=True)
class Request:
    """One request: what it is (as blktrace writes it), where, and its priority."""

    kind: str
    sector: int
    sectors: int
    priority: str


@contextmanager
def requests(machine: Machine, device: str) -> Iterator[list[Request]]:
    """Records what a disk of the machine is asked while the block runs; the list is filled when it has ended."""
    machine.run(f"{MOUNT}; cd {FOLDER} && "
                "echo > trace && echo 1 > events/block/block_rq_issue/enable")
    found: list[Request] = []
    try:
        yield found
    finally:
        text = machine.run(f"cd {FOLDER} && echo 0 > events/block/block_rq_issue/enable; cat trace; echo > trace")
        number = machine.read(f"/sys/block/{device}/dev")
        for major, minor, kind, _bytes, sector, sectors, priority in ISSUE.findall(text):
            if f"{major}:{minor}" == number:
                found.append(Request(kind, int(sector), int(sectors), priority))
