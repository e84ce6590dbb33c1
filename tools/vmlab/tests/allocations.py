# SPDX-License-Identifier: GPL-2.0
"""IO allocates nothing: who asks for memory while requests run, by the kernel's own histograms of call stacks.

IO that waits for memory may wait for itself: memory is often freed by writing to a disk, perhaps this one. What a
module of ours needs in the path of a request is therefore allocated before; the rest is named here, with its reserve.
"""
from __future__ import annotations

import collections
import re

from vmlab import paths, rnbd, tier
from vmlab.checks import eq, ge
from vmlab.lab import Lab
from vmlab.machine import Machine
from vmlab.needs import needs
from vmlab.tests.pi import client_stats, map_with
from vmlab.tests.pi_store import format_disk
from vmlab.trace import FOLDER, MOUNT

TIER = tier.ALL

MIB = 16
IOS = tier.of(200, 400)    # of each kind, before the count and while it goes on
EVENTS = ("kmalloc", "kmem_cache_alloc", "mm_page_alloc")
OURS = ("rtrs_core", "rtrs_client", "rtrs_server", "rnbd_client", "rnbd_server", "kernel_ext", "block_ext", "rdma_rust",
        "rnbd_ec", "seglog")
FRAME = re.compile(r"^\s+([\w.]+)\+0x\w+/0x\w+(?: \[(\w+)\])?$")
# From here inwards is something else than the function that was interrupted.
INTERRUPTS = re.compile(r"^(asm_\w+|handle_softirqs|do_softirq|__irq_exit_rcu)$")
# What our modules call that may ask for memory, with the reason why IO goes on when there is none.
PERMITTED = {
    "bio_alloc_bioset": "has a reserve of bios",
    "submit_bio": "the disk's own driver",
    "submit_bio_noacct": "the same",
    "submit_bio_noacct_nocheck": "the same",
    "blk_mq_end_request": "the end of the user's IO, which is the user's",
    "rxe_post_send": "packets of the software device: GFP_ATOMIC, and what is lost is sent again",
}


class Watch:
    """Counts allocations of a machine by call stack, from its begin to its end."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._each("hist:keys=common_stacktrace:size=16384")

    def _each(self, trigger: str) -> None:
        files = " ".join(f"{FOLDER}/events/kmem/{event}/trigger" for event in EVENTS)
        self._machine.run(f"{MOUNT}; "
                          f"for file in {files}; do echo '{trigger}' > $file; done")

    def end(self) -> collections.Counter[tuple[str, ...]]:
        """Counts how often each stack asked for memory: its functions, innermost first; of modules as
        module:function."""
        found: collections.Counter[tuple[str, ...]] = collections.Counter()
        for event in EVENTS:
            text = self._machine.run(f"cat {FOLDER}/events/kmem/{event}/hist", 120)
            dropped = re.search(r"Dropped: (\d+)", text)
            eq(dropped and dropped[1], "0", "stacks that the histogram had no room for")
            for block in text.split("{ common_stacktrace:")[1:]:
                frames, rest = block.split("}", 1)
                names = [match for line in frames.splitlines() if (match := FRAME.match(line))]
                stack = tuple(f"{match[2]}:{match[1]}" if match[2] else match[1] for match in names)
                found[stack] += int(rest.split("hitcount:")[1].split()[0])
        self._each("!hist:keys=common_stacktrace:size=16384")
        return found


def ours(stacks: collections.Counter[tuple[str, ...]]) -> dict[str, int]:
    """The stacks with a function of ours: how often what ours called asked for memory.

    Each is named by the permitted function among those that ours called, or else by all of them, outermost first. (The
    function that ours called itself need not be on the stack: a call at the end of a function is a jump.)
    """
    found: collections.Counter[str] = collections.Counter()
    for stack, count in stacks.items():
        interrupt = next((n for n, name in enumerate(stack) if INTERRUPTS.match(name)), len(stack))
        first = next((n for n, name in enumerate(stack[:interrupt]) if name.split(":")[0] in OURS), None)
        if first is not None:
            called = [name.split(":")[-1] for name in reversed(stack[:first + 1])]
            found[next((name for name in called if name in PERMITTED), " > ".join(called))] += count
    return dict(found)


def watch(lab: Lab, disk: rnbd.Disk) -> None:
    """IO of each kind on a disk whose memory is there; both machines allocate only what is permitted."""
    kinds = ("--rw=randrw --bsrange=4k-256k --iodepth=16", "--rw=randwrite --bs=4k --iodepth=16 --fdatasync=8")
    for kind in kinds:      # what is allocated once, at the first use
        disk.fio(f"{kind} --size=8m --number_ios={IOS} --norandommap", 120).clean()
    machines = {"client": lab.client, "server": lab.server}
    watches = {name: Watch(machine) for name, machine in machines.items()}
    for kind in kinds:
        disk.fio(f"{kind} --size=8m --number_ios={IOS} --norandommap", 120).clean()
    for name, one in watches.items():
        stacks = one.end()
        found = ours(stacks)
        paths.figure(f"{name}: {found} of {sum(stacks.values())} allocations")
        ge(sum(stacks.values()), 400, "allocations of the machine that were seen")
        eq({function for function in found if function not in PERMITTED}, set(), f"what asked for memory, {name}")


def start(lab: Lab) -> None:
    """A disk in memory all of which is there: brd allocates pages when they are first written."""
    rnbd.start(lab, mib=MIB)
    lab.server.run(f"dd if=/dev/zero of=/dev/ram0 bs=1M count={MIB} oflag=direct status=none")


@needs(wires=1, tier=tier.CORE)
def test_io_allocates_nothing(pair: Lab) -> None:
    """READ, WRITE and FLUSH of a plain disk."""
    start(pair)
    watches = [Watch(machine) for machine in (pair.client, pair.server)]
    disk = rnbd.map_disk(pair, options="access_mode=rw")
    for one in watches:     # mapping does allocate: what would be seen is seen
        ge(sum(ours(one.end()).values()), 20, "allocations for a session and a disk")
    watch(pair, disk)
    disk.unmap()


@needs(wires=1)
def test_io_with_protection_information_allocates_nothing(pair: Lab) -> None:
    """The same on a device that keeps tuples in a sidecar."""
    start(pair)
    format_disk(pair)
    disk = map_with(pair, "require")
    eq(client_stats(disk)["mode"], "store")
    watch(pair, disk)
    disk.unmap()
