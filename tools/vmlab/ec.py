# SPDX-License-Identifier: GPL-2.0
"""Arrays of rnbd_ec over disks of one machine."""
from __future__ import annotations

from collections.abc import Iterable

from vmlab import rnbd
from vmlab.checks import eq, until
from vmlab.lab import Lab
from vmlab.machine import Machine

ASSEMBLE = "/sys/class/rnbd-ec/ctl/assemble"
NAME = "ec0"
SECONDS = 120.0
# dm devices over ram disks, which may fail, hang and come back.
MEMBERS = ("m0", "m1", "m2")


class Array(rnbd.Disk):
    """An array that is assembled."""

    def __init__(self, machine: Machine, name: str = NAME) -> None:
        super().__init__(machine, name, "", "")

    @property
    def control(self) -> str:
        """The folder of its control files."""
        return f"/sys/block/{self.name}/ec"

    def state(self) -> str:
        """The word for its state."""
        return self.attribute("state").partition(":")[0]

    def stats(self) -> dict[str, int]:
        """Counts of what it has done."""
        lines = self.attribute("stats").splitlines()
        return {name: int(value) for name, value in (line.split() for line in lines)}

    def stop(self) -> None:
        """Makes all durable and removes the disk."""
        until(lambda: self.machine.write(f"{self.control}/stop", "1", SECONDS) != "EBUSY", 20,
              "it is not open any more")
        until(lambda: not self.present, 20, f"{self.name} is gone", pause=0.02)

    def unmap_if_there(self) -> None:
        """Stops it for clean-up; the test may have done so already."""
        if self.machine.alive and self.present:
            self.stop()

    def becomes(self, state: str, seconds: float = 60.0) -> None:
        """Waits until it has a state."""
        until(lambda: self.state() == state, seconds, f"the array is {state}: {self.attribute('members')}")


def load(lab: Lab) -> None:
    """Loads the module, anew."""
    lab.server.run("mods -r; mods ours rnbd-ec")


def disks(lab: Lab, mib: int = 24, count: int = 3) -> None:
    """Makes /dev/dm-0... over ram disks, which tests may let fail."""
    rnbd.ram_disk(lab, mib, count)
    for number in range(count):
        lab.server.run(f"dmsetup create m{number} --table '0 {mib * 2048} linear /dev/ram{number} 0'")
        lab.defer(remove, lab, f"m{number}")


def remove(lab: Lab, name: str) -> None:
    """Removes a dm device."""
    if lab.server.alive:
        lab.server.run(f"dmsetup resume {name} 2>/dev/null; for i in 1 2 3 4 5 6 7 8; do dmsetup remove {name} && "
                       "exit; sleep 0.3; done; exit 1")


def fails(lab: Lab, member: int, mib: int = 24) -> None:
    """A member answers with errors from now on."""
    become(lab, member, f"0 {mib * 2048} error")


def works(lab: Lab, member: int, mib: int = 24) -> None:
    """A member answers again, with what it has had."""
    become(lab, member, f"0 {mib * 2048} linear /dev/ram{member} 0")


def become(lab: Lab, member: int, table: str) -> None:
    """A member has another table."""
    name = f"m{member}"
    lab.server.run(f"dmsetup load {name} --table '{table}' && dmsetup suspend --noflush --nolockfs {name} && "
                   f"dmsetup resume {name}")


def path(member: int) -> str:
    """The path of a member."""
    return f"/dev/dm-{member}"


def line(*members: int, mode: str = "create", options: str = "") -> str:
    """A line for `assemble`."""
    return line_of([path(member) for member in members or (0, 1, 2)], mode, options)


def line_of(paths: Iterable[str], mode: str = "create", options: str = "") -> str:
    """The same, of disks by their paths."""
    return f"mode={mode} name={NAME} members={','.join(paths)} {options}".strip()


def try_assemble(lab: Lab, text: str) -> str:
    """Writes a line to `assemble` of the machine that has the members; the errno's name, "" for success."""
    return lab.client.write(ASSEMBLE, text, SECONDS)


def assemble(lab: Lab, text: str = "") -> Array:
    """Makes or assembles the array; it is stopped at the end of the test."""
    eq(try_assemble(lab, text or line()), "", str(lab.client.log_matches("rnbd_ec", -1)[-3:]))
    array = Array(lab.client)
    lab.defer(array.unmap_if_there)
    until(lambda: lab.client.exists(array.path), 10, f"{array.path} appears", pause=0.02)
    return array
