# SPDX-License-Identifier: GPL-2.0
"""rnbd_ec when memory is short: IO allocates nothing, and what can only be freed by writing to the array is freed.

    /dev/ec0 ── rnbd_ec ── dm-linear ── /dev/ram0, 1, 2
"""
from __future__ import annotations

from vmlab import ec, paths, tier
from vmlab.checks import eq, ge, until
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.tests import reclaim
from vmlab.tests.allocations import PERMITTED, Watch, ours

TIER = tier.ALL
MEMBER_MIB = 80
HOG_MIB = 76            # twice: 56 MiB more than what is left without the swap, of which half has to be swapped out
SWAPPED_MIB = 24


def fill(lab: Lab, mib: int) -> None:
    """Gives the ram disks all their pages: brd allocates one when it is first written."""
    lab.server.run(f"for n in 0 1 2; do dd if=/dev/zero of=/dev/ram$n bs=1M count={mib} oflag=direct status=none; done",
                   100)


@needs(machines=1, own_modules=True)
def test_io_of_an_array_allocates_nothing(vm: Lab) -> None:
    """Reads, writes, flushes, discards, and the collecting that they bring about."""
    ec.disks(vm)
    fill(vm, 24)
    ec.load(vm)
    watch = Watch(vm.server)
    array = ec.assemble(vm)
    # An assembly does allocate: what would be seen is seen.
    ge(sum(ours(watch.end()).values()), 20, "allocations for an array")
    kinds = [f"--rw={rw} --bsrange=4k-64k --iodepth=16 --fdatasync=16 --size=31m --io_size=24m --norandommap "
             "--refill_buffers" for rw in ("randrw", "randtrim", "randwrite")]
    for kind in kinds:      # what is allocated once, at the first use
        array.fio(kind, 120).clean()
    watch, before = Watch(vm.server), array.stats()
    for kind in kinds:
        array.fio(kind, 120).clean()
    stacks = watch.end()
    found = ours(stacks)
    paths.figure(f"{found} of {sum(stacks.values())} allocations")
    ge(sum(stacks.values()), 400, "allocations of the machine that were seen")
    ge(array.stats()["collected_segments"] - before["collected_segments"], 5, "segments that were collected")
    eq({function for function in found if function not in PERMITTED}, set(), "what asked for memory")


@needs(machines=1, own_modules=True, fresh=True, append=reclaim.MOVABLE, timeout=240)
def test_swap_on_an_array_goes_on_while_a_member_fails(vm: Lab) -> None:
    """Programs that need more memory than there is, with their swap on the array, whose member fails and returns."""
    ec.disks(vm, MEMBER_MIB)
    fill(vm, MEMBER_MIB)
    ec.load(vm)
    array = ec.assemble(vm)
    reclaim.prepare(vm)
    vm.server.run(f"mkswap {array.path} && swapon {array.path}")
    vm.defer(lambda: vm.server.try_run(f"swapoff {array.path}", 100))
    mark, before = vm.server.log_mark(), reclaim.counter(vm, "pswpout")

    def swapped(mib: int) -> None:
        until(lambda: reclaim.counter(vm, "pswpout") - before >= mib << 8, 60, f"{mib} MiB were swapped out")
    vm.defer(reclaim.over, vm)
    hogs = [reclaim.hog(vm, HOG_MIB) for _ in range(2)]
    swapped(4)
    ec.fails(vm, 1, MEMBER_MIB)
    array.becomes("degraded")
    swapped(SWAPPED_MIB)
    ec.works(vm, 1, MEMBER_MIB)
    array.becomes("clean", 120)
    paths.figure(f"{(reclaim.counter(vm, 'pswpout') - before) >> 8} MiB were swapped out")
    reclaim.over(vm)
    for hog in hogs:
        hog.ok()
    eq([text for _n, text in vm.server.kernel_log(mark) if reclaim.OOM.search(text)], [], "the OOM killer's words")
    vm.server.run(f"swapoff {array.path}", 100)
    eq((array.stats()["lost_reads"], array.state()), (0, "clean"))
