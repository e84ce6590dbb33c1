# SPDX-License-Identifier: GPL-2.0
"""The chapter of `make demo-gfarm` about nodes that read the same file, and the one copy that leaves the servers.

    bar("#", 2.0, {1: 4.0, 5: 2.0}, 8.0)        '########1111111111111111 55555555'
"""
from __future__ import annotations

from collections.abc import Mapping

from vmlab.checks import eq, ge, in_time, until
from vmlab.gfarm import FOLDER, GFSDS, Gfarm
from vmlab.gfarm_node import Node
from vmlab.story import Story

NODES, MIB = 8, 8
NAME = "shared"
KEY = "/etc/gfarm-cache.key"
# A character of the picture stands for this part of the file.
PARTS = 32
# On a busy host a node is silent for longer than others wait now and then: each time costs a part of 1 MiB at most.
COPIES_MAX = 2.0


def bar(gfsd: float, others: Mapping[int, float], whole: float) -> str:
    """The sources of a node's bytes, a character for each 32nd of the file: # is a file server, n is node n. What is
    rounded away is taken from, or given to, the largest part."""
    parts = [("#", gfsd), *((str(number), others[number]) for number in sorted(others))]
    counts = {mark: round(PARTS * part / whole) for mark, part in parts}
    largest = max(parts, key=lambda part: part[1])[0]
    counts[largest] += PARTS - sum(counts.values())
    return "".join(mark * count for mark, count in counts.items())


class Nodes:
    """Mounts of one machine, each with a page cache of its own."""

    def __init__(self, story: Story, gfarm: Gfarm, mount: str) -> None:
        self._story, self._gfarm, self._mount = story, gfarm, mount
        self._machine = gfarm.machine
        self.nodes = [Node(self._machine, f"/mnt/node{number}") for number in range(1, NODES + 1)]

    def _do(self, command: str, timeout: float = 180.0) -> str:
        return self._story.do(self._machine, command, timeout=timeout)

    def make(self) -> None:
        """A file that only the file servers have."""
        self._do(f"head -c {MIB}M /dev/urandom > {FOLDER}/{NAME}; gfreg -h {GFSDS[0]} {FOLDER}/{NAME} /{NAME}")
        self._machine.run(f"sha256sum < {FOLDER}/{NAME} > {FOLDER}/{NAME}.sum; rm {FOLDER}/{NAME}")

    def mount(self, options: str) -> None:
        """Mounts all; the first one is shown."""
        for number, node in enumerate(self.nodes, 1):
            line = f"mkdir -p {node.at}; {self._mount.format(at=node.at, options=options)}"
            if number == 1:
                self._do(line)
            else:
                self._machine.run(line, 60)
            if number in (4, NODES):
                self._story.tell(f"{number} of {NODES} are mounted.")

    def unmount(self) -> None:
        """Unmounts all."""
        self._machine.run("\n".join(f"umount {node.at}; rmdir {node.at}" for node in self.nodes), 60)

    def read(self) -> float:
        """All read the file at once, and all is right; answers how many copies have left the file servers."""
        loop = f"for n in $(seq {NODES}); do sha256sum < /mnt/node$n/{NAME} & done; wait"
        self._story.command(self._machine.name, loop)
        said = self._machine.run(loop, 180).splitlines()
        eq(set(said), {self._machine.read(f"{FOLDER}/{NAME}.sum").strip()}, "what the nodes have read")
        eq(len(said), NODES, "nodes that have read it")
        sent = sum(node.stats()["gfsd_bytes"] for node in self.nodes)
        copies = sent / (MIB << 20)
        self._story.tell(f"{NODES} checksums compared, {NODES} equal. The file servers have sent "
                         f"{sent / 2**20:.1f} MiB, which is {copies:.2f} times the file.")
        return copies

    def acquaint(self) -> None:
        """Each node but the first is told of the first one; of the others they hear."""
        first = self.nodes[0].address
        for node in self.nodes[1:]:
            eq(node.add(f"add {first}"), "", "the error of ibaddr")
        self._story.command(self._machine.name, f"echo 'add {first}' > {self.nodes[1].folder}/ibaddr")
        known = ["alive"] * (NODES - 1)
        until(lambda: all(list(node.peers().values()) == known for node in self.nodes), 60, "all know all")
        self._story.tell(f"Each was told of the first one, and heard of the others from it: {NODES} nodes that all "
                         "know each other.")

    def picture(self) -> None:
        """Shows the sources of each node's bytes."""
        numbers = {node.address: number for number, node in enumerate(self.nodes, 1)}
        self._story.tell(f"Where the bytes of each node came from, a character for each {MIB * 1024 // PARTS} KiB: # "
                         "from a file server, n from node n.")
        lines = []
        for number, node in enumerate(self.nodes, 1):
            gfsd = node.stats()["gfsd_bytes"] / 2**20
            others = {numbers[line]: pages / 256 for line, pages in node.pages().items() if pages}
            gave = node.ibstat()["said_bytes"] / 2**20
            lines.append(f"node {number}  {bar(gfsd, others, MIB)}  {gfsd:4.1f} + {sum(others.values()):4.1f} MiB, "
                         f"gave {gave:4.1f}")
        self._story.answer("\n".join(lines))


def tell(story: Story, gfarm: Gfarm, mount: str) -> Nodes:
    """The whole chapter but its end, `Nodes.unmount`: eight mounts without the cache, then with it. `mount` is the
    command, with {at} and {options} to be filled in."""
    nodes = Nodes(story, gfarm, mount)
    nodes.make()
    story.tell(f"{NODES} mounts, each with a page cache of its own, as on {NODES} machines; without the cache first.")
    nodes.mount("")
    without = nodes.read()
    nodes.unmount()
    ge(without, NODES - 0.5, "copies without the cache")
    story.tell("The same with the cache: all nodes have one key, and read pages from each other by RDMA (rxe0).")
    story.do(gfarm.machine, f"head -c 16 /dev/urandom | od -An -tx1 -v | tr -d ' \\n' > {KEY}; chmod 600 {KEY}")
    nodes.mount(f",cc=on,cc_keyfile={KEY}")
    nodes.acquaint()
    having = nodes.read()
    nodes.picture()
    in_time(having <= COPIES_MAX, f"{having:.2f} copies with the cache, at most {COPIES_MAX} may be")
    story.tell(f"{without:.2f} copies without the cache, {having:.2f} with it.")
    return nodes
