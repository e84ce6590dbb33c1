# SPDX-License-Identifier: GPL-2.0
"""Nodes of the cooperative cache on two devices of a subnet of InfiniBand: the test device has local identifiers,
tables of partition keys, and what a subnet manager changes of them."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from vmlab import gfarm_mount, tier
from vmlab.checks import eq, in_time, ok
from vmlab.gfarm import Gfarm
from vmlab.gfarm_mount import put_random
from vmlab.gfarm_node import Node
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.testdevice import plug_in
from vmlab.tests.gfarm_cache_devices import nodes
from vmlab.tests.gfarm_cache_machines import shares
from vmlab.tests.gfarm_cache_readers import acquaint

SMP = 2
TIER = tier.ALL

SIZE = 3_000_001
ONE, TWO = "testdev0", "testdev1"


def begin(vm: Lab) -> Gfarm:
    """Plugs two devices of one subnet in; answers the servers."""
    plug_in(vm, "infiniband=2")
    return gfarm_mount.start(vm)


@contextmanager
def pair(servers: Gfarm, one: str = "", two: str = "") -> Iterator[list[Node]]:
    """A node on each device, with these options."""
    with nodes(servers, (ONE, one), (TWO, two)) as found:
        yield found


def is_shared(servers: Gfarm, found: list[Node], name: str) -> None:
    """What one node has read the other one has from it."""
    one, two = found
    digest = put_random(servers, name, SIZE, "fs1")
    eq(one.sha256(name), digest, f"{name}, the first reader")
    in_time(shares(two, name, digest, SIZE) < 0.5, f"{name}: from the file server: {two.ibstat()}")


@needs(machines=1, own_modules=True, timeout=300)
def test_nodes_of_a_subnet_reach_each_other_by_their_lids(vm: Lab) -> None:
    """The address has the port's; datagrams have no global header, and what one node has read the other one gets."""
    servers = begin(vm)
    with pair(servers) as found:
        for node, lid in zip(found, (0x11, 0x12), strict=True):
            ok(node.address.startswith(f"lid={lid} qpn=") and " gid=fe80::" in node.address, node.address)
        acquaint(found)
        is_shared(servers, found, "by-lid")
