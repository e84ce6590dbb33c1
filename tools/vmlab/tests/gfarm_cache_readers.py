# SPDX-License-Identifier: GPL-2.0
"""Readers of one file on several nodes of the cooperative cache: what they read, and how much left the file servers.

    one machine:   N mounts, each a node with a page cache of its own, on rxe0
    two machines:  a node in each, on wire 1, where netem is; the servers are reached on wire 0

peer/gfarm_cache_readers.py has the readers; they start together, and compare what they read with the original.
"""
from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from vmlab import gfarm_mount, gfarm_node, loaded, paths, seed, tier
from vmlab.checks import eq, in_time, ok, until
from vmlab.gfarm import ADDRESSES, FOLDER, GFMD_PORT, GFSD_PORT, PROGRAMS, Gfarm
from vmlab.gfarm_mount import AT
from vmlab.gfarm_node import Node
from vmlab.lab import Lab
from vmlab.machine import Job, Machine
from vmlab.needs import needs
from vmlab.tests.gfarm_memory import limited

SMP = 2
TIER = tier.ALL

MIB = 1 << 20
PROGRAM = "gfarm_cache_readers.py"
ORIGINAL = f"{FOLDER}/original"
# On a busy host timers expire, and a piece is read from the file server although another node was about to give it;
# so the more pieces are on their way from node to node, the more copies.
ONE_COPY, TWO_COPIES, THREE_COPIES = 1.5, 2.0, 3.0
WAYS = {"random": "Four nodes read 64 KiB each, everywhere, each in its own order",
        "strided": "Each of four nodes reads each fourth 128 KiB, none that another one reads",
        "mmap": "Four nodes have the file mapped, and touch it everywhere",
        "partial": "Four nodes read a quarter of the file"}
# One of them is in each run, by chance.
CHOSEN = seed.fresh().sample(sorted(WAYS), 1)


def acquaint(found: Sequence[Node]) -> None:
    """Tells each node of the next one, and waits until all know all."""
    own = [node.address for node in found]
    for node, line in zip(found, own[1:], strict=False):
        eq(node.add(line), "", "the error of ibaddr")
    for node in found:
        until(lambda node=node: set(node.peers()) == set(own) - {node.address}, 30, "all know all")


@contextmanager
def nodes(servers: Gfarm, count: int, options: str = "", groups: int = 0) -> Iterator[list[Node]]:
    """Nodes that all know each other, in groups of the network in turn if there are any, for the body."""
    with ExitStack() as stack:
        found = [stack.enter_context(gfarm_node.node(
            servers, f"cc_group={number % groups + 1}" if groups else options, f"{AT}{number}"))
            for number in range(count)]
        acquaint(found)
        yield found


def make(machine: Machine, size: int, chance: int) -> None:
    """Makes the original: random bytes, the same for the same number."""
    machine.run(f"mkdir -p {FOLDER}; python3 -I -S -c 'import random, sys; "
                f"sys.stdout.buffer.write(random.Random({chance}).randbytes({size}))' > {ORIGINAL}", 60)


def put(servers: Gfarm, name: str, size: int, others: Sequence[Machine] = ()) -> str:
    """Makes a file of random bytes, and keeps its original, in other machines as well; answers its digest."""
    chance = seed.fresh().randrange(1 << 30)
    for machine in (servers.machine, *others):
        make(machine, size, chance)
    servers.run(f"! gfls -d /{name} > /dev/null 2>&1 || gfrm /{name}; gfreg -h fs1 {ORIGINAL} /{name}", 180)
    return servers.run(f"sha256sum {ORIGINAL}").split()[0]


def start(found: Sequence[Node], name: str, way: str, enter: str = "", timeout: float = 120) -> Job:
    """Readers at nodes of one machine. `enter` is done before, by the process that they are children of."""
    chance, machine = seed.fresh().randrange(1 << 30), found[0].machine
    program = f"{FOLDER}/{PROGRAM}"
    machine.push(PROGRAMS / PROGRAM, program)
    paths = " ".join(f"{node.at}/{name}" for node in found)
    return machine.start_job(f"{enter} exec python3 -I -S {program} {way} {chance} {ORIGINAL} {paths}", timeout)


def end(job: Job, found: Sequence[Node], way: str) -> list[dict[str, Any]]:
    """The findings of the readers; no byte may be wrong."""
    said: list[dict[str, Any]] = json.loads(job.ok())
    for node, row in zip(found, said, strict=True):
        ok(row, f"{way} at {node.at}: the reader has died")
        eq(row["wrong"], 0, f"{way} at {node.at}: wrong pieces of {row['pieces']}")
    return said


def read(found: Sequence[Node], name: str, way: str, enter: str = "",
         timeout: float = 120) -> list[dict[str, Any]]:
    """All nodes of a machine read at once."""
    return end(start(found, name, way, enter, timeout), found, way)


def copies(found: Sequence[Node], size: int) -> float:
    """The number of times that the file has left the file servers."""
    return sum(node.stats()["gfsd_bytes"] for node in found) / size


def between(found: Sequence[Node], groups: int) -> int:
    """The number of pages that nodes of a machine have had from nodes of another group."""
    place = {node.address: number % groups for number, node in enumerate(found)}
    return sum(pages for node in found for peer, pages in node.pages().items() if place[peer] != place[node.address])


def report(what: str, found: Sequence[Node], size: int, said: list[dict[str, Any]], most: float) -> None:
    """Prints a line of figures; no more than `most` copies may have left the file servers. On a busy host nodes are
    silent for too long now and then, and others read from the file server instead."""
    count = copies(found, size)
    print(f"# {what}: {count:.2f} copies, the last reader after {max(row['seconds'] for row in said):.2f} s, "
          f"p99 {max(row['p99_ms'] for row in said):.0f} ms", flush=True)
    in_time(count <= most, f"{what}: {count:.2f} copies left the file servers, at most {most} may")


@needs(machines=1, timeout=400, tier=tier.LONG)
def test_readers_that_start_together_take_one_copy(vm: Lab) -> None:
    """1, 2, 4 and 8 nodes read a file at once: each byte is right, and about one copy leaves the file server. Of 8 in
    two groups those of each take pages from each other: about one copy more goes from group to group."""
    servers = gfarm_mount.start(vm)
    size = 8 * MIB + 4097
    digest = put(servers, "together", size)
    for count, groups in ((1, 1), (2, 1), (4, 1), (8, 2)):
        with nodes(servers, count, groups=groups) as found:
            said = read(found, "together", "sequential")
            eq({row["sha256"] for row in said}, {digest}, f"{count} nodes")
            report(f"{count} nodes", found, size, said, ONE_COPY)
            far = between(found, groups) * 4096 / size
            print(f"# {count} nodes in {groups} groups: {far:.2f} copies from group to group", flush=True)
            in_time(far <= TWO_COPIES, f"{far:.2f} copies went from group to group")


@pytest.mark.parametrize(("way", "title"), [
    pytest.param(*case, id=f"{case[0]}_readers", marks=pytest.mark.tier(tier.ALL if case[0] in CHOSEN else tier.LONG))
    for case in WAYS.items()])
@needs(machines=1, timeout=300)
def test_ways(vm: Lab, way: str, title: str) -> None:
    """Four nodes read a file in a way of their own; then all of it."""
    del title       # for the list of tests
    servers = gfarm_mount.start(vm)
    size = 6 * MIB + 1
    digest = put(servers, "ways", size)
    with nodes(servers, 4) as found:
        said = read(found, "ways", way)
        report(way, found, size, said, TWO_COPIES)
        # What is left comes from wherever it is, and all of it is right.
        eq([node.sha256("ways") for node in found], [digest] * len(found), "the whole file")
        report(f"{way}, then all", found, size, said, TWO_COPIES)


@needs(machines=1, timeout=400)
def test_a_file_that_is_larger_than_the_memory_of_its_readers(vm: Lab) -> None:
    """Four nodes read 32 MiB, with memory for a half of it each: what one has dropped others have, and all is right."""
    servers = gfarm_mount.start(vm)
    size = 32 * MIB
    digest = put(servers, "larger", size)
    with nodes(servers, 4) as found, limited(vm.server, 64) as enter:
        said = read(found, "larger", "sequential", enter, 300)
        eq({row["sha256"] for row in said}, {digest}, "the file")
        report("64 MiB of memory", found, size, said, THREE_COPIES)


class Wire:
    """A second wire between the machines, which only the cache uses; netem is at both ends."""

    def __init__(self, pair: Lab) -> None:
        self._ends = (pair.client, pair.server)
        for machine in self._ends:
            machine.run("modprobe sch_netem")

    def spoil(self, how: str) -> None:
        """Has netem do it from now on, in both directions."""
        self.mend()
        for machine in self._ends:
            machine.run(f"tc qdisc add dev eth1 root netem limit 10000 {how}")

    def mend(self) -> None:
        """Ends it."""
        for machine in self._ends:
            machine.try_run("tc qdisc del dev eth1 root")


@contextmanager
def across(pair: Lab, near_options: str = "", far_options: str = "", device: str = "rxe1",
           at: str = AT) -> Iterator[tuple[Gfarm, list[Node]]]:
    """A node at each end of the second wire, for the body. The servers are at one end of the first one."""
    first, second = (",".join(filter(None, (f"ib_devname={device}", more))) for more in (near_options, far_options))
    servers = gfarm_mount.start(pair)
    loaded.of(pair).load(pair.client, "gfarm", "mods ours gfarm_ra")
    # A gfsd listens at an address of the loopback interface only.
    server = pair.address(pair.server, 0)
    program = servers.push("forward.py")
    pair.defer(pair.server.start_job(f"exec python3 -I -S {program} {server}:{GFSD_PORT} "
                                     f"{ADDRESSES['fs1']}:{GFSD_PORT}", 1000).kill)
    with ExitStack() as stack:
        near = stack.enter_context(gfarm_node.node(servers, first, f"{at}0"))
        far = stack.enter_context(gfarm_node.node(
            servers, second, f"{at}1", machine=pair.client, source=f"{server}:{GFMD_PORT}",
            hosts=f"hosts=fs1/{server}+fs2/{server}"))
        acquaint([near, far])
        yield servers, [near, far]


# A read is over after 2 s with other nodes, and then the file server is asked.
LATE_MS = 5000
# A node whose answers were lost several times in a row is not asked for a second: as long as this file takes.
SPARED_S = 1.5
TROUBLE = {
    "loses 1 %": "loss 1%", "loses 5 %": "loss 5%", "overtakes": "delay 2ms reorder 90% 50%",
    "repeats": "duplicate 10%", "is late": "delay 5ms 2ms", "changes bits": "corrupt 2%",
    "does all of it": "delay 2ms 1ms reorder 95% loss 2% duplicate 2% corrupt 1%"}


def read_once(node: Node, name: str, size: int, digest: str, what: str) -> float:
    """Has a node read a file; the share that came from the file server."""
    before = node.stats()["gfsd_bytes"]
    (row,) = end(start([node], name, "sequential"), [node], what)
    share = (node.stats()["gfsd_bytes"] - before) / size
    print(f"# {what}: {share:.2f} of the file from the file server, {row['seconds']:.2f} s, "
          f"p99 {row['p99_ms']:.0f} ms, longest {row['max_ms']:.0f} ms", flush=True)
    eq(row["sha256"], digest, what)
    in_time(row["max_ms"] < LATE_MS, f"{what}: a read took {row['max_ms']:.0f} ms")
    return share


@needs(wires=2, timeout=600)
def test_a_network_that_loses_repeats_overtakes_delays_and_changes(pair: Lab) -> None:
    """A node reads from another one: each byte is right, no page stays locked, and a read is not late for long."""
    with across(pair) as (servers, found):
        size, wire = 4 * MIB + 1, Wire(pair)
        near, far = found
        chosen = seed.fresh().sample(sorted(TROUBLE.items()), tier.of(1, len(TROUBLE)))
        for number, (what, how) in enumerate([("does nothing", ""), *chosen]):
            name = f"network{number}"
            digest = put(servers, name, size, [pair.client])
            eq(near.sha256(name), digest, "the first reader")
            if how:
                wire.spoil(how)
            share = read_once(far, name, size, digest, what)
            if share >= 0.5:
                print(f"# {what}: that was too much, once more", flush=True)
                paths.rest(SPARED_S)
                far.forget()
                share = read_once(far, name, size, digest, what)
            ok(share < 1, f"{what}: the other node has given no page")
            in_time(share < 0.5 or "loss 2%" in how, f"{what}: {share:.2f} of the file from the file server")
            far.forget()
            eq(far.sha256(name), digest, f"{what}, once more")
            wire.mend()
