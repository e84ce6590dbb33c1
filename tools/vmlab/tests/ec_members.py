# SPDX-License-Identifier: GPL-2.0
"""Members of an array of rnbd_ec that fail, hang, return, are replaced, and give something else than was written."""
from __future__ import annotations

import time

import pytest

from vmlab import ec, tier
from vmlab.checks import eq, ge, in_time, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.patience import scaled
from vmlab.tests.ec import WRITE, begin

TIER = tier.ALL
LOAD = WRITE + " --time_based --runtime={}"


@needs(machines=1, own_modules=True, timeout=240, tier=tier.CORE)
def test_a_member_fails_and_comes_back_under_load(vm: Lab) -> None:
    """Nothing that is read is wrong: with two members, while the third returns, and then without the first."""
    array = begin(vm)
    load = array.fio(LOAD.format(12))
    ec.fails(vm, 2)
    array.becomes("degraded")
    ec.works(vm, 2)
    array.becomes("clean", 90)
    load.clean()
    ec.fails(vm, 0)
    without = array.checksum(0, 8)
    ec.works(vm, 0)
    array.becomes("clean", 90)
    eq(array.checksum(0, 8), without)
    ge(array.stats()["member_returns"], 1)


@needs(machines=1, own_modules=True, timeout=240)
def test_a_member_that_hangs_has_failed(vm: Lab) -> None:
    """Writes wait for `member_timeout_ms`, and go on without it; it is taken back when its last IO has ended."""
    array = begin(vm, "member_timeout_ms=2000")
    goes_on_while_member_1_hangs(vm, array, 8)
    # Reads alone: those that it owes are answered by the others, and the rest does not wait for it.
    vm.server.run("dmsetup suspend --noflush --nolockfs m2")
    array.checksum(0, 8)
    array.becomes("degraded", 20)
    vm.server.run("dmsetup resume m2")
    array.becomes("clean", 90)
    # Writes alone: that reads are answered meanwhile is no excuse.
    vm.server.run("modprobe dm_delay")
    ec.become(vm, 1, f"0 {24 * 2048} delay /dev/ram1 0 0 /dev/ram1 0 60000")
    reads = array.fio("--rw=randread --bs=16k --iodepth=8 --size=8m --time_based --runtime=9")
    write = array.fio("--rw=randwrite --bs=4k --iodepth=1 --size=8m --io_size=32k")
    array.becomes("degraded", 8)
    ec.works(vm, 1)
    write.clean()
    reads.clean()
    array.becomes("clean", 90)
    # While the array is stopped, too: what the others have is durable before it answers.
    mark = vm.server.log_mark()
    vm.server.run(f"dd if=/dev/urandom of={array.path} bs=4k count=1 oflag=direct status=none; "
                  "dmsetup suspend --noflush --nolockfs m1")
    stop = vm.server.start_job(f"until echo 1 > {array.control}/stop; do sleep 0.1; done")
    until(lambda: vm.server.log_matches("ec0: runs without member 1", mark), 15, "it has failed")
    ok(stop.running, "it is waited for")
    vm.server.run("dmsetup resume m1")
    eq(stop.wait(20).code, 0)
    ec.assemble(vm, ec.line(mode="assemble")).becomes("clean", 90)


def goes_on_while_member_1_hangs(vm: Lab, array: ec.Array, seconds: int) -> None:
    """Under load for so long; it is taken back afterwards."""
    load = array.fio(LOAD.format(round(scaled(seconds))))
    vm.server.run("dmsetup suspend --noflush --nolockfs m1")
    array.becomes("degraded", 20)
    mark = array.stats()["batches"]
    until(lambda: array.stats()["batches"] > mark + 20, 20, "writes go on")
    vm.server.run("dmsetup resume m1")
    array.becomes("clean", 90)
    load.clean()


@needs(machines=1, own_modules=True, timeout=240)
def test_a_member_is_replaced(vm: Lab) -> None:
    """A new device takes its place, and has all that it must have: then another one fails. The old one is stale."""
    array = begin(vm)
    array.fio(WRITE).clean()
    before = array.checksum(0, 8)
    ec.fails(vm, 1)
    array.fio("--rw=randwrite --bs=4k --io_size=64k --offset=12m --size=1m").clean()
    array.becomes("degraded")
    vm.server.run("modprobe loop; truncate -s 24m /run/new; losetup /dev/loop0 /run/new")
    vm.defer(vm.server.run, "losetup -D; rm -f /run/new /run/neü /run/small")
    vm.server.run("truncate -s 8m /run/small; losetup /dev/loop1 /run/small")
    mark = vm.server.log_mark()
    eq(vm.server.write(f"{array.control}/replace", "/dev/loop1"), "EINVAL")
    ok(vm.server.log_matches("replace: /dev/loop1: has 8388608 bytes", mark), "no line")
    eq(vm.server.write(f"{array.control}/replace", "/dev/nosuch"), "ENOENT")
    eq(vm.server.write(f"{array.control}/replace", ec.path(0)), "EBUSY")
    eq(vm.server.write(f"{array.control}/replace", array.path), "EINVAL", "a member of itself")
    ok(vm.server.log_matches("replace: /dev/ec0: is the disk of an array, which no member can be", mark), "no line")
    # One that cannot be written: the member is as before, and returns by itself.
    vm.server.run(f"dmsetup create bad --table '0 {24 * 2048} error'")
    vm.defer(vm.server.run, "dmsetup remove --retry bad")
    eq(vm.server.write(f"{array.control}/replace", ec.path(3), 60), "EIO")
    ec.works(vm, 1)
    array.becomes("clean", 90)
    ec.fails(vm, 1)
    array.fio("--rw=randwrite --bs=4k --io_size=64k --offset=12m --size=1m").clean()
    array.becomes("degraded")
    vm.server.run("ln -s /dev/loop0 '/run/neü'")
    eq(vm.server.write(f"{array.control}/replace", "/run/neü", 60), "", "a path of any bytes")
    array.becomes("clean", 90)
    eq(vm.server.write(f"{array.control}/replace", ec.path(1)), "EBUSY")
    ok(vm.server.log_matches("replace: no member is missing", mark), "no line")
    eq(vm.server.write(f"{array.control}/replace", "/dev/loop1"), "EINVAL")
    eq(vm.server.names(f"/sys/block/{array.name}/slaves"), ["dm-0", "dm-2", "loop0"])
    ec.fails(vm, 0)
    eq(array.checksum(0, 8), before)
    array.stop()
    ec.works(vm, 0)
    ec.works(vm, 1)
    # The old device of member 1 and the one that has failed: of two that are not in sync none is taken.
    eq(ec.try_assemble(vm, ec.line(0, 1, mode="assemble")), "ENODEV")
    array = ec.assemble(vm, f"name=ec0 members={ec.path(0)},/dev/loop0,{ec.path(2)}")
    array.becomes("clean", 90)
    eq(array.checksum(0, 8), before)


@needs(machines=1, own_modules=True)
def test_an_array_is_stopped_while_a_member_returns(vm: Lab) -> None:
    """Nothing of the return is under way when the stop has ended: the array is assembled at once."""
    array = begin(vm, "member_timeout_ms=30000")
    ec.fails(vm, 1)
    array.fio("--rw=randwrite --bs=4k --io_size=64k --size=1m").clean()
    array.becomes("degraded")
    # The flush before it is taken back is held; then it answers again, but each write takes 0.5 s.
    vm.server.run("modprobe dm_delay; dmsetup suspend --noflush --nolockfs m1; "
                  f"dmsetup load m1 --table '0 {24 * 2048} delay /dev/ram1 0 0 /dev/ram1 0 500'")
    until(lambda: vm.server.try_run("grep -ls rnbd_ec /proc/[0-9]*/stack").out, 18, "it is flushed")
    stop = vm.server.start_job(f"echo 1 > {array.control}/stop")
    until(lambda: not array.present, 10, "the disk is gone", pause=0.02)
    vm.server.run("dmsetup resume m1")
    eq(stop.wait(20).code, 0)
    array = ec.assemble(vm, ec.line(mode="assemble", options="member_timeout_ms=30000"))
    ec.works(vm, 1)
    array.becomes("clean", 90)


def written_during_an_assembly(vm: Lab, *files: str) -> None:
    """Writes two files of an array, while the assembly of another one waits for a disk that hangs."""
    array = ec.assemble(vm, ec.line(options="force=1"))
    vm.server.run("dmsetup suspend --noflush --nolockfs m3")
    other = ec.line(3, 4, 5, options="force=1").replace("ec0", "ec1")
    assembly = vm.server.start_job(f"echo {other} > {ec.ASSEMBLE}")
    until(lambda: vm.server.try_run("grep -ls rnbd_ec /proc/[0-9]*/stack").out, 20, "the assembly waits")
    jobs = {}
    for file in files:
        text = "1" if file == "stop" else ec.path(4)
        jobs[file] = vm.server.start_job(f"echo {text} > {array.control}/{file}")
        vm.server.run("sleep 0.3")
    until(lambda: not any(job.running for job in jobs.values()), 15, f"{files} have ended")
    vm.server.run("dmsetup resume m3")
    eq([assembly.wait(20).code, jobs["replace"].wait(1).code, jobs["stop"].wait(1).code], [0, 1, 0])
    eq(array.present, False)
    eq(vm.server.write("/sys/block/ec1/ec/stop", "1"), "")


@needs(machines=1, own_modules=True)
def test_an_array_is_stopped_while_others_write_its_files(vm: Lab) -> None:
    """The stop and a `replace`, in either order: neither waits for an assembly, nor for the other one."""
    ec.disks(vm, count=6)
    ec.load(vm)
    written_during_an_assembly(vm, "stop", "replace")
    written_during_an_assembly(vm, "replace", "stop")


@needs(machines=1, own_modules=True)
def test_an_assembly_waits_for_no_other_one(vm: Lab) -> None:
    """A member that hangs is waited for by its own array, for `member_timeout_ms`; the name is in use meanwhile."""
    ec.disks(vm, count=6)
    ec.load(vm)
    vm.server.run("dmsetup suspend --noflush --nolockfs m3")
    other = ec.line(3, 4, 5, options="member_timeout_ms=10000").replace("ec0", "ec1")
    assembly = vm.server.start_job(f"echo {other} > {ec.ASSEMBLE}")
    until(lambda: vm.server.try_run("grep -ls rnbd_ec /proc/[0-9]*/stack").out, 10, "the assembly waits")
    mark = vm.server.log_mark()
    eq(ec.try_assemble(vm, ec.line().replace("ec0", "ec1")), "EEXIST")
    ok(vm.server.log_matches("assemble: 'ec1' is assembled: choose another name=", mark), "no line")
    ec.assemble(vm)
    in_time(assembly.running, "the other one has not waited")
    until(lambda: not assembly.running, 30, "it has given up")
    ok(vm.server.log_matches("ec1: not created: dm-3 cannot be read: ETIMEDOUT", mark), "another reason")
    # It is closed when it has answered.
    eq(ec.try_assemble(vm, other), "EBUSY")
    vm.server.run("dmsetup resume m3")
    until(lambda: ec.try_assemble(vm, other) == "", 10, "it is closed, and can be assembled")
    eq(vm.server.write("/sys/block/ec1/ec/stop", "1"), "")


@needs(machines=1, own_modules=True, timeout=240)
def test_what_hangs_in_place_of_a_member_holds_up_nothing(vm: Lab) -> None:
    """Neither the device that is to replace a member, nor the one before: who closes it does not wait for its IO."""
    ec.disks(vm, count=5)
    ec.load(vm)
    array = ec.assemble(vm, ec.line(options="member_timeout_ms=1000"))
    ec.fails(vm, 1)
    array.fio("--rw=randwrite --bs=4k --io_size=64k --size=1m").clean()
    array.becomes("degraded")
    vm.server.run("dmsetup suspend --noflush --nolockfs m3")
    eq(vm.server.write(f"{array.control}/replace", ec.path(3), 15), "ETIMEDOUT")
    ec.works(vm, 1)
    array.becomes("clean", 90)
    ec.fails(vm, 1)
    array.fio("--rw=randwrite --bs=4k --io_size=64k --size=1m").clean()
    array.becomes("degraded")
    mark = vm.server.log_mark()
    # The flush before it is taken back gets no answer.
    vm.server.run("dmsetup suspend --noflush --nolockfs m1; "
                  f"dmsetup load m1 --table '0 {24 * 2048} linear /dev/ram1 0'")
    until(lambda: vm.server.log_matches("member 1 is not taken back yet: ETIMEDOUT", mark), 40, "it hangs")
    eq(vm.server.write(f"{array.control}/replace", ec.path(4), 15), "")
    array.becomes("clean", 90)
    array.stop()
    # It is open until it has answered.
    vm.server.run("dmsetup resume m3; dmsetup resume m1")
    eq(ec.assemble(vm, ec.line(0, 4, 2, mode="assemble")).state(), "clean")


@needs(machines=1, own_modules=True)
def test_a_member_that_cannot_be_written_is_refused(vm: Lab) -> None:
    """The line says what to do: the array is assembled of the two others."""
    array = begin(vm)
    array.stop()
    vm.server.run(f"blockdev --setro {ec.path(1)}")
    vm.defer(vm.server.run, f"blockdev --setrw {ec.path(1)}")
    mark = vm.server.log_mark()
    eq(ec.try_assemble(vm, ec.line(mode="assemble")), "EACCES")
    eq(len(vm.server.log_matches("dm-1: cannot be opened: EACCES: it cannot be written: make it writable", mark)), 1)
    eq(ec.assemble(vm, ec.line(0, 2, mode="assemble")).state(), "degraded")


@needs(machines=1, own_modules=True)
def test_what_a_member_has_lost_is_read_from_the_others(vm: Lab) -> None:
    """Garbage on a member: each read is right, and it is counted; so are the reads that `recover_every_n` rebuilds."""
    array = begin(vm)
    array.fio("--rw=write --bs=64k --iodepth=8 --size=8m --refill_buffers").clean()
    before = array.checksum(0, 8)
    vm.server.run(f"dd if=/dev/urandom of={ec.path(1)} bs=64k seek=16 count=200 oflag=direct status=none")
    eq(array.checksum(0, 8), before)
    stats = array.stats()
    ge(stats["wrong_reads"], 10)
    eq((stats["wrong_reads"], stats["lost_reads"]), (stats["recovered_reads"], 0))
    eq(vm.server.write(f"{array.control}/recover_every_n", "4"), "")
    before_reads = array.stats()["direct_reads"] + array.stats()["recovered_reads"]
    eq(array.checksum(0, 8), before)
    stats = array.stats()
    ge(stats["triggered_reads"], 50)
    ok(stats["direct_reads"] + stats["recovered_reads"] > before_reads, str(stats))


@needs(machines=1, own_modules=True)
@pytest.mark.parametrize("error", (False, True),
                         ids=("other_data_is_written_again", "what_gives_errors_is_written_again"))
def test_what_a_member_has_lost_is_written_again(vm: Lab, error: bool) -> None:
    """Blocks that are not on a member any more, or cannot be read there: what is read is on all of them afterwards."""
    array = begin(vm)
    array.fio("--rw=write --bs=64k --iodepth=8 --size=8m --refill_buffers").clean()
    before = array.checksum(0, 8)
    if error:
        ec.become(vm, 1, f"0 4096 linear /dev/ram1 0\n4096 1024 error\n5120 {24 * 2048 - 5120} linear /dev/ram1 5120")
    else:
        vm.server.run(f"dd if=/dev/urandom of={ec.path(1)} bs=64k seek=32 count=8 oflag=direct status=none")

    def repaired() -> int:
        for every_n in "01":    # parity is read where records are rebuilt
            eq(vm.server.write(f"{array.control}/recover_every_n", every_n), "")
            eq(array.checksum(0, 8), before)
        return array.stats()["repaired_segments"]
    until(lambda: repaired() >= 1, 60, "something is written again")
    until(lambda: repaired() == repaired(), 60, "nothing is damaged any more")
    eq((array.state(), array.stats()["lost_reads"]), ("clean", 0))
    ec.fails(vm, 0)
    eq(array.checksum(0, 8), before)
    eq(array.stats()["lost_reads"], 0)
    ec.works(vm, 0)


@needs(machines=1, own_modules=True)
def test_a_repair_is_counted_when_it_is_done(vm: Lab) -> None:
    """Damage in the segment that is written is seen at once, and repaired when the log has left it."""
    array = begin(vm)
    array.fio("--rw=write --bs=4k --iodepth=1 --size=16k --refill_buffers").clean()
    vm.server.run("modprobe dm_flakey")
    vm.defer(ec.works, vm, 1)
    unreadable(vm, 1, 16, 23 * 2048)
    array.fio("--rw=read --bs=4k --iodepth=1 --size=16k").clean()
    stats = array.stats()
    ge(stats["recovered_reads"], 1)
    eq((stats["repaired_segments"], stats["put_off_repairs"]), (0, 0))
    ec.works(vm, 1)
    array.fio("--rw=write --bs=64k --iodepth=8 --offset=1m --size=2m --refill_buffers").clean()
    until(lambda: array.stats()["repaired_segments"] == 1, 30, "what was damaged is written again")


@needs(machines=1, own_modules=True)
def test_the_end_of_the_log_is_known_by_two_of_three(vm: Lab) -> None:
    """One that cannot be read there keeps three from nothing; two, of which it is one, are refused."""
    array = begin(vm)
    array.fio("--rw=write --bs=64k --size=1m --refill_buffers").clean()
    before = array.checksum(0, 1)
    vm.server.run("modprobe dm_flakey")
    vm.defer(ec.works, vm, 1)
    array.stop()
    unreadable(vm, 1, 16, 23 * 2048)
    mark = vm.server.log_mark()
    eq(ec.try_assemble(vm, ec.line(0, 1, mode="assemble")), "EUCLEAN")
    why = "not assembled: (member 1 cannot be read at byte [0-9]+, where the log may go on|page [0-9]+ of the table)"
    eq(len(vm.server.log_matches(why, mark)), 1)
    array = ec.assemble(vm, ec.line(mode="assemble"))
    eq((array.state(), array.checksum(0, 1)), ("clean", before))
    array.stop()


@needs(machines=1, own_modules=True)
def test_a_slot_that_gives_errors_is_one_that_is_damaged(vm: Lab) -> None:
    """Three members are assembled, and two if that is forced; and a member with such a slot is taken back."""
    array = begin(vm)
    array.fio("--rw=write --bs=64k --size=1m --refill_buffers").clean()
    before = array.checksum(0, 1)
    vm.server.run("modprobe dm_flakey")
    vm.defer(ec.works, vm, 0)
    for slot in (0, 1):
        array.stop()
        unreadable(vm, 0, slot * 8, 8)
        if slot == 0:       # later the other slot says that member 2 had failed: what follows relies on these two
            eq(ec.try_assemble(vm, ec.line(0, 1, mode="assemble")), "EUCLEAN")
        array = ec.assemble(vm, ec.line(mode="assemble"))
        eq((array.state(), array.checksum(0, 1)), ("clean", before))
        array.stop()
        array = ec.assemble(vm, ec.line(0, 1, mode="assemble", options="force=1"))
        eq((array.state(), array.checksum(0, 1)), ("degraded", before))
        array.stop()
        array = ec.assemble(vm, ec.line(mode="assemble"))
        array.becomes("clean", 90)
    ec.fails(vm, 0)
    array.fio("--rw=randwrite --bs=4k --io_size=64k --offset=4m --size=1m").clean()
    array.becomes("degraded")
    unreadable(vm, 0, 0, 8)
    array.becomes("clean", 90)
    array.stop()
    unreadable(vm, 0, 0, 16)
    eq(ec.try_assemble(vm, ec.line(mode="assemble", options="force=1")), "EIO")


@needs(machines=1, own_modules=True)
def test_a_stop_does_not_wait_for_a_segment_that_cannot_be_read(vm: Lab) -> None:
    """Segments with bad sectors are read to be repaired, each read takes as long as a disk tries: it ends at once."""
    stops_at_once(begin_long_repair(vm))


@needs(machines=1, own_modules=True)
def test_a_stop_does_not_wait_for_a_replacement_that_waits(vm: Lab) -> None:
    """Who writes `replace` while such a segment is read is told that there is no array any more."""
    array = begin_long_repair(vm)
    vm.server.run(f"dmsetup create new --table '0 {24 * 2048} error'")
    vm.defer(vm.server.run, "dmsetup remove --retry new")
    mark = vm.server.log_mark()
    replacement = vm.server.start_job(f"echo {ec.path(4)} > {array.control}/replace")
    until(lambda: vm.server.run("dmsetup info -c --noheadings -o open new").strip() == "1", 10, "it is opened")
    stops_at_once(array)
    eq(replacement.wait(20).code, 1)
    eq(len(vm.server.log_matches("ec0: replace: /dev/dm-4: not done: ENODEV", mark)), 1)


def stops_at_once(array: ec.Array) -> None:
    """The stop waits for a read or two."""
    begun = time.monotonic()
    array.stop()
    in_time((seconds := time.monotonic() - begun) < 8, f"it was stopped in {seconds:.1f} s")


def begin_long_repair(vm: Lab) -> ec.Array:
    """An array of which a segment is being read to be repaired, which takes half a minute: it has many batches, and
    what is read of one of its members ends with an error, after a second."""
    array = begin(vm, "hedge_ms=0")
    array.fio("--rw=write --bs=4k --iodepth=1 --size=2m --refill_buffers").clean()
    vm.server.run("modprobe dm_delay; dmsetup create bad --table '0 2048 error'")
    vm.defer(vm.server.run, "dmsetup remove --retry bad")
    vm.defer(ec.works, vm, 1)
    ec.become(vm, 1, f"0 4096 linear /dev/ram1 0\n4096 2048 delay {ec.path(3)} 0 1000 /dev/ram1 4096 0\n"
              f"6144 {24 * 2048 - 6144} linear /dev/ram1 6144")
    array.checksum(0, 2)

    def reads() -> int:
        return int(vm.server.read("/sys/block/dm-1/stat").split()[0])
    # All reads of the disk have ended; what comes now is read by the collector.
    mark, collected = reads(), array.stats()["collected_segments"]
    until(lambda: reads() > mark + 2, 20, "a segment is read to be repaired")
    eq(array.stats()["collected_segments"], collected, "segments that were read to their end")
    return array


def unreadable(vm: Lab, member: int, first: int, count: int) -> None:
    """Reads of some sectors of a member give errors; they are written nevertheless."""
    disk, behind = f"/dev/ram{member}", first + count
    ec.become(vm, member, (f"0 {first} linear {disk} 0\n" if first else "")
              + f"{first} {count} flakey {disk} {first} 0 1 1 error_reads\n"
              + f"{behind} {24 * 2048 - behind} linear {disk} {behind}")


@needs(machines=1, own_modules=True)
def test_with_two_members_missing_what_is_there_is_read(vm: Lab) -> None:
    """No write and no flush succeeds, none hangs; each read is right or an error; and with all three it assembles."""
    array = begin(vm)
    array.fio("--rw=write --bs=16k --iodepth=8 --size=4m --refill_buffers").clean()
    before = array.checksum(0, 4)
    ec.fails(vm, 0)
    ec.fails(vm, 1)
    # Beyond what is compared: a write that has failed may be there after all.
    write = f"dd if=/dev/zero of={array.path} bs=4k count=1 seek=2000 oflag=direct status=none"
    ok(vm.server.try_run(write, 30).code, "written")
    array.becomes("failed")
    ok(vm.server.try_run(write, 30).code, "written")
    ok(vm.server.try_run(f"blockdev --flushbufs {array.path}; python3 -c 'import os; "
                         f"os.fsync(os.open(\"{array.path}\", os.O_RDWR))'", 30).code, "flushed")
    read = vm.server.run(f"n=0; for ((i = 0; i < 64; i++)); do dd if={array.path} bs=16k skip=$i count=1 iflag=direct "
                         "of=/dev/null status=none 2>/dev/null && n=$((n + 1)); done; echo $n")
    ok(0 < int(read) < 64, f"{read.strip()} of 64 units were read from one member")
    array.stop()
    ec.works(vm, 0)
    ec.works(vm, 1)
    array = ec.assemble(vm, ec.line(mode="assemble"))
    array.becomes("clean", 60)
    eq(array.checksum(0, 4), before)


@needs(machines=1, own_modules=True)
def test_a_slow_member_is_not_waited_for(vm: Lab) -> None:
    """Its reads take 20 s each: what the others have is read from them after `hedge_ms`, and nobody fails."""
    array = begin(vm, "hedge_ms=50")
    array.fio("--rw=write --bs=64k --iodepth=8 --size=2m --refill_buffers").clean()
    before = array.checksum(0, 2)
    vm.server.run("modprobe dm_delay")
    ec.become(vm, 1, f"0 {24 * 2048} delay /dev/ram1 0 20000 /dev/ram1 0 0")
    eq(array.checksum(0, 2), before)
    stats = array.stats()
    ge(stats["hedged_reads"], 10)
    eq((array.state(), stats["wrong_reads"], stats["lost_reads"]), ("clean", 0, 0))
    # Those that are looked at once a second would be 12.
    array.fio("--rw=randread --bs=16k --iodepth=1 --size=2m --time_based --runtime=6").clean()
    more = {name: count - stats[name] for name, count in array.stats().items()}
    in_time(more["hedged_reads"] >= 20 or more["reads"] >= 300, f"in 6 s only {more}")
    ec.works(vm, 1)


@needs(machines=1, own_modules=True, timeout=240)
def test_a_collector_waits_for_no_member_that_is_late(vm: Lab) -> None:
    """Its reads take 10 s each: segments are collected meanwhile of what the others have, and nobody fails."""
    array = begin(vm, "hedge_ms=50")
    array.fio("--rw=write --bs=128k --iodepth=8 --refill_buffers").clean(100)
    vm.server.run("modprobe dm_delay")
    ec.become(vm, 1, f"0 {24 * 2048} delay /dev/ram1 0 10000 /dev/ram1 0 0")
    mark = array.stats()["collected_segments"]
    load = array.fio("--rw=randwrite --bs=4k --iodepth=16 --io_size=8m --refill_buffers")
    until(lambda: array.stats()["collected_segments"] > mark + 5, 60, "segments are collected")
    load.clean(200)
    ec.works(vm, 1)
    stats = array.stats()
    eq((array.state(), stats["member_failures"], stats["lost_reads"]), ("clean", 0, 0))


@needs(machines=1, own_modules=True)
def test_late_answers_are_given_to_no_other_request(vm: Lab) -> None:
    """A member answers long after the others were read for it, when its requests are others already."""
    array = begin(vm, "hedge_ms=20")
    blocks = "--bs=4k --size=4m --verify=crc32c --verify_fatal=1"
    array.fio(f"--rw=write --iodepth=8 --do_verify=0 {blocks}").clean()
    vm.server.run("modprobe dm_delay")
    ec.become(vm, 1, f"0 {24 * 2048} delay /dev/ram1 0 400 /dev/ram1 0 0")
    array.fio(f"--rw=randread --iodepth=8 --time_based --runtime=6 {blocks}").clean(60)
    stats = array.stats()
    ge(stats["hedged_reads"], 10)
    eq((array.state(), stats["wrong_reads"], stats["lost_reads"]), ("clean", 0, 0))
    ec.works(vm, 1)


@needs(machines=1, own_modules=True)
def test_reads_wait_where_all_members_are_slow(vm: Lab) -> None:
    """Each read takes twenty times `hedge_ms`, of any member: none is an error or lost among those that wait."""
    array = begin(vm, "hedge_ms=50")
    array.fio("--rw=write --bs=128k --iodepth=8 --size=8m --refill_buffers").clean()
    before = array.checksum(0, 8)
    vm.server.run("modprobe dm_delay")
    for member in range(3):
        ec.become(vm, member, f"0 {24 * 2048} delay /dev/ram{member} 0 1000 /dev/ram{member} 0 0")
    array.fio("--rw=read --bs=128k --iodepth=64 --size=8m").clean(100)
    for member in range(3):
        ec.works(vm, member)
    eq(array.checksum(0, 8), before)
