# SPDX-License-Identifier: GPL-2.0
"""Members of an array of rnbd_ec that an administrator takes away, and gives back."""
from __future__ import annotations

from vmlab import ec, tier
from vmlab.checks import eq, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.patience import scaled
from vmlab.tests.ec import begin

TIER = tier.ALL


@needs(machines=1, own_modules=True)
def test_a_member_that_hangs_is_failed_by_hand(vm: Lab) -> None:
    """Long before `member_timeout_ms`: writes and reads go on. It stays away until it may return, or is replaced."""
    array = with_spare(vm)
    # It verifies nothing: all reads are those of the other one.
    load = array.fio(f"--rw=randwrite --bs=4k --iodepth=8 --size=8m --time_based --runtime={scaled(12):.0f}")
    reads = array.fio(f"--rw=randread --bs=16k --iodepth=8 --size=8m --time_based --runtime={scaled(12):.0f}")
    goes_on(array)
    hangs(vm)
    until(lambda: stands_still(array), 10, "all waits for the member")
    mark = vm.server.log_mark()
    # Without another one no epoch would become durable, and the array would be lost.
    vm.server.run("sleep 1.5")
    eq((write(vm, array, "fail", "2"), array.state()), ("EBUSY", "clean"))
    rows = array.attribute("members").splitlines()
    eq([" has not answered for " in row for row in rows], [False, True, False], str(rows))
    eq(write(vm, array, "fail", "1"), "")
    array.becomes("degraded", 5)
    goes_on(array)
    eq(write(vm, array, "replace", "/dev/loop0"), "EBUSY")
    for word, errno in (("0", "EBUSY"), ("3", "EINVAL"), ("", "EINVAL")):
        eq((word, write(vm, array, "fail", word)), (word, errno))
    vm.server.run("dmsetup resume m1")
    load.clean()
    reads.clean()
    for line in ('runs without member 1: it is taken back when "none" is written to ec/fail, or write a new device',
                 "member 1 is not replaced: [0-9]+ IOs to it have not ended: wait, or unmap its device by force",
                 "fail: not done: fewer than two other members live",
                 "member 1 is failed by hand, and kept out",
                 "fail: not done: member 1 has not answered for [0-9]+ ms: fail that one, or wait",
                 "fail: '3' is neither a member nor none"):
        eq((line, len(vm.server.log_matches(line, mark))), (line, 1))
    vm.server.run("sleep 3")    # one that has failed by itself is tried after a second
    told = "degraded: member 1 was failed by hand: write none to fail, or a new device to replace"
    eq((array.attribute("state"), array.attribute("fail")), (told, "1"))
    eq(write(vm, array, "fail", "none"), "")
    eq(len(vm.server.log_matches("member 1 may return", mark)), 1)
    array.becomes("clean", 90)
    eq(array.attribute("fail"), "none")
    eq(write(vm, array, "fail", "2"), "")
    array.becomes("degraded", 5)
    eq(write(vm, array, "replace", "/dev/loop0"), "")
    array.becomes("clean", 90)
    eq(array.attribute("fail"), "none")
    ok(array.stats()["member_returns"] == 2, str(array.stats()))


@needs(machines=1, own_modules=True)
def test_a_replacement_waits_for_reads(vm: Lab) -> None:
    """Reads that a member owes are waited for, as writes are: the new device would be blamed for them, and fail."""
    array = with_spare(vm, "member_timeout_ms=3000")
    reads = array.fio(f"--rw=randread --bs=16k --iodepth=8 --size=8m --time_based --runtime={scaled(12):.0f}")
    until(lambda: done(array)[1] > 100, 10, "it reads")
    hangs(vm)
    until(lambda: stands_still(array), 10, "all waits for the member")
    eq(write(vm, array, "fail", "1"), "")
    array.becomes("degraded", 5)
    mark = vm.server.log_mark()
    eq(write(vm, array, "replace", "/dev/loop0"), "EBUSY")
    lines = vm.server.log_matches("member 1 is not replaced: [1-9][0-9]* IOs to it have not ended", mark)
    eq(len(lines), 1)
    vm.server.run("dmsetup resume m1")
    until(lambda: write(vm, array, "replace", "/dev/loop0") == "", 10, "its last read has ended")
    array.becomes("clean", 90)
    reads.clean()
    eq((array.state(), array.stats()["member_failures"]), ("clean", 1))


@needs(machines=1, own_modules=True)
def test_a_replacement_that_fails_late_changes_nothing(vm: Lab) -> None:
    """A new device that can be written and not be read is no member; the one before stays away, and may return."""
    array = with_spare(vm)
    eq(write(vm, array, "fail", "1"), "")
    array.becomes("degraded", 5)
    vm.server.run("modprobe dm_flakey; dmsetup create new --table "
                  f"'0 {24 * 2048} flakey /dev/loop0 0 0 1 1 error_reads'")
    vm.defer(vm.server.run, "dmsetup remove --retry new")
    eq(write(vm, array, "replace", ec.path(3)), "EIO")
    eq((array.state(), array.attribute("fail")), ("degraded", "1"))
    eq(write(vm, array, "fail", "none"), "")
    array.becomes("clean", 90)
    ok(ec.path(3) not in array.attribute("members"), array.attribute("members"))


@needs(machines=1, own_modules=True)
def test_a_replacement_has_physical_blocks_as_short(vm: Lab) -> None:
    """Members that write 512 bytes at a time: power that fails would cost more on a device that writes 4096. It is
    refused, and warned of if a member has become one."""
    ec.disks(vm, count=4)
    vm.server.run("modprobe null_blk nr_devices=1 gb=1 memory_backed=1")
    vm.defer(vm.server.run, "rmmod null_blk")
    for member in range(3):
        ec.become(vm, member, f"0 {24 * 2048} linear /dev/nullb0 {member * 24 * 2048}")
        vm.defer(ec.works, vm, member)
    ec.load(vm)
    array = ec.assemble(vm)
    eq(write(vm, array, "fail", "1"), "")
    array.becomes("degraded", 5)
    mark = vm.server.log_mark()
    eq(write(vm, array, "replace", ec.path(3)), "EINVAL")
    why = "has physical blocks of 4096 bytes, and the array writes 512 at a time"
    eq(len(vm.server.log_matches(f"replace: /dev/dm-3: {why}", mark)), 1)
    eq(write(vm, array, "fail", "none"), "")
    array.becomes("clean", 90)
    array.stop()
    vm.server.run("dd if=/dev/dm-1 of=/dev/ram1 bs=1M iflag=direct oflag=direct status=none")
    ec.works(vm, 1)
    array = ec.assemble(vm, ec.line(mode="assemble"))
    eq((array.state(), len(vm.server.log_matches(f"ec0: member 1 {why}", mark))), ("clean", 1))


def with_spare(vm: Lab, options: str = "") -> ec.Array:
    """An array with data whose reads wait for their member, and a new device for it, /dev/loop0."""
    array = begin(vm, f"hedge_ms=0 {options}".strip())
    array.fio("--rw=write --bs=64k --size=8m --refill_buffers").clean()
    vm.server.run("modprobe loop; truncate -s 24m /run/new; losetup /dev/loop0 /run/new")
    vm.defer(vm.server.run, "losetup -D; rm /run/new")
    return array


def hangs(vm: Lab) -> None:
    """Member 1 does not answer, until the end of the test: the stop of the array would wait for it."""
    vm.defer(vm.server.run, "dmsetup resume m1")
    vm.server.run("dmsetup suspend --noflush --nolockfs m1")


def goes_on(array: ec.Array) -> None:
    """Waits until more was written, and read."""
    before = done(array)
    until(lambda: all(now > then + 20 for now, then in zip(done(array), before, strict=True)), 10, "all goes on")


def stands_still(array: ec.Array) -> bool:
    """Whether nothing is written or read for half a second."""
    before = done(array)
    array.machine.run("sleep 0.5")
    return done(array) == before


def done(array: ec.Array) -> tuple[int, int]:
    """The counts of what was written and read."""
    stats = array.stats()
    return stats["batches"], stats["reads"]


def write(vm: Lab, array: ec.Array, file: str, text: str) -> str:
    """Writes to a file of the array; the errno's name."""
    return vm.server.write(f"{array.control}/{file}", text or "\n", 60)
