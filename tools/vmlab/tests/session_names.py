# SPDX-License-Identifier: GPL-2.0
"""No two sessions have one name; a session gets an error for a name in use, or waits for the one that ends.

    scripted peers (user-space verbs), rnbd-client ── rxe0 ── rtrs-server + rnbd-server      one machine
"""
from __future__ import annotations

import time
from collections.abc import Callable

import names

from vmlab import rnbd, tier
from vmlab.checks import eq, in_time, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.patience import factor, scaled
from vmlab.tests.hostile import PATIENT, bring_peer

TIER = tier.ALL

FILES = ("scripted_peer.py", "messages.py", "client.py", "names.py")


def _prepare(lab: Lab, rtrs: str) -> None:
    vm = lab.server
    rnbd.ram_disk(lab, 8, 2)
    vm.run("modprobe dm_mod; dmsetup create late --table \"0 $(blockdev --getsz /dev/ram0) linear /dev/ram0 0\"; "
           "udevadm settle; ls /dev/dm-0")
    lab.defer(_remove_late, lab)
    if not vm.exists("/tmp/peer/names.py"):
        bring_peer(vm, FILES)
    vm.run(f"mods {lab.modules} rtrs-server {rtrs} && mods {lab.modules} rnbd-server dev_search_path=/dev", 120)


def _remove_late(lab: Lab) -> None:
    lab.server.try_run("dmsetup resume late; mods -r; udevadm settle; dmsetup remove --retry late", 60)


def _make(name: str, title: str) -> Callable[[Lab], None]:
    @needs(machines=1, timeout=150)
    def test(lab: Lab) -> None:
        _prepare(lab, "" if name in names.WITH_DEFAULTS else PATIENT)
        known = f"PATIENCE={factor()} TURNS={tier.of(8, 20)}"
        done = lab.server.try_run(f"cd /tmp/peer && {known} python3 -S -m names {name} {lab.server_address}", 120)
        eq(done.out.strip().split("\n")[-1:], ["ok"], done.out)
    test.__doc__ = title
    return test


for _name, _function in names.CASES.items():
    globals()[f"test_{_name}"] = _make(_name, _function.__doc__ or "")


@needs(machines=1, timeout=150)
def test_a_client_is_told_whose_name_it_has_chosen(lab: Lab) -> None:
    """map_device under a name that a live client has: EPERM at once, and both kernel logs say why."""
    _prepare(lab, "")
    vm = lab.server
    # Not by load_client: that unloads all modules first if an earlier test has loaded the client otherwise.
    vm.run(f"mods {lab.modules} rnbd-client; rm -f /tmp/holder", 120)
    hold = f"PATIENCE={factor()} python3 -S -m names hold {lab.server_address}"
    holder = vm.start_job(f"cd /tmp/peer && {hold} > /tmp/holder 2>&1", 90)
    lab.defer(holder.kill)
    until(lambda: not holder.running or (vm.exists("/tmp/holder") and vm.read("/tmp/holder")), 40, "the name is taken")
    eq(vm.read("/tmp/holder"), "ready", "the holder of the name")
    mark, began = vm.log_mark(), time.monotonic()
    eq(rnbd.try_map(lab, rnbd.request(lab, "ram1", "held")), "EPERM")
    in_time(time.monotonic() - began < scaled(5), f"refused after {time.monotonic() - began:.1f} s")
    ok(vm.log_matches("rtrs_client.*name belongs to another client", mark), "the client's log does not say why")
    ok(vm.log_matches("rtrs_server.*name belongs to another client", mark), "the server's log does not say why")
    eq(rnbd.try_map(lab, rnbd.request(lab, "ram1", "other")), "", "another name")
    vm.run("for d in /sys/block/rnbd*; do echo force > $d/rnbd/unmap_device; done", 60)
