# SPDX-License-Identifier: GPL-2.0
"""Mode store: the server keeps protection information on a plain device, in a sidecar.

    client /dev/rnbd0 ══ rnbd-server (tuples, journal) ── /dev/ram0: superblock | journal | data | tuples
"""
from __future__ import annotations

import re

from kdir import programs
from vmlab import ec, paths, rnbd, tier
from vmlab.checks import Failed, eq, ge, ok, until
from vmlab.lab import Lab
from vmlab.machine import Machine
from vmlab.needs import needs
from vmlab.tests import power
from vmlab.tests.io import memory_anywhere
from vmlab.tests.pi import PARAMETER, client_stats, map_with, no_errors, server_stats, was_away

TOOL = "/usr/bin/pi-sidecar"
DEVICES = "/sys/class/rnbd-server/ctl/devices"
SIDECAR = "/sys/module/rnbd_server/parameters/sidecar"
# A journal of so many slots, with the superblock, ends before the first MiB, where the data begin.
DATA = 256


def bring_tool(machine: Machine) -> None:
    """pi-sidecar, on the server."""
    if not machine.exists(TOOL):
        machine.push(programs.PI_SIDECAR.build(), TOOL)
        machine.run(f"chmod 755 {TOOL}")


def format_disk(lab: Lab, device: str = "ram0", options: str = "") -> None:
    """Makes a sidecar on a device of the server."""
    bring_tool(lab.server)
    lab.server.run(f"{TOOL} format --force {options} /dev/{device}")


def scrub(lab: Lab, device: str = "ram0") -> dict[str, int]:
    """The findings of a scrub of a device that is not in use."""
    done = lab.server.try_run(f"{TOOL} scrub /dev/{device}", 120)
    found = re.search(r"(\d+) good, (\d+) never written, (\d+) bad", done.out)
    if not found:
        raise Failed(f"no scrub: {done.out}")
    return dict(zip(("good", "unwritten", "bad"), map(int, found.groups()), strict=True))


# The sizes of the records in a journal; 0 is that of a whole block.
SIZES = """python3 -S -c '
b = open("/dev/{device}", "rb").read(4 << 20)
slots = [b[at:at + 4096] for at in range(0, len(b), 4096)]
print(*{{int.from_bytes(slot[34:36], "little") for slot in slots if slot.startswith(b"pjournal")}})'
"""


def sizes(lab: Lab, device: str) -> set[int]:
    """The sizes of the records that the server's device has."""
    return {int(word) for word in lab.server.run(SIZES.format(device=device)).split()}


def exported(lab: Lab, device: str = "ram0") -> str:
    """The checksum of all data, as the raw reader gets them."""
    lab.server.run(f"{TOOL} export /dev/{device} /run/exported", 120)
    return lab.server.run("md5sum < /run/exported; rm /run/exported").split()[0]


@needs()
def test_a_plain_device_keeps_tuples(pair: Lab) -> None:
    """Format, map, make a file system, use it; then a raw reader finds each block with the right tuple."""
    mib = tier.of(32, 64)
    rnbd.start(pair, mib=mib)
    plain = map_with(pair, "auto")
    eq(client_stats(plain)["mode"], "wire")
    format_disk(pair)
    # The session that has it open still uses it without the sidecar.
    other = rnbd.request(pair, session="s2", options="access_mode=ro pi=auto")
    eq(rnbd.try_map(pair, other), "EBUSY")
    plain.unmap()
    format_disk(pair)
    rnbd.copy_writes(pair, 65536)
    mark = pair.client.log_mark()
    disk = map_with(pair, "require")
    ok(pair.client.log_matches("store crc64 for each 4096 bytes", mark), "the client does not tell the mode")
    eq((client_stats(disk)["mode"], server_stats(pair)["mode"]), ("store", "store"))
    pair.server.run("mods ours rnbd-ec")
    eq(pair.server.write(ec.ASSEMBLE, "mode=create name=ec0 members=/dev/ram0,/dev/x,/dev/y"), "EBUSY", "one holder")
    # All but the first and the last MiB, in whole groups with their PI blocks.
    eq(disk.sectors, (mib * 256 - 1 - DATA) // 257 * 256 * 8)
    folder = f"/sys/block/{disk.name}/integrity"
    eq([pair.client.read(f"{folder}/{name}").strip() for name in ("format", "device_is_integrity_capable")],
       ["EXT-DIF-TYPE1-CRC64", "1"])
    rnbd.round_robin(pair)
    pair.client.run(f"modprobe ext4; mkfs.ext4 -q {disk.path} && mount {disk.path} /mnt && "
                    "cp -r /usr/lib/python3.13/json /mnt/ && sync && cd /mnt && "
                    "find . -type f -exec md5sum {} + > /run/sums && cd / && umount /mnt && "
                    f"mount {disk.path} /mnt && cd /mnt && md5sum --quiet -c /run/sums && cd / && umount /mnt && "
                    f"fsck.ext4 -nf {disk.path}; rmmod ext4", 120)
    disk.fio("--rw=randwrite --bsrange=4k-512k --iodepth=16 --size=6m --verify=crc32c --verify_fatal=1", 120).clean()
    pair.client.run(f"blkdiscard -o 4096 -l 2097152 {disk.path} && fallocate -z -o 20M -l 3M {disk.path} && "
                    f"cmp -n 2097152 {disk.path} /dev/zero 4096 0 && cmp -n 3145728 {disk.path} /dev/zero 20971520 0")
    memory_anywhere(disk)
    no_errors(pair, disk)
    sum_ = disk.checksum()
    disk.unmap()
    found = scrub(pair)
    eq(found["bad"], 0, str(found))
    ge(found["good"], 1000, str(found))
    eq(exported(pair), sum_, "what the raw reader finds")


def block(lab: Lab, disk: rnbd.Disk, number: int) -> bool:
    """Reads a block of 4096 bytes; whether it succeeded."""
    return lab.client.try_run(f"dd if={disk.path} of=/run/back bs=4096 skip={number} count=1 iflag=direct "
                              "status=none").code == 0


def at_the_medium(lab: Lab, way: str, number: int, file: str) -> None:
    """Copies a data block of the server's device to or from a file, past the server."""
    ends = f"if=/dev/ram0 of={file} skip" if way == "read" else f"if={file} of=/dev/ram0 seek"
    flags = "iflag=direct" if way == "read" else "oflag=direct conv=notrunc"
    lab.server.run(f"dd {ends}={number} bs=4096 count=1 {flags} status=none")


@needs(wires=1)
def test_what_the_medium_changes_is_an_error(pair: Lab) -> None:
    """A bit of data or tuple that flips, a write that is lost, one that went elsewhere: EILSEQ, neighbours right."""
    rnbd.start(pair, mib=16)
    format_disk(pair)
    disk = map_with(pair, "crc64")
    pair.client.run("head -c 65536 /dev/urandom > /run/area; "
                    f"dd if=/run/area of={disk.path} bs=4096 oflag=direct status=none")
    at_the_medium(pair, "read", DATA + 7, "/run/old")
    pair.client.run(f"dd if=/dev/urandom of={disk.path} bs=4096 count=1 seek=7 oflag=direct status=none")
    flip = ("python3 -S -c 'b = bytearray(open(\"/run/bad\", \"rb\").read()); b[1234] ^= 4; "
            "open(\"/run/bad\", \"wb\").write(b)'")
    at_the_medium(pair, "read", DATA + 3, "/run/bad")
    pair.server.run(flip)
    at_the_medium(pair, "write", DATA + 3, "/run/bad")
    at_the_medium(pair, "write", DATA + 7, "/run/old")     # the second write was lost
    at_the_medium(pair, "read", DATA + 10, "/run/other")
    at_the_medium(pair, "write", DATA + 11, "/run/other")  # a write of 10 went to 11
    mark = pair.server.log_mark()
    bad = (3, 7, 11)
    for number in range(16):
        eq(block(pair, disk, number), number not in bad, f"block {number}")
        if number not in bad:
            pair.client.run(f"dd if=/run/area bs=4096 skip={number} count=1 status=none | cmp - /run/back")
    eq(len(pair.server.log_matches("read refused: data block (3|7|11): its data do not fit", mark)), 3, "lines")
    # The block layer reads again, so there may be more.
    for side in (client_stats(disk), server_stats(pair)):
        ge(int(side["read_errors"]), 3, str(side))
    # What is written again is right again.
    pair.client.run(f"dd if=/run/area of={disk.path} bs=4096 oflag=direct status=none && "
                    f"dd if={disk.path} bs=4096 count=16 iflag=direct status=none | cmp - /run/area")
    disk.unmap()
    found = scrub(pair)
    eq((found["good"], found["bad"]), (16, 0), str(found))
    # A tuple on the medium: that of block 5, in the PI block behind the data.
    pi_block = DATA + (16 * 256 - 1 - DATA) // 257 * 256
    at_the_medium(pair, "read", pi_block, "/run/bad")
    pair.server.run("python3 -S -c 'b = bytearray(open(\"/run/bad\", \"rb\").read()); b[5 * 16 + 15] ^= 1; "
                    "open(\"/run/bad\", \"wb\").write(b)'")
    at_the_medium(pair, "write", pi_block, "/run/bad")
    disk = map_with(pair, "crc64")
    mark = pair.server.log_mark()
    eq([number for number in range(16) if not block(pair, disk, number)], [5], "blocks that are errors")
    ok(pair.server.log_matches("data block 5: its tuple is of another block or device", mark), "no line")
    disk.unmap()
    eq(scrub(pair)["bad"], 1)


@needs(wires=1)
def test_a_client_without_it_is_served_from_the_sidecar(pair: Lab) -> None:
    """pi=off, and mode wire: the server makes the tuples, verifies what it reads, and shows the data alone."""
    rnbd.start(pair, mib=12)
    format_disk(pair)
    disk = map_with(pair, "off")
    eq((client_stats(disk), disk.queue("logical_block_size").strip()), ({"mode": "none"}, "4096"))
    disk.fio("--rw=randwrite --bsrange=4k-128k --iodepth=8 --size=4m --verify=crc32c --verify_fatal=1", 120).clean()
    seen = server_stats(pair)
    eq((seen["client"], seen["mode"], seen["read_errors"]), ("none", "store", "0"))
    ge(int(seen["written"]), 0 if was_away(pair) else 1024, str(seen))
    at_the_medium(pair, "read", DATA + 1, "/run/one")
    at_the_medium(pair, "write", DATA + 2, "/run/one")
    ok(not block(pair, disk, 2) and block(pair, disk, 1), "a block that went to another place")
    ge(int(server_stats(pair)["read_errors"]), 1, "errors that were counted")
    pair.client.run(f"dd if=/run/back of={disk.path} bs=4096 seek=2 count=1 oflag=direct status=none")
    sum_ = disk.checksum()
    disk.unmap()
    eq(pair.server.write(PARAMETER, "wire"), "")
    pair.defer(pair.server.write, PARAMETER, "auto")
    for pi in ("crc64", "t10"):
        disk = map_with(pair, pi)
        eq((client_stats(disk)["mode"], client_stats(disk)["interval_bytes"]), ("wire", "4096"))
        eq(disk.checksum(), sum_, pi)
        disk.fio("--rw=randwrite --bs=4k --iodepth=8 --size=1m --offset=8m --verify=crc32c --verify_fatal=1").clean()
        sum_ = disk.checksum()
        disk.unmap()
    eq(pair.server.write(PARAMETER, "auto"), "")
    disk = map_with(pair, "crc64")
    eq((client_stats(disk)["mode"], disk.checksum()), ("store", sum_))
    disk.unmap()
    eq((scrub(pair)["bad"], exported(pair)), (0, sum_))


@needs(wires=1)
def test_a_sidecar_that_cannot_be_used_is_refused(pair: Lab) -> None:
    """A damaged superblock or journal: EUCLEAN and the cure in the log; who has the device for himself keeps it."""
    rnbd.start(pair, mib=16)
    format_disk(pair)
    disk = map_with(pair, "crc64")
    ok("busy" in pair.server.try_run(f"{TOOL} fsck /dev/ram0 2>&1").out, "fsck of a device in use")
    # A second session sees the same blocks.
    eq(rnbd.try_map(pair, rnbd.request(pair, session="s2", options="access_mode=ro pi=crc64")), "")
    other = rnbd.Disk(pair.client, pair.client.real_path(
        "/sys/class/rnbd-client/ctl/devices/ram0@s2").rpartition("/")[2], "s2", "ram0")
    pair.client.run(f"dd if=/dev/urandom of={disk.path} bs=64k count=4 oflag=direct status=none; "
                    f"cmp -n 262144 {disk.path} {other.path}")
    disk.unmap()
    pair.client.run(f"dd if={other.path} of=/dev/null bs=64k count=4 iflag=direct status=none")
    other.unmap()
    pair.server.run(f"{TOOL} fsck /dev/ram0")
    for place, cure in ((0, "fsck --repair. uses the copy"), (1, "has no record: .pi-sidecar fsck --repair")):
        blocks = "count=1" if place == 0 else "count=255"
        pair.server.run(f"dd if=/dev/ram0 of=/run/kept bs=4096 count=256 iflag=direct status=none; "
                        f"dd if=/dev/urandom of=/run/noise bs=4096 {blocks} status=none")
        if place == 0:
            pair.server.run("printf ferro-pi'\\001\\000\\000\\000' | dd of=/run/noise conv=notrunc status=none")
        pair.server.run(f"dd if=/run/noise of=/dev/ram0 bs=4096 seek={place} oflag=direct status=none")
        mark = pair.server.log_mark()
        for pi in ("off", "crc64"):
            eq(rnbd.try_map(pair, rnbd.request(pair, options=f"access_mode=rw pi={pi}")), "EUCLEAN", pi)
        ok(pair.server.log_matches(cure, mark), "no cure in the log")
        pair.server.run("dd if=/run/kept of=/dev/ram0 bs=4096 oflag=direct status=none")
    pair.server.run("modprobe dm_mod; dmsetup create user --table '0 32768 linear /dev/ram0 0'")
    pair.defer(pair.server.try_run, "dmsetup remove --retry user")
    mark = pair.server.log_mark()
    eq(rnbd.try_map(pair, rnbd.request(pair, options="access_mode=rw pi=crc64")), "EBUSY")
    ok(pair.server.log_matches("cannot be opened for this server alone", mark), "no reason in the log")
    pair.server.run("dmsetup remove --retry user")
    # The device grows: a RAM disk cannot, so it was formatted as a part of itself.
    pair.server.run("dd if=/dev/zero of=/run/small bs=1M count=8 status=none && "
                    f"{TOOL} format /run/small && dd if=/run/small of=/dev/ram0 bs=1M oflag=direct status=none; "
                    "rm /run/small")
    disk = map_with(pair, "crc64")
    before = disk.sectors
    disk.fio("--rw=randwrite --bs=4k --iodepth=8 --size=2m --verify=crc32c --verify_fatal=1").clean()
    disk.unmap()
    pair.server.run(f"{TOOL} grow /dev/ram0")
    disk = map_with(pair, "crc64")
    ge(disk.sectors, before + 7 * 2048, "sectors of a device that has grown")
    disk.fio("--rw=randwrite --bsrange=4k-512k --iodepth=8 --verify=crc32c --verify_fatal=1", 120).clean()
    disk.unmap()
    eq(scrub(pair)["bad"], 0)


# Pi.paths_fail_and_every_block_is_right shows it in each run, in mode wire.
@needs(wires=2, timeout=240, tier=tier.ALL)
def test_paths_fail_and_the_sidecar_is_right(pair: Lab) -> None:
    """A path is cut under load, then both: the history is right, and each block has its tuple."""
    rnbd.ram_disk(pair, 16)
    rnbd.load_server(pair, rtrs="heartbeat_interval_ms=500")
    rnbd.load_client(pair)
    format_disk(pair)
    disk = rnbd.map_disk(pair, line=rnbd.request(pair, options="access_mode=rw pi=crc64", wires=2))
    rnbd.round_robin(pair)
    history = disk.history()
    paths.wait_busy(disk)
    pair.defer(pair.mend, 0)
    pair.defer(pair.mend, 1)
    pair.cut(0)
    paths.rest(3)
    pair.cut(1)
    until(lambda: disk.attribute("state") == "closed", 30, "the client has noticed")
    pair.mend(1)
    paths.back_seconds(pair, lambda: disk.attribute("state") == "open", 60, "the disk is back")
    paths.wait_busy(disk, history=history)
    history.clean(120)
    pair.mend(0)
    no_errors(pair, disk)
    disk.unmap()
    eq(scrub(pair)["bad"], 0)


@needs(wires=1, own_modules=True, timed=True)
def test_a_c_client_is_served_from_the_sidecar(pair: Lab) -> None:
    """The C client gets blocks of 4096 bytes that are verified, and leaves each with its tuple."""
    rnbd.ram_disk(pair, 16)
    rnbd.load_server(pair)
    rnbd.load_client(pair, "c")
    format_disk(pair)
    disk = rnbd.map_disk(pair)
    rnbd.round_robin(pair)
    eq(disk.queue("logical_block_size").strip(), "4096")
    disk.fio("--rw=randwrite --bsrange=4k-128k --iodepth=8 --size=4m --verify=crc32c --verify_fatal=1", 120).clean()
    eq(server_stats(pair)["read_errors"], "0")
    sum_ = disk.checksum()
    disk.unmap()
    found = scrub(pair)
    eq((found["bad"], exported(pair)), (0, sum_))
    ge(found["good"], 1024, str(found))


NAME = "suspect"
SECTORS = 16 * 2048
GOOD = f"0 {SECTORS} linear /dev/ram0 0"
# Block 5 can be neither written nor read.
BAD = (DATA + 5) * 8
ONE_BAD = (f"0 {BAD} linear /dev/ram0 0", f"{BAD} 8 error", f"{BAD + 8} {SECTORS - BAD - 8} linear /dev/ram0 {BAD + 8}")
NO_FIRST = ("0 8 error", f"8 {SECTORS - 8} linear /dev/ram0 8")
NO_PATH = f"0 {SECTORS} error"
NO_WRITES = f"0 {SECTORS} flakey /dev/ram0 0 0 3600 1 error_writes"


def become(lab: Lab, *table: str) -> None:
    """Gives the server's disk another table while it is in use."""
    lines = "\\n".join(table)
    lab.server.run(f"printf '{lines}\\n' | dmsetup load {NAME} && dmsetup resume {NAME}")


@needs(wires=1)
def test_a_device_that_stands_still_keeps_no_other_waiting(pair: Lab) -> None:
    """While the end of one waits for its disk, another one is opened, used and closed."""
    rnbd.ram_disk(pair, 16, 2)
    pair.server.run(f"modprobe dm_mod; dmsetup create {NAME} --table '{GOOD}'")
    pair.defer(pair.server.run, f"dmsetup resume {NAME}; mods -r; dmsetup remove --retry {NAME}", 90)
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    for device in ("dm-0", "ram1"):
        format_disk(pair, device)
    disk = map_with(pair, "crc64", "dm-0")
    pair.client.run(f"dd if=/dev/urandom of={disk.path} bs=64k count=4 oflag=direct status=none")
    pair.server.run(f"dmsetup suspend --nolockfs --noflush {NAME}")
    mark = pair.server.log_mark()
    unmap = pair.client.start_job(f"echo normal > {disk.control}/unmap_device", 120)
    paths.rest(1)
    options = "access_mode=rw pi=crc64"
    other = rnbd.map_disk(pair, "ram1", "s2", line=rnbd.request(pair, "ram1", "s2", options))
    other.fio("--rw=randwrite --bs=4k --iodepth=8 --size=1m --verify=crc32c --verify_fatal=1").clean()
    other.unmap()
    ok(pair.server.log_matches(r"device 'ram1' \(ram1\) closed", mark), "the other device was not closed")
    ok(pair.server.try_run(f"{TOOL} fsck /dev/ram1").code == 0, "the other device is still in use")
    ok("busy" in pair.server.try_run(f"{TOOL} fsck /dev/ram0 2>&1; {TOOL} fsck /dev/dm-0 2>&1").out,
       "the device that stands still was given back")
    pair.server.run(f"dmsetup resume {NAME}")
    unmap.wait(60)
    until(lambda: not pair.client.exists(f"/sys/block/{disk.name}"), 30, "the disk is unmapped")
    until(lambda: pair.server.try_run(f"{TOOL} fsck /dev/dm-0").code == 0, 30, "the device is free")
    eq(scrub(pair, "dm-0")["bad"], 0)


def is_exported_as_it_is(lab: Lab, device: str, mib: int) -> None:
    """Checks that the device is taken as it is where an administrator has said so: no server looks for a superblock."""
    eq(lab.server.write(SIDECAR, "off"), "")
    lab.defer(lab.server.write, SIDECAR, "auto")
    disk = map_with(lab, "auto", device)
    eq((client_stats(disk)["mode"], disk.sectors), ("wire", mib * 2048))
    disk.unmap()
    eq(lab.server.write(SIDECAR, "auto"), "")


@needs(wires=1)
def test_a_device_that_fails_loses_no_other_block(pair: Lab) -> None:
    """A block that cannot be written is an error, its neighbours are not; without journal there are no writes."""
    rnbd.ram_disk(pair, 16)
    pair.server.run(f"modprobe dm_mod; modprobe dm_flakey; dmsetup create {NAME} --table '{GOOD}'")
    pair.defer(pair.server.run, f"for i in 1 2 3 4 5 6 7 8; do dmsetup remove --retry {NAME} && exit; sleep 0.5; done; "
               "exit 1")
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    # A device without a sidecar need not have a first block that can be read.
    become(pair, *NO_FIRST)
    disk = map_with(pair, "auto", "dm-0")
    eq(client_stats(disk)["mode"], "wire")
    disk.unmap()
    become(pair, GOOD)
    format_disk(pair, "dm-0")
    become(pair, *NO_FIRST)
    mark = pair.server.log_mark()
    eq(rnbd.try_map(pair, rnbd.request(pair, "dm-0")), "EUCLEAN")
    ok(pair.server.log_matches("its superblock is damaged: .pi-sidecar fsck --repair", mark), "no cure in the log")
    is_exported_as_it_is(pair, "dm-0", 16)
    # One without a path answers nothing but errors: it is no plain disk.
    become(pair, NO_PATH)
    mark = pair.server.log_mark()
    eq(rnbd.try_map(pair, rnbd.request(pair, "dm-0")), "EIO")
    ok(pair.server.log_matches("'dm-0': not opened: it cannot be read whether it has a sidecar: EIO", mark), "no line")
    become(pair, GOOD)
    disk = map_with(pair, "crc64", "dm-0")
    write = f"dd if=/run/area of={disk.path} bs=64k count=1 oflag=direct status=none"
    pair.client.run(f"head -c 65536 /dev/urandom > /run/area; cp /run/area /run/before; {write}; "
                    "head -c 65536 /dev/urandom > /run/area")
    become(pair, *ONE_BAD)
    ok(pair.client.try_run(write).code, "a write with a block that cannot be written succeeded")
    become(pair, GOOD)
    mark = pair.server.log_mark()
    for number in range(16):
        eq(block(pair, disk, number), number != 5, f"block {number}")
        if number != 5:
            pair.client.run("for file in area before; do "
                            f"dd if=/run/$file bs=4096 skip={number} count=1 status=none | cmp -s - /run/back && exit; "
                            "done; exit 1")
    ok(pair.server.log_matches("data block 5: its content was lost", mark), "no line")
    pair.client.run(f"{write}; dd if={disk.path} bs=64k count=1 iflag=direct status=none | cmp - /run/area")
    # The mark that follows when the device rests may be the first one that fails.
    mark = pair.server.log_mark()
    become(pair, NO_WRITES)
    ok(pair.client.try_run(write).code, "a write without journal succeeded")
    ok(pair.server.log_matches("no more writes until the device is closed", mark), "no line")
    become(pair, GOOD)
    ok(pair.client.try_run(write).code, "a write after a failure of the journal succeeded")
    read = f"dd if={disk.path} bs=64k count=1 iflag=direct status=none"
    # The mark of use could not be written either, and without it the device is used for some seconds only.
    until(lambda: pair.client.try_run(f"{read} of=/dev/null").code == 0, 20, "reads go on")
    pair.client.run(f"{read} | cmp - /run/area")
    disk.unmap()
    disk = map_with(pair, "crc64", "dm-0")
    pair.client.run(f"{write.replace('/run/area', '/run/before')}; "
                    f"dd if={disk.path} bs=64k count=1 iflag=direct status=none | cmp - /run/before")
    disk.unmap()
    eq(scrub(pair, "dm-0")["bad"], 0)


DEVICE = "loop0"


def serve_cached(lab: Lab) -> None:
    """The server's device with a volatile cache that a power failure takes away, and its modules, after each boot."""
    lab.server.run(power.CACHE)
    rnbd.load_server(lab)


@needs(wires=1, disk_mib=64, disruptive=True, timeout=400)
def test_a_power_failure_is_replayed(pair: Lab) -> None:
    """The server's machine dies under load with a volatile cache: flushed data are there, and no block is an error."""
    serve_cached(pair)
    rnbd.load_client(pair)
    format_disk(pair, DEVICE)
    pair.server.run("sync -d /dev/loop0 /dev/vda 2>/dev/null || sync")
    disk = map_with(pair, "crc64", DEVICE)
    eq(disk.queue("write_cache"), "write back")
    history = disk.history(size="4m", floor="flushed", flush_ms=20, flushes=20)
    history.reached("flushed", 60)
    paths.wait_busy(disk, 200)
    pair.reboot(pair.server)
    mark = pair.server.log_mark()
    serve_cached(pair)
    paths.back_seconds(pair, lambda: disk.attribute("state") == "open", 60, "the disk is back")
    (line,) = pair.server.log_matches("journal replayed: .*", mark)
    ok(512 in sizes(pair, DEVICE), "the records are short here")
    history.clean(120)
    eq(client_stats(disk)["read_errors"], "0")
    paths.figure(line[line.index("journal"):])
    disk.unmap()
    bring_tool(pair.server)
    eq(scrub(pair, DEVICE)["bad"], 0)


@needs(wires=1)
def test_a_device_is_closed_while_it_is_used(pair: Lab) -> None:
    """The server closes it, again and again, while requests end that come alone and together: the last CLOSE empties
    the journal and waits for nobody, and the next mapping finds the device whole."""
    rnbd.start(pair, mib=16)
    format_disk(pair)
    mark = pair.server.log_mark()
    for number in range(tier.of(10, 100)):
        disk = map_with(pair, "require")
        load = disk.fio(f"--rw=randwrite --bsrange=4k-16k --iodepth={1 + number % 2 * 7} --size=8m --time_based "
                        "--runtime=60", 100)
        until(lambda: int(server_stats(pair)["written"]) > 0, 30, "the device is used")
        eq(pair.server.write(f"{DEVICES}/ram0/sessions/s1/force_close", "1"), "")
        until(lambda: not pair.server.exists(f"{DEVICES}/ram0"), 20, "the device is closed")
        ok(load.wait(30).errors, "fio goes on although the device is closed")
        disk.unmap()
    eq(pair.server.log_matches("replay", mark), [], "the journal was empty each time")
    found = scrub(pair)
    eq(found["bad"], 0, str(found))
