# SPDX-License-Identifier: GPL-2.0
"""The test device with two engines, on two processors: what adapters do at once, and in another order."""
from __future__ import annotations

from vmlab import paths, rnbd
from vmlab.checks import eq, ge, until
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.testdevice import CONTROL, add_fault, plug_in, queue_pairs, table

SMP = 2

SECOND_ADDRESS = "10.0.0.77"
# The time until the end of a send is told: an answer is there before, mostly.
ACK_US = 500
MIB = 16
# Requests of each side, by which a connection that is used is found.
REQUESTS = {"client": "writes_with_immediate", "server": "receive_completions"}


def _two_paths(vm: Lab, line: str) -> rnbd.Disk:
    vm.server.run(f"ip addr add {SECOND_ADDRESS}/24 dev eth0")
    vm.defer(vm.server.run, f"ip addr del {SECOND_ADDRESS}/24 dev eth0")
    disk = rnbd.map_disk(vm, line=f"sessname=s1 device_path=ram0 path=ip:{vm.address(vm.server, 0)} "
                                  f"path=ip:{SECOND_ADDRESS} access_mode=rw {line}")
    rnbd.round_robin(vm)
    return disk


def _lose_connections_of(vm: Lab, side: str) -> None:
    """The device gives up a queue pair that carries requests, and the paths come back."""
    before = {qp["qp"]: qp[REQUESTS[side]] for qp in queue_pairs(vm)[side]}
    paths.rest(0.5)
    busy = max(queue_pairs(vm)[side], key=lambda qp: qp[REQUESTS[side]] - before.get(qp["qp"], 0))
    add_fault(vm, f"give_up {busy['qp']}")
    until(lambda: busy["qp"] not in {qp["qp"] for qp in queue_pairs(vm)[side]}, 20, f"queue pair of the {side} is gone")
    until(lambda: paths.states(vm) == ["connected", "connected"], 30, "both paths are back")


@needs(machines=1, own_modules=True, timeout=240)
def test_paths_are_lost_while_ends_and_answers_race(vm: Lab) -> None:
    """Work requests are executed two at a time, answers come before the ends of their requests, completions are taken
    on two processors: no write is lost and none comes late, though queue pairs are given up meanwhile."""
    plug_in(vm, f"engines=2 ack_us={ACK_US}")
    rnbd.start(vm, rtrs="always_invalidate=Y", mib=MIB)
    disk = _two_paths(vm, "nr_io_queues=2")
    eq(vm.server.write(f"{CONTROL}/counts", "0"), "")
    history = disk.history(writers=8, readers=4, unit="8k")
    for side in ("client", "server", "client"):
        _lose_connections_of(vm, side)
    history.clean()
    for engine in table(vm, "engines"):
        paths.figure(f"engine {engine}")
        ge(engine["sends"], 100, "sends of connections")
        ge(engine["beside"], 1, "sends beside one of the other engine")
    ge(sum(engine["early_answers"] for engine in table(vm, "engines")), 100, "answers before the end of a request")
    for vector in table(vm, "vectors"):
        paths.figure(f"vector {vector}")
        eq(vector["cpu"], vector["vector"], "processor of the vector")
        ge(vector["taken"], 100, "receives that were taken on its processor")
        eq((vector["told_elsewhere"], vector["taken_elsewhere"]), (0, 0), "on others")
    disk.unmap()
