# SPDX-License-Identifier: GPL-2.0
"""Readers of one file that start together: nodes of the cache, mounts without it, and gfarm2fs, in one guest.

Each reader has a page cache of its own. Times are in guest time (-icount): all readers and servers share it, so a
reader more costs what it does, as if there were one processor for all.
"""
from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from gfarm_peers import ICOUNT

from vmlab import gfarm_mount, gfarm_node
from vmlab.checks import eq, until
from vmlab.gfarm import FOLDER, FUSE, PROGRAMS, Gfarm
from vmlab.gfarm_mount import AT, Mount, mounted
from vmlab.lab import Lab, Spec

COUNTS = (1, 2, 4, 8)
MIB, QUICK_MIB = 16, 4
NAME, ORIGINAL = "shared", f"{FOLDER}/original"
PROGRAM = "gfarm_cache_readers.py"
CACHE, PLAIN, PROGRAM_CLIENT = "gfarm_ra, cc=on", "gfarm_ra", "gfarm2fs"
CLIENTS = (CACHE, PLAIN, PROGRAM_CLIENT)


@dataclasses.dataclass(frozen=True)
class Start:
    """Seconds of guest time until the last reader has all, and the copies that file servers have sent; None if the
    client does not count them."""

    seconds: float
    copies: float | None


@contextmanager
def _places(servers: Gfarm, client: str, count: int) -> Iterator[tuple[list[str], Sequence[Mount]]]:
    """Folders of so many mounts of a client, and the mounts that count."""
    with ExitStack() as stack:
        if client == PROGRAM_CLIENT:
            yield [stack.enter_context(servers.fuse(f"{FUSE}{number}")) for number in range(count)], ()
            return
        if client == PLAIN:
            plain = [stack.enter_context(mounted(servers, at=f"{AT}{number}")) for number in range(count)]
            yield [mount.at for mount in plain], plain
            return
        nodes = [stack.enter_context(gfarm_node.node(servers, "", f"{AT}{number}")) for number in range(count)]
        for node in nodes[1:]:
            eq(node.add(f"add {nodes[0].address}"), "", "the error of ibaddr")
        known = ["alive"] * (count - 1)
        until(lambda: all(list(node.peers().values()) == known for node in nodes), 60, "all know all")
        yield [node.at for node in nodes], nodes


def _start(servers: Gfarm, client: str, count: int, size: int) -> Start:
    with _places(servers, client, count) as (folders, counting):
        servers.machine.write("/proc/sys/vm/drop_caches", "3")
        paths = " ".join(f"{folder}/{NAME}" for folder in folders)
        said = json.loads(servers.run(f"exec python3 -I -S {FOLDER}/{PROGRAM} sequential 1 {ORIGINAL} {paths}", 900))
        eq([row["wrong"] for row in said], [0] * count, "pieces with other bytes")
        copies = sum(mount.stats()["gfsd_bytes"] for mount in counting) / size if counting else None
        return Start(max(row["seconds"] for row in said), copies)


def measure(say: Callable[[str], None], quick: bool) -> dict[tuple[str, int], Start]:
    """{(client, number of readers): what came of it}."""
    found = {}
    size = (QUICK_MIB if quick else MIB) << 20
    with Lab(Spec(machines=1, smp=2, icount=ICOUNT)) as lab:
        servers = gfarm_mount.start(lab)
        servers.machine.push(PROGRAMS / PROGRAM, f"{FOLDER}/{PROGRAM}")
        servers.run(f"head -c {size} /dev/urandom > {ORIGINAL}; gfreg -h fs1 {ORIGINAL} /{NAME}", 300)
        for count in COUNTS:
            for client in CLIENTS:
                found[client, count] = _start(servers, client, count, size)
                start = found[client, count]
                sent = "" if start.copies is None else f", {start.copies:.2f} copies"
                say(f"{count} readers, {client}: {start.seconds:.2f} s{sent}")
    return found
