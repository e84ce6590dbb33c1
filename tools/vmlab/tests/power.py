# SPDX-License-Identifier: GPL-2.0
"""Power failures of a server whose disk has a volatile cache, and really loses it.

    history (client) ── rnbd ── wire ── rnbd-server ── loop0 ── page cache ── vda

The page cache of the server's kernel is the volatile cache: a loop device writes into it, says so (`write back`),
and writes it to /dev/vda for a FLUSH; the kernel's own write-back is turned off. A power failure of the machine takes
it away, and vda, a file of the host, stays.
"""
from __future__ import annotations

from dataclasses import dataclass

import pytest

from vmlab import paths, rnbd, tier
from vmlab.checks import eq, ge, in_time, ok, until
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
# The client finds another boot of the server behind the device, and tells whoever flushes next.
FLUSHES_THAT_FAIL_AFTER_A_RESTART = 1


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


# fsync of the block device: a flush.
SYNC = "python3 -S -c 'import os; os.fsync(os.open(\"{}\", os.O_RDWR))'"
# Appends so many records to a file, each made safe if it is told to, and says how many are.
JOURNAL = """
import os, sys
name, count, safe = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "1"
file = os.open(name, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
for number in range(count):
    os.write(file, b"%04088d\\n" % number)
    if safe:
        os.fsync(file)
print(count)
"""


def fails(lab: Lab, mark: int) -> list[str]:
    """The client's lines about flushes that fail because of a lost cache."""
    return [text for _n, text in lab.client.kernel_log(mark) if "a flush fails" in text]


def fail_power(lab: Lab, disk: rnbd.Disk) -> None:
    """The server dies and comes back; waits until the disk is open again."""
    lab.reboot(lab.server)
    serve(lab)
    paths.back_seconds(lab, lambda: disk.attribute("state") == "open", 60, "the disk is back")


@needs(wires=1, disk_mib=64, disruptive=True, timeout=400)
def test_what_was_flushed_survives_the_power_failure_of_a_cache(pair: Lab) -> None:
    """Under load: after the last of twenty flushes the server crashes and loses its cache, but no flushed data."""
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
    """Acknowledged writes are lost: the client's next flush fails once, and the log and a counter report it."""
    disk = map_cached(pair)
    mark = pair.client.log_mark()
    ledger = "/run/ledger"
    # The fill is flushed, what comes after it is not.
    disk.history(size=SIZE, loops=0, after=0, save=ledger, floor="flushed", flush_ms=1, flushes=1).clean(60)
    disk.history(load=ledger, loops=1, save=ledger, floor="flushed").clean(60)
    fail_power(pair, disk)
    lost = disk.history(load=ledger, check_only=1, floor="acknowledged").wait(60)
    eq((lost.code, lost.kinds), (1, ["lost"]), lost.complaint)
    eq(disk.attribute("cache_losses"), "1")
    disk.history(load=ledger, check_only=1, floor="flushed").clean(60)
    # The ledger holds a flush that succeeds responsible for all that was acknowledged before it, unless one has failed.
    told = disk.history(load=ledger, loops=1, errors="allowed", floor="flushed", flush_ms=20, flushes=3).wait(60)
    eq(told.flush_errors, FLUSHES_THAT_FAIL_AFTER_A_RESTART, "flushes that fail")
    eq(told.kinds, [], told.complaint)
    eq(len(fails(pair, mark)), 1, "lines about it")
    disk.unmap()


@needs(wires=1, disk_mib=64, disruptive=True, timeout=400, tier=tier.ALL)
def test_nothing_is_told_when_nothing_is_lost(pair: Lab) -> None:
    """All was flushed when the server died; and modules that are loaded anew lose no cache: no flush fails."""
    disk = map_cached(pair)
    mark = pair.client.log_mark()
    write = f"dd if=/dev/urandom of={disk.path} bs=4k count=8 oflag=direct status=none"
    pair.client.run(f"{write} && {SYNC.format(disk.path)}")
    fail_power(pair, disk)
    pair.client.run(f"{write} && {SYNC.format(disk.path)}", 60)
    # Not flushed, but the machine lives on.
    pair.client.run(write)
    rnbd.unload(pair, pair.server)
    rnbd.load_server(pair)
    paths.back_seconds(pair, lambda: disk.attribute("state") == "open", 60, "the disk is back")
    pair.client.run(SYNC.format(disk.path), 60)
    eq((disk.attribute("cache_losses"), fails(pair, mark)), ("0", []))
    disk.unmap()


@dataclass(frozen=True)
class FileSystem:
    """The making, the mounting and the check of one; none commits its journal by time."""

    make: str
    options: str
    check: str


FILE_SYSTEMS = {
    "ext4": FileSystem("modprobe ext4; mkfs.ext4 -q -b 4096 -E lazy_itable_init=0 {}", "errors=remount-ro,commit=300",
                       "e2fsck -fy {} || [ $? -le 1 ]"),
    # Supported are 300 MB and more; the journal is the same. A mount replays it, which xfs_repair does not.
    "xfs": FileSystem("modprobe xfs; echo 720000 > /proc/sys/fs/xfs/xfssyncd_centisecs; mkfs.xfs -q --unsupported {}",
                      "defaults", "mount {0} /mnt/power && umount /mnt/power && xfs_repair -n {0}"),
}


@pytest.mark.parametrize("kind", [pytest.param(name, id=f"{name}_learns_of_the_power_failure_of_a_cache")
                                  for name in FILE_SYSTEMS])
@needs(wires=1, disk_mib=64, disruptive=True, timeout=400, tier=tier.ALL)
def test_a_file_system(pair: Lab, kind: str) -> None:
    """After the server has lost its cache the next fsync fails; what was told to be safe before is there."""
    disk = map_cached(pair)
    system = FILE_SYSTEMS[kind]
    pair.client.run(f"set -e; {system.make.format(disk.path)}; mkdir -p /mnt/power; "
                    f"mount -o {system.options} {disk.path} /mnt/power", 60)
    pair.defer(pair.client.try_run, "umount -l /mnt/power")
    pair.client.push_bytes(JOURNAL.encode(), "/run/journal.py")
    pair.client.run("python3 -S /run/journal.py /mnt/power/journal 16 1 && "
                    "python3 -S /run/journal.py /mnt/power/unsafe 16 1", 60)
    # Acknowledged by the server, and not flushed: the file system has nothing else to write.
    pair.client.run("dd if=/dev/urandom of=/mnt/power/unsafe bs=4k count=8 oflag=direct conv=notrunc status=none")
    fail_power(pair, disk)
    after = pair.client.try_run("python3 -S /run/journal.py /mnt/power/after 1 1", 60)
    ok(after.code != 0 and "Input/output error" in after.out, f"fsync after the loss: {after.out}")
    eq(disk.attribute("cache_losses"), "1")
    pair.client.run("umount /mnt/power")
    pair.client.run(system.check.format(disk.path), 100)
    pair.client.run(f"mount {disk.path} /mnt/power", 60)
    found = pair.client.run("cat /mnt/power/journal | tr -d '\\0' | wc -l").strip()
    eq(found, "16", "records that were safe, and are there")
    pair.client.run("python3 -S /run/journal.py /mnt/power/after 4 1 && umount /mnt/power", 60)
    disk.unmap()


@needs(wires=2, disk_mib=64, disruptive=True, timeout=400)
def test_a_path_to_another_boot_is_no_second_path(pair: Lab) -> None:
    """The client has not noticed that the server died when a path leads to its next boot: everything begins anew."""
    serve(pair)
    rnbd.load_client(pair)
    disk = rnbd.map_disk(pair, DEVICE, line=rnbd.request(pair, DEVICE, wires=2))
    paths.set_all(pair, heartbeat_interval_ms=60000)
    paths.rest(5)     # for the interval that had begun
    pair.client.run(f"dd if=/dev/urandom of={disk.path} bs=4k count=8 oflag=direct status=none")
    began = paths.uptime(pair.client)
    pair.reboot(pair.server)
    serve(pair)
    in_time(paths.uptime(pair.client) - began < 55, "the server was away for longer than a heartbeat may be")
    eq((disk.attribute("state"), paths.states(pair)), ("open", ["connected", "connected"]), "nothing was noticed")
    eq(pair.client.write(f"{paths.to_wire(pair)}/reconnect", "1"), "")
    until(lambda: disk.attribute("cache_losses") == "1", 60, "the loss is noticed")
    paths.back_seconds(pair, lambda: disk.attribute("state") == "open", 60, "the disk is back")
    ok(pair.client.try_run(SYNC.format(disk.path)).code != 0, "the first flush did not fail")
    pair.client.run(SYNC.format(disk.path))
    disk.unmap()


@needs(wires=2, disk_mib=64, disruptive=True, timeout=400, tier=tier.ALL)
def test_a_disk_that_stays_fenced_keeps_no_path_away(pair: Lab) -> None:
    """One of two disks is fenced when the server dies: the other is back on both paths, and stays so."""
    serve(pair)
    rnbd.load_client(pair)
    disk = rnbd.map_disk(pair, DEVICE, line=rnbd.request(pair, DEVICE, wires=2))
    fenced = rnbd.map_disk(pair, "vda", line=rnbd.request(pair, "vda", wires=2, options="access_mode=ro"))
    folder = "/sys/class/rnbd-server/ctl/devices/vda/sessions/s1"
    eq(pair.server.write(f"{folder}/force_close", "1"), "")
    pair.client.try_run(f"dd if={fenced.path} of=/dev/null bs=4k count=1 iflag=direct status=none")
    eq(fenced.attribute("state"), "closed")
    before = pair.client.log_mark()
    fail_power(pair, disk)
    # The paths look connected until the client has missed the server.
    until(lambda: pair.client.log_matches("opened again", before), 60, "the disk is back")
    until(lambda: paths.states(pair) == ["connected", "connected"], 60, "both paths are back")
    mark = pair.client.log_mark()
    paths.rest(5)
    eq((disk.attribute("state"), fenced.attribute("state")), ("open", "closed"))
    paths.all_connected(pair, mark)
    fenced.unmap()
    disk.unmap()


@pytest.mark.parametrize(("assume", "losses"), [pytest.param("N", "0", id="a_c_server_by_default"),
                                                pytest.param("Y", "1", id="a_c_server_if_told_to")])
@needs(wires=1, disk_mib=64, own_modules=True, timed=True, disruptive=True, timeout=400, tier=tier.ALL)
def test_a_c_server_is_taken_for_one_that_lost_its_cache(pair: Lab, assume: str, losses: str) -> None:
    """It tells no boot: each reopening is a power failure with assume_cache_loss=Y, none without."""
    pair.server.run(CACHE)
    pair.server.run("mods c rtrs-server && mods c rnbd-server dev_search_path=/dev", 60)
    pair.client.run(f"mods ours rnbd-client assume_cache_loss={assume}", 60)
    disk = rnbd.map_disk(pair, DEVICE)
    pair.client.run(f"dd if=/dev/urandom of={disk.path} bs=4k count=8 oflag=direct status=none")
    pair.defer(pair.mend, 0)
    pair.cut(0)
    until(lambda: disk.attribute("state") == "closed", 20, "the client has noticed")
    pair.mend(0)
    paths.back_seconds(pair, lambda: disk.attribute("state") == "open", 60, "the disk is back")
    eq(disk.attribute("cache_losses"), losses)
    ok((pair.client.try_run(SYNC.format(disk.path)).code != 0) == (losses == "1"), "the first flush")
    pair.client.run(SYNC.format(disk.path))
    disk.unmap()
