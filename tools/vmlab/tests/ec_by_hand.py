# SPDX-License-Identifier: GPL-2.0
"""Members of an array of rnbd_ec that an administrator takes away, and gives back."""
from __future__ import annotations

from vmlab import ec, tier
from vmlab.checks import eq, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.tests.ec import begin
from vmlab.tests.ec_members import LOAD

TIER = tier.ALL


@needs(machines=1, own_modules=True)
def test_a_member_that_hangs_is_failed_by_hand(vm: Lab) -> None:
    """Long before `member_timeout_ms`: writes and reads go on. It stays away until it may return, or is replaced."""
    array = begin(vm, "hedge_ms=0")
    array.fio("--rw=write --bs=64k --size=8m --refill_buffers").clean()
    vm.server.run("modprobe loop; truncate -s 24m /run/new; losetup /dev/loop0 /run/new")
    vm.defer(vm.server.run, "losetup -D; rm /run/new")
    load = array.fio(LOAD.format(12))
    reads = array.fio("--rw=randread --bs=16k --iodepth=8 --size=8m --time_based --runtime=12")
    begun = array.stats()["batches"]
    until(lambda: array.stats()["batches"] > begun + 20, 20, "the load writes")
    vm.server.run("dmsetup suspend --noflush --nolockfs m1")
    until(lambda: stands_still(array), 10, "writes wait for the member")
    mark = vm.server.log_mark()
    eq(write(vm, array, "fail", "1"), "")
    array.becomes("degraded", 5)
    before = array.stats()
    until(lambda: all(array.stats()[kind] > before[kind] + 20 for kind in ("batches", "reads")), 10, "all goes on")
    eq(write(vm, array, "replace", "/dev/loop0"), "EBUSY")
    for word, errno in (("0", "EBUSY"), ("3", "EINVAL"), ("", "EINVAL")):
        eq((word, write(vm, array, "fail", word)), (word, errno))
    vm.server.run("dmsetup resume m1")
    load.clean()
    reads.clean()
    for line in ('runs without member 1: it is taken back when "none" is written to ec/fail, or write a new device',
                 "member 1 is not replaced: [0-9]+ IOs to it have not ended: wait, or unmap its device by force",
                 "fail: not done: fewer than two other members live", "fail: '3' is neither a member nor none"):
        eq((line, len(vm.server.log_matches(line, mark))), (line, 1))
    vm.server.run("sleep 3")    # one that has failed by itself is tried after a second
    eq((array.state(), array.attribute("fail")), ("degraded", "1"))
    eq(write(vm, array, "fail", "none"), "")
    array.becomes("clean", 90)
    eq(array.attribute("fail"), "none")
    eq(write(vm, array, "fail", "2"), "")
    array.becomes("degraded", 5)
    eq(write(vm, array, "replace", "/dev/loop0"), "")
    array.becomes("clean", 90)
    eq(array.attribute("fail"), "none")
    ok(array.stats()["member_returns"] == 2, str(array.stats()))


def stands_still(array: ec.Array) -> bool:
    """Whether nothing is written for half a second."""
    before = array.stats()["batches"]
    array.machine.run("sleep 0.5")
    return array.stats()["batches"] == before


def write(vm: Lab, array: ec.Array, file: str, text: str) -> str:
    """Writes to a file of the array; the errno's name."""
    return vm.server.write(f"{array.control}/{file}", text or "\n", 60)
