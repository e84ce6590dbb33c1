# SPDX-License-Identifier: GPL-2.0
"""Promises of the crate rdma to its users: the module of its tests."""
from __future__ import annotations

import re

from vmlab import tier
from vmlab.checks import eq, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs

SMP = 2
TIER = tier.ALL

PARTS = 15
UNSAID = r"WARNING:|BUG:|failed to drain"


@needs(machines=1, own_modules=True, tier=tier.CORE)
def test_every_part_passes_its_selftest(vm: Lab) -> None:
    """One `ok` line a part, none that failed, and no warning: a queue pair is drained in whatever state it is."""
    mark = vm.server.log_mark()
    vm.server.run("mods -r")
    vm.server.run("mods ours rdma_test")
    lines = vm.server.log_matches(r"rdma_test: ", mark)
    bad = [line for line in lines if not re.search(r"rdma_test: [\w ]+: ok$", line)]
    eq(bad, [], "lines that are not ok")
    eq(len(lines), PARTS, "parts")
    eq(vm.server.log_matches(UNSAID, mark), [], "complaints of the kernel")


@needs(machines=1, own_modules=True)
def test_a_handler_that_drops_its_own_queue_pair_leaks_it(vm: Lab) -> None:
    """It stays valid, one line says so, and the module of the handler cannot be unloaded any more."""
    mark = vm.server.log_mark()
    vm.server.run("mods -r")
    vm.server.run("mods ours rdma_test leak=1")
    ok(vm.server.log_matches(r"rdma_test: drop in handler: ok$", mark), "the handler did not run to its end")
    # The debug kernel has no names of errors.
    leak = r"queue pair \d+ could not be drained \((?:ETIMEDOUT|Error\(110\))\), leaking it"
    eq(len(vm.server.log_matches(leak, mark)), 1, "lines")
    eq(vm.server.log_matches(UNSAID, mark), [], "complaints of the kernel")
    ok(vm.server.try_run("rmmod rdma_test").code, "the code of the handler was unloaded")
    vm.reboot(vm.server)


@needs(machines=1, own_modules=True)
def test_a_device_goes_under_posted_receives(vm: Lab) -> None:
    """The removal of the device waits until the transfer has ended, and the transfer ends."""
    vm.server.run("mods -r")
    vm.server.run("mods ours rdma_test hold=1")
    vm.defer(vm.server.run, "mods -r; rdma link add rxe0 type rxe netdev eth0")
    mark = vm.server.log_mark()
    vm.server.run("rdma link delete rxe0")
    eq(len(vm.server.log_matches(r"rdma_test: the device goes: Some\(true\)$", mark)), 1, "lines")
    eq(vm.server.log_matches(UNSAID, mark), [], "complaints of the kernel")


@needs(machines=1, own_modules=True)
def test_the_sample_talks_to_itself(vm: Lab) -> None:
    """rust_rdma_ping connects to its own address: ping is heard, then pong; it unloads. Other addresses are refused."""
    mark = vm.server.log_mark()
    vm.server.run("mods ours rust_rdma_ping address=10.0.0.1")
    until(lambda: len(vm.server.log_matches("rust_rdma_ping: heard", mark)) >= 2, 10, "both ends have heard something")
    heard = [re.sub(r".*heard ", "", line) for line in vm.server.log_matches("rust_rdma_ping: heard", mark)]
    eq(heard, ['Ok("ping")', 'Ok("pong")'], "what was heard")
    vm.server.run("mods -r")
    for address in ("10.0.0.77", "nonsense"):
        ok(vm.server.try_run(f"mods ours rust_rdma_ping address={address}").code, f"it was loaded with {address}")
    vm.server.run("mods -r")


@needs(machines=1, own_modules=True)
def test_the_sample_of_datagrams_hears_itself(vm: Lab) -> None:
    """rust_rdma_datagram hears its own ping, and unloads. Without the device it is not loaded."""
    mark = vm.server.log_mark()
    vm.server.run("mods ours rust_rdma_datagram")
    until(lambda: vm.server.log_matches("rust_rdma_datagram: heard", mark), 10, "something is heard")
    eq(len(vm.server.log_matches(r"rust_rdma_datagram: heard Ok\(.ping.\)$", mark)), 1, "pings")
    vm.server.run("mods -r; rdma link delete rxe0")
    vm.defer(vm.server.run, "mods -r; rdma link add rxe0 type rxe netdev eth0")
    ok(vm.server.try_run("mods ours rust_rdma_datagram").code, "it was loaded without its device")
