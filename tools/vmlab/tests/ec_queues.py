# SPDX-License-Identifier: GPL-2.0
"""Members of an array of rnbd_ec whose queues have whoever submits wait."""
from __future__ import annotations

from vmlab import ec, tier
from vmlab.checks import eq, until
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.patience import scaled
from vmlab.tests.ec_members import goes_on_while_member_1_hangs

TIER = tier.ALL


@needs(machines=1, own_modules=True)
def test_a_member_that_refuses_io_is_asked_again(vm: Lab) -> None:
    """A disk that does one request at a time, in 5 ms, has refused most of them at first: it has not failed."""
    ec.disks(vm)
    vm.server.run("modprobe null_blk nr_devices=1 gb=1 memory_backed=1 hw_queue_depth=1 irqmode=2 "
                  "completion_nsec=5000000; echo none > /sys/block/nullb0/queue/scheduler")
    vm.defer(vm.server.run, "rmmod null_blk")
    ec.become(vm, 1, f"0 {24 * 2048} linear /dev/nullb0 0")
    vm.defer(ec.works, vm, 1)
    ec.load(vm)
    array = ec.assemble(vm)
    array.fio("--rw=randwrite --bs=4k --iodepth=32 --size=2m --verify=crc32c --verify_fatal=1").clean()
    stats = array.stats()
    eq((array.state(), stats["member_failures"], stats["wrong_reads"]), ("clean", 0, 0))


@needs(machines=1, own_modules=True, timeout=240)
def test_a_member_whose_queue_is_full_stops_nobody(vm: Lab) -> None:
    """A disk that takes one request hangs: whoever submits another one would wait for as long as that lasts."""
    ec.disks(vm)
    full_queue(vm)
    ec.load(vm)
    array = ec.assemble(vm, ec.line(options="member_timeout_ms=2000"))
    goes_on_while_member_1_hangs(vm, array, 8)
    array.stop()
    # Nor what is done one IO after the other: the time of an IO includes that of its submission.
    takes_nothing(vm)
    begin = ec.line(mode="assemble", options="member_timeout_ms=2000")
    eq(vm.server.write(ec.ASSEMBLE, begin, 20), "ETIMEDOUT")
    vm.server.run("dmsetup resume m1")
    array = ec.assemble(vm, ec.line(0, 2, mode="assemble", options="member_timeout_ms=2000"))
    takes_nothing(vm)
    # At first it is still open for the assembly.
    until(lambda: vm.server.write(f"{array.control}/replace", ec.path(1), 20) == "ETIMEDOUT", 20, "it is given up")
    vm.server.run("dmsetup resume m1")


@needs(machines=1, own_modules=True, timeout=240)
def test_a_member_that_throttles_writes_stops_nobody(vm: Lab) -> None:
    """It hangs with as many writes as blk-wbt allows: another one sleeps when it is submitted, but those of tasks."""
    ec.disks(vm)
    vm.server.run("rmmod loop; set -e; modprobe loop hw_queue_depth=2; losetup --direct-io=on /dev/loop0 /dev/dm-1; "
                  "echo 75000 > /sys/block/loop0/queue/wbt_lat_usec")
    vm.defer(vm.server.run, "losetup -D; for i in 1 2 3 4 5; do rmmod loop && exit; sleep 0.3; done; exit 1")
    ec.load(vm)
    # Unlike dm with paths it can refuse IO, so that the engine submits by itself.
    members = (ec.path(0), "/dev/loop0", ec.path(2))
    array = ec.assemble(vm, ec.line_of(members, options="member_timeout_ms=2000"))
    vm.defer(vm.server.run, "dmsetup resume m1")
    more = array.fio("--rw=randrw --bs=64k --iodepth=32 --offset=8m --size=2m --time_based "
                     f"--runtime={scaled(8):.0f}")
    goes_on_while_member_1_hangs(vm, array, 8)
    more.clean()


@needs(machines=1, own_modules=True)
def test_members_that_take_data_late_get_what_was_written(vm: Lab) -> None:
    """Disks that take the data of a write 20 ms after it has come: batches begin meanwhile, each from memory of its own
    alone."""
    ec.disks(vm)
    ec.load(vm)
    array = ec.assemble(vm)
    vm.server.run("modprobe dm_delay")
    for member in range(3):
        ec.become(vm, member, f"0 {24 * 2048} delay /dev/ram{member} 0 0 /dev/ram{member} 0 20")
    array.fio("--rw=randwrite --bs=4k --iodepth=32 --size=2m --refill_buffers --verify=crc32c --verify_fatal=1").clean()
    for member in range(3):
        ec.works(vm, member)
    stats = array.stats()
    eq((array.state(), stats["member_failures"], stats["wrong_reads"]), ("clean", 0, 0))


def takes_nothing(vm: Lab) -> None:
    """Member 1 hangs, with more reads than it has tags (its scheduler has two)."""
    vm.server.run("dmsetup suspend --noflush --nolockfs m1")
    read = f"dd if={ec.path(1)} of=/dev/null bs=4k count=1 iflag=direct status=none"
    vm.server.start_job(f"for i in 1 2 3 4; do {read} skip=$i & done; wait")
    waiting = "grep -ls blkdev_read_iter /proc/[0-9]*/stack"
    until(lambda: len(vm.server.try_run(waiting).out.split()) >= 4, 10, "all wait")


def full_queue(vm: Lab) -> None:
    """Member 1 is a request-based disk, over one of null_blk, with one tag."""
    vm.server.run("set -e; dmsetup remove m1; modprobe null_blk nr_devices=1 gb=1 memory_backed=1\n"
                  "modprobe dm_multipath; echo 1 > /sys/module/dm_mod/parameters/dm_mq_queue_depth\n"
                  f"dmsetup create m1 --table '0 {24 * 2048} multipath 0 0 1 1 round-robin 0 1 1 /dev/nullb0 1'")
    vm.defer(vm.server.run, "dmsetup resume m1; dmsetup remove --retry m1; rmmod null_blk; dmsetup create m1 --table "
             f"'0 {24 * 2048} linear /dev/ram1 0'; echo 0 > /sys/module/dm_mod/parameters/dm_mq_queue_depth")
