# SPDX-License-Identifier: GPL-2.0
"""Events of arrays of rnbd_ec, as udev gets them."""
from __future__ import annotations

from kdir import config, programs
from vmlab import ec, tier
from vmlab.checks import eq, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.tests.ec import begin
from vmlab.uevents import Uevents

TIER = tier.ALL
RULES = config.REPOSITORY / "Documentation" / "udev" / "64-rnbd-ec.rules"


def told(text: str) -> list[tuple[str, ...]]:
    """The events of the array, without what each of them has."""
    found = []
    for event in text.split("\n\n"):
        words = dict(line.split("=", 1) for line in event.splitlines() if "=" in line)
        if words.get("RNBD_EC") == ec.NAME:
            eq((words["ACTION"], words["DEVNAME"]), ("change", f"/dev/{ec.NAME}"))
            what = ("RNBD_EC_STATE", "RNBD_EC_MEMBER", "RNBD_EC_MEMBER_STATE", "RNBD_EC_USED")
            found.append(tuple(words[name] for name in what if name in words))
    return found


@needs(machines=1, own_modules=True, timeout=240)
def test_members_and_thresholds_are_told_once(vm: Lab) -> None:
    """A member that fails, returns and is in sync; a disk of size= that fills, past each threshold, and is trimmed."""
    array = begin(vm, "codec=none size=44M")
    watch = Uevents(vm.server, "--subsystem-match=block")
    vm.server.run(f"dd if=/dev/urandom of={array.path} bs=64k count=480 oflag=direct status=none", 120)
    watch.wait_for("RNBD_EC_USED=95")
    vm.server.run(f"blkdiscard -l 28M {array.path}", 60)
    until(lambda: not watch.so_far().rpartition("RNBD_EC_USED=")[2].startswith("9"), 20, "an event of less use")
    ec.fails(vm, 1)
    vm.server.run(f"dd if=/dev/urandom of={array.path} bs=64k count=4 oflag=direct status=none", 60)
    array.becomes("degraded")
    ec.works(vm, 1)
    array.becomes("clean", 90)
    watch.wait_for("RNBD_EC_MEMBER_STATE=in_sync")
    events = told(watch.end())
    used = [int(event[1]) for event in events if len(event) == 2]
    eq([event for event in events if len(event) == 3],
       [("degraded", "1", "missing"), ("resyncing", "1", "resyncing"), ("clean", "1", "in_sync")])
    eq((used[:-1], used[-1] < 75), ([80, 90, 95], True), str(used))


@needs(machines=1, own_modules=True, disruptive=True, timeout=240)
def test_udev_assembles_an_array_when_its_last_member_appears(vm: Lab) -> None:
    """The rules of the documentation assemble it: neither before, nor once more when another device changes."""
    vm.server.run("mkdir -p /run/udev/rules.d /usr/local/sbin")
    vm.server.push(programs.RNBD_EC.build(), "/usr/local/sbin/rnbd-ec")
    vm.server.push(RULES, f"/run/udev/rules.d/{RULES.name}")
    vm.server.run("chmod 755 /usr/local/sbin/rnbd-ec; mods -r; mods ours rnbd-ec")
    vm.server.run("modprobe loop; for i in 0 1 2; do truncate -s 24M /run/m$i; losetup /dev/loop$i /run/m$i; done")
    array = ec.assemble(vm, ec.line_of(f"/dev/loop{member}" for member in range(3)))
    link = f"/dev/disk/by-id/rnbd-ec-{array.attribute('uuid')}"
    array.stop()
    vm.server.run("losetup -D")
    udevd = vm.server.start_job("exec /usr/lib/systemd/systemd-udevd", 120)
    vm.defer(udevd.kill)
    until(lambda: vm.server.exists("/run/udev/control"), 20, "udevd listens")
    for member in (2, 0):
        vm.server.run(f"losetup /dev/loop{member} /run/m{member}")
    until(lambda: "ID_FS_TYPE=rnbd_ec_member" in vm.server.run("udevadm info /dev/loop0; udevadm settle"), 20,
          "udev knows the member")
    ok(not array.present, "it is assembled without a member in sync")
    vm.server.run("losetup /dev/loop1 /run/m1")
    until(lambda: array.present and vm.server.exists(link), 30, "the array and its link")
    array.becomes("clean")
    vm.server.run("udevadm settle")
    array.stop()
    vm.server.run("udevadm trigger --settle --action=add /sys/block/loop0; losetup -D")
    ok(not array.present, "an array that was stopped is assembled")
