# SPDX-License-Identifier: GPL-2.0
"""Measures how much of the kernel's stack a test has used: the kernel's own stack tracer, on from the boot.

    python3 tools/vmlab run --append stacktrace 'gfarm_cache_readers.*'

The compiler's frames are checked one by one (`test/objects.py`); what is checked here is their sum along the chains of
calls that tests go: ours, with what calls us and what we call. The kernel looks at the depth wherever one of its own
functions is called, in tasks only: interrupts have stacks of their own.
"""
from __future__ import annotations

import re
from dataclasses import dataclass

from vmlab.lab import Spec
from vmlab.machine import Machine
from vmlab.trace import FOLDER, MOUNT

ARGUMENT = "stacktrace"
STACK_BYTES = 16 << 10      # THREAD_SIZE of a PC
# For where no test goes: an adapter's driver that sends its firmware a command, reclaim below an allocation, layers of
# the block layer above a disk.
RESERVE_BYTES = 6 << 10
BYTES_MAX = STACK_BYTES - RESERVE_BYTES


@dataclass(frozen=True)
class Depth:
    """The deepest stack since it was last asked for, in bytes, and its frames from the innermost."""

    bytes: int
    frames: tuple[str, ...]

    @classmethod
    def take(cls, machine: Machine) -> Depth:
        """Reads it, and begins anew."""
        size, *rows = machine.run(f"{MOUNT}; cd {FOLDER} && "
                                  "cat stack_max_size stack_trace && echo 0 > stack_max_size").splitlines()
        return cls(int(size), tuple(row for row in rows if re.match(r"\s*\d+\)", row)))

    @property
    def modules(self) -> set[str]:
        """The modules that are on it."""
        return set(re.findall(r"\[(\w+)\]$", "\n".join(self.frames), re.MULTILINE))

    @property
    def wrong(self) -> str:
        """The complaint about it, in words, or nothing."""
        if self.bytes <= BYTES_MAX:
            return ""
        return "\n".join([f"{self.bytes} bytes of stack are in use, of {STACK_BYTES}", *self.frames])


def is_watched(spec: Spec) -> bool:
    """Whether the machines of such a lab have the stack tracer on."""
    return ARGUMENT in spec.append.split()
