# SPDX-License-Identifier: GPL-2.0
"""Nodes of the cooperative cache on two devices of a subnet of InfiniBand: the test device has local identifiers,
tables of partition keys, and what a subnet manager changes of them."""
from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from vmlab import gfarm_mount, gfarm_node, tier
from vmlab.checks import eq, in_time, ok, until
from vmlab.gfarm import Gfarm
from vmlab.gfarm_mount import put_random
from vmlab.gfarm_node import DESCRIPTION, Node, queue_pairs
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.testdevice import CONTROL, plug_in
from vmlab.tests.gfarm_cache_devices import nodes
from vmlab.tests.gfarm_cache_machines import alive, shares
from vmlab.tests.gfarm_cache_readers import acquaint

SMP = 2
TIER = tier.ALL

SIZE = 3_000_001
ONE, TWO = "testdev0", "testdev1"


def begin(vm: Lab) -> Gfarm:
    """Plugs two devices of one subnet in; answers the servers."""
    plug_in(vm, "infiniband=2")
    return gfarm_mount.start(vm)


def manage(vm: Lab, rule: str) -> None:
    """Does what a subnet manager would (test/test_device/proto/fabric.rs)."""
    eq(vm.server.write(f"{CONTROL}/ports", rule), "", rule)


@contextmanager
def pair(servers: Gfarm, one: str = "", two: str = "") -> Iterator[list[Node]]:
    """A node on each device, with these options."""
    with nodes(servers, (ONE, one), (TWO, two)) as found:
        yield found


def is_shared(servers: Gfarm, found: list[Node], name: str) -> None:
    """Checks that what one node has read the other one has from it."""
    one, two = found
    digest = put_random(servers, name, SIZE, "fs1")
    eq(one.sha256(name), digest, f"{name}, the first reader")
    in_time(shares(two, name, digest, SIZE) < 0.5, f"{name}: from the file server: {two.ibstat()}")


def says(vm: Lab, words: str, mark: int, count: int = 1) -> None:
    """Waits for a line of the kernel's log, which is said so many times and no more."""
    until(lambda: len(vm.server.log_matches(words, mark)) >= count, 10, words)
    eq(len(vm.server.log_matches(words, mark)), count, f"lines: {vm.server.log_matches('gfarm', mark)}")


@needs(machines=1, own_modules=True, timeout=300)
def test_nodes_of_a_subnet_reach_each_other_by_their_lids(vm: Lab) -> None:
    """The address has the port's; datagrams have no global header, and what one node has read the other one gets."""
    servers = begin(vm)
    with pair(servers) as found:
        for node, lid in zip(found, (0x11, 0x12), strict=True):
            ok(node.address.startswith(f"lid={lid} qpn=") and " gid=fe80::" in node.address, node.address)
        acquaint(found)
        is_shared(servers, found, "by-lid")


@needs(machines=1, own_modules=True, timeout=300)
def test_a_node_is_in_the_partition_that_it_names(vm: Lab) -> None:
    """The key may be anywhere in the table; two limited members, and members of two partitions, do not hear each other;
    a key that the port has not is refused with a line."""
    servers = begin(vm)
    manage(vm, "port=0 pkeys=0x7fff,0x8001")
    manage(vm, "port=1 pkeys=0x7fff,0x8002,0x0001")
    no_member = f"{ONE}: ib_pkey=%s: the port is no member of this partition"
    for key, words in (("0x8003", no_member % "0x8003"), ("0x8000", no_member % "0x8000"),
                       ("0xffffe", "ib_pkey=0xffffe is not in 1..=65535, nor 0 for the first one of the port")):
        mark = vm.server.log_mark()
        said = gfarm_node.try_mount(servers, f"cc_key={DESCRIPTION},ib_devname={ONE},ib_pkey={key}")
        lines = vm.server.log_matches("gfarm", mark)
        ok(said.code and words in said.out + "\n".join(lines), f"{key}: code {said.code}, {said.out!r}, {lines}")
        ok(len(lines) <= 1, f"{key}: {lines}")
    eq(queue_pairs(vm.server), 0, "queue pairs of mounts that were refused")
    mark = vm.server.log_mark()
    with pair(servers, ",ib_pkey=0x8001", ",ib_pkey=0x8001") as found:
        ok("ib_pkey=0x8001" in found[0].options, f"{found[0].options}")
        says(vm, f"{TWO}: the port is a limited member of its partition .0x0001", mark)
        acquaint(found)
        is_shared(servers, found, "partition")
    for one, two in (("", ""), (",ib_pkey=0x8001", ",ib_pkey=0x8002"), (",ib_pkey=1", "")):
        with pair(servers, one, two) as found:
            eq(found[0].add(found[1].address), "")
            # A node that is told of another one probes it at once, and several times.
            time.sleep(3)
            ok(not alive(*found) and not found[1].peers(), f"{one}, {two}: {found[0].peers()}, {found[1].peers()}")
            eq([node.ibstat()["datagrams"] for node in found], [0, 0], f"{one}, {two}: datagrams that have come")


def moves(vm: Lab, found: list[Node], rules: list[str], begins: str) -> None:
    """The subnet manager changes something; each node whose address is another one then says it once, and is known."""
    mark = vm.server.log_mark()
    for rule in rules:
        manage(vm, rule)
    says(vm, f"the address of a node is another one now: {begins}", mark, len(rules))
    until(lambda: alive(*found) and alive(*found[::-1]), 10, f"both are known after {rules}")


@needs(machines=1, own_modules=True, timeout=400)
def test_what_a_subnet_manager_changes_is_followed(vm: Lab) -> None:
    """Another LID or prefix, a partition at another index: nodes tell each other, and give each other pages as before.
    Without its partition a node asks file servers only, and says so, until it is there again."""
    servers = begin(vm)
    for port in range(2):
        manage(vm, f"port={port} pkeys=0xffff,0x8001")
    with pair(servers, ",ib_pkey=0x8001", ",ib_pkey=0x8001") as found:
        acquaint(found)
        is_shared(servers, found, "before")
        moves(vm, found, ["port=0 lid=0x21"], "lid=33 ")
        is_shared(servers, found, "another-lid")
        prefix = "prefix=0xfec0000000000001"
        moves(vm, found, [f"port={port} {prefix}" for port in range(2)], ".* gid=fec0::1:")
        is_shared(servers, found, "another-prefix")
        mark = vm.server.log_mark()
        manage(vm, "port=1 pkeys=0xffff,0x8002,0x8001")
        is_shared(servers, found, "another-index")
        is_shared(servers, found[::-1], "from-there")
        eq(vm.server.log_matches("gfarm_ra: ", mark), [], "lines about a partition that is at another index")
        manage(vm, "port=1 pkeys=0xffff")
        words = "the RDMA port is down, or has lost its address, partition or MTU"
        says(vm, f"no node of the cache: {words}", mark)
        digest = put_random(servers, "alone", SIZE, "fs1")
        eq(shares(found[1], "alone", digest, SIZE), 1, "what came from the file server")
        manage(vm, "port=1 pkeys=0x8001")
        says(vm, "nodes of the cache are asked again", mark)
        until(lambda: alive(*found) and alive(*found[::-1]), 40, "both are known again")
        is_shared(servers, found, "back")
