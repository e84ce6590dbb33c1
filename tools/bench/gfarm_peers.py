# SPDX-License-Identifier: GPL-2.0
"""What a page from another node costs beside one from a file server, and what the device can do at most.

One guest has the servers, a mount without the cache, and two nodes with a page cache each. The first node has a file,
the second one reads it from there. Rates are in guest time (-icount): what the holder does beside counts as well.
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
PAGES = (COUNTED_MIB[1] - COUNTED_MIB[0]) * 256
QKEY = 0x1234
SOURCES = ("gfsd", "node")
# Functions of the device: doorbells of sends and receives, and changes of state or key.
CALLS = ("rxe_post_send", "rxe_post_recv", "rxe_modify_qp")
MODULES = (*gfarm_counts.MODULES, "rdma_rust")
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
    _number, qpn, gid = say(f"open rxe0 0 {sys.argv[2]}")
for _ in range(2):
    found = say(f"stream 0 {gid} {qpn} {sys.argv[2]} {sys.argv[3]} {sys.argv[4]}")
print(*found)
"""
# Drops what one mount has of a file.
FORGET = r"""
import os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
"""
Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Rate:
    """MB/s in guest time with one length of fragments, and what the device was asked for meanwhile, per request."""

    fragment: int
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


def stream(machine: Machine, fragment: int) -> float:
    """MB/s of datagrams of this length, as fast as the device takes them."""
    program = f"{gfarm_node.bring_peer(machine)}/datagram_peer"
    count = STREAM_BYTES // fragment
    received, us = map(int, _script(machine, STREAM, program, QKEY, count, fragment).split())
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


@contextmanager
def counted(machine: Machine) -> Iterator[dict[str, int]]:
    """Calls of the device's functions during the body, by the kernel's own probes."""
    found: dict[str, int] = {}
    machine.run(f"mountpoint -q {TRACING} || mount -t tracefs none {TRACING}")
    machine.run("\n".join(f"echo 'p:bench/{name} {name}' >> {TRACING}/kprobe_events" for name in CALLS)
                + f"\necho 1 > {TRACING}/events/bench/enable")
    try:
        yield found
        rows = (line.split() for line in machine.read(f"{TRACING}/kprobe_profile").splitlines())
        found.update({row[0]: int(row[1]) for row in rows if row[0] in CALLS})
    finally:
        machine.run(f"echo 0 > {TRACING}/events/bench/enable; echo > {TRACING}/kprobe_events")


def rate(say: Say, servers: Gfarm, mtu: int, turns: int) -> Rate:
    """One length of fragments. The file is `big`."""
    machine, fragment = servers.machine, MTUS[mtu]
    machine.run(f"ip link set eth0 mtu {mtu}")
    raw = stream(machine, fragment)
    node, gfsd = [], []
    with mounts(servers, f"ib_mtu={fragment}") as (plain, one, other):
        read(servers, one, "big")
        for _turn in range(turns):
            gfsd.append(read(servers, plain, "big"))
            node.append(from_node(servers, other, "big"))
            say(f"fragments of {fragment}: raw {raw:.1f}, from a node {node[-1]:.1f}, from a gfsd {gfsd[-1]:.1f} MB/s")
        before = other.ibstat()["asked"]
        with counted(machine) as calls:
            from_node(servers, other, "big")
        requests = other.ibstat()["asked"] - before
    return Rate(fragment, raw, statistics.median(node), statistics.median(gfsd), requests,
                {name: count / requests for name, count in calls.items()})


def rates(say: Say, quick: bool, turns: int) -> list[Rate]:
    """For each length of fragments."""
    with Lab(Spec(machines=1, smp=2, icount=ICOUNT)) as lab:
        servers = gfarm_mount.start(lab)
        put_random(servers, "big", (QUICK_MIB if quick else MIB) << 20)
        return [rate(say, servers, mtu, turns) for mtu in MTUS]


def _read(servers: Gfarm, symbols: Symbols, base: pathlib.Path, mark: int, path: str) -> dict[tuple[str, str], int]:
    program = servers.push(gfarm_speed.PROGRAM)
    servers.run(f"sleep 1; /tmp/mark; python3 -I -S {program} read {path} > /dev/null; sleep 0.2; /tmp/mark",
                gfarm_speed.SECONDS)
    return counting.read_counts(base.with_name(f"{base.name}.{mark}"), symbols)


def counts(say: Say) -> dict[tuple[int, str], Totals]:
    """{(length of fragments, source): {(module, function): instructions per page}}, of everything in the guest."""
    results: dict[tuple[int, str], Totals] = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        base, marks = pathlib.Path(name) / "counts", 1
        count, mark = counting.compile_tools(pathlib.Path(name))
        spec = Spec(machines=1, smp=1, accel="tcg,thread=single", append="nokaslr",
                    qemu_args=("-plugin", f"file={count},out={base}"))
        with Lab(spec) as lab:
            servers = gfarm_mount.start(lab)
            lab.server.push(mark, "/tmp/mark")
            servers.run("chmod 755 /tmp/mark")
            for mib in COUNTED_MIB:
                put_random(servers, f"mib{mib}", mib << 20)
            for mtu, fragment in MTUS.items():
                servers.run(f"ip link set eth0 mtu {mtu}")
                with mounts(servers, f"ib_mtu={fragment}") as (plain, one, other):
                    for mib in COUNTED_MIB:
                        read(servers, one, f"mib{mib}")
                    symbols = Symbols(servers.run("cat /proc/kallsyms", 120))
                    runs: dict[tuple[str, int], dict[tuple[str, str], int]] = {}
                    # The first round is of what is done for the first time only.
                    for source, mount in [*zip(SOURCES, (plain, other), strict=True)] * 2:
                        say(f"counting: fragments of {fragment}, from a {source}")
                        for mib in COUNTED_MIB:
                            forget(mount, f"mib{mib}")
                            runs[source, mib] = _read(servers, symbols, base, marks, f"{mount.at}/mib{mib}")
                            marks += 2
                for source in SOURCES:
                    short, long = (runs[source, mib] for mib in COUNTED_MIB)
                    results[fragment, source] = {key: (long.get(key, 0) - short.get(key, 0)) / PAGES
                                                 for key in short.keys() | long.keys()}
    return results
