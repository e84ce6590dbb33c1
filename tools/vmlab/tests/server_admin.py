# SPDX-License-Identifier: GPL-2.0
"""Messages that open and close devices may take long at the server; IO and heartbeats do not wait for them.

    loop0 ── late (device mapper, can be suspended) ── ram0        on the server
"""
from __future__ import annotations

import admin
import pytest

from vmlab import paths, rnbd, tier
from vmlab.checks import eq, ok, until
from vmlab.lab import Lab
from vmlab.machine import Job, Machine
from vmlab.needs import needs
from vmlab.tests.hostile import PATIENT, bring_peer

SMP = 2
TIER = tier.ALL

# Longer than either side waits for a word of the other: 5 to 6 s.
STUCK_SECONDS = 12.0
FILES = ("scripted_peer.py", "messages.py", "client.py", "admin.py")


def _late_disk(vm: Machine) -> None:
    """/dev/dm-0 over ram0."""
    vm.run("modprobe dm_mod; dmsetup create late --table \"0 $(blockdev --getsz /dev/ram0) linear /dev/ram0 0\"; "
           "udevadm settle; ls /dev/dm-0")


def _remove_late(vm: Machine) -> None:
    vm.try_run("dmsetup resume late; mods -r", 60)
    vm.try_run("losetup -d /dev/loop0; udevadm settle; dmsetup remove --retry late", 60)


def _stuck_disk(lab: Lab) -> Job:
    """/dev/loop0, whose partition table is being read and will not have been before `late` is resumed."""
    vm = lab.server
    _late_disk(vm)
    lab.defer(_remove_late, vm)
    vm.run("modprobe loop; losetup -P --direct-io=on /dev/loop0 /dev/dm-0; udevadm settle; "
           "dmsetup suspend --nolockfs --noflush late")
    job = vm.start_job("blockdev --rereadpt /dev/loop0", 120)
    until(lambda: "bdev_disk_changed" in vm.run("cat /proc/[0-9]*/task/*/stack 2>/dev/null || true"), 20,
          "a task reads the table under the disk's lock")
    return job


@needs(timeout=200)
def test_an_open_may_take_longer_than_a_dead_peer_is_believed(pair: Lab) -> None:
    """The disk's lock is held for 12 s: a new session maps it, and a mapped disk beside it is served meanwhile."""
    rnbd.start(pair, mib=8, count=2)
    _stuck_disk(pair)
    other = rnbd.map_disk(pair, "ram1")
    mark = pair.client.log_mark()
    job = pair.client.start_job(f"echo '{rnbd.request(pair, 'loop0', 'slow')}' > {rnbd.CONTROL}/map_device", 90)
    same = pair.client.start_job(f"echo '{rnbd.request(pair, 'loop0', 's1', 'access_mode=ro')}' "
                                 f"> {rnbd.CONTROL}/map_device", 90)
    fio = other.fio(f"--rw=randrw --bs=4k --iodepth=2 --size=2m --time_based --runtime={STUCK_SECONDS:.0f}")
    fio.clean()
    ok(job.running and same.running, "the device was opened although its lock is held")
    pair.server.run("dmsetup resume late")
    job.ok(30)
    same.ok(30)
    for session in ("s1", "slow"):
        paths.all_connected(pair, mark, session)
    pair.client.run("for d in /sys/block/rnbd*; do echo normal > $d/rnbd/unmap_device; done", 60)


def _prepare(lab: Lab, rtrs: str) -> None:
    vm = lab.server
    vm.run("mods -r", 60)
    rnbd.ram_disk(lab, 8, 2)
    _late_disk(vm)
    lab.defer(_remove_late, vm)
    if not vm.exists("/tmp/peer/admin.py"):
        bring_peer(vm, FILES)
    rnbd.load_server(lab, rtrs=rtrs)


@pytest.mark.parametrize(("name", "title"), [
    pytest.param(name, function.__doc__ or "", id=name) for name, function in admin.CASES.items()])
@needs(machines=1, timeout=150)
def test_case(lab: Lab, name: str, title: str) -> None:
    """One case of the scripted peer."""
    del title       # for the list of tests
    _prepare(lab, PATIENT)
    done = lab.server.try_run(f"cd /tmp/peer && python3 -S -m admin {name} {lab.server_address}", 120)
    eq(done.out.strip().split("\n")[-1:], ["ok"], done.out)


@needs(machines=1, timeout=150)
def test_unloading_while_a_close_waits(lab: Lab) -> None:
    """A CLOSE waits for a request, more messages wait for it: rmmod ends when the disk answers, not before."""
    _prepare(lab, PATIENT)
    vm = lab.server
    job = vm.start_job(f"cd /tmp/peer && python3 -S -m admin leave_waiting {lab.server_address} "
                       "> /tmp/states 2>&1", 90)
    until(lambda: vm.exists("/tmp/states") and "ready" in vm.read("/tmp/states"), 40, "a CLOSE waits")
    unload = vm.start_job("rmmod rnbd_server", 60)
    until(lambda: not vm.exists("/sys/class/rtrs-server") or not unload.running or _is_stuck(vm), 20, "unloading waits")
    ok(unload.running, "the module went while its device has a request")
    vm.run("dmsetup resume late")
    unload.ok(30)
    job.kill()
    job.wait(20)
    vm.run("rm /tmp/states")


def _is_stuck(vm: Machine) -> bool:
    return "rmmod" in vm.run("grep -l rmmod /proc/[0-9]*/comm 2>/dev/null | xargs -r cat || true")
