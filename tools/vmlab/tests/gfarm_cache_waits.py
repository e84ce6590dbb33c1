# SPDX-License-Identifier: GPL-2.0
"""Waits for another node of the cooperative cache: no one else is kept waiting by them, and no page locked.

    a holder in user space, which keeps each request ── rxe0 ── gfarm_ra, a node that reads      one machine
    gfmd, gfsds, a node ── wire 1: RDMA ── a node in the other machine, without memory, or without power
"""
from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vmlab import gfarm_mount, loaded, paths, tier
from vmlab.checks import ByChance, Failed, TooSlow, eq, ge, in_time, ok, until
from vmlab.gfarm import GROUPS
from vmlab.gfarm_node import Node
from vmlab.lab import Lab
from vmlab.machine import Job, Machine, Result
from vmlab.needs import needs
from vmlab.tests.gfarm_cache_holders import Holder, holder
from vmlab.tests.gfarm_cache_readers import MIB, across, put

SMP = 2
TIER = tier.ALL

READY, OVER = "/run/hungry.ready", "/run/hungry.over"
# A read is over after `cc_wait_ms` in any case, 5 s by default, and 30 s where others do something meanwhile: what is
# done by then was not kept waiting by it.
LONG, READ_SECONDS, SHORT_SECONDS = "cc_wait_ms=30000", 30.0, 5.0
LEAVE_SECONDS = 10.0
GROUP, GROUP_MIB = f"{GROUPS}/waits", 24
HELD_SIZE, PART = tier.of(12, 24) * MIB + 1, 1 * MIB
# Pages that are locked, of all of the machine: bit 0 of /proc/kpageflags.
LOCKED = """
locked = 0
with open("/proc/kpageflags", "rb", buffering=0) as file:
    while flags := file.read(1 << 19):
        locked += len(flags[::8].translate(None, bytes(range(0, 256, 2))))
print(locked)
"""
# Takes memory until the kernel has to look for some, and goes on asking for more and giving it back.
HUNGRY = """
import mmap, os, sys, time
ready, over = sys.argv[1:]
BLOCK = 1 << 20
def scanned():
    rows = (line.split() for line in open("/proc/vmstat"))
    return sum(int(count) for name, count in rows if name in ("pgscan_kswapd", "pgscan_direct"))
def block():
    return mmap.mmap(-1, BLOCK, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)
first, blocks = scanned(), []
while scanned() == first:
    blocks.append(block())
open(ready, "x").close()
while not os.path.exists(over):
    before = scanned()
    more = [block()]
    while scanned() == before and len(more) < 8:
        more.append(block())
    time.sleep(0.02)
print(scanned() - first)
"""
# The pages of a file that are in the page cache after it was asked to drop them: those that are locked stay.
KEPT = """
import ctypes, mmap, os, sys
libc = ctypes.CDLL(None, use_errno=True)
kept = 0
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        size = os.fstat(file.fileno()).st_size
        view = mmap.mmap(file.fileno(), size, mmap.MAP_PRIVATE)
        count = -(-size // 4096)
        seen = (ctypes.c_ubyte * count)()
        at = ctypes.addressof(ctypes.c_char.from_buffer(view))
        assert not libc.mincore(ctypes.c_void_p(at), ctypes.c_size_t(size), seen), ctypes.get_errno()
        kept += sum(byte & 1 for byte in seen)
print(kept)
"""


def python(machine: Machine, script: str, *arguments: str) -> int:
    """The number that a program prints."""
    return int(machine.run(f"python3 -I -S - {' '.join(arguments)} <<'END'\n{script}\nEND", 60))


def nothing_stays(machine: Machine, *paths: str) -> None:
    """No page of files stays locked: each can be dropped, and none of the machine is locked."""
    until(lambda: python(machine, LOCKED) == 0, 20, "no page of the machine is locked")
    if paths:
        until(lambda: python(machine, KEPT, *paths) == 0, 20, "all pages can be dropped")


@contextmanager
def hungry(machine: Machine) -> Iterator[None]:
    """A program wants all of the memory of a machine for the body: the kernel has to take some back for it."""
    machine.run(f"rm -f {READY} {OVER}")
    machine.push_bytes(HUNGRY.encode(), "/run/hungry.py")
    hog = machine.start_job(f"exec python3 -I -S /run/hungry.py {READY} {OVER}", 300)
    try:
        until(lambda: machine.exists(READY) or not hog.running, 90, "memory is short", pause=0.05)
        yield
    finally:
        machine.run(f"touch {OVER}")
    ge(int(hog.ok(60)), 1, "pages that the kernel has looked at")


class Waiting:
    """A reader that a holder keeps waiting."""

    def __init__(self, liar: Holder, name: str, enter: str = "", command: str = "sha256sum ") -> None:
        self.liar, self.name = liar, name
        told = self.told()
        self.job: Job = liar.mount.machine.start_job(f"{enter} exec {command}{liar.mount.at}/{name}", 120)
        try:
            until(lambda: self.told() > told, 20, f"{name}: it waits for the holder", pause=0.05)
        except Failed as why:
            raise TooSlow(str(why)) from None
        self.began = time.monotonic()

    def told(self) -> int:
        """The number of times that the node was told to wait."""
        return self.liar.mount.ibstat()["told_wait"]

    def still(self, what: str) -> None:
        """Checks that it waits still: what was done meanwhile has not waited for it."""
        told = self.told()
        try:
            until(lambda: self.told() > told, 10, f"{what}: the holder keeps it still")
        except Failed as why:
            raise TooSlow(str(why)) from None
        if not self.job.running:
            # A holder that is stopped for seconds, as by a busy host, is not waited for.
            raise TooSlow(f"{what}: the reader has ended")

    def kill(self) -> None:
        """kill -9."""
        self.job.kill()
        quick("kill -9", LEAVE_SECONDS, lambda: self.job.wait(60))


def quick(what: str, seconds: float, deed: Callable[[], object]) -> None:
    """Does something that has to be done in time."""
    began = time.monotonic()
    deed()
    took = time.monotonic() - began
    print(f"# {what}: {took:.1f} s", flush=True)
    in_time(took <= seconds, f"{what} took {took:.1f} s")


@contextmanager
def small_group(machine: Machine) -> Iterator[str]:
    """A control group with little memory; what enters it."""
    machine.run(f"echo +memory > {GROUPS}/cgroup.subtree_control; mkdir -p {GROUP}; "
                f"echo {GROUP_MIB}M > {GROUP}/memory.max")
    try:
        yield f"echo $BASHPID > {GROUP}/cgroup.procs;"
        events = dict(line.split() for line in machine.read(f"{GROUP}/memory.events").splitlines())
        eq(events["oom_kill"], "0", "processes of the group that were killed")
        ge(int(events["max"]), 1, "times that the limit was reached")
    finally:
        until(lambda: machine.try_run(f"rmdir {GROUP}").code == 0, 60, "the control group is gone")


def in_group(waiting: Waiting, machine: Machine, enter: str) -> None:
    """The group of the reader reads more than it has memory for, and gives back what it can."""
    # The disks themselves: nothing of them is in the page cache yet, where it would be of another group.
    machine.run(f"{enter} cat /dev/vd? 2> /dev/null | head -c {3 * GROUP_MIB}M > /dev/null", 60)
    waiting.still("reclaim in its control group")
    machine.try_run(f"echo {GROUP_MIB // 2}M > {GROUP}/memory.reclaim", 60)
    waiting.still("memory.reclaim")


@needs(machines=1, timeout=400)
def test_a_node_that_waits_keeps_no_one_waiting(vm: Lab) -> None:
    """Reclaim in its group and of all, drop_caches, kill -9, umount -f, rmmod, umount: none waits for the holder."""
    with holder(vm, LONG) as liar, small_group(vm.server) as enter:
        machine, mount = vm.server, liar.mount
        liar.turn("waits")
        first = Waiting(liar, "held0", enter)
        until(lambda: python(machine, LOCKED), 10, "pages are locked while it waits")
        in_group(first, machine, enter)
        first.kill()
        second = Waiting(liar, "held1")
        for _ in range(3):
            mount.forget()
        second.still("drop_caches")
        with hungry(machine):
            second.still("reclaim of the whole machine")
        second.kill()
        third = Waiting(liar, "held2")
        quick("rmmod", LEAVE_SECONDS, lambda: ok(machine.try_run("rmmod gfarm_ra", 60).code, "rmmod of what is used"))
        third.still("rmmod")
        third.kill()
        last = Waiting(liar, "held3")
        # The reader may fail and end before umount looks whether the mount is in use: another file stays open.
        with gfarm_mount.held_open(mount, "held4"):
            quick("umount -f", LEAVE_SECONDS,
                  lambda: ok(machine.try_run(f"umount -f {mount.at}", 60).code, "umount -f"))
        # The kernel reads the pages once more, one by one: the first one waits for the holder, and the others do not.
        # Those that it reads while umount -f is under way fail as well, and then the reader does.
        said: list[Result] = []
        quick("the reader after umount -f", READ_SECONDS + LEAVE_SECONDS, lambda: said.append(last.job.wait(60)))
        if said[0].code:
            ok(said[0].out.endswith("Input/output error\n"), f"the reader: {said[0].out}")
        else:
            eq(said[0].out.split()[0], liar.wanted["held3"], "the file that was read during umount -f")
        liar.turn("right")
        eq(mount.sha256("held3"), liar.wanted["held3"], "the file after umount -f")
        quick("umount", LEAVE_SECONDS, lambda: machine.run(f"umount {mount.at}", 60))
        quick("rmmod after that", LEAVE_SECONDS, lambda: loaded.of(vm).unload(machine))
        nothing_stays(machine)


@needs(machines=1, timeout=300)
def test_a_reader_that_waits_keeps_no_other_one_of_the_file_waiting(vm: Lab) -> None:
    """A holder keeps a request for the first page of a file, and gives the others: who reads these has them at once."""
    page = "dd iflag=direct bs=4096 count=1 of=/dev/null "
    with holder(vm, LONG) as liar:
        machine, mount = vm.server, liar.mount
        liar.turn("first")
        first = Waiting(liar, "held0", command=f"{page} if=")
        for number in range(1, 4):
            pages, other = liar.pages(), f"{page} skip={number} if={mount.at}/held0"
            said = machine.try_run(f"timeout {LEAVE_SECONDS:.0f} {other}", 60)
            eq(said.code, 0, f"page {number}, while page 0 is waited for: {said.out}")
            eq(liar.pages() - pages, 1, f"page {number} of the holder")
        first.still("other pages of the file")
        first.kill()
        liar.turn("right")
        eq(mount.sha256("held0"), liar.wanted["held0"], "the file")
        nothing_stays(machine, f"{mount.at}/held0")


@needs(machines=1, timeout=300)
def test_a_read_that_has_waited_for_a_worker_asks_no_node(vm: Lab) -> None:
    """The only worker waits for a holder: a read of another file behind it is for the file server, and is counted."""
    page = "dd iflag=direct bs=4096 count=1 of=/dev/null "
    with holder(vm, "ib_num_srpc=1,cc_wait_ms=6000") as liar:
        mount = liar.mount
        liar.turn("first")
        first, before, sent = Waiting(liar, "held0", command=f"{page} if="), mount.ibstat(), mount.stats()["gfsd_bytes"]
        vm.server.run(f"{page} skip=1 if={mount.at}/held1", 60)
        first.job.ok(60)
        counts, sent = mount.ibstat(), mount.stats()["gfsd_bytes"] - sent
        grown = {name: count - before[name] for name, count in counts.items() if count != before[name]}
        eq((grown.get("not_asked"), grown.get("peer_pages", 0)), (1, 0), f"reads that asked no node: {grown}")
        eq((grown["gfsd_bytes"], sent), (2 * 4096, 2 * 4096), f"bytes of file servers: {grown}")
        liar.turn("right")


@needs(machines=1, timeout=300)
def test_a_holder_that_waits_for_ever_costs_a_read_five_seconds(vm: Lab) -> None:
    """It says again and again that it keeps a request: the file server has the rest, and no page stays locked."""
    with holder(vm) as liar:
        liar.turn("waits")
        waiting = Waiting(liar, "held0")
        said = waiting.job.ok(120)
        took = time.monotonic() - waiting.began
        print(f"# the read took {took:.1f} s", flush=True)
        eq(said.split()[0], liar.wanted["held0"], "the file")
        liar.turn("right")
        nothing_stays(vm.server, f"{liar.mount.at}/held0")
        in_time(took <= SHORT_SECONDS + LEAVE_SECONDS, f"the read took {took:.1f} s")


def reads_from(reader: Node, name: str) -> tuple[Job, Callable[[], bool]]:
    """A reader of a file that another node has; whether pages of it have come."""
    before = reader.ibstat()["peer_pages"]
    job = reader.machine.start_job(f"exec sha256sum {reader.at}/{name}", 200)
    return job, lambda: reader.ibstat()["peer_pages"] > before or not job.running


@needs(wires=2, timeout=500, disruptive=True)
def test_a_machine_without_memory_and_then_without_power(pair: Lab) -> None:
    """It gives pages while its kernel takes them back, and is powered off while it reads, and others from it."""
    with across(pair) as (servers, (near, far)):
        names = "pressed", "given", "taken"
        digests = {name: put(servers, name, HELD_SIZE) for name in names}
        eq(far.sha256("pressed"), digests["pressed"], "the holder")
        with hungry(pair.client):
            began, before = time.monotonic(), near.stats()["gfsd_bytes"]
            eq(near.sha256("pressed"), digests["pressed"], "the file of a holder that is short of memory")
            share = (near.stats()["gfsd_bytes"] - before) / HELD_SIZE
            took = time.monotonic() - began
        print(f"# of a holder that is short of memory: {took:.1f} s, {share:.2f} from the file server", flush=True)
        nothing_stays(pair.client)
        nothing_stays(pair.server, f"{near.at}/pressed")
        eq(far.sha256("given"), digests["given"], "the holder")
        eq(near.sha256("taken"), digests["taken"], "the other holder")
        served = near.ibstat()["said_pages"]
        job, is_served = reads_from(near, "given")
        pair.client.start_job(f"exec sha256sum {far.at}/taken", 200)
        until(lambda: is_served() and near.ibstat()["said_pages"] > served, 60, "each reads from the other",
              pause=0.01)
        if not job.running:
            raise ByChance("the file was read before its holder could be powered off")
        # QEMU keeps what a card sends into a full wire without an other end, and rxe waits for it: a switch drops it.
        # So the wire goes first, and the machine takes what is in it.
        pair.defer(pair.server.set_link, 1, True)
        pair.silence(1)
        paths.rest(0.2)
        pair.client.kill()
        began = time.monotonic()
        said = job.ok(120)
        took = time.monotonic() - began
        eq(said.split()[0], digests["given"], "the file of a holder that has no power")
        nothing_stays(pair.server, f"{near.at}/given", f"{near.at}/taken")
        print(f"# the rest without the holder took {took:.1f} s, {near.ibstat()['timeouts']} silences", flush=True)
        quick("umount", LEAVE_SECONDS, lambda: pair.server.run(f"umount {near.at}", 60))
        eq(re.findall(r"gfarm_ra.*(?:leak|flush)", "\n".join(pair.server.records())), [], "lines of the log")
        in_time(took <= READ_SECONDS, f"the rest took {took:.1f} s")
