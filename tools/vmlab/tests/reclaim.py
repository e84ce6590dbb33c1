# SPDX-License-Identifier: GPL-2.0
"""Memory that can only be freed by writing to the disk, while its path reconnects.

The client has little memory, and its swap, or the file that its programs write, is on the mapped disk. Its wire is cut
and mended again and again. What the client allocates in order to connect again must not wait for this disk: then it
waits for itself, for ever, and with it each program that needs a page. What the RDMA core allocates may wait, and needs
a little memory that programs cannot take (decision 0010).
"""
from __future__ import annotations

import re
import time

from vmlab import oracle, paths, rnbd, tier
from vmlab.checks import eq, ge, until
from vmlab.lab import Lab
from vmlab.machine import Job
from vmlab.needs import needs
from vmlab.people import PROGRAMS

SMP = 2
TIER = tier.ALL

DISK_MIB = 192
OOM = re.compile(r"[Oo]ut of memory|invoked oom-killer|oom-kill")
LEFT_MIB = 80           # of the client's memory, for what the test writes and everything else
FILE_MIB = 96
HOG_MIB = 144           # touched by programs, with the disk as swap: 48 MiB more than can be left
RESERVE_KIB = 32 << 10  # for packets, and for the queue pairs of a path that connects again (decision 0010)
# Half of the memory is for programs' pages alone. Of the other half they leave a 256th of that, 2 MiB, to the kernel
# (vm.lowmem_reserve_ratio): enough for what the RDMA core allocates, and not for a path that has kept nothing.
MOVABLE = "movablecore=512M"
HUGE_MIB = 2
PRESSED_PAGES = 1024    # swapped out before the first cut
CUTS = 4
BETWEEN_SECONDS = 2.0
OVER = "/tmp/over"

# Writes a file of so many MiB, each page with bytes of its own, until the test is over and once more; checks it.
WRITER = f"""
import os, sys
count, over = int(sys.argv[1]) * 256, False
while not over:
    over = os.path.exists("{OVER}")
    with open(sys.argv[2], "wb", 0) as file:
        for n in range(count):
            file.write((b"%8d" % n) * 512)
        os.fsync(file.fileno())
"""
READER = """
import sys
with open(sys.argv[2], "rb") as file:
    for n in range(int(sys.argv[1]) * 256):
        if file.read(4096) != (b"%8d" % n) * 512:
            sys.exit(f"block {n} is not what it was")
    if file.read(1):
        sys.exit("the file is longer than it was")
"""


def _available(lab: Lab) -> int:
    return int(lab.client.run("awk '/^MemAvailable:/ {print int($2 / 1024)}' /proc/meminfo"))


def _set(lab: Lab, name: str, value: int) -> None:
    """Sets one of the client's parameters of memory until the test is over."""
    file = f"/proc/sys/vm/{name}"
    lab.defer(lab.client.write, file, lab.client.read(file))
    eq(lab.client.write(file, str(value)), "", name)


def _start(lab: Lab, options: str = "access_mode=rw") -> rnbd.Disk:
    """Maps the disk; leaves the client little memory, the rest is huge pages, which nothing can reclaim."""
    rnbd.start(lab, mib=DISK_MIB)
    disk = rnbd.map_disk(lab, options=options)
    _set(lab, "min_free_kbytes", RESERVE_KIB)
    prepare(lab)
    return disk


def prepare(lab: Lab) -> None:
    """Leaves the client little memory until the test is over: the rest is huge pages, which nothing can reclaim."""
    lab.client.run(f"rm -f {OVER}; sync")
    _set(lab, "nr_hugepages", 0)
    until(lambda: _left(lab) <= LEFT_MIB + 16, 20, f"{LEFT_MIB} MiB are left to the client")


def _left(lab: Lab) -> int:
    """Makes huge pages of all but LEFT_MIB, as many as there is contiguous memory for; returns what is left."""
    lab.client.run("echo 3 > /proc/sys/vm/drop_caches; echo 1 > /proc/sys/vm/compact_memory")
    pages = int(lab.client.read("/proc/sys/vm/nr_hugepages")) + (_available(lab) - LEFT_MIB) // HUGE_MIB
    eq(lab.client.write("/proc/sys/vm/nr_hugepages", str(pages)), "")
    return _available(lab)


def _program(lab: Lab, text: str, *arguments: str | int) -> Job:
    """Starts a program on the client."""
    file = f"/run/reclaim-{len(text)}.py"
    lab.client.push_bytes(text.encode(), file)
    return lab.client.start_job(f"python3 -I -S {file} {' '.join(map(str, arguments))}", 200)


def hog(lab: Lab, mib: int) -> Job:
    """Starts a program on the client that uses so much memory."""
    lab.client.push(PROGRAMS / "hog.py", "/run/hog.py")
    return lab.client.start_job(f"python3 -I -S /run/hog.py {mib} {OVER}", 200)


def counter(lab: Lab, name: str) -> int:
    """One of the client's counters of memory."""
    lines = (line.split() for line in lab.client.read("/proc/vmstat").splitlines())
    return sum(int(number) for counter, number in lines if counter == name)


def over(lab: Lab) -> None:
    """Gives the client its memory back, and tells its programs to end."""
    eq(lab.client.write("/proc/sys/vm/nr_hugepages", "0"), "")
    lab.client.run(f"touch {OVER}", 60)


def _cut_and_mend(lab: Lab) -> None:
    """Cuts the wire until the server has lost its client, and joins it until the disk is open again, a few times.

    Only the server is asked: the client may be short of memory for a command. The client keeps its carrier: a packet
    that a link refuses while it goes down can end the queue pair of rxe's connection manager
    (Documentation/failover.md).
    """
    lab.defer(over, lab)
    lab.defer(lab.mend, 0)
    for _ in range(CUTS):
        time.sleep(BETWEEN_SECONDS)
        mark = lab.server.log_mark()
        lab.silence(0)
        until(lambda mark=mark: lab.server.log_matches("session s1 ended", mark), 30, "the server has lost its client")
        lab.mend(0)
        began = time.monotonic()
        until(lambda mark=mark: lab.server.log_matches("opened as rw", mark), 100, "the disk is open again")
        paths.figure(f"back after {time.monotonic() - began:.1f} s")


def _unhurt(lab: Lab, mark: int) -> None:
    """Nothing was killed for memory, and the kernel complains of nothing but packets for which there was none: the
    network and rxe allocate them with GFP_ATOMIC, and repeat what is lost."""
    said = [text for _n, text in lab.client.kernel_log(mark)]
    eq([text for text in said if OOM.search(text)], [], "the OOM killer's words")
    short = [text for text in said if "page allocation failure" in text]
    eq([text for text in short if "GFP_ATOMIC" not in text], [], "allocations that failed and could have waited")
    bad = [text for text in oracle.complaints(lab.client, mark) if "Call Trace" not in text]
    eq(bad, [], "the kernel's complaints")
    # Each such allocation shows a trace and how the memory stands.
    traces, stands = ([text for text in said if word in text] for word in ("Call Trace", "Mem-Info:"))
    ge(len(stands), len(traces), "failed allocations, for so many call traces")


@needs(wires=1, append=MOVABLE, timeout=200, complaints=True, fresh=True, unproven=True)
def test_swap(pair: Lab) -> None:
    """Programs that need 1.8 times the memory there is, with their swap on the disk; the wire is cut four times."""
    disk = _start(pair)
    pair.client.run(f"mkswap {disk.path} && swapon {disk.path}")
    pair.defer(lambda: pair.client.try_run(f"swapoff {disk.path}", 100))
    mark, before = pair.client.log_mark(), counter(pair, "pswpout")
    hogs = [hog(pair, HOG_MIB // 2) for _ in range(2)]
    until(lambda: counter(pair, "pswpout") - before >= PRESSED_PAGES, 60, "memory is short")
    _cut_and_mend(pair)
    # On a slow host the programs may not have filled the memory yet.
    until(lambda: counter(pair, "pswpout") - before >= (HOG_MIB - LEFT_MIB) << 8, 60, "the rest is swapped out")
    over(pair)
    for hog in hogs:
        hog.ok()
    _unhurt(pair, mark)
    until(lambda: disk.attribute("state") == "open", 20, "the disk is there")
    ge(paths.count(pair, "reconnects", 0), CUTS, "reconnects")
    pair.client.run(f"swapoff {disk.path}", 100)
    disk.unmap()


@needs(wires=1, append=MOVABLE, timeout=200, complaints=True, fresh=True, unproven=True)
def test_dirty_pages(pair: Lab) -> None:
    """A file larger than what is left of the memory is written to ext4 on the disk; the wire is cut four times."""
    disk = _start(pair)
    pair.client.run(f"modprobe ext4; mkfs.ext4 -q -F {disk.path} && mkdir -p /mnt/r && mount {disk.path} /mnt/r", 60)
    pair.defer(lambda: pair.client.try_run("umount /mnt/r", 100))
    _set(pair, "dirty_ratio", 90)
    _set(pair, "dirty_background_ratio", 80)
    mark, before = pair.client.log_mark(), counter(pair, "pgscan_kswapd")
    writer = _program(pair, WRITER, FILE_MIB, "/mnt/r/file")
    reader = pair.client.start_job(f"while ! [ -e {OVER} ]; do cat /dev/lab-root; done > /dev/null", 200)
    _cut_and_mend(pair)
    until(lambda: counter(pair, "pgscan_kswapd") - before >= LEFT_MIB << 8, 60, "all memory was scanned")
    over(pair)
    for job in (writer, reader):
        job.ok()
    _unhurt(pair, mark)
    ge(paths.count(pair, "reconnects", 0), CUTS, "reconnects")
    pair.client.run("umount /mnt/r", 100)
    pair.client.run(f"e2fsck -fn {disk.path} && mount {disk.path} /mnt/r", 100)
    _program(pair, READER, FILE_MIB, "/mnt/r/file").ok()
    pair.client.run("umount /mnt/r", 100)
    disk.unmap()
