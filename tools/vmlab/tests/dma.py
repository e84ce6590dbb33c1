# SPDX-License-Identifier: GPL-2.0
"""Memory that bounces: the device has copies of the drivers' pages, which only a sync or an unmap brings up to date.

    rnbd ══ testdev0 ── DMA device ── bounce buffers ══ rnbd-server ── ram0      all in one machine

A sync that is missing leaves the device, or the driver, with the bytes that were there before.
"""
from __future__ import annotations

from collections.abc import Callable

from vmlab import paths, rnbd, tier
from vmlab.checks import eq, ge, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.testdevice import MODULE, add_fault, plug_in, queue_pairs

SWIOTLB = "/sys/kernel/debug/swiotlb"
# In places of 2 KiB: the kernel's default of 64 MiB is not enough for a session of the default depth.
BOUNCES = "swiotlb=65536,force"
CHUNK = 128 << 10

# Writes of random bytes, and reads of them; the memory begins at each sector of a page.
OFFSETS = """
import mmap, os, sys
disk = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
out, back = mmap.mmap(-1, 1 << 20), mmap.mmap(-1, 1 << 20)
for at in range(0, 4096, 512):
    for size in 512, 4096, 4608, 65536, 131072, 262144:
        data = os.urandom(size)
        out[at:at + size] = data
        back[:] = bytes(1 << 20)
        moved = (os.pwritev(disk, [memoryview(out)[at:at + size]], 7 * size),
                 os.preadv(disk, [memoryview(back)[at:at + size]], 7 * size))
        if moved != (size, size) or back[:] != bytes(at) + data + bytes((1 << 20) - at - size):
            sys.exit(f"{size} bytes at offset {at} of a page differ, moved {moved}")
"""


def _bounced(vm: Lab) -> int:
    """The bounce buffers in use, in places of 2 KiB."""
    return int(vm.server.run(f"cat {SWIOTLB}/io_tlb_used"))


def _plug_in(vm: Lab, parameters: str = "") -> int:
    """Plugs the device in; answers the bounce buffers in use before, which have to be all after the test."""
    before = _bounced(vm)
    vm.defer(lambda: until(lambda: _bounced(vm) == before, 10, f"{before} bounce buffers are in use, as before"))
    plug_in(vm, f"maps_memory=1 {parameters}")
    return before


def _same_at_both_ends(vm: Lab, disk: rnbd.Disk) -> None:
    there = vm.server.run("dd if=/dev/ram0 bs=1M iflag=direct status=none | md5sum").split()[0]
    eq(disk.checksum(), there, "what the disk holds, at both ends")


def _carries(invalidate: str, of_tier: str) -> Callable[[Lab], None]:
    @needs(machines=1, own_modules=True, append=BOUNCES, tier=of_tier)
    def test(vm: Lab) -> None:
        """Each sector is as it was last written, for the application, for a reader, and on the server's disk."""
        _plug_in(vm)
        rnbd.start(vm, mib=16, rtrs=f"always_invalidate={invalidate}")
        disk = rnbd.map_disk(vm)
        depth = int(vm.server.read("/sys/module/rtrs_server/parameters/sess_queue_depth"))
        ge(_bounced(vm), depth * CHUNK // 2048, "bounce buffers in use, those of the chunks among them")
        disk.history(writers=4, seconds=3).clean()
        disk.fio("--rw=randwrite --bsrange=4k-512k --iodepth=16 --size=8m --verify=crc32c --verify_fatal=1").clean()
        _same_at_both_ends(vm, disk)
        disk.unmap()
    return test


for _invalidate, _name, _tier in (("Y", "invalidated", tier.CORE), ("N", "kept", tier.ALL)):
    globals()[f"test_a_disk_holds_what_was_written_keys_{_name}"] = _carries(_invalidate, _tier)


# Rdma.every_part_passes_its_selftest runs in each run; a disk over bounce buffers as well.
@needs(machines=1, own_modules=True, append=BOUNCES, tier=tier.ALL)
def test_the_selftest_of_rdma_passes(vm: Lab) -> None:
    """Messages, regions and mapped lists of the abstraction itself."""
    _plug_in(vm)
    mark = vm.server.log_mark()
    vm.server.run("mods ours rdma_test")
    bad = [line for line in vm.server.log_matches(r"rdma_test: ", mark) if not line.endswith(": ok")]
    eq(bad, [], "lines that are not ok")


def _placed(mask: int, segments: int) -> Callable[[Lab], None]:
    @needs(machines=1, own_modules=True, append=BOUNCES)
    def test(vm: Lab) -> None:
        """Memory of applications that begins at any sector of a page; the buffers begin as the device asks for it."""
        _plug_in(vm, f"min_align_mask={mask}")
        mark = vm.client.log_mark()
        rnbd.start(vm, mib=16)
        disk = rnbd.map_disk(vm)
        eq(int(disk.queue("max_segments")), segments, "segments of a request")
        why = vm.client.log_matches("lose the offset in a page, requests have one segment", mark)
        eq(len(why), int(segments == 1), "lines that say so")
        vm.client.push_bytes(OFFSETS.encode(), "/tmp/offsets.py")
        vm.client.run(f"python3 -I -S /tmp/offsets.py {disk.path}", 60)
        disk.unmap()
    return test


# A registration has no gaps, so segments that may come to lie anywhere are registered each for itself.
for _mask, _segments, _name in ((4095, 128, "kept"), (0, 1, "lost")):
    globals()[f"test_offsets_in_a_page_that_are_{_name}"] = _placed(_mask, _segments)


# A request of the client fails; a response of the server does.
LOSSES = {"client": ("writes_with_immediate", "on=write"), "server": ("receive_completions", "on=send")}


def _lose_the_path(vm: Lab, side: str) -> None:
    """Ends the path at one of its sides, on its busiest queue pair, and waits until it is back."""
    before = paths.count(vm, "reconnects", 0)
    requests, place = LOSSES[side]
    busy = max(queue_pairs(vm)[side], key=lambda qp: qp[requests])
    add_fault(vm, f"fault=status status=12 {place} nth=20 qp={busy['qp']}")
    until(lambda: paths.count(vm, "reconnects", 0) > before, 30, "the path has connected again")


@needs(machines=1, own_modules=True, append=BOUNCES)
def test_requests_that_are_sent_again_hold_what_was_written(vm: Lab) -> None:
    """A path ends with requests in flight: their pages are unmapped, mapped anew and sent again."""
    _plug_in(vm)
    rnbd.start(vm, mib=16)
    disk = rnbd.map_disk(vm)
    history = disk.history(writers=8)
    for side in LOSSES:
        paths.wait_busy(disk, 100, history)
        _lose_the_path(vm, side)
    history.clean(60)
    _same_at_both_ends(vm, disk)
    disk.unmap()


@needs(machines=1, own_modules=True, append=BOUNCES)
def test_a_device_that_goes_under_load_gives_all_memory_back(vm: Lab) -> None:
    """The device is unplugged: what was mapped for it is unmapped before it has gone."""
    before = _plug_in(vm)
    rnbd.start(vm, mib=16)
    disk = rnbd.map_disk(vm)
    load = disk.fio("--rw=randrw --bs=4k --iodepth=16 --size=16m --time_based --runtime=60")
    until(lambda: disk.requests > 200, 20, "the load runs")
    mapped = _bounced(vm)
    vm.server.run(f"rmmod {MODULE}")
    eq(_bounced(vm), before, f"bounce buffers in use, of {mapped}")
    disk.unmap("force")
    ok(load.wait(30).code, "IO went on without a device")
