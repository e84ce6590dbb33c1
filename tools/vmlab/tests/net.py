# SPDX-License-Identifier: GPL-2.0
"""Promises of net_ext to its users: the module of its tests, and three peers in user space."""
from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from vmlab import tier
from vmlab.checks import eq, matches, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs

SMP = 2
TIER = tier.ALL

PARTS = 9
PEERS = """
import socket, threading
def echo(stream):
    while part := stream.recv(65536):
        stream.sendall(part)
def silent(stream):
    threading.Event().wait()
def closer(stream):
    stream.recv(5, socket.MSG_WAITALL)
    stream.close()
def serve(port, peer):
    listener = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
    while True:
        threading.Thread(target=peer, args=(listener.accept()[0],), daemon=True).start()
for port, peer in enumerate((echo, silent, closer), 7400):
    threading.Thread(target=serve, args=(port, peer)).start()
"""


@contextmanager
def peers(vm: Lab) -> Iterator[None]:
    """The peers run for the body, and no module is loaded before it."""
    vm.server.run("mods -r")
    job = vm.server.start_job(f"exec python3 - <<'END'\n{PEERS}\nEND")
    try:
        until(lambda: vm.server.try_run("ss -Hltn 'sport >= :7400 and sport <= :7402'").out.count("\n") == 3, 20,
              "the peers listen")
        yield
    finally:
        job.kill()
        job.wait(20)


@needs(machines=1, own_modules=True, tier=tier.CORE)
def test_every_part_passes_its_selftest(vm: Lab) -> None:
    """One `ok` line a part, and none that failed; no connection is left."""
    with peers(vm):
        mark = vm.server.log_mark()
        vm.server.run("mods ours net_test", timeout=120)
        lines = vm.server.log_matches(r"net_test: ", mark)
        bad = [line for line in lines if not re.search(r"net_test: [\w ]+: ok$", line)]
        eq(bad, [], "lines that are not ok")
        eq(len(lines), PARTS, "parts")
        vm.server.run("mods -r")
        eq(vm.server.run("ss -Htn state syn-sent state established 'dport >= :7400 and dport <= :7403'"), "",
           "connections that are left")


@needs(machines=1, own_modules=True)
def test_a_task_that_waits_for_a_peer_can_be_killed(vm: Lab) -> None:
    """Other signals do not interrupt it; SIGKILL ends it at once."""
    with peers(vm):
        mark = vm.server.log_mark()
        folder = "/usr/lib/modules/$(uname -r)/ours"
        vm.server.run("mods ours kernel_ext; mods ours net_ext")
        job = vm.server.start_job(f"exec insmod {folder}/net_test.ko hang=1 2>&1")
        until(lambda: vm.server.log_matches("net_test: hangs", mark), 20, "it waits")
        vm.server.run("pkill -WINCH -x insmod; pkill -CHLD -x insmod; sleep 1")
        ok(job.running, "a signal that is ignored has interrupted it")
        matches(vm.server.run("cat /proc/$(pidof insmod)/stack"), "net_ext_helper_wait", "where it waits")
        job.kill()
        ok(job.wait(10).code, "it was not killed")
        vm.server.run("mods -r")
