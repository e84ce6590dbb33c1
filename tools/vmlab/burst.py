# SPDX-License-Identifier: GPL-2.0
"""Writes that are under way on a slow wire when their path is closed: what they wrote comes late."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from vmlab import paths, rnbd
from vmlab.checks import TooSlow, eq, ge
from vmlab.lab import Lab

BLOCKS = 16
WIRE_MS = 450
# Where each block is, in KiB: no two are merged.
APART_KIB = 64
# Writes the file's first blocks of 4 KiB at once, 64 KiB apart, and closes the path while they are under way. What else
# is in the file follows at the same places, as soon as those are written.
SCRIPT = f"""
import mmap, os, sys, threading, time
disk, path, source, wait_s = sys.argv[1:]
fd, go, data = os.open(disk, os.O_RDWR | os.O_DIRECT), threading.Event(), open(source, "rb").read()
def write(number):
    block = mmap.mmap(-1, 4096)
    block.write(data[number * 4096:(number + 1) * 4096])
    go.wait()
    done.append(os.pwrite(fd, block, number % {BLOCKS} * {APART_KIB << 10}))
def start(first):
    threads = [threading.Thread(target=write, args=(first + at,)) for at in range({BLOCKS})]
    for thread in threads: thread.start()
    return threads
done = []
threads = start(0)
time.sleep(0.2)
go.set()
inflight, end = f"/sys/block/{{os.path.basename(disk)}}/inflight", time.monotonic() + float(wait_s)
def under_way(): return int(open(inflight).read().split()[1])
while under_way() + len(done) < len(threads) and time.monotonic() < end: pass
are_enough = under_way() >= len(threads) // 4
if are_enough: open(f"{{path}}/disconnect", "w").write("1")
for first in range(0, len(data) // 4096, {BLOCKS}):
    for thread in threads if not first else start(first): thread.join()
sys.exit(1 if done != [4096] * (len(data) // 4096) else 0 if are_enough else 3)
"""


@contextmanager
def slow_wire(lab: Lab) -> Iterator[None]:
    """Delays what the client sends on its second wire, and only that: a disconnect is as late as the requests before
    it. (The adapter repeats what is not acknowledged; rxe ends a queue pair that repeats a registration, of which
    writes have none.)"""
    lab.defer(lab.client.try_run, "tc qdisc del dev eth1 root 2>/dev/null")
    lab.client.run(f"modprobe sch_netem; tc qdisc add dev eth1 root netem delay {WIRE_MS}ms limit 100000")
    yield
    # While nothing is sent: the change rejects packets, which ends rxe's queue pair of the connection manager.
    paths.rest(0.5)
    lab.client.run("tc qdisc del dev eth1 root")


def write(lab: Lab, disk: rnbd.Disk, times: int = 1) -> None:
    """Writes so many contents of the blocks, one after the other; the slow path is closed under the first one."""
    lab.client.push_bytes(SCRIPT.encode(), "/tmp/burst.py")
    lab.client.run(f"head -c {times * BLOCKS * 4096} /dev/urandom > /tmp/burst")
    before = paths.failovers(lab)
    result = lab.client.try_run(f"python3 -I -S /tmp/burst.py {disk.path} {paths.to_wire(lab, 1)} /tmp/burst "
                                f"{WIRE_MS / 1500}", 60)
    if result.code == 3:
        raise TooSlow("few writes were under way before the first had arrived")
    eq((result.code, result.out), (0, ""), "the writes")
    eq(paths.states(lab), ["connected", "disconnected"])
    ge(paths.failovers(lab) - before, BLOCKS // 4, "writes that went elsewhere")


def check(lab: Lab, disk: rnbd.Disk) -> None:
    """The disk has what was written last."""
    lab.client.run(f"for at in {{0..{BLOCKS - 1}}}; do dd if={disk.path} bs=4k count=1 iflag=direct status=none "
                   f"skip=$((at * {APART_KIB // 4})); done > /tmp/read; "
                   f"tail -c {BLOCKS * 4096} /tmp/burst | cmp - /tmp/read", 60)
