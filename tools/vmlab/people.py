# SPDX-License-Identifier: GPL-2.0
"""The doings of people with mapped disks. Each goes on until it is ended, and then says whether all was right.

    person = people.Journal(lab, disk, "ext4")      # begins
    ...                                             # cut, freeze, suspend
    person.end()                                    # ends it, and fails if something was wrong
"""
from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Protocol

from vmlab import rnbd
from vmlab.checks import eq, ge, until
from vmlab.history import History
from vmlab.lab import Lab

PROGRAMS = Path(__file__).with_name("peer")
SIZE = "1m"             # what a history uses of a disk
SECTORS_PER_MIB = 2048
MADE_SECONDS = 100.0    # at most, for commands that wait for the disk
# btrfs is as small only if data and metadata share their block groups.
MAKE = {"ext4": "modprobe ext4; mkfs.ext4 -q -F -b 4096 {}", "xfs": "modprobe xfs; mkfs.xfs -q -f --unsupported {}",
        "btrfs": "modprobe btrfs; mkfs.btrfs -q -f --mixed {}"}
CHECK = {"ext4": "e2fsck -fn {}", "xfs": "xfs_repair -n {}", "btrfs": "btrfs check --check-data-csum {}"}


class Person(Protocol):
    """One of them."""

    @property
    def running(self) -> bool:
        """Whether it goes on; what has ended by itself has found something."""

    def end(self) -> None:
        """Ends it; fails if something was wrong."""


class Raw:
    """Reads and writes the disk itself; every sector has a history."""

    def __init__(self, disk: rnbd.Disk, timeout: float) -> None:
        self._history = disk.history(timeout, size=SIZE, writers=2)

    @property
    def running(self) -> bool:
        """See `Person`."""
        return self._history.running

    def end(self) -> None:
        """See `Person`."""
        self._history.clean(MADE_SECONDS)


class Verifier:
    """fio with its own verification; the disk's scheduler may be changed meanwhile."""

    ARGUMENTS = "--rw=randrw --bssplit=4k/50:64k/30:256k/20 --iodepth=4 --size=4m --verify=crc32c --verify_fatal=1"

    def __init__(self, disk: rnbd.Disk, timeout: float) -> None:
        self.disk = disk
        # The debug kernel has neither.
        disk.machine.try_run("modprobe bfq; modprobe kyber-iosched")
        self._over = f"/run/{disk.name}.over"
        self._job = disk.machine.start_job(
            f"rm -f {self._over}; while ! [ -e {self._over} ]; do "
            f"fio --name=job --filename={disk.path} --direct=1 --ioengine=io_uring "
            f"{self.ARGUMENTS} > /run/{disk.name}.fio 2>&1 || {{ cat /run/{disk.name}.fio; exit 1; }}; done", timeout)

    def schedule(self, name: str) -> None:
        """Gives the disk another scheduler, under load."""
        self.disk.machine.run(f"echo {name} > /sys/block/{self.disk.name}/queue/scheduler", MADE_SECONDS)

    @property
    def running(self) -> bool:
        """See `Person`."""
        return self._job.running

    def end(self) -> None:
        """See `Person`."""
        self.disk.machine.run(f"touch {self._over}")
        self._job.ok(MADE_SECONDS)


class Journal:
    """A file system, and a program that makes each record of a file safe before it writes the next."""

    def __init__(self, lab: Lab, disk: rnbd.Disk, kind: str, timeout: float) -> None:
        self.machine, self.path, self.kind = disk.machine, disk.path, kind
        self.folder = f"/mnt/{kind}"
        self.machine.run(f"set -e; {MAKE[kind].format(disk.path)}; mkdir -p {self.folder}; "
                         f"mount {disk.path} {self.folder}", MADE_SECONDS)
        lab.defer(self.machine.try_run, f"umount -l {self.folder}")
        self.machine.push(PROGRAMS / "journal.py", "/run/journal.py")
        self._over = f"/run/{kind}.over"
        self._job = self.machine.start_job(f"python3 -I -S /run/journal.py write {self.folder} {self._over}", timeout)

    @property
    def running(self) -> bool:
        """See `Person`."""
        return self._job.running

    def end(self) -> None:
        """The file system is sound, and holds every record that was safe."""
        self.machine.run(f"touch {self._over}")
        records = int(self._job.ok(MADE_SECONDS))
        ge(records, 1, f"records on {self.kind}")
        self.machine.run(f"set -e; umount {self.folder}; {CHECK[self.kind].format(self.path)}; "
                         f"mount {self.path} {self.folder}", MADE_SECONDS)
        found = self.machine.run(f"python3 -I -S /run/journal.py read {self.folder}", MADE_SECONDS)
        eq(int(found), records, f"records on {self.kind}, read back")
        self.machine.run(f"umount {self.folder}", MADE_SECONDS)


class Swapper:
    """A program that needs more memory than its group is to have, with its swap on the disk; it checks its pages. While
    the disk waits, the kernel slows the program down; above a limit (memory.max) it would kill it."""

    GROUP_MIB, NEEDED_MIB = 16, 24
    OVER = "/run/hog.over"

    def __init__(self, lab: Lab, disk: rnbd.Disk, timeout: float) -> None:
        self.disk, self.machine = disk, disk.machine
        self.machine.run(f"mkswap {disk.path} && swapon {disk.path} && "
                         "echo +memory > /sys/fs/cgroup/cgroup.subtree_control", MADE_SECONDS)
        lab.defer(self.machine.try_run, "echo -memory > /sys/fs/cgroup/cgroup.subtree_control")
        lab.defer(self.machine.try_run, f"swapoff {disk.path}", MADE_SECONDS)
        self.machine.push(PROGRAMS / "hog.py", "/run/hog.py")
        limit = "/sys/fs/cgroup/$(sed -n s/^0:://p /proc/self/cgroup)/memory.high"
        program = f"python3 -I -S /run/hog.py {self.NEEDED_MIB} {self.OVER}"
        self._job = self.machine.start_job(f"echo {self.GROUP_MIB}M > {limit} && exec {program}", timeout)
        until(lambda: self._used_kib() > 0, 60, "pages are swapped out")

    def _used_kib(self) -> int:
        rows = [line.split() for line in self.machine.read("/proc/swaps").splitlines()]
        return sum(int(row[3]) for row in rows if row[0] == self.disk.path)

    @property
    def running(self) -> bool:
        """See `Person`."""
        return self._job.running

    def end(self) -> None:
        """See `Person`."""
        self.machine.run(f"touch {self.OVER}")
        ge(int(self._job.ok(MADE_SECONDS)), 1, "times that the program has been through its pages")
        self.machine.run(f"swapoff {self.disk.path}", MADE_SECONDS)


class Mapped:
    """A device of the device mapper on top of disks, with a history."""

    def __init__(self, lab: Lab, name: str, modules: str, table: str, timeout: float) -> None:
        self.machine, self.name = lab.client, name
        self.machine.run(f"for module in {modules}; do modprobe $module || exit; done; "
                         f"dmsetup create {name} --table '{table}' && dmsetup mknodes {name}", MADE_SECONDS)
        lab.defer(self.machine.try_run, f"dmsetup remove --force {name}", MADE_SECONDS)
        self._history = History(self.machine, f"/dev/mapper/{name}", timeout, size=SIZE, writers=1)

    def status(self) -> str:
        """The words of the target about itself."""
        return self.machine.run(f"dmsetup status {self.name}")

    @property
    def running(self) -> bool:
        """See `Person`."""
        return self._history.running

    def end(self) -> None:
        """See `Person`."""
        self._history.clean(MADE_SECONDS)
        self.machine.run(f"dmsetup remove --retry {self.name}", MADE_SECONDS)


class Mirror(Mapped):
    """md's RAID 1 over two disks, by the device mapper: no leg may be given up."""

    def __init__(self, lab: Lab, disks: list[rnbd.Disk], timeout: float) -> None:
        legs = " ".join(f"- {disk.path}" for disk in disks)
        super().__init__(lab, "mirror", "dm_raid raid1",
                         f"0 {disks[0].sectors} raid raid1 2 0 nosync {len(disks)} {legs}", timeout)

    def end(self) -> None:
        """See `Person`."""
        eq(self.status().split()[5], "AA", "the legs")
        super().end()


class Multipath(Mapped):
    """dm-multipath over two sessions to one device; a session gives its requests back when its path is lost."""

    def __init__(self, lab: Lab, disks: list[rnbd.Disk], timeout: float) -> None:
        self.disks = disks
        legs = " ".join(f"{disk.path} 1" for disk in disks)
        super().__init__(lab, "multi", "dm_multipath dm_round_robin",
                         f"0 {disks[0].sectors} multipath 1 queue_if_no_path 0 1 1 round-robin 0 {len(disks)} 1 {legs}",
                         timeout)

    @staticmethod
    def _is_back(disk: rnbd.Disk) -> bool:
        return disk.attribute("state") == "open"

    def reinstate(self) -> None:
        """Puts paths back into use as multipathd does when they are back."""
        for disk in self.disks:
            until(partial(self._is_back, disk), 60, f"{disk.name} is back")
            self.machine.run(f"dmsetup message {self.name} 0 'reinstate_path {disk.path}'", MADE_SECONDS)

    def end(self) -> None:
        """See `Person`."""
        self.reinstate()
        super().end()
