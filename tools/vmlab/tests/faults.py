# SPDX-License-Identifier: GPL-2.0
"""Allocations that fail, one after the other and at random: set-up is undone, and connected paths stay connected.

    python3 tools/kdir debug python3 tools/vmlab run 'faults.*'

Only the debug kernel can let them fail; elsewhere these tests are skipped. Its other tools look on: KASAN, lockdep, and
kmemleak after each test. One machine is client and server.
"""
from __future__ import annotations

import errno as errnos
import json
import os
import random
import re
from collections import Counter
from pathlib import Path

from vmlab import paths, rnbd, tier
from vmlab.checks import Failed, eq, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs

SMP = 2
TIER = tier.ALL

NTH = Path(__file__).resolve().parents[1] / "guest/nth.py"
INJECTORS = ("failslab", "fail_page_alloc")
DEBUG = "/sys/kernel/debug"
# Few chunks: each is memory that may fail to come, in the same way.
SMALL = "sess_queue_depth=2 max_chunk_size=8192"
# An allocation that fails is told with a trace by some who ask for it; that is no complaint here.
COMPLAINT = (r"WARNING:|\bBUG\b|\bOops\b|refcount_t:|KASAN|UBSAN|corruption|possible .* (locking|deadlock)|"
             r"inconsistent lock|suspicious RCU|while atomic|sleeping function|hung task|blocked for more|stall|"
             r"general protection|[Pp]anic")
VERIFY = "--rw=randwrite --bs=4k --iodepth=4 --size=1m --verify=crc32c --verify_fatal=1"
READ_AND_UNMAP = ("udevadm settle; dd if=/dev/rnbd0 of=/dev/null bs=4k count=1 iflag=direct status=none && "
                  "echo normal > /sys/block/rnbd0/rnbd/unmap_device")
# So many percent of each so many-th allocation: about every other set-up fails.
PERCENT, INTERVAL = 10, 20
ROUNDS = 20
# Every so many-th allocation; 1 takes hours in a debug kernel that is emulated.
STEP = int(os.environ.get("VMLAB_FAULT_STEP", "7"))


def prepare(lab: Lab) -> None:
    """Allocations that may wait for memory may fail as well, and nothing is printed of it."""
    files = " ".join(f"{DEBUG}/{name}" for name in INJECTORS)
    lab.client.run(f"grep -q debugfs /proc/mounts || mount -t debugfs none {DEBUG}; for f in {files}; do "
                   "echo N > $f/ignore-gfp-wait; echo 0 > $f/verbose; echo 0 > $f/probability; done; "
                   f"echo N > {DEBUG}/fail_page_alloc/ignore-gfp-highmem; echo 0 > {DEBUG}/fail_page_alloc/min-order")
    lab.client.push(NTH, "/tmp/nth.py")
    lab.defer(listen, lab, lab.client.log_mark())


def listen(lab: Lab, mark: int) -> None:
    """Checks that the kernel has complained of nothing."""
    eq(lab.client.log_matches(COMPLAINT, mark), [], "complaints of the kernel")


def start(lab: Lab) -> None:
    """Client and server, and a first session, which makes what stays until the module goes."""
    prepare(lab)
    rnbd.start(lab, rtrs=SMALL, mib=8)
    rnbd.map_disk(lab).unmap()


def each_fails(lab: Lab, what: str, path: str, text: str, undo: str) -> None:
    """Does something with each of its allocations failing; `undo` takes it back where it succeeded all the same."""
    errors: Counter[str] = Counter()
    number, done = random.randint(1, STEP), False
    print(f"# from allocation {number} on, in steps of {STEP}", flush=True)
    while not done:
        said = json.loads(lab.client.run(f"python3 -I -S /tmp/nth.py {number} {STEP} {what} '{path}' '{text}'", 3600))
        errors.update({errnos.errorcode[int(key)]: times for key, times in said["errors"].items()})
        done = not said["injected"]
        if said["error"]:
            raise Failed(f"{errnos.errorcode[said['error']]} although nothing failed, after {number} allocations")
        lab.client.run(undo, 120)
        number = said["n"] + STEP
    told = ", ".join(f"{name} {times}" for name, times in sorted(errors.items()))
    paths.figure(f"each {STEP}th of {number} allocations failed: {told or 'no error'}, the others were done without")
    ok(errors["ENOMEM"] or errors["EAGAIN"], "no allocation failed")


@needs(machines=1, own_modules=True, debug=True, complaints=True, timeout=3600)
def test_mapping_with_each_allocation_failing(vm: Lab) -> None:
    """map_device with a new session: an error or a working disk, and no leftover of a failure disturbs the next try."""
    start(vm)
    each_fails(vm, "write", f"{rnbd.CONTROL}/map_device", rnbd.request(vm),
               READ_AND_UNMAP)
    rnbd.works(vm)


@needs(machines=1, own_modules=True, debug=True, complaints=True, timeout=3600)
def test_adding_a_path_with_each_allocation_failing(vm: Lab) -> None:
    """add_path beside a working path: the session continues after every failure."""
    start(vm)
    vm.server.run("ip addr add 10.0.0.9/24 dev eth0 2>/dev/null || true")
    disk = rnbd.map_disk(vm)
    each_fails(vm, "write", rnbd.session_file("add_path"), "ip:10.0.0.9",
               f"echo 1 > {rnbd.session_file('paths')}/*@ip:10.0.0.9/remove_path")
    eq(paths.states(vm), ["connected"])
    disk.fio(VERIFY).clean()
    disk.unmap()


@needs(machines=1, own_modules=True, debug=True, complaints=True, timeout=3600)
def test_loading_with_each_allocation_failing(vm: Lab) -> None:
    """Each module in order: it loads or fails to load, and it loads without failures."""
    prepare(vm)
    for target in ("rnbd-server", "rnbd-client"):
        plan = vm.client.run(f"modprobe -S $(uname -r)/ours --show-depends {target}")
        for path in re.findall(r"^insmod (\S+)", plan, re.M):
            name = path.rpartition("/")[2].removesuffix(".ko").replace("-", "_")
            if vm.client.exists(f"/sys/module/{name}/initstate"):
                continue
            if "/ours/kernel/" in path:
                vm.client.run(f"modprobe {name}")
                continue
            parameters = "dev_search_path=/dev" if name == "rnbd_server" else ""
            each_fails(vm, "insmod", path, parameters, f"rmmod {name}")
            vm.client.run(f"insmod {path} {parameters}")


def at_random(lab: Lab, module: str) -> None:
    """Lets some of the allocations fail that the module asks for, itself or by what it calls."""
    area = next(line.split() for line in lab.client.run("cat /proc/modules").splitlines() if line.split()[0] == module)
    first, last = int(area[5], 16), int(area[5], 16) + int(area[1])
    for name in INJECTORS:
        lab.client.run(f"set -e; cd {DEBUG}/{name}; echo {first:#x} > require-start; echo {last:#x} > require-end; "
                       f"echo -1 > times; echo 0 > space; echo {INTERVAL} > interval; echo {PERCENT} > probability")


def never(lab: Lab) -> None:
    """Nothing fails any more."""
    for name in INJECTORS:
        lab.client.run(f"cd {DEBUG}/{name}; echo 0 > probability; echo 0 > require-start; echo 0xffffffffffffffff > "
                       "require-end")


@needs(machines=1, own_modules=True, debug=True, complaints=True, timeout=3600)
def test_a_server_whose_allocations_fail_at_random(vm: Lab) -> None:
    """Sessions are opened while allocations of the server's set-up fail; the opened ones work."""
    start(vm)
    vm.defer(never, vm)
    errors: Counter[str] = Counter()
    for turn in range(ROUNDS):
        at_random(vm, ("rtrs_server", "rnbd_server")[turn % 2])
        errors[rnbd.try_map(vm, rnbd.request(vm))] += 1
        never(vm)
        if vm.client.exists("/sys/block/rnbd0"):
            vm.client.run(READ_AND_UNMAP, 120)
        until(lambda: not vm.server.names("/sys/class/rtrs-server"), 60, "the session is gone")
    paths.figure(f"{ROUNDS} sessions: "
                 + ", ".join(f"{name or 'mapped'} {times}" for name, times in sorted(errors.items())))
    ok(errors["ENOMEM"], "no session failed")
    ok(errors[""], "no session was made")
    rnbd.works(vm)


@needs(machines=1, own_modules=True, debug=True, complaints=True, timeout=3600)
def test_a_client_that_reconnects_while_allocations_fail_at_random(vm: Lab) -> None:
    """The server closes the path repeatedly: the client reconnects eventually, and IO waits for it."""
    start(vm)
    vm.defer(never, vm)
    disk = rnbd.map_disk(vm)
    for turn in range(ROUNDS):
        at_random(vm, ("rtrs_client", "rnbd_client")[turn % 2])
        vm.server.run("echo 1 > /sys/class/rtrs-server/s1/paths/*/disconnect", 60)
        paths.rest(1)
        never(vm)
        until(lambda: disk.attribute("state") == "open", 60, "the disk is back")
    failed = paths.count(vm, "reconnects", 1)
    paths.figure(f"{ROUNDS} lost paths: {failed} attempts failed")
    ok(failed, "no attempt failed")
    disk.fio(VERIFY).clean()
    disk.unmap()
