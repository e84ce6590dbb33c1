# SPDX-License-Identifier: GPL-2.0
"""Every file in sysfs of both sides, written at random by several threads under IO load: nothing breaks.

What is written is in tools/vmlab/peer/sysfs_fuzzer.py. The seed is new in each run; VMLAB_SEED=N gives one again. The
threads race each other, so a seed repeats what is written, not when.
"""
from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

from vmlab import paths, rnbd, seed, tier
from vmlab.checks import eq, ge, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs

SMP = 2
TIER = tier.ALL

PROGRAM = Path(__file__).resolve().parents[1] / "peer" / "sysfs_fuzzer.py"
IN_GUEST = "/run/sysfs_fuzzer.py"
SECONDS = tier.of(8, 300)
DISKS = 4
SESSIONS = ("s1", "s2", "s3", "s4", "a:b", "s.5", "s/6")
# The watched session's settings as they are when a test begins.
SETTINGS = {"max_reconnect_attempts": "-1", "reconnect_delay_ms": "1000", "fast_io_fail_tmo": "600",
            "heartbeat_interval_ms": "1000", "heartbeat_missed_max": "3"}
PARAMETERS = ("rtrs_server/parameters/heartbeat_interval_ms", "rtrs_server/parameters/heartbeat_missed_max",
              "rtrs_server/parameters/max_memory_mib", "rtrs_server/parameters/write_copy_max",
              "rtrs_client/parameters/retry_count", "rtrs_client/parameters/read_copy_max")
# Kinds of files that can be written, below the folders of the two sides.
CLIENT = {f"/sys/devices/virtual/rtrs-client/*/{name}" for name in (*SETTINGS, "mpath_policy", "mp_policy", "add_path")}
CLIENT |= {f"/sys/devices/virtual/rtrs-client/*/paths/*/{name}" for name in (
    "reconnect", "disconnect", "remove_path", "stats/rdma", "stats/reset_all", "stats/reconnects",
    "stats/cpu_migration_from", "stats/cpu_migration_to")}
CLIENT |= {f"/sys/devices/virtual/block/rnbd*/rnbd/{name}" for name in ("unmap_device", "resize", "remap_device")}
CLIENT |= {"/sys/class/rnbd-client/ctl/map_device"}
SERVER = {"/sys/devices/virtual/rtrs-server/*/paths/*/disconnect",
          "/sys/devices/virtual/rtrs-server/*/paths/*/stats/rdma",
          "/sys/devices/virtual/rnbd-server/ctl/devices/*/sessions/*/force_close"}
WRITTEN = CLIENT | SERVER | {f"/sys/module/{name}" for name in PARAMETERS}


def fuzz(lab: Lab, chance: random.Random, addresses: list[str]) -> dict[str, Any]:
    """Runs the fuzzer in the machine; returns its report."""
    lab.client.push(PROGRAM, IN_GUEST)
    job = {"seed": chance.randrange(1 << 32), "seconds": SECONDS, "keep": "s1", "sessions": SESSIONS,
           "disks": [f"ram{number}" for number in range(DISKS)], "addresses": addresses}
    # The load is as busy as it can be: without priority the fuzzer would write once a second in an emulated machine.
    out = lab.client.run(f"nice -n -15 python3 -I -S {IN_GUEST} '{json.dumps(job)}'", 6 * SECONDS + 100)
    report: dict[str, Any] = json.loads(out.splitlines()[-1])
    eq(report["stuck"], [], "threads that did not end")
    eq(report["failures"], [], "what the fuzzer did not expect")
    return report


def restore(lab: Lab, parameters: dict[str, str], addresses: list[str]) -> None:
    """Unmaps all disks but the watched one, and gives that its paths and settings back."""
    for name, value in parameters.items():
        eq(lab.server.write(f"/sys/module/{name}", value), "", name)
    paths.set_all(lab, **SETTINGS)
    for name in lab.client.names(f"{rnbd.CONTROL}/devices"):
        if name != "ram0@s1":
            folder = lab.client.real_path(f"{rnbd.CONTROL}/devices/{name}")
            errno = lab.client.write(f"{folder}/rnbd/unmap_device", "force", 60)
            eq(errno, "", f"unmapping {name}")
    # A path can be added to a session that the server has, or to one without paths.
    for name in paths.names(lab):
        if lab.client.read(f"{rnbd.session_file('paths')}/{name}/state") != "connected":
            paths.reconnect(lab, f"{rnbd.session_file('paths')}/{name}")
    add = rnbd.session_file("add_path")
    for address in addresses:
        until(lambda address=address: lab.client.write(add, f"ip:{address}") in ("", "EEXIST"), 30,
              f"the path to {address} is there")


@needs(machines=1, timeout=240)
def test_random_writes_to_every_file(vm: Lab) -> None:
    """Client and server in one machine: no complaint, no hang; the watched disk's IO is right, and goes on."""
    chance = seed.fresh()
    rnbd.start(vm, mib=16, count=DISKS)
    addresses = [vm.address(vm.client, 0), vm.address(vm.client, 0, 6)]
    line = " ".join(f"path=ip:{address}" for address in addresses)
    disk = rnbd.map_disk(vm, line=f"sessname=s1 {line} device_path=ram0 access_mode=rw")
    parameters = {name: vm.server.read(f"/sys/module/{name}") for name in PARAMETERS}
    vm.defer(vm.client.try_run, f"for disk in {rnbd.CONTROL}/devices/*; do echo force > $disk/rnbd/unmap_device; done")
    history = disk.history(writers=1)
    report = fuzz(vm, chance, addresses)
    if not history.running:
        history.clean()     # says why it has ended
    counts: dict[str, Counter[str]] = {kind: Counter(said) for kind, said in report["counts"].items()}
    said = sum(counts.values(), Counter())
    print(f"# {said.total()} writes to {len(counts)} kinds of files, {report['reads']} reads, {report['ios']} IOs: "
          f"{dict(said.most_common())}", flush=True)
    if tier.is_long():
        for kind, errors in sorted(counts.items()):
            print(f"#   {kind}: {dict(errors.most_common())}", flush=True)
    eq(sorted(WRITTEN - counts.keys()), [], "files that were not written")
    restore(vm, parameters, addresses)
    history.clean()
    until(lambda: set(paths.states(vm)) == {"connected"}, 20, "all paths are connected")
    ge(said.total(), 100, "writes")
    ge(said["ok"], 30, "writes that were taken")
    ok(report["reads"], "no file was read")
    ok(report["ios"], "no IO was done on the disks that come and go")
    disk.unmap()
