# SPDX-License-Identifier: GPL-2.0
"""Memory that can only be freed by writing to the disk, while its path reconnects.

The client is small, and its swap, or the file that its programs write, is on the mapped disk. Its wire is cut and
mended again and again. What the client allocates in order to connect again must not wait for this disk: then it
waits for itself, for ever, and with it each program that needs a page.
"""
from __future__ import annotations

import re
import time

from vmlab import oracle, paths, rnbd
from vmlab.checks import eq, ge, until
from vmlab.lab import Lab
from vmlab.machine import Job
from vmlab.needs import needs

MEMORY_MIB = 640
DISK_MIB = 400
OOM = re.compile(r"[Oo]ut of memory|invoked oom-killer|oom-kill")
FILE_MIB = 240
LEFT_MIB = 160          # of the client's memory, for the file and everything else
RESERVE_KIB = 32 << 10   # for packets, and for the queue pairs of a path that connects again (decision 0010)
CUTS = 4
LOAD_SECONDS = 40.0
BETWEEN_SECONDS = 4.0

# Touches so many MiB, each page with bytes of its own, and goes through them until its time is over and once more.
HOG = """
import sys, time
mib, seconds = int(sys.argv[1]), float(sys.argv[2])
end = time.monotonic() + seconds
pages = [bytearray(b"%d " % n * 512)[:4096] * 1 for n in range(mib * 256)]
rounds = 0
while time.monotonic() < end or not rounds:
    for n, page in enumerate(pages):
        page[rounds % 4096] = page[rounds % 4096]
        if page[:len(b"%d " % n)] != b"%d " % n:
            sys.exit(f"page {n} is not what it was")
    rounds += 1
print(rounds)
"""


def _start(lab: Lab, options: str = "access_mode=rw") -> rnbd.Disk:
    reserve = "/proc/sys/vm/min_free_kbytes"
    lab.defer(lab.client.write, reserve, lab.client.read(reserve))
    eq(lab.client.write(reserve, str(RESERVE_KIB)), "")
    rnbd.start(lab, mib=DISK_MIB)
    return rnbd.map_disk(lab, options=options)


def _available(lab: Lab) -> int:
    return int(lab.client.run("awk '/^MemAvailable:/ {print int($2 / 1024)}' /proc/meminfo"))


def _hogs(lab: Lab, mib: int, seconds: float) -> list[Job]:
    """Two programs that touch so much together."""
    lab.client.push_bytes(HOG.encode(), "/tmp/hog.py")
    command = f"python3 -I -S /tmp/hog.py {mib // 2} {seconds:g}"
    return [lab.client.start_job(command, 200) for _ in range(2)]


def _cut_and_mend(lab: Lab) -> None:
    """Cuts the wire until the server has lost its client, and joins it until the disk is open again, a few times.

    Only the server is asked: the client may be short of memory for a command. The client keeps its carrier: a packet
    that a link refuses while it goes down can end the queue pair of rxe's connection manager
    (Documentation/failover.md).
    """
    lab.defer(lab.mend, 0)
    for _ in range(CUTS):
        time.sleep(BETWEEN_SECONDS)
        mark = lab.server.log_mark()
        lab.silence(0)
        until(lambda mark=mark: lab.server.log_matches("session s1 ended", mark), 30, "the server has lost its client")
        lab.mend(0)
        until(lambda mark=mark: lab.server.log_matches("opened as rw", mark), 100, "the disk is open again")


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


@needs(wires=1, memory_mib=MEMORY_MIB, timeout=200, complaints=True, unproven=True)
def test_swap(pair: Lab) -> None:
    """Programs that need 1.5 times the memory there is, with their swap on the disk; the wire is cut four times."""
    disk = _start(pair)
    pair.client.run(f"mkswap {disk.path} && swapon {disk.path}")
    pair.defer(lambda: pair.client.try_run(f"swapoff {disk.path}", 100))
    mark = pair.client.log_mark()
    hogs = _hogs(pair, _available(pair) * 3 // 2, LOAD_SECONDS)
    _cut_and_mend(pair)
    for hog in hogs:
        hog.ok()
    _unhurt(pair, mark)
    until(lambda: disk.attribute("state") == "open", 20, "the disk is there")
    ge(paths.count(pair, "reconnects", 0), CUTS, "reconnects")
    pair.client.run(f"swapoff {disk.path}", 100)
    disk.unmap()


@needs(wires=1, memory_mib=MEMORY_MIB, timeout=200, complaints=True, unproven=True)
def test_dirty_pages(pair: Lab) -> None:
    """A file larger than what is left of the memory is written to ext4 on the disk; the wire is cut four times."""
    disk = _start(pair)
    pair.client.run(f"modprobe ext4; mkfs.ext4 -q -F {disk.path} && mkdir -p /mnt/r && mount {disk.path} /mnt/r", 60)
    pair.defer(lambda: pair.client.try_run("umount /mnt/r", 100))
    mark = pair.client.log_mark()
    hogs = _hogs(pair, _available(pair) - LEFT_MIB, LOAD_SECONDS)
    content = f"seq 1 100000000 | head -c {FILE_MIB << 20}"
    writer = pair.client.start_job(
        "echo 90 > /proc/sys/vm/dirty_ratio; echo 80 > /proc/sys/vm/dirty_background_ratio; "
        f"while ! [ -e /tmp/over ]; do {content} > /mnt/r/file; sync /mnt/r/file; done", 200)
    _cut_and_mend(pair)
    pair.client.run("touch /tmp/over", 60)
    for job in (*hogs, writer):
        job.ok()
    _unhurt(pair, mark)
    ge(paths.count(pair, "reconnects", 0), CUTS, "reconnects")
    pair.client.run("umount /mnt/r", 100)
    pair.client.run(f"e2fsck -fn {disk.path} && mount {disk.path} /mnt/r", 100)
    eq(pair.client.run("md5sum < /mnt/r/file", 100), pair.client.run(f"{content} | md5sum", 100), "the file's content")
    pair.client.run("umount /mnt/r", 100)
    disk.unmap()
