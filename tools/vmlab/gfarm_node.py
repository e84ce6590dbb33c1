# SPDX-License-Identifier: GPL-2.0
"""Mounts that are nodes of Gfarm's cooperative cache.

    servers = gfarm_mount.start(vm)
    with gfarm_node.node(servers, "ib_mtu=512") as one, gfarm_node.node(servers, at=AT + "2") as two:
        two.add(one.address)
        one.ibstat()["peer_pages"]
"""
from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vmlab import assets
from vmlab.checks import eq
from vmlab.gfarm import Gfarm
from vmlab.gfarm_mount import AT, HOSTS, SHORT, SOURCE, Mount
from vmlab.machine import Machine, Result

PEER = Path(__file__).with_name("peer")
KDIR = PEER.parents[1] / "kdir"
KEY = "00112233445566778899aabbccddeeff"
DESCRIPTION = "gfarm:cache"


class Node(Mount):
    """A mount that is a node."""

    @property
    def address(self) -> str:
        """Its own line of ibaddr."""
        return self.machine.read(f"{self.folder}/ibaddr").splitlines()[0]

    def content(self, servers: Gfarm, name: str) -> tuple[str, str, str]:
        """Tells the content of a file: its number, its generation, and when it was written, in nanoseconds."""
        said = servers.run(f"gfstat /{name}")
        found = re.search(r"Inode: *(\d+) *Gen: *(\d+)", said)
        assert found, said
        time = self.machine.run(f"stat -c %.9Y {self.at}/{name}").strip().replace(".", "")
        return found[1], found[2], time

    def peers(self) -> dict[str, str]:
        """The state of each peer, by its line without that."""
        rows = self.machine.read(f"{self.folder}/ibaddr").splitlines()[1:]
        return {address: rest.split()[0] for address, _, rest in (row.partition(" state=") for row in rows)}

    def pages(self) -> dict[str, int]:
        """The number of pages that have come from each peer, by its line as above."""
        rows = self.machine.read(f"{self.folder}/ibaddr").splitlines()[1:]
        return {row.partition(" state=")[0]: int(row.rpartition("pages=")[2]) for row in rows}

    def add(self, line: str) -> str:
        """Writes a line to ibaddr; answers the error's name, or nothing."""
        return self.machine.write(f"{self.folder}/ibaddr", line + "\n")

    def ibstat(self) -> dict[str, int]:
        """Counts of the node."""
        rows = (line.split() for line in self.machine.read(f"{self.folder}/ibstat").splitlines())
        return {name: int(count) for name, count in rows}

    def dropped(self) -> dict[str, int]:
        """Counts of what it has dropped, by reason, where there is any."""
        counts = self.ibstat().items()
        return {name.removeprefix("dropped_"): count for name, count in counts if "dropped_" in name and count}


def bring_peer(machine: Machine, *scripts: str) -> str:
    """Brings what plays a node in user space: its queue pairs, compiled in the Debian root against its own verbs
    library, and scripts of the folder `peer`. Answers the folder."""
    source = PEER / "datagram_peer.c"
    program = assets.cache_dir() / f"datagram_peer-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}"
    if not program.exists():
        part = program.with_name(f".{program.name}.{os.getpid()}")      # another lab may be at it, too
        subprocess.run([sys.executable, "-B", str(KDIR), "run", "gcc-14", "-O2", "-Wall", "-Wextra", "-Werror", "-o",
                        str(part), str(source), "-libverbs"], check=True)
        part.rename(program)
    machine.run("mkdir -p /tmp/peer; modprobe ib_uverbs")
    for script in scripts:
        machine.push(PEER / script, f"/tmp/peer/{script}")
    machine.push(program, "/tmp/peer/datagram_peer")
    machine.run("chmod 755 /tmp/peer/datagram_peer")
    return "/tmp/peer"


def queue_pairs(machine: Machine) -> int:
    """The number of queue pairs of the modules."""
    return machine.run("rdma resource show qp").count("[rdma_rust]")


def try_mount(servers: Gfarm, options: str, key: str | None = KEY, at: str = AT, *, machine: Machine | None = None,
              source: str = SOURCE, hosts: str = HOSTS) -> Result:
    """Mounts with a key of the cache beside that of the user; `machine` is another one than that of the servers."""
    own = servers.keys["root"].strip()
    store = f"echo {shlex.quote(own)} | keyctl padd logon gfarm:root @s > /dev/null"
    if key is not None:
        store += f" && echo {shlex.quote(key)} | keyctl padd logon {DESCRIPTION} @s > /dev/null"
    named = f"username=root,{hosts},{SHORT}"
    script = f"{store} && exec mount -i -t gfarm {source} {at} -o {named},{options}"
    where = machine or servers.machine
    return where.try_run(f"mkdir -p {at}; keyctl session - bash -c {shlex.quote(script)} 2>&1", 120)


@contextmanager
def node(servers: Gfarm, options: str = "", at: str = AT, key: str = KEY, *, machine: Machine | None = None,
         source: str = SOURCE, hosts: str = HOSTS) -> Iterator[Node]:
    """A mount that is a node, for the body, which may power its machine off."""
    options = f"cc_key={DESCRIPTION}{options and ','}{options}"
    said = try_mount(servers, options, key, at, machine=machine, source=source, hosts=hosts)
    eq(said.code, 0, said.out)
    where = machine or servers.machine
    try:
        yield Node(where, at)
    finally:
        if where.alive:
            where.run(f"if mountpoint -q {at}; then umount {at}; fi")
