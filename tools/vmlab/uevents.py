# SPDX-License-Identifier: GPL-2.0
"""The kernel's events as udev sees them.

    watch = Uevents(machine, "--subsystem-match=block")     # listens when this returns
    ...
    watch.wait_for("ACTION=remove")
    text = watch.end()
"""
from __future__ import annotations

from vmlab.checks import until
from vmlab.machine import Job, Machine

SECONDS = 20.0
HEADER = "KERNEL - the kernel uevent"


class Uevents:
    """The events of a machine from now on."""

    def __init__(self, machine: Machine, options: str = "") -> None:
        self._parts: list[str] = []
        self._job: Job = machine.start_job(f"exec udevadm monitor --kernel --property {options}", 120,
                                           self._parts.append)
        # It is printed when the socket is there.
        self.wait_for(HEADER)

    def wait_for(self, words: str) -> None:
        """Waits until these words have come."""
        until(lambda: words in self.so_far(), SECONDS, f"'{words}' among the events")

    def so_far(self) -> str:
        """All that has come."""
        return "".join(self._parts)

    def end(self) -> str:
        """Listens no more; all that has come."""
        self._job.kill()
        rest = self._job.wait(20).out
        return self.so_far() + rest
