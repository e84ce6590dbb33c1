# SPDX-License-Identifier: GPL-2.0
"""Mode store writes as little as it can: sectors of the journal's records, and of the blocks of tuples."""
from __future__ import annotations

from vmlab import rnbd, tier, trace
from vmlab.checks import eq, ok, until
from vmlab.lab import Lab
from vmlab.machine import Machine
from vmlab.needs import needs
from vmlab.tests.limits import NULL, make_null
from vmlab.tests.pi import map_with, no_errors
from vmlab.tests.pi_store import DATA, TOOL, format_disk, scrub, sizes

TIER = tier.ALL
# The smallest device with a long journal.
LONG_MIB = 256


def null_disk(lab: Lab, mib: int, **attributes: int) -> None:
    """/dev/nullb0 on the server, smaller than the module's parameters make it, as each scrub reads all of it."""
    lab.server.run("modprobe null_blk nr_devices=0; grep -q configfs /proc/mounts || "
                   "mount -t configfs none /sys/kernel/config")
    lab.defer(rnbd.remove_module, lab.server, "null_blk")
    lab.defer(lab.server.run, f"rmdir {NULL}")
    make_null(lab, size=mib, **attributes)


@needs(wires=1)
def test_records_have_the_sectors_that_they_need(pair: Lab) -> None:
    """Version 1 stays as it is until it is made version 2; a device with large physical blocks gets whole ones."""
    rnbd.ram_disk(pair, 16)
    null_disk(pair, LONG_MIB)
    rnbd.load_server(pair)
    rnbd.load_client(pair)

    def use(device: str) -> None:
        disk = map_with(pair, "require", device)
        for depth in (1, 16):
            disk.fio(f"--rw=randwrite --bsrange=4k-128k --iodepth={depth} --size={tier.of(2, 8)}m --verify=crc32c "
                     "--verify_fatal=1", 120).clean()
        no_errors(pair, disk, device)
        disk.unmap()
        eq(scrub(pair, device)["bad"], 0)

    format_disk(pair, "nullb0", "--format-version 1 --journal-slots 255")
    use("nullb0")
    eq(sizes(pair, "nullb0"), {0}, "sizes of records in version 1")
    ok("version: 2" in pair.server.run(f"{TOOL} upgrade /dev/nullb0"), "the device has version 2")
    use("nullb0")
    found = sizes(pair, "nullb0")
    # Up to 32 blocks in a request: 64 bytes, 40 for each of them, and 8.
    ok(found >= {512, 1024} and all(size % 512 == 0 for size in found), f"sizes of records in version 2: {found}")
    pair.server.run("dd if=/dev/zero of=/dev/nullb0 bs=1M count=4 oflag=direct status=none")
    format_disk(pair, "nullb0")
    ok("journal slots: 1023" in pair.server.run(f"{TOOL} info /dev/nullb0"), "a large device has a long journal")
    use("nullb0")
    ok(512 in sizes(pair, "nullb0"), "sizes of records")
    format_disk(pair)
    use("ram0")
    eq((pair.server.read("/sys/block/ram0/queue/physical_block_size"), sizes(pair, "ram0")), ("4096", {0}))
    pair.server.run("printf '\\003' | dd of=/dev/ram0 bs=1 seek=8 conv=notrunc status=none; sync")
    mark = pair.server.log_mark()
    eq(rnbd.try_map(pair, rnbd.request(pair, options="access_mode=rw pi=crc64")), "EUCLEAN")
    ok(pair.server.log_matches("its sidecar has version 3 or a format that is not known", mark), "no reason in the log")


@needs(wires=1)
def test_of_a_block_of_tuples_the_changed_sectors_are_written(pair: Lab) -> None:
    """Version 1 writes whole blocks, as a device with large physical blocks would."""
    null_disk(pair, 64)
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    # Their tuples are in the first and the third sector of the first group's block, and in the second one's second.
    device, numbers = "nullb0", (0, 2 * 32, 256 + 40)
    for options, wanted in (("", (3 * 512, 512)), ("--format-version 1", (4096, 4096))):
        format_disk(pair, device, f"--journal-slots 255 {options}")
        disk = map_with(pair, "require", device)
        pi_blocks = DATA * 8 + disk.sectors
        with trace.requests(pair.server, device) as found:
            # At once: the tuples are written back when the device rests.
            pair.client.run(f"for number in {' '.join(map(str, numbers))}; do "
                            f"dd if=/dev/urandom of={disk.path} bs=4k count=1 seek=$number oflag=direct status=none; "
                            "done")
            disk.unmap()
        writes = [request for request in found if request.kind.startswith("W")]
        written = tuple(sum(write.sectors * 512 for write in writes if (write.sector - pi_blocks) // 8 == group)
                        for group in (0, 1))
        eq(written, wanted, f"bytes of tuples that were written, {options}: {writes}")
        eq(scrub(pair, device)["bad"], 0)


def first_sector(vm: Machine, device: str) -> str:
    """The content of the medium there, as text."""
    return vm.run(f"dd if=/dev/{device} bs=4k count=1 iflag=direct status=none | sha256sum")


@needs(wires=1)
def test_the_mark_of_use_is_written_as_large_as_a_physical_block(pair: Lab) -> None:
    """A disk that reads 4096 bytes to write 512 may lose them all: the mark's sector goes with the superblock's."""
    vm, device = pair.server, "sda"
    vm.run("modprobe scsi_debug dev_size_mb=16 physblk_exp=3 delay=0 max_luns=1; modprobe sd_mod; "
           "for i in $(seq 50); do [ -b /dev/sda ] && break; sleep 0.1; done; [ -b /dev/sda ]")
    pair.defer(rnbd.remove_module, vm, "scsi_debug")
    eq([vm.read(f"/sys/block/sda/queue/{kind}_block_size") for kind in ("logical", "physical")], ["512", "4096"])
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    format_disk(pair, device)
    disk = map_with(pair, "require", device)
    with trace.requests(vm, device) as found:
        for _mark in range(2):
            sector = first_sector(vm, device)
            until(lambda sector=sector: first_sector(vm, device) != sector, 10, "the mark is renewed")
        disk.unmap()
    marks = [(write.sector, write.sectors) for write in found if write.kind.startswith("W") and write.sector < 8]
    ok(len(marks) > 2 and set(marks) == {(0, 8)}, f"writes to the first block: {marks}")
    eq(scrub(pair, device)["bad"], 0)


@needs(wires=1)
def test_a_record_is_durable_before_its_data_are_written(pair: Lab) -> None:
    """With a volatile cache each record of the journal is written with FUA, and the data of a request behind it; they
    themselves only if the client wants it."""
    null_disk(pair, 64, cache_size=8, fua=1)
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    device, count = "nullb0", 8
    format_disk(pair, device, "--journal-slots 255")
    disk = map_with(pair, "require", device)
    for options, kind in (("", "WS"), (",dsync", "WFS")):
        with trace.requests(pair.server, device) as found:
            pair.client.run(f"dd if=/dev/urandom of={disk.path} bs=4k count={count} oflag=direct{options} status=none")
        records, data = 0, 0
        for request in found:
            block = request.sector // 8 - DATA
            if request.sector < 8:
                continue        # the mark of use, which nothing waits for
            if request.kind.startswith("W") and block < 0:
                eq(request.kind, "WFSM", f"a record: {request}")
                records += 1
            elif request.kind.startswith("W") and block * 8 < disk.sectors:
                eq(request.kind, kind, f"data: {request}")
                data += 1
                ok(records >= data, f"data before their record: {found}")
        eq(data, count, f"writes of data: {found}")
    disk.unmap()
    eq(scrub(pair, device)["bad"], 0)
