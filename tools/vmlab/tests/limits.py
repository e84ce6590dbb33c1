# SPDX-License-Identifier: GPL-2.0
"""A device that changed during an outage: the disk takes its limits, or logs why not."""
from __future__ import annotations

from vmlab import paths, rnbd, tier
from vmlab.checks import eq, ge, in_time, matches, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.tests.administration import lose

TIER = tier.ALL

NULL = "/sys/kernel/config/nullb/nullb0"
DEVICES = "/sys/class/rnbd-server/ctl/devices"


def make_null(lab: Lab, **attributes: int) -> None:
    """/dev/nullb0 on the server, made anew with these attributes."""
    values = {"size": 64, "memory_backed": 1, "blocksize": 512, **attributes}
    lines = [f"[ ! -d {NULL} ] || rmdir {NULL}", f"mkdir {NULL}"]
    lines += [f"echo {value} > {NULL}/{name}" for name, value in values.items()]
    until(lambda: not (lab.server.exists(DEVICES) and lab.server.names(DEVICES)), 20, "the server has closed it")
    lab.server.run("set -e; " + "; ".join([*lines, f"echo 1 > {NULL}/power"]))


def start(lab: Lab, **attributes: int) -> rnbd.Disk:
    """A disk over a null_blk device with these attributes."""
    lab.server.run("modprobe null_blk nr_devices=0; grep -q configfs /proc/mounts || "
                   "mount -t configfs none /sys/kernel/config")
    lab.defer(lab.server.run, f"mods -r; [ ! -d {NULL} ] || rmdir {NULL}; rmmod null_blk", 60)
    make_null(lab, **attributes)
    # The server soon closes the device of a client that is away.
    rnbd.load_server(lab, rtrs="heartbeat_interval_ms=500")
    rnbd.load_client(lab)
    return rnbd.map_disk(lab, device="nullb0")


def away(lab: Lab, disk: rnbd.Disk) -> None:
    """Cuts the wire until both sides have noticed."""
    lab.cut(0)
    until(lambda: disk.attribute("state") == "closed", 20, "the client has noticed")


def back(lab: Lab, disk: rnbd.Disk) -> None:
    """Mends the wire and waits until the device is open again."""
    lab.mend(0)
    paths.back_seconds(lab, lambda: disk.attribute("state") == "open", 30, "the disk is back")


@needs(wires=1)
def test_the_disk_follows_its_device(pair: Lab) -> None:
    """Discard, a volatile cache and smaller blocks of the new device apply under load, and are removed again."""
    disk = start(pair, blocksize=1024)
    eq(disk.queue("discard_max_bytes"), "0")
    eq(disk.queue("write_cache"), "write through")
    pair.defer(pair.mend, 0)
    # The disk is open until all has been looked at, and under load for most of that time.
    opened: list[str] = []
    opener = pair.client.start_job(f"exec 9< {disk.path}; echo opened; exec sleep 300", 300, opened.append)
    until(lambda: opened, 20, "the disk is open")
    fio = disk.fio("--rw=randwrite --bs=4k --iodepth=8 --size=32m --fsync=16 --time_based --runtime=12")
    paths.wait_busy(disk)
    away(pair, disk)
    # Waits for IO that waits for the link, with the lock of the limits in hand.
    other = pair.client.start_job(f"echo 64 > /sys/block/{disk.name}/queue/max_sectors_kb", 100)
    make_null(pair, blocksize=512, discard=1, cache_size=16)
    back(pair, disk)
    until(lambda: disk.queue("write_cache") == "write back", 30, "the disk has a cache")
    ge(int(disk.queue("discard_max_bytes")), 1 << 20, "longest discard")
    eq(disk.queue("logical_block_size"), "1024", "blocks stay while the disk is open")
    eq(other.wait(30).code, 0, "setting max_sectors_kb")
    eq(disk.queue("max_sectors_kb"), "64", "what the administrator has set stays")
    fio.clean(100)
    opener.kill()
    opener.wait(20)
    pair.client.run(f"blkdiscard {disk.path} && "
                    f"dd if=/dev/urandom of={disk.path} bs=64k count=64 conv=fsync status=none")
    away(pair, disk)
    make_null(pair, blocksize=512)
    back(pair, disk)
    until(lambda: disk.queue("write_cache") == "write through", 30, "the cache is gone")
    eq(disk.queue("discard_max_bytes"), "0")
    disk.unmap()


@needs(wires=1)
def test_flushes_are_not_lost_on_the_way(pair: Lab) -> None:
    """Writes are sent with FUA through the cache that the disk's device has now: those that delay its new limits, and
    those of a device on top of it, which has been told that there is none."""
    disk = start(pair)
    size = pair.client.read(f"/sys/block/{disk.name}/size").strip()
    pair.client.run(f"modprobe dm-mod; dmsetup create stacked --table '0 {size} linear {disk.path} 0'; dmsetup mknodes")
    pair.defer(pair.client.try_run, "dmsetup remove --force stacked")
    pair.defer(pair.mend, 0)
    away(pair, disk)
    write = pair.client.start_job(f"dd if=/dev/urandom of={disk.path} bs=4k count=1 oflag=direct status=none", 60)
    paths.rest(1)
    ok(write.running, "a write did not wait for the link")
    make_null(pair, cache_size=16, fua=0)
    before, mark = flushed(pair), pair.client.log_mark()
    back(pair, disk)
    eq(write.wait(20).code, 0, "the write")
    ge(flushed(pair), before + 1, "flushes of the server's device")
    until(lambda: disk.queue("write_cache") == "write back", 30, "the disk has a cache")
    eq(len(pair.client.log_matches("each write is forced through it", mark)), 1, "lines that say so")
    before = flushed(pair)
    pair.client.run("dd if=/dev/urandom of=/dev/mapper/stacked bs=4k count=1 oflag=direct conv=fsync status=none")
    ge(flushed(pair), before + 1, "flushes for a device on top")
    pair.client.run("dmsetup remove stacked")
    disk.unmap()


def flushed(lab: Lab) -> int:
    """Flushes that the server's device has carried out."""
    return int(lab.server.read("/sys/block/nullb0/stat").split()[15])


@needs(wires=1)
def test_a_disk_that_is_back_is_not_the_one_that_was_removed(pair: Lab) -> None:
    """A disk comes back under its name while the server has the removed one open, up to a second: who maps it meanwhile
    is not answered with that."""
    start(pair).unmap()
    rnbd.ram_disk(pair)
    rnbd.map_disk(pair, session="s2")
    for _ in range(3):
        old = rnbd.map_disk(pair, device="nullb0", options="access_mode=ro")
        pair.server.run(f"echo 0 > {NULL}/power; echo 1 > {NULL}/power")
        line = rnbd.request(pair, "nullb0", "s2", "access_mode=ro")
        until(lambda line=line: rnbd.try_map(pair, line) == "", 20, "it is mapped")
        link = f"{rnbd.CONTROL}/devices/nullb0@s2"
        new = rnbd.Disk(pair.client, pair.client.real_path(link).rpartition("/")[2], "s2", "nullb0")
        ok(pair.server.exists(f"{DEVICES}/nullb0/block_dev/dev"), "it is the removed one's export")
        old.unmap("force")
        new.unmap()


@needs(wires=1)
def test_larger_blocks_are_refused(pair: Lab) -> None:
    """A disk cannot have larger blocks while it may be open: one line says so, and IO waits until they fit again."""
    disk = start(pair)
    pair.defer(pair.mend, 0)
    away(pair, disk)
    make_null(pair, blocksize=4096)
    mark = pair.client.log_mark()
    pair.mend(0)
    paths.back_seconds(pair, lambda: bool(pair.client.log_matches("larger", mark)), 20, "the log says why")
    paths.rest(3)
    eq(disk.attribute("state"), "closed")
    lines = [text for _n, text in pair.client.kernel_log(mark) if "larger" in text]
    eq(len(lines), 1, "lines about it")
    matches(lines[0], "4096.*512")
    eq(pair.client.write(f"{disk.control}/remap_device", "1"), "EINVAL")
    make_null(pair, blocksize=512)
    until(lambda: disk.attribute("state") == "open", 30, "the disk is back")
    disk.unmap()


@needs(wires=1, waits=True)
def test_waiting_limits_do_not_delay_an_unmap(pair: Lab) -> None:
    """Limits that wait for slow IO survive another outage, and do not delay an unmap."""
    slow = {"irqmode": 2, "completion_nsec": 3_000_000_000}
    disk = start(pair)
    pair.defer(pair.mend, 0)
    away(pair, disk)
    write = pair.client.start_job(f"dd if=/dev/urandom of={disk.path} bs=4k count=1 oflag=direct status=none", 90)
    paths.rest(1)
    make_null(pair, discard=1, **slow)
    back(pair, disk)
    in_time(write.running, "the write did not keep the limits waiting")
    away(pair, disk)
    read = pair.client.start_job(f"dd if={disk.path} of=/dev/null bs=4k count=1 iflag=direct status=none", 90)
    paths.rest(1)
    back(pair, disk)
    eq(write.wait(30).code, 0, "the write")
    eq(read.wait(30).code, 0, "the read")
    until(lambda: disk.queue("discard_max_bytes") != "0", 20, "the disk can discard")
    away(pair, disk)
    write = pair.client.start_job(f"dd if=/dev/urandom of={disk.path} bs=4k count=1 oflag=direct status=none", 90)
    paths.rest(1)
    make_null(pair, **slow)
    back(pair, disk)
    disk.unmap("force")
    write.wait(30)


@needs(wires=1, timeout=240, tier=tier.CORE)
def test_a_server_that_returns_with_smaller_chunks(pair: Lab) -> None:
    """A write that is larger than they are waits, with one line, until the server has chunks of the old size again."""
    rnbd.start(pair, mib=8)
    disk = rnbd.map_disk(pair)
    lose(pair, disk)
    write = pair.client.start_job(f"dd if=/dev/urandom of={disk.path} bs=120k count=1 oflag=direct status=none", 150)
    paths.rest(1)
    pair.server.run("mods -r", 60)
    rnbd.load_server(pair, rtrs="max_chunk_size=65536")
    mark = pair.client.log_mark()
    pair.mend(0)
    refused = "smaller requests.*not used"
    paths.back_seconds(pair, lambda: bool(pair.client.log_matches(refused, mark)), 30, "the log says why")
    paths.rest(4)
    ok(write.running, "the write did not wait")
    eq(disk.attribute("state"), "closed")
    eq(len(pair.client.log_matches(refused, mark)), 1, "lines about it")
    pair.server.run("mods -r", 60)
    rnbd.load_server(pair)
    until(lambda: disk.attribute("state") == "open", 30, "the disk is back")
    eq(write.wait(20).code, 0, "the write")
    eq(int(disk.queue("max_hw_sectors_kb")), 124, "longest request")
    disk.unmap()
