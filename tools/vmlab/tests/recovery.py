# SPDX-License-Identifier: GPL-2.0
"""The objects that a lost path keeps of its previous connection, and that it drops them in every case.

The server may not know of the end of a lost path. So the client keeps the identifier of the path's first connection,
to disconnect on it later. Whatever it keeps refers to the path, so nothing frees it by itself; after each test here
the runner counts the RDMA objects on both machines.
"""
from __future__ import annotations

import json
import time
from typing import Any

from vmlab import paths, rnbd
from vmlab.checks import eq, in_time, matches, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs

SMP = 2

# The flags of each task that connects a path, by a function on its stack: which of them is inlined changes.
CONNECTS = ("for file in $(grep -lsE 'path7connect|Path7attempt' /proc/[0-9]*/stack); do "
            "cut -d' ' -f9 < ${file%stack}stat; done")
FROM_RESERVES, WITHOUT_IO = 0x800, 0x80000      # PF_MEMALLOC, PF_MEMALLOC_NOIO
# Has pages of its own swapped out (MADV_PAGEOUT is 21); they must not be zeroes, of which none is written.
PAGES_OUT = ("import mmap; pages = mmap.mmap(-1, 1 << 22, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); "
             'pages.write(b"x" * (1 << 22)); pages.madvise(21)')


def _rows(lab: Lab, kind: str) -> list[dict[str, Any]]:
    """The client's objects of this kind that its modules have; their queue pairs are counted as rdma_cm's."""
    owner = "rdma_cm" if kind == "qp" else "rdma_rust"
    rows: list[dict[str, Any]] = json.loads(lab.client.run(f"rdma -j resource show {kind}"))
    return [row for row in rows if owner in row.get("comm", "")]


def _ours(lab: Lab, kind: str) -> int:
    """Objects of this kind that the client's modules have."""
    return len(_rows(lab, kind))


def _ids(lab: Lab, kind: str, key: str) -> set[int]:
    """The identifiers of the objects of this kind that the client's modules have."""
    return {row[key] for row in _rows(lab, kind)}


def _connects_again(pair: Lab, wanted: int) -> None:
    """Loses the path. While the task that connects it again waits for the server, these are its flags."""
    pair.silence(0)
    pair.defer(pair.mend, 0)
    until(lambda: paths.state(pair) == "disconnected", 30, "the path is lost")

    def flags() -> list[int]:
        return [int(number) for number in pair.client.try_run(CONNECTS).out.split() if number.isdigit()]
    for number in until(flags, 30, "an attempt waits for the server"):
        eq(number & (FROM_RESERVES | WITHOUT_IO), wanted, f"flags {number:#x} of the task that connects")
    pair.mend(0)
    paths.back_seconds(pair, lambda: paths.state(pair) == "connected", 60, "the path is connected again")


@needs(wires=1)
def test_a_lost_path_connects_with_what_it_has(pair: Lab) -> None:
    """Completion queues, regions and the protection domain are those of before; queue pairs are new. While the task
    that connects waits for the server its allocations start no IO. They may use the reserves only if there is swap on
    the disk."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair)
    kinds = {"pd": "pdn", "cq": "cqn", "mr": "mrn"}
    kept, pairs = {kind: _ids(pair, kind, key) for kind, key in kinds.items()}, _ids(pair, "qp", "lqpn")
    for kind, ids in {**kept, "qp": pairs}.items():
        ok(ids, f"the modules have no {kind}")
    _connects_again(pair, WITHOUT_IO)
    eq({kind: _ids(pair, kind, key) for kind, key in kinds.items()}, kept, "what a path keeps")
    eq(_ids(pair, "qp", "lqpn") & pairs, set(), "queue pairs that were used again")
    until(lambda: disk.attribute("state") == "open", 30, "the disk is back")
    pair.client.run(f"mkswap {disk.path} && swapon {disk.path}")
    pair.defer(lambda: pair.client.try_run("swapoff -a", 100))
    _connects_again(pair, WITHOUT_IO | FROM_RESERVES)
    pair.client.run(f"swapoff {disk.path}", 100)
    disk.unmap()


@needs(wires=1)
def test_a_path_has_the_reserves_if_there_is_swap_on_its_disk_by_another_device(pair: Lab) -> None:
    """The swap is on a device that lies on the disk: a page that was swapped out tells. Before it, none are used."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair)
    pair.client.run(f"modprobe dm_mod; dmsetup create swapped --table '0 {disk.sectors} linear {disk.path} 0'")
    pair.defer(lambda: pair.client.try_run("dmsetup remove --retry swapped"))
    pair.client.run("mkswap /dev/dm-0 && swapon /dev/dm-0")
    pair.defer(lambda: pair.client.try_run("swapoff -a", 100))
    _connects_again(pair, WITHOUT_IO)
    until(lambda: disk.attribute("state") == "open", 30, "the disk is back")
    writes = disk.requests
    pair.client.run(f"python3 -I -S -c '{PAGES_OUT}'")
    until(lambda: disk.requests > writes, 20, "pages are swapped out")
    _connects_again(pair, WITHOUT_IO | FROM_RESERVES)
    pair.client.run("swapoff /dev/dm-0 && dmsetup remove --retry swapped", 100)
    disk.unmap()


@needs(wires=1)
def test_a_path_that_had_its_attempts_leaves_nothing(pair: Lab) -> None:
    """No attempts are left: the previous connections are destroyed before the unmap, and after it."""
    mark = pair.client.log_mark()
    rnbd.start(pair)
    disk = rnbd.map_disk(pair, options="access_mode=rw max_reconnect_attempts=2")
    pair.server.run("mods -r", 60)
    until(lambda: pair.client.log_matches("it stays closed", mark), 40, "the path is left")
    for kind in ("qp", "cm_id", "mr"):
        until(lambda kind=kind: _ours(pair, kind) == 0, 5, f"no {kind} is left of the path's last life")
    disk.unmap()


@needs(wires=1)
def test_a_device_goes_while_its_path_is_closed(pair: Lab) -> None:
    """A path without attempts left, and one that was closed, hold no device: `rdma link delete` returns."""
    mark = pair.client.log_mark()
    rnbd.start(pair)
    disk = rnbd.map_disk(pair, options="access_mode=rw max_reconnect_attempts=2")
    pair.server.run("mods -r", 60)
    until(lambda: pair.client.log_matches("it stays closed", mark), 40, "the path is left")
    pair.client.run("timeout 20 rdma link delete rxe0", 30)
    pair.client.run("rdma link add rxe0 type rxe netdev eth0")
    disk.unmap()


@needs(wires=2, timeout=240)
def test_a_path_is_closed_while_it_is_torn_down(pair: Lab) -> None:
    """`disconnect` at each point after an error, including the delay before the first message to the peer."""
    with paths.two_paths(pair):
        folder = paths.to_wire(pair, 1)
        for pause_ms in (0, 20, 50, 80, 100, 120, 200):
            # The server disconnects; shortly later the administrator closes the client's path.
            pair.server.run("for p in /sys/class/rtrs-server/s1/paths/*10.0.1.*; do echo 1 > $p/disconnect; done")
            if pause_ms:
                time.sleep(pause_ms / 1000)
            eq(pair.client.write(f"{folder}/disconnect", "1"), "")
            eq(paths.state(pair, 1), "disconnected")
            pair.client.run("timeout 20 rdma link delete rxe1", 30)
            pair.client.run("rdma link add rxe1 type rxe netdev eth1")
            eq(pair.client.write(f"{folder}/reconnect", "1"), "")
            eq(paths.state(pair, 1), "connected")


@needs(wires=1)
def test_a_device_goes_while_its_path_waits_to_connect(pair: Lab) -> None:
    """With a pause of ten minutes between two attempts: what a lost path keeps does not hold its device that long."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair, options="access_mode=rw reconnect_delay_ms=600000")
    pair.server.run("mods -r", 60)
    until(lambda: paths.count(pair, "reconnects", 1) >= 6, 60, "pauses have become long")
    began = paths.uptime(pair.client)
    pair.client.run("timeout 20 rdma link delete rxe0", 30)
    in_time((took := paths.uptime(pair.client) - began) <= 3.0, f"the device was held for {took:.1f} s")
    pair.client.run("rdma link add rxe0 type rxe netdev eth0")
    rnbd.load_server(pair)
    eq(pair.client.write(f"{paths.to_wire(pair)}/reconnect", "1"), "")
    until(lambda: disk.attribute("state") == "open", 20, "the disk is back")
    disk.unmap()


@needs(wires=2)
def test_a_path_that_exists_cannot_be_added_again(pair: Lab) -> None:
    """EEXIST and one line in the log, whether the path is connected or not, with and without its source address."""
    with paths.two_paths(pair):
        source, to = pair.address(pair.client, 1), pair.address(pair.server, 1)
        folder = paths.to_wire(pair, 1)
        for state in ("connected", "disconnected"):
            for text in (f"ip:{to}", f"ip:{source}@ip:{to}"):
                mark = pair.client.log_mark()
                eq(pair.client.write(rnbd.session_file("add_path"), text), "EEXIST", f"{text} while {state}")
                said = pair.client.log_matches("rtrs|rnbd", mark)
                eq(len(said), 1, f"lines of the log ({' / '.join(said)})")
                matches(said[0], r"exists")
            eq(len(paths.names(pair)), 2)
            eq(pair.client.write(f"{folder}/disconnect", "1"), "")
            eq(paths.state(pair, 1), "disconnected")
        eq(pair.client.write(f"{folder}/reconnect", "1"), "")
        # Once removed it is not in the way.
        eq(pair.client.write(f"{folder}/remove_path", "1"), "")
        eq(pair.client.write(rnbd.session_file("add_path"), f"ip:{source}@ip:{to}"), "")
        eq(pair.client.write(rnbd.session_file("add_path"), f"ip:{to}"), "EEXIST", "without the source")
        eq(paths.states(pair), ["connected", "connected"])


@needs(wires=1)
def test_a_path_is_named_twice(pair: Lab) -> None:
    """The same path twice in map_device is EEXIST, and the server is not asked."""
    rnbd.start(pair)
    source, to = pair.address(pair.client, 0), pair.address(pair.server, 0)
    for twice in (f"path=ip:{to} path=ip:{to}", f"path=ip:{source}@ip:{to} path=ip:{to}"):
        mark, theirs = pair.client.log_mark(), pair.server.log_mark()
        eq(rnbd.try_map(pair, f"sessname=s1 {twice} device_path=ram0 access_mode=rw"), "EEXIST")
        ok(pair.client.log_matches("exists", mark), "the log does not say why")
        eq(pair.server.log_matches("rejected|refused", theirs), [], "what the server says")
    rnbd.works(pair)


@needs(wires=1)
def test_a_server_whose_address_is_not_known_yet(pair: Lab) -> None:
    """A disk that is mapped before its server answers questions for its address is there soon after it does.

    The kernel asks three times, a second apart, and then no more for an identifier that waits.
    """
    rnbd.start(pair)
    # With 8 the server answers no such question.
    silent = "/proc/sys/net/ipv4/conf/eth0/arp_ignore"
    pair.defer(lambda: pair.server.try_run(f"echo 0 > {silent}"))
    pair.server.run(f"echo 8 > {silent}")
    pair.client.run("ip neigh flush dev eth0")
    mapping = pair.client.start_job(f"echo '{rnbd.request(pair)}' > {rnbd.CONTROL}/map_device", 60)
    neighbour = f"ip neigh show {pair.address(pair.server, 0)} dev eth0"
    until(lambda: "FAILED" in pair.client.run(neighbour), 10, "the kernel has given up asking", pause=0.05)
    pair.server.run(f"echo 0 > {silent}")
    began = paths.uptime(pair.client)
    mapping.ok()
    in_time((took := paths.uptime(pair.client) - began) <= 8.0, f"the disk was mapped after {took:.1f} s")
    name = pair.client.run(f"basename $(readlink -f {rnbd.CONTROL}/devices/ram0@s1)").strip()
    rnbd.Disk(pair.client, name, "s1", "ram0").unmap()
