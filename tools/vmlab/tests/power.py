# SPDX-License-Identifier: GPL-2.0
"""Power failures of a server whose disk has a volatile cache, and really loses it.

    history (client) ── rnbd ── wire ── rnbd-server ── loop0 ── page cache ── vda

The page cache of the server's kernel is the volatile cache: a loop device writes into it, says so (`write back`),
and writes it to /dev/vda for a FLUSH; the kernel's own write-back is turned off. A power failure of the machine takes
it away, and vda, a file of the host, stays.
"""
from __future__ import annotations

from vmlab import paths, rnbd
from vmlab.checks import eq, ge
from vmlab.lab import Lab
from vmlab.needs import needs

SIZE = "4m"
DEVICE = "loop0"
# Nothing is written back by time or by amount, so what is not flushed is lost, all of it.
CACHE = f"""
set -e
modprobe loop max_loop=1
cd /proc/sys/vm
echo 0 > dirty_writeback_centisecs
echo $((1 << 28)) > dirty_bytes
echo $((1 << 27)) > dirty_background_bytes
losetup /dev/{DEVICE} /dev/vda
"""
# The client does not notice that another boot of the server is behind the device, so the first flush after it succeeds,
# although writes that had been acknowledged are gone. When the client has learned to notice, this becomes 1, and the
# flushes of what_was_flushed_survives_the_power_failure_of_a_cache need no end any more.
FLUSHES_THAT_FAIL_AFTER_A_RESTART = 0


def serve(lab: Lab) -> None:
    """The server's disk and modules, after each of its boots."""
    lab.server.run(CACHE)
    rnbd.load_server(lab)


def map_cached(lab: Lab) -> rnbd.Disk:
    """The disk with the volatile cache, mapped."""
    serve(lab)
    rnbd.load_client(lab)
    disk = rnbd.map_disk(lab, DEVICE)
    eq(disk.queue("write_cache"), "write back")
    return disk


def fail_power(lab: Lab, disk: rnbd.Disk) -> None:
    """The server dies and comes back; waits until the disk is open again."""
    lab.reboot(lab.server)
    serve(lab)
    paths.back_seconds(lab, lambda: disk.attribute("state") == "open", 60, "the disk is back")


@needs(wires=1, disk_mib=64, disruptive=True, timeout=400)
def test_what_was_flushed_survives_the_power_failure_of_a_cache(pair: Lab) -> None:
    """Under load: after the last of twenty flushes the server dies, loses its cache, and nothing that was flushed."""
    disk = map_cached(pair)
    history = disk.history(size=SIZE, floor="flushed", flush_ms=20, flushes=20)
    history.reached("flushed", 60)
    paths.wait_busy(disk, 200)
    fail_power(pair, disk)
    result = history.clean(120)
    eq((result.flushes, result.flush_errors), (20, 0))
    ge(result.receded, 1, "units whose last write was acknowledged, not flushed, and lost")
    paths.figure(f"{result.receded} of 1024 units went back to what was flushed, none further")
    disk.unmap()


@needs(wires=1, disk_mib=64, disruptive=True, timeout=400)
def test_a_flush_after_the_power_failure_of_a_cache(pair: Lab) -> None:
    """Acknowledged writes are lost, and the client's next flush says that they are safe."""
    disk = map_cached(pair)
    ledger = "/run/ledger"
    # The fill is flushed, what comes after it is not.
    disk.history(size=SIZE, loops=0, after=0, save=ledger, floor="flushed", flush_ms=1, flushes=1).clean(60)
    disk.history(load=ledger, loops=1, save=ledger, floor="flushed").clean(60)
    fail_power(pair, disk)
    lost = disk.history(load=ledger, check_only=1, floor="acknowledged").wait(60)
    eq((lost.code, lost.kinds), (1, ["lost"]), lost.complaint)
    disk.history(load=ledger, check_only=1, floor="flushed").clean(60)
    # The ledger holds a flush that succeeds responsible for all that was acknowledged before it, unless one has failed.
    told = disk.history(load=ledger, loops=1, errors="allowed", floor="flushed", flush_ms=20, flushes=3).wait(60)
    eq(told.flush_errors, FLUSHES_THAT_FAIL_AFTER_A_RESTART, "flushes that fail")
    eq(told.kinds, [] if FLUSHES_THAT_FAIL_AFTER_A_RESTART else ["lost"], told.complaint)
    disk.unmap()
