# SPDX-License-Identifier: GPL-2.0
"""Nodes of the cooperative cache in two machines: what vanishes comes back, and links differ.

    gfmd, gfsds, a node ── wire 0: TCP ── a node in the other machine
                        ── wire 1: RDMA, of the cache only ──
"""
from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from vmlab import gfarm_node, tier
from vmlab.checks import eq, ge, in_time, ok, until
from vmlab.gfarm import GFMD_PORT, Gfarm
from vmlab.gfarm_mount import AT
from vmlab.gfarm_node import KEY, Node
from vmlab.lab import Lab
from vmlab.machine import Machine
from vmlab.needs import needs
from vmlab.tests.gfarm_cache_readers import MIB, acquaint, across, put

TIER = tier.ALL

SIZE, PART = 4 * MIB + 1, 1 * MIB
# Silences, and the file server's own time.
LATE_SECONDS = 12.0
BACK_SECONDS = 40.0
ADD_DEVICE = "rdma link add rxe1 type rxe netdev eth1"
# What is sent to a queue pair that is gone comes to the next one that has its number.
SAME_QKEY = "ib_qkey=4711"


def shares(reader: Node, name: str, digest: str, size: int) -> float:
    """Has a node read a file, which must be right; answers how much of it came from the file server."""
    before = reader.stats()["gfsd_bytes"]
    eq(reader.sha256(name), digest, f"{name} at {reader.at}")
    return (reader.stats()["gfsd_bytes"] - before) / size


def alive(node: Node, other: Node) -> bool:
    """Whether a node takes another one for alive."""
    return node.peers().get(other.address, "").startswith("alive")


class Far:
    """The node in the other machine, and what becomes of it."""

    def __init__(self, pair: Lab, servers: Gfarm, near: Node, node: Node, stack: ExitStack) -> None:
        self.pair, self.servers, self.near, self.node, self.stack = pair, servers, near, node, stack

    def freeze(self) -> None:
        """All processors of its machine stop."""
        self.pair.defer(self.pair.client.thaw)
        self.pair.client.freeze()

    def cut(self) -> None:
        """The wire is cut; both see the carrier go."""
        self.pair.defer(self.pair.mend, 1)
        self.pair.cut(1)

    def mend(self) -> None:
        """The wire is there again."""
        self.pair.mend(1)

    def crash(self) -> None:
        """Removes it without a word: its device goes while the wire is cut."""
        self.cut()
        self.pair.defer(self.pair.client.run, f"[ -e /sys/class/infiniband/rxe1 ] || {ADD_DEVICE}")
        self.pair.client.run("rdma link delete rxe1", 30)

    def boot(self) -> None:
        """Its machine has another node, on another queue pair: one with another key has the number of the old one."""
        self.pair.client.run(ADD_DEVICE)
        self.pair.mend(1)
        self.another(f"{AT}2", KEY[::-1])
        self.node = self.another(f"{AT}3")
        ok(self.node.address not in self.near.peers(), "it has the old queue pair")
        eq(self.node.add(self.near.address), "", "the error of ibaddr")

    def another(self, at: str, key: str = KEY) -> Node:
        """Another node of its machine."""
        server = self.pair.address(self.pair.server, 0)
        return self.stack.enter_context(gfarm_node.node(
            self.servers, f"ib_devname=rxe1,{SAME_QKEY}", at, key, machine=self.pair.client,
            source=f"{server}:{GFMD_PORT}", hosts=f"hosts=fs1/{server}+fs2/{server}"))


@needs(wires=2, timeout=500)
def test_a_machine_that_holds_pages_vanishes_and_comes_back(pair: Lab) -> None:
    """It freezes, its wire is cut, it ends without a word: readers go on, and read from it when back."""
    with across(pair, far_options=SAME_QKEY) as (servers, (near, first)), ExitStack() as stack:
        far = Far(pair, servers, near, first, stack)
        cases: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
            "freezes": (far.freeze, pair.client.thaw), "loses its wire": (far.cut, far.mend),
            "ends without a word": (far.crash, far.boot)}
        for number, (what, (goes, comes)) in enumerate(cases.items()):
            held, later = f"held{number}", f"later{number}"
            digest = put(servers, held, SIZE)
            eq(far.node.sha256(held), digest, f"{what}: the holder")
            reader = near.reader(held, PART)
            until(lambda reader=reader: reader.reads or not reader.job.running, 30, f"{what}: the beginning is read")
            goes()
            began = time.monotonic()
            reader.go_on()
            eq(reader.digest(120), digest, f"{what}: the file")
            took = time.monotonic() - began
            comes()
            until(lambda: alive(near, far.node) and alive(far.node, near), BACK_SECONDS, f"{what}: both are known")
            digest = put(servers, later, SIZE)
            eq(far.node.sha256(later), digest, f"{what}: the holder is back")
            share = shares(near, later, digest, SIZE)
            print(f"# {what}: the rest was read in {took:.1f} s, {share:.2f} of the next file from the file server",
                  flush=True)
            in_time(took <= LATE_SECONDS, f"{what}: the rest was read in {took:.1f} s")
            ok(share < 1, f"{what}: the other node has given no page")
            in_time(share <= 0.5, f"{what}: {share:.2f} of the next file came from the file server")


# The nodes in the other machine, and how many silences a read finds out by that all are cut off: two, and those of
# the reads that were under way or that began until then. Each node that does not answer costs up to five otherwise.
FAR_NODES, SILENCES_MAX = 4, 6


@needs(wires=2, timeout=400)
def test_a_node_that_is_cut_off_asks_file_servers_only(pair: Lab) -> None:
    """The RDMA wire goes silently, then with its carrier: few reads wait, or none. Nodes are asked when it is back."""
    with across(pair) as (servers, (near, first)), ExitStack() as stack:
        far = Far(pair, servers, near, first, stack)
        others = [far.another(f"{AT}{number}") for number in range(2, FAR_NODES + 1)]
        acquaint([near, first, *others])
        for number, (end, word) in enumerate(((pair.client, "none answers"), (pair.server, "port is down"))):
            held, later = f"cut{number}", f"joined{number}"
            digest = put(servers, held, SIZE)
            for node in first, *others:
                eq(node.sha256(held), digest, "a holder")
            reader = near.reader(held, PART)
            until(lambda reader=reader: reader.reads or not reader.job.running, 30, "the beginning is read")
            until(lambda: not cut(near), BACK_SECONDS, "nodes are asked")
            before = near.ibstat()
            pair.defer(end.set_link, 1, True)
            end.set_link(1, False)
            if end is pair.server:
                until(lambda word=word: cut(near) == word, 20, "the port is down", pause=0.05)
            began = time.monotonic()
            reader.go_on()
            eq(reader.digest(120), digest, f"{word}: the file")
            took, after = time.monotonic() - began, near.ibstat()
            silences = after["timeouts"] - before["timeouts"]
            print(f"# {word}: the rest was read in {took:.1f} s, {silences} silences", flush=True)
            ok(cut(near) == word, f"{word}: the state is {cut(near)}")
            ge(after["cuts"] - before["cuts"], 1, f"{word}: how often it was cut off")
            # A node of a busy host may be silent for so long, too.
            in_time(after["cuts"] - before["cuts"] == 1, f"{word}: cut off {after['cuts'] - before['cuts']} times")
            # Its reads may all have asked before: they do so side by side.
            other = put(servers, f"other{number}", SIZE)
            eq(near.sha256(f"other{number}"), other, f"{word}: another file")
            ok(near.ibstat()["not_asked"] > before["not_asked"], f"{word}: nodes were asked for all")
            in_time(silences <= (SILENCES_MAX if end is pair.client else 0), f"{word}: {silences} silences")
            end.set_link(1, True)
            until(lambda: not cut(near), BACK_SECONDS, f"{word}: nodes are asked again")
            until(lambda: all(alive(near, node) and alive(node, near) for node in (first, *others)), BACK_SECONDS,
                  f"{word}: all are known")
            digest = put(servers, later, SIZE)
            eq(first.sha256(later), digest, f"{word}: the holder")
            in_time(shares(near, later, digest, SIZE) <= 0.5, f"{word}: too few pages came from the node that is back")


def cut(node: Node) -> str:
    """The reason why a node asks no other one; nothing if it does."""
    (said,) = re.findall(r"^cache: (.*)$", node.machine.read(f"{node.folder}/status"), re.MULTILINE)
    return "" if said == "nodes are asked" else re.sub("(?:no node is asked: (?:the RDMA )?)|,.*", "", said)


# rxe stops a queue pair when the network refuses a packet of it: here all that have more than a byte.
REFUSE = "tc qdisc add dev eth1 root bfifo limit 1"
ACCEPT = "tc qdisc del dev eth1 root"


@needs(wires=2, timeout=300)
def test_a_queue_pair_that_fails_is_started_again(pair: Lab) -> None:
    """The network refuses the messages of a node for a while: after that all is as before, its number as well."""
    with across(pair) as (servers, (near, far)):
        address = far.address
        pair.defer(pair.client.try_run, ACCEPT)
        for turn in range(tier.of(1, 2)):
            mark = pair.client.log_mark()
            pair.client.run(REFUSE)
            until(lambda mark=mark: pair.client.log_matches("had failed, and was started again", mark), 30,
                  "it has failed, and was started again")
            pair.client.run(ACCEPT)
            until(lambda: alive(near, far) and alive(far, near), BACK_SECONDS, "both are known")
            for holder, reader in ((near, far), (far, near)):
                name = f"again{turn}{holder is near}"
                digest = put(servers, name, SIZE)
                eq(holder.sha256(name), digest, "the holder")
                share = shares(reader, name, digest, SIZE)
                ok(share < 1, "the other node has given no page")
                in_time(share <= 0.5, f"{share:.2f} of the file came from the file server")
        eq(far.address, address, "its own address")


@dataclass(frozen=True)
class Link:
    """The link of two nodes: the MTU of each end, what is mounted with, the address, and who can give pages."""

    what: str
    mtus: tuple[int, int]
    options: tuple[str, str] = ("", "")
    gid: str = "::ffff:"
    near_gives: bool = True
    far_gives: bool = True


# The requester says how long fragments are, and a holder with shorter datagrams refuses.
# Both with 4096 by IPv4 is what all other tests have.
LINKS = (Link("4096 and 1024, IPv6", (9000, 1500), gid="fd00:", far_gives=False),
         Link("4096 and 1024, ib_mtu=1024, IPv6 of the link", (9000, 1500), ("ib_mtu=1024", ""), "fe80:"))
# The same once more, where the ends agree or the addresses are of IPv4.
MORE_LINKS = tier.of((), (Link("both 1024, IPv6", (1500, 1500), gid="fd00:"),
                          Link("4096 and 1024, IPv4", (9000, 1500), far_gives=False)))


def gid_index(machine: Machine, device: str, begins: str) -> int:
    """The index of the first address of a device that begins like this."""
    whole = begins.replace("::", "0000:" * 5)
    rows = machine.run(f"grep -H ^{whole} /sys/class/infiniband/{device}/ports/1/gids/* | head -1")
    return int(rows.partition(":")[0].rpartition("/")[2])


def exchange(servers: Gfarm, near: Node, far: Node, link: Link) -> None:
    """Each node reads what the other one has."""
    acquaint([near, far])
    size = MIB // 2 + 1
    for name, holder, reader, gives in (("given", near, far, link.near_gives), ("taken", far, near, link.far_gives)):
        digest = put(servers, name, size)
        eq(holder.sha256(name), digest, f"{link.what}: {name}, the first reader")
        share = shares(reader, name, digest, size)
        if gives and share == 1:
            # A file of this size is a few requests, which one pause of the host makes all too late.
            digest = put(servers, f"{name}_again", size)
            eq(holder.sha256(f"{name}_again"), digest, f"{link.what}: {name}, the first reader once more")
            share = shares(reader, f"{name}_again", digest, size)
        print(f"# {link.what}: {name}: {share:.2f} from the file server", flush=True)
        if not gives:
            eq(share, 1.0, f"{link.what}: {name}: share of the file server")
        else:
            ok(share < 1, f"{link.what}: {name}: the other node has given no page")
            in_time(share <= 0.5, f"{link.what}: {name}: {share:.2f} came from the file server")


@needs(wires=2, timeout=500)
def test_links_with_other_mtus_and_addresses(pair: Lab) -> None:
    """MTUs of 1024 and 4096, the same or not, IPv6 of both kinds: nodes exchange what fits, and files are right."""
    ends = pair.server, pair.client
    for machine in ends:
        pair.defer(machine.run, "ip link set eth1 mtu 9000")
    for link in (*LINKS, *MORE_LINKS):
        for machine, mtu in zip(ends, link.mtus, strict=True):
            machine.run(f"ip link set eth1 mtu {mtu}")
        gids = [f"ib_gid={gid_index(machine, 'rxe1', link.gid)}" for machine in ends]
        options = [",".join(filter(None, words)) for words in zip(gids, link.options, strict=True)]
        with across(pair, *options) as (servers, (near, far)):
            for node in near, far:
                ok(f"gid={link.gid}" in node.address, f"{link.what}: {node.address}")
            exchange(servers, near, far, link)


@needs(wires=2, timeout=400)
def test_two_devices_of_each_machine(pair: Lab) -> None:
    """ib_devname= names the device: nodes on one and nodes on the other know and read from their like only."""
    with across(pair) as (servers, second), across(pair, device="rxe0", at=f"{AT}-rxe0") as (_, first):
        exchange(servers, second[0], second[1], Link("rxe1", (9000, 9000)))
        ok(all(node.ibstat()["peer_pages"] for node in second), "pages between nodes on the second device")
        eq([node.ibstat()["peer_pages"] for node in first], [0, 0], "pages by the first one")
        exchange(servers, first[0], first[1], Link("rxe0", (9000, 9000)))
        for ours, theirs in (first, second), (second, first):
            for node in ours:
                eq(set(node.peers()), {other.address for other in ours} - {node.address}, f"peers of {node.at}")
            ok(not {node.address for node in ours} & {node.address for node in theirs}, "addresses of two devices")
