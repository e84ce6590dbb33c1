# SPDX-License-Identifier: GPL-2.0
"""The cost of a page from another node beside one from a file server, and the most that the device can do.

One guest has the servers, a mount without the cache, and two nodes with a page cache each. The first node has a file,
the second one reads it from there. Rates are in guest time (-icount): what the holder does beside counts as well.

Datagrams to an IPv4 address of the same machine cost more than those to an IPv6 address: the kernel keeps no route to
the former, and looks one up for each. So what the device can do is measured with the addresses that the nodes have.
"""
from __future__ import annotations

import dataclasses
import pathlib
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import counting
import gfarm_counts
from counting import Symbols
from gfarm_counts import Totals

from vmlab import gfarm_mount, gfarm_node, gfarm_speed
from vmlab.checks import eq, until
from vmlab.gfarm import Gfarm
from vmlab.gfarm_mount import AT, Mount, mounted, put_random
from vmlab.gfarm_node import Node
from vmlab.lab import Lab, Spec
from vmlab.machine import Machine

ICOUNT = "shift=2,sleep=off"
# The MTU of the network device, and the longest fragments that it has room for.
MTUS = {1500: 1024, 4500: 4096}
MIB, QUICK_MIB = 32, 8
STREAM_BYTES = 16 << 20
# Of the files whose instructions are counted.
COUNTED_MIB = (4, 12)
PAGE_BYTES = 4096
MIB_PAGES = (1 << 20) // PAGE_BYTES
PAGES = (COUNTED_MIB[1] - COUNTED_MIB[0]) * MIB_PAGES
QKEY = 0x1234
SOURCES = ("gfsd", "node", "raw")
# How the addresses of the device begin; nodes take that of IPv4 unless `ib_gid` names another one.
ADDRESSES = {"IPv4": "0000:0000:0000:0000:0000:ffff:", "IPv6": "fe80:"}
# Functions of the device: doorbells of sends and receives, and changes of state or key.
CALLS = ("rxe_post_send", "rxe_post_recv", "rxe_modify_qp")
MODULES = (*gfarm_counts.MODULES, "rdma_transfer", "rdma_rust")
TRACING = "/sys/kernel/tracing"
# Sends datagrams from one queue pair of a program to another one of it.
STREAM = r"""
import subprocess, sys
peer = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def say(line):
    print(line, file=peer.stdin, flush=True)
    answer = peer.stdout.readline().split()
    assert answer[0] == "ok", answer
    return answer[1:]
for _ in range(2):
    _number, qpn, gid = say(f"open rxe0 {sys.argv[2]} {sys.argv[3]}")
for _ in range(int(sys.argv[6])):
    found = say(f"stream 0 {gid} {qpn} {sys.argv[3]} {sys.argv[4]} {sys.argv[5]}")
print(*found)
"""
STREAM_AT = "/tmp/stream.py"
# Drops what one mount has of a file.
FORGET = r"""
import os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
"""
Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Rate:
    """MB/s in guest time with one length of fragments and one kind of address, and what the device was asked for
    meanwhile, per request."""

    fragment: int
    address: str
    raw: float
    node: float
    gfsd: float
    requests: int
    calls: dict[str, float]


@contextmanager
def mounts(servers: Gfarm, options: str) -> Iterator[tuple[Mount, Node, Node]]:
    """A mount without the cache, and two nodes that know each other."""
    with ExitStack() as stack:
        plain = stack.enter_context(mounted(servers))
        one, other = (stack.enter_context(gfarm_node.node(servers, options, f"{AT}{number}")) for number in range(2))
        eq(one.add(f"add {other.address}"), "", "the error of ibaddr")
        until(lambda: all(list(node.peers().values()) == ["alive"] for node in (one, other)), 60, "both are known")
        yield plain, one, other


def _script(machine: Machine, script: str, *arguments: object) -> str:
    words = " ".join(map(str, arguments))
    return machine.run(f"python3 -I -S - {words} <<'END'\n{script}\nEND", gfarm_speed.SECONDS)


def gid_index(machine: Machine, address: str) -> int:
    """The index at which the device has an address of a kind."""
    rows = machine.run(f"grep -l ^{ADDRESSES[address]} /sys/class/infiniband/rxe0/ports/1/gids/*")
    return int(rows.split()[0].rpartition("/")[2])


def _stream_words(machine: Machine, fragment: int, index: int, count: int, turns: int) -> str:
    program = f"{gfarm_node.bring_peer(machine)}/datagram_peer"
    return f"{program} {index} {QKEY} {count} {fragment} {turns}"


def stream(machine: Machine, fragment: int, index: int) -> float:
    """MB/s of datagrams of this length, as fast as the device takes them. The first turn does not count."""
    count = STREAM_BYTES // fragment
    received, us = map(int, _script(machine, STREAM, _stream_words(machine, fragment, index, count, 2)).split())
    eq(received, count, "datagrams that came")
    return STREAM_BYTES / us


def forget(mount: Mount, name: str) -> None:
    """Drops what a mount has of a file, and no other."""
    _script(mount.machine, FORGET, f"{mount.at}/{name}")


def read(servers: Gfarm, mount: Mount, name: str) -> float:
    """MB/s of a mount that has nothing of the file."""
    forget(mount, name)
    done, seconds = gfarm_speed.run(servers, "read", f"{mount.at}/{name}")
    return done / seconds / 1e6


def from_node(servers: Gfarm, node: Node, name: str) -> float:
    """MB/s of a node that reads a file from another one; not a byte is from a file server."""
    before = node.stats()["gfsd_bytes"]
    found = read(servers, node, name)
    eq(node.stats()["gfsd_bytes"] - before, 0, "bytes from the file server")
    return found


def calls(servers: Gfarm, node: Node, name: str) -> tuple[int, dict[str, int]]:
    """Requests of one read of a file, and calls of the device's functions by the kernel's own probes. An idle guest's
    clock runs ahead, and members are probed by it: so nothing is between the read and a look at the probes."""
    machine, program = servers.machine, servers.push(gfarm_speed.PROGRAM)
    machine.run(f"mountpoint -q {TRACING} || mount -t tracefs none {TRACING}")
    machine.run("\n".join(f"echo 'p:bench/{name} {name}' >> {TRACING}/kprobe_events" for name in CALLS)
                + f"\necho 1 > {TRACING}/events/bench/enable")
    try:
        forget(node, name)
        asked = node.ibstat()["asked"]
        look = f"cat {TRACING}/kprobe_profile"
        read_it = f"python3 -I -S {program} read {node.at}/{name}"
        before, after = servers.run(f"{look}; echo =; {read_it} > /dev/null; {look}", gfarm_speed.SECONDS).split("=")
        asked = node.ibstat()["asked"] - asked
    finally:
        machine.run(f"echo 0 > {TRACING}/events/bench/enable; echo > {TRACING}/kprobe_events")
    first, last = ({row[0]: int(row[1]) for row in map(str.split, text.splitlines()) if row}
                   for text in (before, after))
    return asked, {name: last[name] - first[name] for name in CALLS}


def rate(say: Say, servers: Gfarm, fragment: int, address: str, turns: int) -> Rate:
    """One length of fragments and one kind of address. The file is `big`."""
    node, gfsd = [], []
    index = gid_index(servers.machine, address)
    with mounts(servers, f"ib_mtu={fragment},ib_gid={index}") as (plain, one, other):
        raw = stream(servers.machine, fragment, index)
        read(servers, one, "big")
        for _turn in range(turns):
            gfsd.append(read(servers, plain, "big"))
            node.append(from_node(servers, other, "big"))
            say(f"fragments of {fragment}, {address}: raw {raw:.1f}, from a node {node[-1]:.1f}, "
                f"from a gfsd {gfsd[-1]:.1f} MB/s")
        requests, found = calls(servers, other, "big")
    return Rate(fragment, address, raw, statistics.median(node), statistics.median(gfsd), requests,
                {name: count / requests for name, count in found.items()})


def rates(say: Say, quick: bool, turns: int) -> list[Rate]:
    """Measures each length of fragments with each kind of address."""
    with Lab(Spec(machines=1, smp=2, icount=ICOUNT)) as lab:
        servers = gfarm_mount.start(lab)
        put_random(servers, "big", (QUICK_MIB if quick else MIB) << 20)
        found = []
        for mtu, fragment in MTUS.items():
            servers.machine.run(f"ip link set eth0 mtu {mtu}")
            found += [rate(say, servers, fragment, address, turns) for address in ADDRESSES]
        return found


class _Counter:
    """A guest under the plugin, and what its marks have counted."""

    def __init__(self, servers: Gfarm, base: pathlib.Path) -> None:
        self._servers, self._base, self._marks = servers, base, 0

    def run(self, symbols: Symbols, command: str) -> dict[tuple[str, str], int]:
        """Instructions of everything in the guest while a command runs."""
        self._servers.run(f"sleep 1; /tmp/mark; {command} > /dev/null; sleep 0.2; /tmp/mark", gfarm_speed.SECONDS)
        self._marks += 2
        return counting.read_counts(self._base.with_name(f"{self._base.name}.{self._marks - 1}"), symbols)


def _totals(say: Say, servers: Gfarm, counter: _Counter, fragment: int) -> dict[str, Totals]:
    """{source: {(module, function): instructions per page}} with one length of fragments."""
    machine, program = servers.machine, servers.push(gfarm_speed.PROGRAM)
    index = gid_index(machine, "IPv4")
    with mounts(servers, f"ib_mtu={fragment},ib_gid={index}") as (plain, one, other):
        for mib in COUNTED_MIB:
            read(servers, one, f"mib{mib}")
        symbols = Symbols(servers.run("cat /proc/kallsyms", 120))
        runs: dict[tuple[str, int], dict[tuple[str, str], int]] = {}
        # The first round is of what is done for the first time only.
        for source, mount in [*zip(SOURCES, (plain, other, None), strict=True)] * 2:
            say(f"counting: fragments of {fragment}, {source}")
            for mib in COUNTED_MIB:
                if mount:
                    forget(mount, f"mib{mib}")
                    command = f"python3 -I -S {program} read {mount.at}/mib{mib}"
                else:
                    words = _stream_words(machine, fragment, index, (mib << 20) // fragment, 1)
                    command = f"python3 -I -S {STREAM_AT} {words}"
                runs[source, mib] = counter.run(symbols, command)
    found = {}
    for source in SOURCES:
        short, long = (runs[source, mib] for mib in COUNTED_MIB)
        found[source] = {key: (long.get(key, 0) - short.get(key, 0)) / PAGES for key in short.keys() | long.keys()}
    return found


def counts(say: Say) -> dict[tuple[int, str], Totals]:
    """{(length of fragments, source): {(module, function): instructions per page}}, of everything in the guest.

    With -icount, as for the rates: else what is done by time, such as the probes of members, is done the more often the
    busier the host is.
    """
    results: dict[tuple[int, str], Totals] = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        base = pathlib.Path(name) / "counts"
        count, mark = counting.compile_tools(pathlib.Path(name))
        spec = Spec(machines=1, smp=1, accel="tcg,thread=single", append="nokaslr", icount=ICOUNT,
                    qemu_args=("-plugin", f"file={count},out={base}"))
        with Lab(spec) as lab:
            servers = gfarm_mount.start(lab)
            lab.server.push(mark, "/tmp/mark")
            servers.run("chmod 755 /tmp/mark")
            for mib in COUNTED_MIB:
                put_random(servers, f"mib{mib}", mib << 20)
            script = pathlib.Path(name) / "stream.py"
            script.write_text(STREAM)
            servers.machine.push(script, STREAM_AT)
            counter = _Counter(servers, base)
            for mtu, fragment in MTUS.items():
                servers.run(f"ip link set eth0 mtu {mtu}")
                for source, totals in _totals(say, servers, counter, fragment).items():
                    results[fragment, source] = totals
    return results
