# SPDX-License-Identifier: GPL-2.0
"""Data written to and read from the server: sizes, operations, file systems.

    client /dev/rnbd0 ══ wire 0 ══ server /dev/ram0
"""
from __future__ import annotations

from vmlab import rnbd, tier, trace
from vmlab.checks import eq, ge, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.tests.hostile import PEER

# One write and one read of a pattern at an odd place, for each size from a sector to a MiB. In one process, for each
# costs an emulated machine a tenth of a second.
SIZES = """
import mmap, os, sys
disk = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
out, back = mmap.mmap(-1, 1 << 20), mmap.mmap(-1, 1 << 20)
out.write(os.urandom(1 << 20))
for size in 512, 1024, 1536, 4096, 4608, 12288, 65536, 126976, 131072, 262144, 524288, 1048576:
    back[:size] = bytes(size)
    done = (os.pwritev(disk, [memoryview(out)[:size]], 7 * size), os.preadv(disk, [memoryview(back)[:size]], 7 * size))
    if done != (size, size) or out[:size] != back[:size]:
        sys.exit(f"size {size} differs, moved {done}")
"""


# Blocks on both sides of the places whose number of bytes or of sectors is a power of two that some number in the way
# might end at, each with bytes of its own; "write", "compare", or "empty": their places modulo 4 GiB and 2 TiB.
FAR = """
import mmap, os, sys
path, deed, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
disk, page = os.open(path, os.O_RDWR | os.O_DIRECT), mmap.mmap(-1, 8192)
edges = [edge for edge in (1 << 31, 1 << 32, 1 << 40, 1 << 41, 1 << 42, 1 << 43) if edge < size]
places = [edge - 4096 for edge in edges] + [size - 8192]
for number, at in enumerate(places, 1):
    whole = b"".join((at + part).to_bytes(8, "little") for part in range(0, 8192, 8))
    if deed == "write":
        page[:] = whole
        assert os.pwritev(disk, [page], at) == 8192
    elif deed == "compare":
        assert os.preadv(disk, [page], at) == 8192
        assert page[:] == whole, f"at {at}"
    else:
        for folded in {at % (1 << 32), at % (1 << 41), (at + 4096) % (1 << 32), (at + 4096) % (1 << 41)}:
            if not any(place - 8192 < folded < place + 8192 for place in places):
                assert os.preadv(disk, [page], folded) == 8192
                assert page[:] == bytes(8192), f"at {folded} is what belongs to {int.from_bytes(page[:8], 'little')}"
"""
TEBIBYTE = 1 << 40


def every_size(disk: rnbd.Disk) -> None:
    """Writes and reads each size; every byte is compared."""
    disk.machine.push_bytes(SIZES.encode(), "/tmp/sizes.py")
    disk.machine.run(f"python3 -I -S /tmp/sizes.py {disk.path}", 120)


def memory_anywhere(disk: rnbd.Disk) -> None:
    """Direct IO with memory that begins anywhere in a page, and in pieces; every byte is compared."""
    eq(disk.queue("dma_alignment"), "3")
    disk.machine.push(PEER / "memory_anywhere.py", "/tmp/memory_anywhere.py")
    disk.machine.run(f"python3 -I -S /tmp/memory_anywhere.py {disk.path}", 120)


@needs()
def test_a_disk_appears_with_the_size_of_the_servers(pair: Lab) -> None:
    """map_device creates a block device of the size of the server's."""
    rnbd.start(pair, mib=48)
    disk = rnbd.map_disk(pair)
    eq(disk.sectors, 48 * 2048, "sectors")
    eq(disk.attribute("state"), "open")
    disk.unmap()
    ok(not pair.client.exists(disk.path), "the device node stayed")


@needs()
def test_every_size_comes_back_as_it_was_written(pair: Lab) -> None:
    """512 bytes to 1 MiB, with odd sizes and those that have to be split, and memory that begins anywhere in a page."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair)
    every_size(disk)
    memory_anywhere(disk)


@needs()
def test_what_the_client_writes_is_on_the_servers_disk(pair: Lab) -> None:
    """The bytes are at their position on the backing device, and at no other."""
    rnbd.start(pair, mib=16)
    disk = rnbd.map_disk(pair)
    pair.client.run(f"head -c 65536 /dev/urandom > /run/piece; dd if=/run/piece of={disk.path} bs=64k seek=5 "
                    "oflag=direct status=none")
    written = pair.client.run("md5sum < /run/piece")
    eq(pair.server.run("dd if=/dev/ram0 bs=64k skip=5 count=1 status=none | md5sum"), written, "the piece")
    rest = ("(dd if=/dev/ram0 bs=64k count=5 status=none; dd if=/dev/ram0 bs=64k skip=6 status=none) | "
            "tr -d '\\0' | wc -c")
    eq(pair.server.run(rest).strip(), "0", "bytes elsewhere")


@needs()
def test_a_disk_of_nine_tebibytes(pair: Lab) -> None:
    """Data written around 2 GiB, 4 GiB, 2^32 sectors and further are there on the server, and nowhere else."""
    rnbd.null_disk(pair, f"memory_backed=1 gb={9 << 10}")
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    disk = rnbd.map_disk(pair, "nullb0")
    eq(disk.sectors, 9 * TEBIBYTE // 512, "sectors")
    for machine, path, deeds in ((pair.client, disk.path, ("write", "compare")),
                                 (pair.server, "/dev/nullb0", ("compare", "empty"))):
        machine.push_bytes(FAR.encode(), "/tmp/far.py")
        for deed in deeds:
            machine.run(f"python3 -I -S /tmp/far.py {path} {deed} {9 * TEBIBYTE}")


@needs()
def test_fio_verifies_mixed_sizes(pair: Lab) -> None:
    """Random writes of mixed sizes with a checksum in each block, read back and compared."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair)
    rnbd.round_robin(pair)
    disk.fio("--rw=randwrite --bsrange=512-1m --bs_unaligned=0 --blockalign=512 --iodepth=16 "
             f"--size={tier.of(12, 24)}m --verify=crc32c --verify_fatal=1", 180).clean()


@needs()
def test_fio_verifies_with_several_jobs(pair: Lab) -> None:
    """Four submitters on two processors, each in its own part of the disk."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair)
    rnbd.round_robin(pair)
    result = disk.fio("--rw=randrw --bs=4k --iodepth=2 --numjobs=4 --offset_increment=4m "
                      f"--size={tier.of(1, 2)}m --verify=crc32c --verify_fatal=1", 180).clean()
    ge(result.iops("write"), 1, "writes")


@needs()
def test_small_neighbours_are_merged_and_carried(pair: Lab) -> None:
    """Neighbouring 512-byte and 1 KiB writes, submitted together, become one request of many pieces.

    The block layer adds up the pieces of what it merges, so a request may have max_segments of them although
    they lie in a few pages. File systems with small blocks write their tables so.
    """
    rnbd.start(pair)
    disk = rnbd.map_disk(pair)
    rnbd.round_robin(pair)
    for block in ("512", "1k"):
        disk.fio(f"--ioengine=libaio --rw=write --bs={block} --iodepth=120 --iodepth_batch=120 "
                 "--iodepth_batch_complete_min=120 --size=1m --verify=crc32c --verify_fatal=1", 120).clean()
    merged = int(pair.client.read(f"/sys/block/{disk.name}/stat").split()[5])
    ge(merged, 500, "writes that were merged")


@needs()
def test_always_invalidate_off_carries_data_too(pair: Lab) -> None:
    """The server with always_invalidate=N, where one registration serves many chunks."""
    rnbd.start(pair, rtrs="always_invalidate=N")
    disk = rnbd.map_disk(pair)
    rnbd.round_robin(pair)
    every_size(disk)
    disk.fio("--rw=randwrite --bs=4k --iodepth=16 --size=4m --verify=crc32c --verify_fatal=1", 120).clean()


@needs()
def test_a_small_server_carries_data_too(pair: Lab) -> None:
    """Few and small chunks: every IO waits for a permit, and most are split."""
    rnbd.start(pair, rtrs="sess_queue_depth=4 max_chunk_size=8192")
    disk = rnbd.map_disk(pair)
    rnbd.round_robin(pair)
    eq(disk.queue("max_hw_sectors_kb"), "4")
    every_size(disk)
    disk.fio(f"--rw=randwrite --bs=4k --iodepth=32 --size={tier.of(1, 2)}m --verify=crc32c "
             "--verify_fatal=1", 120).clean()


@needs()
def test_flush_and_fua_reach_the_servers_disk(pair: Lab) -> None:
    """A disk with a volatile cache announces it; each FUA write arrives as one, and a flush for each fsync."""
    rnbd.null_disk(pair, "memory_backed=1 gb=1 cache_size=8 fua=1 discard=1")
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    disk = rnbd.map_disk(pair, "nullb0")
    eq((disk.queue("write_cache"), disk.queue("fua")), ("write back", "1"))
    write = f"dd if=/dev/urandom of={disk.path} bs=4k oflag=direct"
    with trace.requests(pair.server, "nullb0") as plain:
        pair.client.run(f"{write} count=8 seek=16 status=none")
    eq([request.kind for request in plain], ["WS"] * 8, "writes without FUA")
    with trace.requests(pair.server, "nullb0") as forced:
        pair.client.run(f"{write},dsync count=8 seek=32 status=none")
    writes = [(request.kind, request.sector) for request in forced if request.sectors]
    eq(writes, [("WFS", 8 * block) for block in range(32, 40)], "writes with FUA")
    flushes = "awk '{print $16}' /sys/block/nullb0/stat"
    before = int(pair.server.run(flushes))
    for _ in range(3):
        pair.client.run(f"{write} count=1 conv=fsync status=none")
    eq(int(pair.server.run(flushes)), before + 3, "flushes on the server's disk")


@needs()
def test_priorities_reach_the_servers_disk(pair: Lab) -> None:
    """Class and level of a task's IO are those of the request at the server's disk."""
    rnbd.null_disk(pair, "memory_backed=1 gb=1")
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    disk = rnbd.map_disk(pair, "nullb0")
    for words, told in (("-c 1 -n 2", "rt,0,2"), ("-c 2 -n 7", "be,0,7"), ("-c 3", "idle,0,7")):
        with trace.requests(pair.server, "nullb0") as requests:
            pair.client.run(f"ionice {words} dd if=/dev/zero of={disk.path} bs=4k count=2 oflag=direct status=none; "
                            f"ionice {words} dd if={disk.path} of=/dev/null bs=4k count=1 iflag=direct status=none")
        found = [(request.kind[0], request.priority) for request in requests]
        eq(found, [("W", told), ("W", told), ("R", told)], words)


@needs()
def test_discard_and_write_zeroes_reach_the_servers_disk(pair: Lab) -> None:
    """Both operations, for ranges far above the size of a chunk."""
    rnbd.null_disk(pair, "memory_backed=1 gb=1 discard=1")
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    disk = rnbd.map_disk(pair, "nullb0")
    vm = pair.client
    ge(int(disk.queue("discard_max_bytes")), 4096, "discard_max_bytes")
    fill = f"dd if=/dev/urandom of={disk.path} bs=1M count=8 oflag=direct status=none"
    left = "dd if=/dev/nullb0 bs=1M skip={at} count={n} iflag=direct status=none | tr -d '\\0' | wc -c"
    vm.run(fill)
    vm.run(f"blkdiscard -o 2M -l 4M {disk.path}")
    eq(pair.server.run(left.format(at=2, n=4)).strip(), "0", "bytes left in the discarded range")
    ge(int(pair.server.run(left.format(at=0, n=2))), 2 << 19, "bytes left beside it")
    vm.run(fill)
    vm.run(f"blkdiscard -z -o 1M -l 3M {disk.path}")
    eq(vm.run(f"dd if={disk.path} bs=1M skip=1 count=3 iflag=direct status=none | tr -d '\\0' | wc -c").strip(), "0",
       "bytes left in the zeroed range")


@needs()
def test_ext4_keeps_its_files_over_a_remap(pair: Lab) -> None:
    """mkfs, copy, unmount, unmap, map again, compare every file, check the file system."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair)
    vm = pair.client
    vm.run(f"modprobe ext4; mkfs.ext4 -q {disk.path} && mount {disk.path} /mnt")
    pair.defer(vm.try_run, "umount /mnt 2>/dev/null; rmmod ext4 2>/dev/null")
    vm.run("cp -r /usr/lib/python3.13/json /usr/lib/python3.13/collections /usr/bin/bash /usr/bin/fio /mnt/ && "
           "cd /mnt && find . -type f -exec md5sum {} + > /run/sums && wc -l < /run/sums", 120)
    vm.run("umount /mnt", 60)
    disk.unmap()
    disk = rnbd.map_disk(pair)
    vm.run(f"mount {disk.path} /mnt && cd /mnt && md5sum --quiet -c /run/sums", 120)
    vm.run(f"umount /mnt && e2fsck -fn {disk.path}")


@needs()
def test_partitions_are_found(pair: Lab) -> None:
    """A partition table makes rnbd0p1 and rnbd0p2, here and after the next mapping."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair)
    pair.client.run(f"printf 'size=16M\\nsize=16M\\n' | sfdisk -q --no-tell-kernel {disk.path}; "
                    f"blockdev --rereadpt {disk.path}")
    parts = [f"{disk.path}p1", f"{disk.path}p2"]
    until(lambda: all(pair.client.exists(part) for part in parts), 10, "the partitions appear")
    eq(pair.client.run(f"blockdev --getsz {parts[0]}").strip(), "32768")
    pair.client.run(f"dd if=/dev/urandom of={parts[1]} bs=64k count=4 oflag=direct status=none")
    disk.unmap()
    disk = rnbd.map_disk(pair)
    until(lambda: all(pair.client.exists(part) for part in parts), 10, "the partitions appear again")


@needs()
def test_the_disk_announces_the_servers_limits(pair: Lab) -> None:
    """Block sizes and limits are those that the server's disk has and a chunk allows."""
    pair.server.run("modprobe sd_mod; modprobe scsi_debug sector_size=4096 dev_size_mb=32 lbpu=1 lbpws=1 delay=0 "
                    "max_luns=1 num_tgts=1 add_host=1", 60)
    pair.defer(rnbd.remove_module, pair.server, "scsi_debug")
    until(lambda: pair.server.exists("/dev/sda"), 20, "the SCSI disk appears")
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    disk = rnbd.map_disk(pair, "sda")
    backing = pair.server.read("/sys/block/sda/queue/physical_block_size")
    eq((disk.queue("logical_block_size"), disk.queue("physical_block_size")), ("4096", backing), "block sizes")
    eq(disk.queue("max_hw_sectors_kb"), "124")
    eq(disk.queue("max_segments"), "128")
    eq(disk.queue("virt_boundary_mask"), "4095")
    eq(disk.queue("optimal_io_size"), "126976")
    eq(disk.sectors, 32 * 2048, "sectors")
    half = pair.client.try_run(f"dd if=/dev/zero of={disk.path} bs=512 count=1 oflag=direct")
    ok(half.code, "a half block was written")
    disk.fio("--rw=randwrite --bs=4k --iodepth=8 --size=1m --verify=crc32c", 60).clean()
