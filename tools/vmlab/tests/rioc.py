# SPDX-License-Identifier: GPL-2.0
"""The server of rioc: stores that come and go, and what a scripted client sees of them.

    scripted clients (user-space verbs) ── rxe0 ── rtrs-server + rioc-server      one machine
"""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vmlab import ec, rnbd, seed, tier
from vmlab.checks import eq, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.tests import hostile

PEER = Path(__file__).resolve().parents[1] / "peer"
FILES = ("scripted_peer.py", "messages.py", "client.py", "rioc_wire.py", "rioc_deeds.py")
CONTROL = "/sys/class/rioc-server/ctl"
# A line that is wrong, its errno, and what its line in the log says.
WRONG = (("colour=red", "EINVAL", "unknown or empty option 'colour=red'"),
         ("ram_mib=1", "EINVAL", "name missing"),
         ("name=bb", "EINVAL", "objects have no place"),
         (f"name={'n' * 33} ram_mib=1", "ENAMETOOLONG", "is not 1 to 32 letters"),
         ("name=bb ram_mib=900000", "ENOMEM", "bytes of memory, and"),
         ("name=bb log=/dev/ram0 backing=/mnt", "ENOTSUP", "beside log= is not built"))
# The same with a log: a device is not one, has none, has one, or is too small.
WRONG_LOGS = (("log=/dev/null", "ENOTBLK", "cannot be opened"),
              ("log=/dev/ram0", "EINVAL", "the log cannot be used"),
              ("log=/dev/ram1 mode=create", "EINVAL", "too few for 32 segments"),
              ("log=/dev/ram0 mode=create evict=objects", "EINVAL", "leave out one"))
LOG_MIB = 10
# Disks of so many requests at a time, and the latency of blk-wbt: 0 for none.
DISKS = {"a_log_that_throttles_writes_stops_no_reader": (2, 75000), "a_log_whose_disk_is_full_stops_no_reader": (1, 0)}
DEEDS = ("each_operation", "bytes_are_those_of_arrays", "leases_end_with_their_client",
         "a_copy_of_an_operation_is_answered_with_the_same", "a_store_is_full", "old_objects_make_room",
         "lies_are_refused")


def load(lab: Lab, *lines: str) -> None:
    """Loads the server anew, with stores. A scripted peer does not answer heartbeats."""
    lab.server.run("mods -r; mods ours rtrs-server heartbeat_interval_ms=60000 && mods ours rioc-server")
    for line in lines:
        eq(lab.server.write(f"{CONTROL}/add_store", line), "", line)
    if not lab.server.exists("/tmp/peer/rioc_deeds.py"):
        hostile.bring_peer(lab.server, FILES)


def deed(name: str, lab: Lab) -> str:
    """The command of a deed."""
    return f"cd /tmp/peer && python3 -S rioc_deeds.py {name} {lab.server_address} {seed.fresh().randrange(1 << 32)}"


def stats(lab: Lab, store: str = "bb") -> dict[str, int]:
    """What a store has and has done."""
    lines = lab.server.read(f"{CONTROL}/stores/{store}/stats").splitlines()
    return {name: int(value) for name, value in (line.split() for line in lines)}


def refuses(lab: Lab, line: str, errno: str, says: str) -> None:
    """A line for add_store is refused with an errno, and one line in the log."""
    mark = lab.server.log_mark()
    eq(lab.server.write(f"{CONTROL}/add_store", line), errno, line)
    found = lab.server.log_matches("rioc_server", mark)
    ok(len(found) == 1 and says in found[0], f"{line}: {found}")


def is_empty(lab: Lab) -> None:
    """Of what was deleted nothing is left, after a moment."""
    def left() -> int:
        found = stats(lab)
        return found["objects"] + found["blocks"] + found["ranges"] + found["extents"]
    until(lambda: not left(), 20, "all was deleted")


@needs(machines=1, own_modules=True)
def test_stores_come_and_go(vm: Lab) -> None:
    """Each wrong line has its errno and one line in the log; a store has its files; the module unloads with stores."""
    load(vm)
    vm.server.run("rmmod rioc_server; ! mods ours rioc-server port_nr=0 && mods ours rioc-server port_nr=1236")
    eq(vm.server.read("/sys/module/rioc_server/parameters/port_nr").strip(), "1236")
    for line, errno, says in WRONG:
        refuses(vm, line, errno, says)
    for _ in range(2):
        eq(vm.server.write(f"{CONTROL}/add_store", "name=bb ram_mib=2"), "")
        eq(vm.server.write(f"{CONTROL}/add_store", "name=bb ram_mib=2"), "EEXIST")
        eq(vm.server.names(f"{CONTROL}/stores/bb"), ["clients", "state", "stats"])
        eq(stats(vm)["blocks_max"], 512)
        ok(vm.server.read(f"{CONTROL}/stores/bb/state").startswith("memory"), "the state")
        eq(vm.server.write(f"{CONTROL}/del_store", "bb"), "")
        eq(vm.server.write(f"{CONTROL}/del_store", "bb"), "ENOENT")
    eq(vm.server.write(f"{CONTROL}/add_store", "name=bb ram_mib=2"), "")
    vm.server.run("rmmod rioc_server")


@pytest.mark.parametrize("name", DEEDS)
@needs(machines=1, own_modules=True, timeout=240)
def test_deed(vm: Lab, name: str) -> None:
    """What the scripted client does, and judges: see tools/vmlab/peer/rioc_deeds.py."""
    load(vm, "name=bb ram_mib=8", "name=small ram_mib=1", "name=cache ram_mib=1 evict=objects")
    mark = vm.server.log_mark()
    out = vm.server.run(deed(name, vm), 200)
    eq(out.splitlines()[-1], "ok")
    lines = [line for line in vm.server.log_matches("rioc_server", mark) if "refused" in line]
    eq(bool(lines), name == "lies_are_refused", f"the log: {lines[:3]}")
    is_empty(vm)


@needs(machines=1, own_modules=True, timeout=240)
def test_a_log_keeps_what_was_acknowledged(vm: Lab) -> None:
    """Objects are there after the end of a store and of the module; segments of a small log were collected."""
    rnbd.ram_disk(vm, LOG_MIB, 1)
    vm.server.run("modprobe loop; truncate -s 4m /run/small; losetup /dev/loop0 /run/small")
    vm.defer(vm.server.run, "losetup -D; rm /run/small")
    load(vm)
    for line, errno, says in WRONG_LOGS:
        refuses(vm, f"name=bb {line}".replace("/dev/ram1", "/dev/loop0"), errno, says)
    eq(vm.server.write(f"{CONTROL}/add_store", "name=bb log=/dev/ram0 mode=create"), "")
    refuses(vm, "name=cc log=/dev/ram0", "EBUSY", "cannot be opened")
    for name in DEEDS[:4]:
        eq(vm.server.run(deed(name, vm), 200).splitlines()[-1], "ok")
    is_empty(vm)
    eq(vm.server.run(deed("objects_are_left", vm), 200).splitlines()[-1], "ok")
    for command in (f"echo bb > {CONTROL}/del_store", "rmmod rioc_server; mods ours rioc-server"):
        vm.server.run(command, 60)
        eq(vm.server.write(f"{CONTROL}/add_store", "name=bb log=/dev/ram0"), "")
        eq(vm.server.run(deed("objects_are_found", vm), 100).splitlines()[-1], "ok")
    eq(vm.server.write(f"{CONTROL}/del_store", "bb"), "")
    refuses(vm, "name=bb log=/dev/ram0 mode=create", "EEXIST", "the device has a log")
    eq(vm.server.write(f"{CONTROL}/add_store", "name=bb log=/dev/ram0 mode=create force=1"), "")
    eq(stats(vm)["objects"], 0)


@needs(machines=1, own_modules=True)
def test_a_log_that_fails_stops_its_store(vm: Lab) -> None:
    """Nothing is acknowledged any more; the store is deleted, and its log opened when the device works."""
    ec.disks(vm, LOG_MIB, 1)
    load(vm, "name=bb log=/dev/dm-0 mode=create")
    eq(vm.server.run(deed("objects_are_left", vm), 200).splitlines()[-1], "ok")
    ec.fails(vm, 0, LOG_MIB)
    eq(vm.server.run(deed("a_log_fails", vm), 100).splitlines()[-1], "ok")
    ok(vm.server.read(f"{CONTROL}/stores/bb/state").startswith("failed"), "the state")
    eq(vm.server.write(f"{CONTROL}/del_store", "bb"), "")
    ec.works(vm, 0, LOG_MIB)
    eq(vm.server.write(f"{CONTROL}/add_store", "name=bb log=/dev/dm-0"), "")
    eq(vm.server.run(deed("objects_are_found", vm), 100).splitlines()[-1], "ok")
    vm.server.run("rmmod rioc_server")


@pytest.mark.parametrize("name", DISKS)
@needs(machines=1, own_modules=True, timeout=240)
def test_disk(vm: Lab, name: str) -> None:
    """The log's device hangs with as many writes as blk-wbt allows, or as it has tags: what is asked of the store under
    its lock is answered, and so is who comes."""
    ec.disks(vm, LOG_MIB, 1)
    depth, wbt_us = DISKS[name]
    vm.server.run(f"rmmod loop; set -e; modprobe loop hw_queue_depth={depth}; losetup --direct-io=on /dev/loop0 "
                  f"/dev/dm-0; echo {wbt_us} > /sys/block/loop0/queue/wbt_lat_usec")
    vm.defer(vm.server.run, "losetup -D; for i in 1 2 3 4 5; do rmmod loop && exit; sleep 0.3; done; exit 1")
    load(vm, "name=bb log=/dev/loop0 mode=create")
    writers = [vm.server.start_job(deed("hold", vm), 100) for _ in range(3)]
    until(lambda: stats(vm)["writes"] > 3, 40, "it writes")
    vm.server.run("dmsetup suspend --noflush --nolockfs m0")
    try:
        vm.server.run("sleep 3; timeout -s KILL 5 cat /sys/class/rioc-server/ctl/stores/bb/stats > /dev/null", 20)
        eq(vm.server.try_run("grep -ls wbt_wait /proc/[0-9]*/stack").out, "")
        eq(vm.server.run(deed("is_answered", vm), 20).splitlines()[-1], "ok")
    finally:
        vm.server.run("dmsetup resume m0")
        for writer in writers:
            writer.kill()
        vm.server.run("mods -r", 60)


@pytest.mark.tier(tier.ALL)
@needs(machines=1, own_modules=True, timeout=240)
def test_a_read_that_hangs_holds_up_nobody(vm: Lab) -> None:
    """The device of a log does not answer a read: others come, and are answered what needs no device; it is read when
    the device goes on."""
    ec.disks(vm, LOG_MIB, 1)
    load(vm, "name=bb log=/dev/dm-0 mode=create")
    eq(vm.server.run(deed("objects_are_left", vm), 200).splitlines()[-1], "ok")
    vm.server.run("dmsetup suspend --noflush --nolockfs m0")
    try:
        read = vm.server.start_job(deed("all_is_read", vm), 100)
        vm.server.run("sleep 3")
        eq(vm.server.run(deed("is_answered", vm), 20).splitlines()[-1], "ok")
    finally:
        vm.server.run("dmsetup resume m0")
    eq(read.ok(60).splitlines()[-1], "ok")
    vm.server.run("mods -r", 60)


@needs(machines=1, own_modules=True, timeout=240)
def test_a_device_that_hangs_holds_up_no_other_store(vm: Lab) -> None:
    """A store is not added to it, and one that is on it is deleted, within the limit of 30 s; others come and go
    meanwhile. The device is in use until it answers."""
    ec.disks(vm, LOG_MIB, 2)
    load(vm, "name=bb log=/dev/dm-0 mode=create")
    writer = vm.server.start_job(deed("hold", vm), 200)
    until(lambda: stats(vm)["writes"] > 3, 40, "it writes")
    vm.server.run("for m in m0 m1; do dmsetup suspend --noflush --nolockfs $m; done; sleep 1")
    mark = vm.server.log_mark()
    try:
        timed = "date +%s; echo {} > /sys/class/rioc-server/ctl/{} 2>&1; date +%s"
        jobs = [vm.server.start_job(timed.format(*of), 100)
                for of in (("name=cc log=/dev/dm-1 mode=create", "add_store"), ("bb", "del_store"))]
        vm.server.run("sleep 2")
        for _ in range(2):
            vm.server.run(f"timeout -s KILL 10 sh -c 'echo name=dd ram_mib=1 > {CONTROL}/add_store; "
                          f"echo dd > {CONTROL}/del_store'", 20)
        for job in jobs:
            said = job.wait(90).out.split()
            ok(25 <= int(said[-1]) - int(said[0]) < 45, f"it has taken so long: {said}")
        eq(len(vm.server.log_matches("its device has not answered", mark)), 1)
        eq(vm.server.write(f"{CONTROL}/add_store", "name=bb log=/dev/dm-0"), "EBUSY")
    finally:
        vm.server.run("dmsetup resume m0; dmsetup resume m1")
        writer.kill()
    until(lambda: vm.server.write(f"{CONTROL}/add_store", "name=bb log=/dev/dm-0") == "", 20, "the device has answered")
    vm.server.run("rmmod rioc_server", 60)


@needs(machines=1, own_modules=True)
def test_what_is_in_use_is_deleted_and_unloaded(vm: Lab) -> None:
    """A client of a store that is deleted gets ENODEV; one of a server that is unloaded loses its path."""
    load(vm, "name=bb ram_mib=8")
    for command in (f"echo bb > {CONTROL}/del_store", "rmmod rioc_server"):
        job = vm.server.start_job(f"{deed('hold', vm)} > /run/hold", 100)
        until(lambda: "holds" in vm.server.run("cat /run/hold 2>/dev/null || true"), 40, "it has begun")
        until(lambda: stats(vm)["writes"] > 3, 40, "it writes")
        vm.server.run(command, 60)
        eq(job.ok(60), "")
        eq(vm.server.run("tail -1 /run/hold").strip(), "ok")
        vm.server.run("rm /run/hold")
        if "del_store" in command:
            eq(vm.server.write(f"{CONTROL}/add_store", "name=bb ram_mib=8"), "")


@pytest.mark.tier(tier.ALL)
@needs(machines=1, own_modules=True, timeout=240)
def test_random_writes_to_every_file(vm: Lab) -> None:
    """Stores come and go by lines at random, right and wrong; nothing breaks, and the store that is in use goes on."""
    rnbd.ram_disk(vm, LOG_MIB, 2)
    load(vm, "name=bb ram_mib=8")
    for name in ("sysfs_fuzzer.py", "rioc_sysfs_fuzzer.py"):
        vm.server.push(PEER / name, f"/run/{name}")
    job = vm.server.start_job(deed("hold", vm), 200)
    seconds = tier.of(8, 300)
    plan = {"seed": seed.fresh().randrange(1 << 32), "seconds": seconds, "devices": ["/dev/ram0", "/dev/ram1"]}
    out = vm.server.run(f"nice -n -15 python3 -S /run/rioc_sysfs_fuzzer.py '{json.dumps(plan)}'",
                        6 * seconds + 100)
    report: dict[str, Any] = json.loads(out.splitlines()[-1])
    for kind, errors in sorted(report["counts"].items()):
        print(f"#   {kind}: {errors}", flush=True)
    eq((report["stuck"], report["failures"]), ([], []), "threads that did not end, and what was not expected")
    counts = {kind.rpartition("/")[2]: errors for kind, errors in report["counts"].items()}
    ok(counts["add_store"]["ok"] and counts["del_store"]["ok"], "stores were added and deleted")
    ok(stats(vm)["writes"], "it was in use")
    eq(vm.server.names(f"{CONTROL}/stores"), ["bb"])
    eq(vm.server.write(f"{CONTROL}/del_store", "bb"), "")
    job.ok(60)
