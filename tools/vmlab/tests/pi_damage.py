# SPDX-License-Identifier: GPL-2.0
"""A device with a sidecar some blocks of which cannot be read or written for a while.

    client /dev/rnbd0 ══ rnbd-server ── /dev/dm-0, with blocks that are errors ── /dev/ram0
"""
from __future__ import annotations

from vmlab import rnbd, tier
from vmlab.checks import TooSlow, eq, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.paths import rest
from vmlab.tests.pi import map_with
from vmlab.tests.pi_devices import mapped
from vmlab.tests.pi_scrub import command, counts, found
from vmlab.tests.pi_store import DATA, GOOD, NAME, ONE_BAD, SECTORS, TOOL, become, format_disk, scrub

DEVICE = "dm-0"


def begin(lab: Lab) -> rnbd.Disk:
    """A formatted device of 16 MiB; mapped."""
    rnbd.ram_disk(lab, 16)
    mapped(lab.server, lab, NAME, GOOD)
    format_disk(lab, DEVICE)
    rnbd.load_server(lab)
    rnbd.load_client(lab)
    return map_with(lab, "crc64", DEVICE)


def leave_as_now(lab: Lab, disk: rnbd.Disk) -> None:
    """Unmaps the disk, and gives the device back what it has now, as if the server's machine had lost power."""
    lab.server.run("dd if=/dev/ram0 of=/run/image bs=1M iflag=direct status=none")
    disk.unmap()
    # The next opening need not wait whether the server is down.
    lab.server.run("dd if=/dev/zero of=/run/image bs=512 seek=1 count=1 conv=notrunc status=none")
    lab.server.run("dd if=/run/image of=/dev/ram0 bs=1M oflag=direct status=none; rm /run/image")


def refused(lab: Lab, table: tuple[str, ...], why: str) -> None:
    """Checks that with this table the device is not opened, and that the log says why, and what to do."""
    become(lab, *table)
    mark = lab.server.log_mark()
    eq(rnbd.try_map(lab, rnbd.request(lab, DEVICE, options="access_mode=rw pi=crc64")), "EIO")
    ok(lab.server.log_matches(f"{why}.*`pi-sidecar fsck --repair`", mark), "no cure in the log")


@needs(wires=1)
def test_a_block_that_a_replay_cannot_read_is_not_judged(pair: Lab) -> None:
    """One with its first write, then one that was written again: the mapping fails until the block can be read, and
    then has what was flushed; the program gives it up only if it is asked to repair."""
    disk = begin(pair)
    write = f"dd if=/run/area of={disk.path} bs=4096 count=1 seek=5 oflag=direct conv=fsync status=none"
    for _ in range(2):
        pair.client.run(f"head -c 4096 /dev/urandom > /run/area; {write}")
        leave_as_now(pair, disk)
        refused(pair, ONE_BAD, "data block 5 cannot be read, so it is not known")
        done = pair.server.try_run(f"{TOOL} fsck /dev/{DEVICE} 2>&1")
        ok(done.code and "data block 5 cannot be read" in done.out, done.out)
        become(pair, GOOD)
        disk = map_with(pair, "crc64", DEVICE)
        pair.client.run(f"dd if={disk.path} bs=4096 count=1 skip=5 iflag=direct status=none | cmp - /run/area")
    pair.client.run(f"head -c 4096 /dev/urandom > /run/area; {write}")
    leave_as_now(pair, disk)
    become(pair, *ONE_BAD)
    done = pair.server.try_run(f"{TOOL} fsck --repair /dev/{DEVICE} 2>&1")
    ok(done.code and "1 cannot be read and are lost" in done.out, done.out)
    become(pair, GOOD)
    disk = map_with(pair, "crc64", DEVICE)
    ok(pair.client.try_run(f"dd if={disk.path} of=/dev/null bs=4096 count=1 skip=5 iflag=direct status=none").code,
       "a block that was given up is read")
    pair.client.run(f"{write}; dd if={disk.path} bs=4096 count=1 skip=5 iflag=direct status=none | cmp - /run/area")
    disk.unmap()
    eq(scrub(pair, DEVICE)["bad"], 0)


@needs(wires=1)
def test_a_journal_that_cannot_be_read_is_repaired(pair: Lab) -> None:
    """A block of it, which no record needs: the mapping fails and says so, the program goes on without it."""
    disk = begin(pair)
    pair.server.run("modprobe dm_flakey")
    pair.client.run("head -c 65536 /dev/urandom > /run/area; "
                    f"dd if=/run/area of={disk.path} bs=64k count=1 oflag=direct conv=fsync status=none")
    leave_as_now(pair, disk)
    at = 100 * 8
    table = (f"0 {at} linear /dev/ram0 0", f"{at} 8 flakey /dev/ram0 {at} 0 3600 1 error_reads",
             f"{at + 8} {SECTORS - at - 8} linear /dev/ram0 {at + 8}")
    refused(pair, table, "block 100 of the device, of its journal, ")
    done = pair.server.try_run(f"{TOOL} fsck --repair /dev/{DEVICE} 2>&1")
    ok(done.code and "cannot be read: 1 blocks of the journal" in done.out, done.out)
    become(pair, GOOD)
    disk = map_with(pair, "crc64", DEVICE)
    pair.client.run(f"dd if={disk.path} bs=64k count=1 iflag=direct status=none | cmp - /run/area")
    disk.unmap()
    found = scrub(pair, DEVICE)
    eq((found["good"], found["bad"]), (16, 0), str(found))


@needs(wires=1)
def test_a_block_without_data_need_not_be_readable(pair: Lab) -> None:
    """It reads as zeroes, and a scrub finds it as one that was never written; its neighbours with data are there."""
    disk = begin(pair)
    pair.client.run(f"head -c 4096 /dev/urandom > /run/area; dd if=/run/area of={disk.path} bs=4096 count=1 seek=4 "
                    "oflag=direct status=none")
    become(pair, *ONE_BAD)
    pair.client.run(f"dd if={disk.path} bs=4096 count=3 skip=5 iflag=direct status=none | cmp -n 12288 - /dev/zero; "
                    f"dd if={disk.path} bs=4096 count=1 skip=4 iflag=direct status=none | cmp - /run/area")
    eq(command(pair, "start", DEVICE), "")
    numbers = counts(pair, DEVICE)
    eq((numbers["good"], numbers["unwritten"], numbers["bad"]), (1, numbers["blocks"] - 1, 0), str(numbers))
    eq(numbers["not_empty"], 0, "a block that cannot be read is not one that has something else")
    # A write of it is an error.
    write = f"dd if=/run/area of={disk.path} bs=4096 count=1 seek=5 oflag=direct status=none"
    ok(pair.client.try_run(write).code, "a write of a block that cannot be written succeeded")
    become(pair, GOOD)
    disk.unmap()


@needs(wires=1)
def test_a_block_of_tuples_that_cannot_be_read_is_written_anew(pair: Lab) -> None:
    """Its blocks can be neither read nor written until the program repairs it: then they are lost, or good by their
    data, as is asked for; the scrub names it, and goes on behind it."""
    disk = begin(pair)
    pair.server.run("modprobe dm_flakey")
    # The tuples of the first 256 blocks are behind the data.
    segment = (16 * 256 - 1 - DATA) // 257
    at = (DATA + segment * 256) * 8
    table = (f"0 {at} linear /dev/ram0 0", f"{at} 8 flakey /dev/ram0 {at} 0 3600 1 error_reads",
             f"{at + 8} {SECTORS - at - 8} linear /dev/ram0 {at + 8}")
    pair.client.run("head -c 65536 /dev/urandom > /run/area; for first in 0 512; do dd if=/run/area "
                    f"of={disk.path} bs=4096 count=16 seek=$first oflag=direct conv=fsync status=none; done")
    disk.unmap()
    for options, good in (("", 16), ("--trust-data", 16 + 16)):
        become(pair, *table)
        disk = map_with(pair, "crc64", DEVICE)
        write = f"dd if=/run/area of={disk.path} bs=4096 count=1 seek=3 oflag=direct status=none"
        ok(pair.client.try_run(write).code, "a block is written whose neighbours' tuples are not known")
        disk.unmap()
        done = pair.server.try_run(f"{TOOL} scrub /dev/{DEVICE} 2>&1")
        named = "has the tuples of data blocks 0 to 255, cannot be read: `pi-sidecar fsck --repair`"
        ok(done.code and named in done.out and "16 good" in done.out, done.out)
        done = pair.server.try_run(f"{TOOL} fsck --repair {options} /dev/{DEVICE} 2>&1")
        ok(done.code and "tuples: 1 blocks of 256 could not be read, and were written anew" in done.out, done.out)
        become(pair, GOOD)
        found = scrub(pair, DEVICE)
        eq((found["good"], found["bad"]), (good, 0 if options else 256), str(found))
        disk = map_with(pair, "crc64", DEVICE)
        if options:
            pair.client.run(f"dd if={disk.path} bs=4096 count=16 iflag=direct status=none | cmp - /run/area")
        else:
            ok(pair.client.try_run(f"dd if={disk.path} of=/dev/null bs=4096 count=1 iflag=direct status=none").code,
               "a block that was lost is read")
            pair.client.run(f"dd if=/run/area of={disk.path} bs=4096 count=16 oflag=direct status=none; "
                            f"dd if={disk.path} bs=4096 count=16 iflag=direct status=none | cmp - /run/area")
        disk.unmap()


@needs(wires=1)
def test_a_block_of_tuples_that_cannot_be_read_is_written_anew_in_use(pair: Lab) -> None:
    """A usual scrub leaves it: the blocks that it is of can be neither read nor written. One that mends writes it anew
    while other blocks are used: these are lost then, and can be written; nothing else is changed."""
    disk = begin(pair)
    pair.server.run("modprobe dm_flakey")
    segment = (16 * 256 - 1 - DATA) // 257
    at = (DATA + segment * 256) * 8
    table = (f"0 {at} linear /dev/ram0 0", f"{at} 8 flakey /dev/ram0 {at} 0 3600 1 error_reads",
             f"{at + 8} {SECTORS - at - 8} linear /dev/ram0 {at + 8}")
    pair.client.run("head -c 65536 /dev/urandom > /run/area; for first in 0 512; do dd if=/run/area "
                    f"of={disk.path} bs=4096 count=16 seek=$first oflag=direct conv=fsync status=none; done")
    disk.unmap()
    become(pair, *table)
    disk = map_with(pair, "crc64", DEVICE)
    write = f"dd if=/run/area of={disk.path} bs=4096 count=16 oflag=direct conv=fsync status=none"
    same = f"dd if={disk.path} bs=4096 count=16 skip=%d iflag=direct status=none | cmp - /run/area"
    eq(command(pair, "start", DEVICE), "")
    eq((counts(pair, DEVICE)["good"], counts(pair, DEVICE)["bad"]), (16, 256))
    ok(pair.client.try_run(write).code, "a block is written whose neighbours' tuples are not known")
    mark = pair.server.log_mark()
    eq(command(pair, "mend", DEVICE), "")
    eq((counts(pair, DEVICE)["good"], counts(pair, DEVICE)["bad"]), (16, 256), "they are lost")
    eq(found(pair, DEVICE)["mended"], "1")
    eq(len(pair.server.log_matches("the tuples of data blocks 0 to 255 could not be read, and were written anew",
                                   mark)), 1)
    ok(pair.client.try_run(f"dd if={disk.path} of=/dev/null bs=4096 count=1 iflag=direct status=none").code,
       "a block that was lost is read")
    pair.client.run(write)
    for first in (0, 512):
        pair.client.run(same % first)
    disk.unmap()
    # The device reads what was written.
    become(pair, GOOD)
    disk = map_with(pair, "crc64", DEVICE)
    for first in (0, 512):
        pair.client.run(same % first)
    eq(command(pair, "mend", DEVICE), "")
    eq((counts(pair, DEVICE)["good"], counts(pair, DEVICE)["bad"]), (32, 240))
    eq(found(pair, DEVICE)["mended"], "0", "what can be read is left")
    disk.unmap()


@needs(wires=1, tier=tier.ALL)
def test_a_superblock_that_is_read_badly_is_not_written_back(pair: Lab) -> None:
    """The mark of use is written with it where a physical block has 4096 bytes: a bad reading is tried again, and the
    device is used and opened as before."""
    disk = begin(pair)
    eq(pair.server.read("/sys/block/dm-0/queue/physical_block_size"), "4096")
    pair.server.run("modprobe dm_flakey")
    mark = pair.server.log_mark()
    # Byte 8 of the device, of the version: another one whenever it is read.
    become(pair, "0 8 flakey /dev/ram0 0 0 3600 5 corrupt_bio_byte 9 r 153 0", f"8 {SECTORS - 8} linear /dev/ram0 8")
    until(lambda: pair.server.log_matches("its mark of use cannot be written anew", mark), 10, "a bad reading")
    become(pair, GOOD)
    rest(3)
    eq(pair.server.run("dd if=/dev/ram0 bs=4096 count=1 iflag=direct status=none | od -An -tu1 -j8 -N1").strip(), "2")
    pair.client.run(f"dd if=/dev/zero of={disk.path} bs=4096 count=1 oflag=direct status=none")
    disk.unmap()
    map_with(pair, "crc64", DEVICE).unmap()
    eq(scrub(pair, DEVICE)["bad"], 0)


# Of the newest record of the journal: its number, the oldest one that a replay needs, the one below which all is
# flushed, and its entries.
NEWEST = """dd if=/dev/ram0 of=/run/ring bs=1M count=1 iflag=direct status=none; python3 -S -c '
b = open("/run/ring", "rb").read()
slots = [b[at:at + 4096] for at in range(4096, len(b), 4096)]
places = ((16, 24), (24, 32), (36, 44), (32, 34))
print(*max([int.from_bytes(slot[start:end], "little") for start, end in places]
           for slot in slots if slot.startswith(b"pjournal")))'
"""
SLOTS = DATA - 1


@needs(wires=1)
def test_a_write_that_the_device_has_lost_is_no_older_one(pair: Lab) -> None:
    """After a crash: it was flushed, as the mark says that is written when the device rests, and behind which damage of
    the newest record is seen. Later the journal is empty, and a crash needs no replay."""
    disk = begin(pair)

    def newest() -> list[int]:
        return [int(word) for word in pair.server.run(NEWEST).split()]

    def is_told() -> bool:
        number, _tail, flushed, entries = newest()
        return (flushed, entries) == (number, 0)

    write = f"dd if=/run/area of={disk.path} bs=4096 count=1 seek=5 oflag=direct conv=fsync status=none"
    read = f"dd if={disk.path} bs=4096 count=1 skip=5 iflag=direct status=none"
    at = f"bs=4096 count=1 {{}}={DATA + 5} status=none"
    pair.client.run(f"head -c 4096 /dev/urandom > /run/area; {write}")
    pair.server.run(f"dd if=/dev/ram0 of=/run/old iflag=direct {at.format('skip')}")
    pair.client.run(f"head -c 4096 /dev/urandom > /run/area; {write}")
    until(is_told, 20, "a mark behind the newest record")
    number = newest()[0]
    leave_as_now(pair, disk)
    if newest()[1] >= number:
        raise TooSlow("the journal was emptied before the crash")
    # The record before the mark; what is read and kept of it is put back.
    slot = f"bs=4096 count=1 {{}}={1 + (number - 1) % SLOTS} status=none"
    pair.server.run(f"dd if=/dev/ram0 of=/run/slot iflag=direct {slot.format('skip')}; "
                    f"dd if=/dev/zero of=/dev/ram0 oflag=direct {slot.format('seek')}")
    eq(rnbd.try_map(pair, rnbd.request(pair, DEVICE, options="access_mode=rw pi=crc64")), "EUCLEAN")
    pair.server.run(f"dd if=/run/slot of=/dev/ram0 oflag=direct {slot.format('seek')}; "
                    f"dd if=/run/old of=/dev/ram0 oflag=direct {at.format('seek')}")
    mark = pair.server.log_mark()
    disk = map_with(pair, "crc64", DEVICE)
    ok(pair.server.log_matches("the device has lost writes: 1 blocks have older data", mark), "no line")
    ok(pair.client.try_run(f"{read} of=/dev/null").code, "older data than those that were flushed are read")
    pair.client.run(f"{write}; {read} | cmp - /run/area")
    number = newest()[0]
    until(lambda: newest()[1] > number, 30, "the journal is emptied when the device rests")
    leave_as_now(pair, disk)
    mark = pair.server.log_mark()
    disk = map_with(pair, "crc64", DEVICE)
    eq(pair.server.log_matches("journal replayed", mark), [], "there was nothing to replay")
    pair.client.run(f"{read} | cmp - /run/area")
    disk.unmap()
    eq(scrub(pair, DEVICE)["bad"], 0)
