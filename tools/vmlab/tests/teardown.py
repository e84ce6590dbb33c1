# SPDX-License-Identifier: GPL-2.0
"""Ends of things that are looked at, or are on their way to another state."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from vmlab import paths, rnbd, tier
from vmlab.checks import eq, ge, in_time, ok, until
from vmlab.lab import Lab
from vmlab.machine import Job
from vmlab.needs import needs

SMP = 2

PEER = Path(__file__).resolve().parents[1] / "peer"
STOP = "/run/sysfs_readers.stop"
ROUNDS = 4
# What a file says that goes: it was found and could not be opened any more, or was open.
GONE = {"ENOENT", "ENODEV"}
# What disks, paths, sessions and modules have; of each a file that is read again and again.
READ = {"/sys/devices/virtual/block/rnbd*/rnbd/state", "/sys/devices/virtual/rtrs-client/*/mpath_policy",
        "/sys/devices/virtual/rtrs-client/*/paths/*/state", "/sys/devices/virtual/rtrs-client/*/paths/*/stats/rdma",
        "/sys/devices/virtual/rtrs-server/*/paths/*/src_addr",
        "/sys/devices/virtual/rtrs-server/*/paths/*/stats/rdma",
        "/sys/devices/virtual/rnbd-server/ctl/devices/*/sessions/*/access_mode",
        "/sys/devices/virtual/rnbd-client/ctl/map_device"}
NOBODY = "ip:10.0.0.99"
UNLOAD_SECONDS_MAX = 45.0
# What waits for a path of a session that ends, ends with it: before an address that nobody has is given up, which takes
# 30 seconds, and in less than the four attempts of a second and a half each after which a write to `reconnect` has
# failed.
CONNECTING_SECONDS_MAX = 15.0
RECONNECTING_SECONDS_MAX = 6.0


# All files at once; kernel_ext.* shows it in each run, file by file.
@needs(machines=1, own_modules=True, timeout=240, tier=tier.ALL)
def test_every_file_is_read_while_its_owner_goes(vm: Lab) -> None:
    """Readers of all files of both sides, while disks, paths and sessions come and go, and the modules unload."""
    rnbd.start(vm, mib=8)
    for name in ("sysfs_fuzzer.py", "sysfs_readers.py"):
        vm.client.push(PEER / name, f"/run/{name}")
    vm.client.run(f"rm -f {STOP}")
    job = vm.client.start_job("nice -n -15 python3 -S /run/sysfs_readers.py", 120)
    vm.defer(vm.client.run, f"touch {STOP}")
    for turn in range(ROUNDS):
        disk = rnbd.map_disk(vm)
        eq(vm.client.write(rnbd.session_file("add_path"), f"ip:{vm.address(vm.client, 0, 6)}"), "", "add_path")
        paths.rest(0.5)
        eq(vm.client.write(f"{paths.to_wire(vm)}/disconnect", "1"), "")
        eq(vm.client.write(f"{paths.to_wire(vm)}/remove_path", "1"), "")
        disk.unmap("force" if turn % 2 else "normal")
    rnbd.map_disk(vm)
    paths.rest(0.5)
    vm.client.run("mods -r", 60)
    vm.client.run(f"touch {STOP}")
    report = json.loads(job.ok(60).splitlines()[-1])
    eq(report["stuck"], 0, "readers that did not end")
    counts: dict[str, dict[str, int]] = report["counts"]
    eq(sorted(READ - {kind for kind, said in counts.items() if said.get("ok")}), [], "files that were not read")
    # A link to a folder is a file for a reader that finds it gone when it looks what it is.
    links = {"EISDIR"}
    odd = {kind: said for kind, said in counts.items()
           if said.keys() - GONE - {"ok"} - (links if kind.endswith("/subsystem") else set())}
    eq(odd, {}, "what a file says that is neither there nor gone")
    ge(sum(said.get("ENODEV", 0) for said in counts.values()), 1, "reads of a file that was open when it went")
    paths.figure(f"{sum(said.get('ok', 0) for said in counts.values())} reads, "
                 f"{sum(said.get(name, 0) for said in counts.values() for name in GONE)} of what had gone")


def _write(lab: Lab, file: str, text: str) -> Job:
    """Writes to a file of the client's sysfs, beside the test."""
    job = lab.client.start_job(f"echo '{text}' > {file}", 120)
    paths.rest(1)
    return job


def _disconnected(lab: Lab) -> None:
    eq(lab.client.write(f"{paths.to_wire(lab)}/disconnect", "1"), "")
    eq(paths.state(lab), "disconnected")


def _backing_off(lab: Lab) -> None:
    lab.server.run("mods -r", 60)
    until(lambda: paths.count(lab, "reconnects", 1) >= 2, 60, "attempts have failed")


def _closing(lab: Lab) -> Job:
    lab.silence(0)
    return _write(lab, f"{paths.to_wire(lab)}/disconnect", "1")


def _removing(lab: Lab) -> Job:
    folder = paths.to_wire(lab)
    eq(lab.client.write(rnbd.session_file("add_path"), "ip:10.0.1.2"), "", "add_path")
    lab.silence(0)
    return _write(lab, f"{folder}/remove_path", "1")


def _adding(lab: Lab) -> Job:
    job = _write(lab, rnbd.session_file("add_path"), NOBODY)
    ok(job.running, "add_path does not wait")
    return job


def _reconnecting(lab: Lab) -> Job:
    folder = paths.to_wire(lab)
    lab.silence(0)
    now = "cut -d' ' -f1 /proc/uptime"
    job = lab.client.start_job(f"{now}; echo 1 > {folder}/reconnect; {now}", 120)
    paths.rest(1)
    ok(job.running, "reconnect does not wait")
    return job


def _mapping(lab: Lab) -> Job:
    job = _write(lab, f"{rnbd.CONTROL}/map_device", f"sessname=s2 path={NOBODY} device_path=ram0 access_mode=ro")
    ok(job.running, "map_device does not wait")
    return job


STATES = {deed.__name__.removeprefix("_"): deed for deed in (_disconnected, _backing_off, _closing, _removing, _adding,
                                                              _reconnecting, _mapping)}

# Two that wait show in each run what ends them; that modules unload in each state, paths.modules_unload_in_every_state.
IN_CORE = ("adding", "reconnecting")


@pytest.mark.parametrize("state", [
    pytest.param(name, id=f"the_client_unloads_while_{name}",
                 marks=pytest.mark.tier(tier.CORE if name in IN_CORE else tier.ALL)) for name in STATES])
@needs(wires=2, own_modules=True, waits=True, timeout=240)
def test_the_client_unloads(pair: Lab, state: str) -> None:
    """A path in this state, or a write to sysfs that waits: the client's modules unload, and the server's."""
    rnbd.start(pair, mib=8)
    rnbd.map_disk(pair)
    pair.defer(pair.mend, 0)
    job = STATES[state](pair)
    began = paths.uptime(pair.client)
    pair.client.run("mods -r", 2 * UNLOAD_SECONDS_MAX)
    seconds = paths.uptime(pair.client) - began
    paths.figure(f"{state}: unloaded in {seconds:.1f} s")
    limit = CONNECTING_SECONDS_MAX if state in {"adding", "mapping"} else UNLOAD_SECONDS_MAX
    in_time(seconds < limit, f"{seconds:.1f} s to unload")
    said = job.wait(60) if job else None
    if said and state == "reconnecting":
        wrote, ended = (float(line) for line in said.out.splitlines() if line[:1].isdigit())
        paths.figure(f"{state}: the write has ended after {ended - wrote:.1f} s")
        in_time(ended - wrote < RECONNECTING_SECONDS_MAX, f"{ended - wrote:.1f} s until the write has ended")
    paths.mend_for_a_new_session(pair)
    pair.server.run("mods -r", 60)
