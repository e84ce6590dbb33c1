# SPDX-License-Identifier: GPL-2.0
"""The history checker in the lab: every fault of a server's disk is found.

    history (client) ── rnbd ── wire ── rnbd-server ── dm-0 ── ram0       dm-0 or another program makes the fault
"""
from __future__ import annotations

from vmlab import paths, rnbd, tier
from vmlab.checks import eq, ge, ok
from vmlab.history import History
from vmlab.lab import Lab
from vmlab.needs import needs

SMP = 2
TIER = tier.ALL

MIB = 16
SECTORS = MIB * 2048
GOOD = f"0 {SECTORS} linear /dev/ram0 0"
# From the first second on, and for an hour.
FLAKEY = f"0 {SECTORS} flakey /dev/ram0 0 0 3600"
NAME = "suspect"


def become(lab: Lab, table: str) -> None:
    """Gives the server's disk another table while it is in use."""
    lab.server.run(f"dmsetup load {NAME} --table '{table}' && dmsetup resume {NAME}")


def suspect(lab: Lab) -> rnbd.Disk:
    """A mapped disk whose backing device can be made to do wrong."""
    rnbd.ram_disk(lab, MIB)
    lab.server.run(f"modprobe dm_mod; modprobe dm_flakey; dmsetup create {NAME} --table '{GOOD}'")
    lab.defer(lab.server.run, "for i in 1 2 3 4 5 6 7 8; do dmsetup remove --retry suspect && exit; sleep 0.5; done; "
              "exit 1")
    rnbd.load_server(lab)
    rnbd.load_client(lab)
    return rnbd.map_disk(lab, "dm-0")


def busy(disk: rnbd.Disk, **options: int | str) -> History:
    """A history in full flight."""
    history = disk.history(size="1m", **options)
    paths.wait_busy(disk, 100)
    return history


@needs(wires=1, timeout=300, tier=tier.CORE)
def test_a_disk_that_drops_or_damages_writes_is_found_out(pair: Lab) -> None:
    """Writes that are acknowledged and dropped; one byte of each write that is another one."""
    disk = suspect(pair)
    for feature, kind in (("1 drop_writes", "lost"), ("5 corrupt_bio_byte 300 w 1 0", "torn")):
        history = busy(disk)
        become(pair, f"{FLAKEY} {feature}")
        result = history.wait(60)
        become(pair, GOOD)
        eq((result.code, result.kinds), (1, [kind]), f"{feature}: {result.complaint}")
        paths.figure(f"{feature}: {result.shown[0]}")
    busy(disk).clean(60)
    disk.unmap()


@needs(wires=1, timeout=300)
def test_old_and_foreign_data_are_found_out(pair: Lab) -> None:
    """The disk's content of a second ago is written again beside the checker; so are zeroes; a stripe is moved."""
    disk = suspect(pair)
    deeds = (("late copy", "dd if=/dev/ram0 of=/tmp/old bs=64k count=16 iflag=direct; sleep 1; "
              "dd if=/tmp/old of=/dev/ram0 bs=64k oflag=direct", {"late", "lost", "torn"}),
             ("zeroes", "dd if=/dev/zero of=/dev/ram0 bs=64k count=4 oflag=direct", {"foreign"}),
             ("other place", f"dmsetup load {NAME} --table '0 {SECTORS - 64} linear /dev/ram0 64' && "
              f"dmsetup resume {NAME}", {"swapped", "foreign"}))
    for name, deed, kinds in deeds:
        history = busy(disk)
        pair.server.run(deed)
        result = history.wait(60)
        become(pair, GOOD)
        eq(result.code, 1, f"{name}: {result.complaint}")
        ok(kinds >= set(result.kinds), f"{name}: found as {result.kinds}: {result.complaint}")
        paths.figure(f"{name}: {result.shown[0]}")
    disk.unmap()


@needs(wires=1, timeout=300)
def test_io_errors_are_faults_unless_they_are_allowed(pair: Lab) -> None:
    """A server's disk that fails writes for a while: the load ends, or counts them and continues."""
    disk = suspect(pair)
    for errors in ("fail", "allowed"):
        history = busy(disk, errors=errors)
        become(pair, f"{FLAKEY} 1 error_writes")
        paths.rest(1)
        become(pair, GOOD)
        result = history.wait(60)
        ge(result.write_errors, 1, "writes that failed")
        eq((result.code, result.kinds), (1, ["error"]) if errors == "fail" else (0, []), result.complaint)
    disk.unmap()
