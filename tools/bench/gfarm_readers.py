# SPDX-License-Identifier: GPL-2.0
"""Readers of one file that start together: nodes of the cache, mounts without it, NFS, gfarm2fs, in one guest.

Each reader has a page cache of its own. Times are in guest time (-icount): all readers and servers share it, so a
reader more costs what it does, as if there were one processor for all.
"""
from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import nfs
from gfarm_peers import ICOUNT
from nfs import Nfs

from vmlab import gfarm_mount, gfarm_node
from vmlab.checks import eq, until
from vmlab.gfarm import FOLDER, FUSE, PROGRAMS
from vmlab.gfarm_mount import AT, Mount, mounted
from vmlab.gfarm_node import Node
from vmlab.lab import Lab, Spec

COUNTS = (1, 2, 4, 8)
MIB, QUICK_MIB = 16, 4
NAME, ORIGINAL = "shared", f"{FOLDER}/original"
PROGRAM = "gfarm_cache_readers.py"
CACHE, PLAIN, PROGRAM_CLIENT = "gfarm_ra, cc=on", "gfarm_ra", "gfarm2fs"
NFS = {"NFS, TCP": nfs.TCP, "NFS, RDMA": nfs.RDMA}
# Of these is known what servers have sent.
COUNTING = (CACHE, PLAIN, *NFS)
# What the readers themselves do, which is in all others as well.
LOCAL = "local file"
CLIENTS = (*COUNTING, PROGRAM_CLIENT, LOCAL)


@dataclasses.dataclass(frozen=True)
class Start:
    """Seconds of guest time until the last reader has all, and the copies that servers have sent; None if neither
    they nor the client counts them."""

    seconds: float
    copies: float | None


class Rig:
    """The servers of both kinds, which have the same file."""

    def __init__(self, lab: Lab, size: int) -> None:
        self.servers = gfarm_mount.start(lab)
        self.servers.machine.push(PROGRAMS / PROGRAM, f"{FOLDER}/{PROGRAM}")
        self.servers.run(f"head -c {size} /dev/urandom > {ORIGINAL}; gfreg -h fs1 {ORIGINAL} /{NAME}", 300)
        self.nfs = Nfs(lab.server, lab.server_address)
        self.nfs.start()
        self.nfs.put(ORIGINAL, NAME)
        self.size = size

    @contextmanager
    def _places(self, client: str, count: int) -> Iterator[tuple[list[str], Callable[[], int] | None]]:
        """Folders of so many mounts of a client, and how many bytes servers have sent so far."""
        with ExitStack() as stack:
            if client == PROGRAM_CLIENT:
                yield [stack.enter_context(self.servers.fuse(f"{FUSE}{number}")) for number in range(count)], None
            elif client == LOCAL:
                yield [nfs.FOLDER] * count, None
            elif client in NFS:
                yield [stack.enter_context(self.nfs.mounted(f"/mnt/nfs{number}", NFS[client]))
                       for number in range(count)], self.nfs.sent
            elif client == CACHE:
                nodes = [stack.enter_context(gfarm_node.node(self.servers, at=f"{AT}{number}"))
                         for number in range(count)]
                _acquaint(nodes)
                yield _counted(nodes)
            else:
                yield _counted([stack.enter_context(mounted(self.servers, at=f"{AT}{number}"))
                                for number in range(count)])

    def start(self, client: str, count: int) -> Start:
        """All readers at once."""
        with self._places(client, count) as (folders, sent):
            self.servers.machine.write("/proc/sys/vm/drop_caches", "3")
            paths = " ".join(f"{folder}/{NAME}" for folder in folders)
            before = sent() if sent else 0
            said = json.loads(self.servers.run(
                f"exec python3 -I -S {FOLDER}/{PROGRAM} sequential 1 {ORIGINAL} {paths}", 900))
            eq([row["wrong"] for row in said], [0] * count, "pieces with other bytes")
            copies = (sent() - before) / self.size if sent else None
            return Start(max(row["seconds"] for row in said), copies)


def _counted(found: Sequence[Mount]) -> tuple[list[str], Callable[[], int]]:
    """Folders of mounts, and what file servers have sent to them."""
    return [mount.at for mount in found], lambda: sum(mount.stats()["gfsd_bytes"] for mount in found)


def _acquaint(found: Sequence[Node]) -> None:
    """Tells each node of the first one, and waits until all know all."""
    for node in found[1:]:
        eq(node.add(f"add {found[0].address}"), "", "the error of ibaddr")
    known = ["alive"] * (len(found) - 1)
    until(lambda: all(list(node.peers().values()) == known for node in found), 60, "all know all")


def measure(say: Callable[[str], None], quick: bool) -> dict[tuple[str, int], Start]:
    """{(client, number of readers): what came of it}."""
    found = {}
    size = (QUICK_MIB if quick else MIB) << 20
    with Lab(Spec(machines=1, smp=2, icount=ICOUNT)) as lab:
        rig = Rig(lab, size)
        for count in COUNTS:
            for client in CLIENTS:
                found[client, count] = rig.start(client, count)
                start = found[client, count]
                sent = "" if start.copies is None else f", {start.copies:.2f} copies"
                say(f"{count} readers, {client}: {start.seconds:.2f} s{sent}")
    return found
