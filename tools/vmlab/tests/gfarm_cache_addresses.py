# SPDX-License-Identifier: GPL-2.0
"""A node of Gfarm's cooperative cache is told of many addresses, one after the other."""
from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from vmlab import gfarm_mount, gfarm_node, paths, tier
from vmlab.checks import eq, ge, in_time, until
from vmlab.gfarm_mount import AT
from vmlab.gfarm_node import Node
from vmlab.lab import Lab
from vmlab.machine import Machine
from vmlab.needs import needs
from vmlab.trace import FOLDER, MOUNT

SMP = 2
TIER = tier.ALL

PROBES = {"ah_made": "rxe_create_ah", "ah_gone": "rxe_destroy_ah"}
# gfarm_ra/cache/endpoint.rs keeps so many.
KEPT = 4096
# Those of queue pairs, one each, and those of messages that are on their way.
BESIDE = 128
ROUNDS, EACH = 3, 2048
# Sends to these addresses leave the machine, and go nowhere.
ROUTER = "10.0.0.250"


@contextmanager
def _counted(machine: Machine) -> Iterator[None]:
    """The address handles that the device makes and destroys are counted meanwhile."""
    names = " ".join(PROBES)
    probes = "".join(f"echo 'p:{name} {function}' >> kprobe_events; " for name, function in PROBES.items())
    enable = f"for name in {names}; do echo %d > events/kprobes/$name/enable; done"
    machine.run(f"{MOUNT}; cd {FOLDER}; {probes}{enable % 1}")
    try:
        yield
    finally:
        machine.run(f"cd {FOLDER}; {enable % 0}; echo > kprobe_events; echo > trace")


def _handles(machine: Machine) -> tuple[int, int]:
    """Numbers of handles that were made, and that there are."""
    rows = dict(re.findall(r"(\w+) +(\d+) +\d+", machine.read(f"{FOLDER}/kprobe_profile")))
    made, gone = (int(rows[name]) for name in PROBES)
    return made, made - gone


def _write(mount: Node, word: str, number: int) -> None:
    """Adds or removes the peers of a round: another address each."""
    peers = range(EACH)
    for some in (peers[at:at + 256] for at in range(0, EACH, 256)):
        lines = "\n".join(f"{word} gid=::ffff:10.77.{number * 8 + peer // 256}.{peer % 256} qpn=17 qkey=4"
                          for peer in some)
        eq(mount.add(lines), "", f"{word} {len(some)} peers")


def _round(mount: Node, number: int) -> None:
    """A message to each address of a round is sent, and all are removed."""
    before, _ = _handles(mount.machine)
    _write(mount, "add", number)
    until(lambda: _handles(mount.machine)[0] >= before + EACH, 60, f"round {number}: a handle for each address")
    ge(KEPT + BESIDE, _handles(mount.machine)[1], f"handles that there are after round {number}")
    _write(mount, "remove", number)


@needs(machines=1, timeout=300)
def test_the_handles_of_addresses_that_are_left_go(vm: Lab) -> None:
    """Peers at thousands of addresses, some after the others: the device has no more address handles than are kept."""
    servers, machine = gfarm_mount.start(vm), vm.server
    net = machine.run("ip -o -4 address show | awk '$4 ~ /^10[.]/ {print $2; exit}'").strip()
    vm.defer(machine.run, f"ip neigh del {ROUTER} dev {net}")
    machine.run(f"ip neigh add {ROUTER} lladdr 02:00:00:00:00:fe dev {net} nud permanent && "
                f"ip route add 10.77.0.0/16 via {ROUTER} dev {net} onlink")
    vm.defer(machine.run, "ip route del 10.77.0.0/16")
    with _counted(machine):
        with gfarm_node.node(servers, at=AT) as mount:
            for number in range(ROUNDS):
                _round(mount, number)
            made, _ = _handles(machine)
            ge(made, ROUNDS * EACH, "handles that were made")
        until(lambda: _handles(machine)[1] == 0, 10, "no handle is left")


# Each look-up of one that nobody has takes a second.
NOBODY = 200


@needs(wires=2, timeout=300)
def test_addresses_that_nobody_has_keep_no_one_waiting(pair: Lab) -> None:
    """A node is told of many of them, and then of one that is there: it knows that one at once, and ends at once."""
    servers, machine = gfarm_mount.start(pair), pair.server
    nobody = "\n".join(f"add gid=::ffff:10.0.1.{50 + number} qpn=17 qkey=4" for number in range(NOBODY))
    with gfarm_node.node(servers, "ib_devname=rxe1", f"{AT}0") as other:
        with gfarm_node.node(servers, "ib_devname=rxe1", f"{AT}1") as one:
            eq(one.add(nobody), "", "addresses that nobody has")
            eq(one.add(other.address), "")
            there = other.address
            paths.guest_seconds(machine, lambda: there in one.peers(), 60, "it is told of the other one")
            took = paths.guest_seconds(machine, lambda: one.peers()[there] == "alive", 120, "the other one is alive")
            paths.figure(f"known after {took:.1f} s")
            in_time(took < 15, f"the node that is there was known after {took:.1f} s")
            ended = paths.uptime(machine)
        took = paths.uptime(machine) - ended
        in_time(took < 10, f"the unmount took {took:.1f} s")
