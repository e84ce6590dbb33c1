# SPDX-License-Identifier: GPL-2.0
"""rnbd_ec: a disk over three members of one machine.

    /dev/ec0 ── rnbd_ec ── dm-linear ── /dev/ram0, 1, 2
"""
from __future__ import annotations

import json

from kdir import programs
from vmlab import ec, people, tier
from vmlab.checks import eq, ge, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs

TIER = tier.ALL
TOOL = "/usr/bin/rnbd-ec"
WRITE = "--rw=randwrite --bssplit=4k/50:16k/30:64k/20 --iodepth=16 --size=8m --verify=crc32c --verify_fatal=1"
BLOCK = 4096


def begin(lab: Lab, options: str = "", mib: int = 24) -> ec.Array:
    """A new array."""
    ec.disks(lab, mib)
    ec.load(lab)
    return ec.assemble(lab, ec.line(options=options))


@needs(machines=1, own_modules=True, tier=tier.CORE)
def test_what_is_written_is_read_also_after_it_was_stopped(vm: Lab) -> None:
    """fio verifies; the content is the same when it is assembled again, its members in another order."""
    array = begin(vm)
    eq(array.state(), "clean")
    eq(vm.server.names(f"/sys/block/{array.name}/slaves"), ["dm-0", "dm-1", "dm-2"])
    array.fio(WRITE).clean()
    before = array.checksum(0, 8)
    ge(array.stats()["batches"], 10)
    uuid = array.attribute("uuid")
    array.stop()
    eq(vm.server.names("/sys/block/dm-0/holders"), [])
    array = ec.assemble(vm, ec.line(2, 0, 1, mode="assemble"))
    eq((array.checksum(0, 8), array.state(), array.attribute("uuid")), (before, "clean", uuid))
    eq([row.split()[1] for row in array.attribute("members").splitlines()], ["in_sync"] * 3)


@needs(machines=1, own_modules=True)
def test_a_lone_write_is_two_member_writes_and_a_read_is_one(vm: Lab) -> None:
    """A write of 4 KiB at a time goes to two members, many share a batch; each block is read from one member."""
    array = begin(vm)
    array.fio("--rw=write --bs=4k --iodepth=1 --size=256k --refill_buffers").clean()
    stats = array.stats()
    eq((stats["batches"], stats["mirrored_batches"]), (64, 64))
    reads = ios(vm)
    array.fio("--rw=read --bs=4k --iodepth=1 --size=256k").clean()
    eq((array.stats()["direct_reads"], ios(vm) - reads), (64, 64))
    array.fio("--rw=randwrite --bs=4k --iodepth=32 --size=2m --refill_buffers").clean()
    ge(512 / 4, array.stats()["batches"] - 64, "batches of 512 writes, 32 at a time")


def ios(lab: Lab) -> int:
    """The reads of all members."""
    return sum(int(lab.server.read(f"/sys/block/dm-{number}/stat").split()[0]) for number in range(3))


@needs(machines=1, own_modules=True)
def test_a_stop_leaves_nothing_to_follow(vm: Lab) -> None:
    """The superblocks name the end of the log: an assembly follows no batch."""
    array = begin(vm)
    for blocks in (1, 20, 300):
        vm.server.run(f"dd if=/dev/urandom of={array.path} bs=4k count={blocks} oflag=direct status=none")
        array.stop()
        mark = vm.server.log_mark()
        array = ec.assemble(vm, ec.line(mode="assemble"))
        lines = vm.server.log_matches("batches of its log were followed", mark)
        eq([line.rpartition("ec0: ")[2].split()[0] for line in lines], ["0"], str(lines))


@needs(machines=1, own_modules=True)
def test_the_program_checks_tells_and_assembles_what_the_module_has_written(vm: Lab) -> None:
    """rnbd-ec reads each record by each way; what is in use it refuses, what is damaged it names."""
    array = begin(vm)
    vm.server.push(programs.RNBD_EC.build(), TOOL)
    vm.server.run(f"chmod 755 {TOOL}")
    array.fio("--rw=randwrite --bssplit=4k/50:16k/30:64k/20 --iodepth=16 --size=4m "
              "--buffer_compress_percentage=50").clean()
    before = array.checksum(0, 4)
    members = " ".join(ec.path(member) for member in range(3))
    told = json.loads(vm.server.run(f"{TOOL} status -o json"))
    eq([(row["name"], row["state"], row["uuid"]) for row in told], [(ec.NAME, "clean", array.attribute("uuid"))])
    eq([row["state"] for row in told[0]["members"]], ["in_sync"] * 3)
    refused = vm.server.try_run(f"{TOOL} check {members} 2>&1")
    eq((refused.code, "in use: unmount it, or stop the array" in refused.out), (8, True), refused.out)
    array.stop()
    found = json.loads(vm.server.run(f"{TOOL} check -o json {members}"))
    eq(found["verdict"], "clean", str(found))
    ge(found["live_blocks"], 900)
    ge(found["ways"], 2 * found["records"])
    vm.server.run(f"dd if=/dev/zero of={ec.path(1)} bs=64k seek=16 count=40 conv=notrunc,fsync status=none")
    damaged = vm.server.try_run(f"{TOOL} check -o json {members}")
    found = json.loads(damaged.out)
    eq((damaged.code, found["verdict"], found["lost_blocks"]), (1, "degraded", 0), str(found))
    ge(found["members"][1]["wrong_columns"], 1)
    vm.server.run(f"{TOOL} assemble")
    vm.defer(array.unmap_if_there)
    eq((array.checksum(0, 4), array.state()), (before, "clean"))


@needs(machines=1, own_modules=True)
def test_text_is_compressed_and_zeroes_take_no_room(vm: Lab) -> None:
    """The kernel's own text is stored in less than half; zeroes and what was discarded in nothing."""
    array = begin(vm)
    text = "find /proc/self/ /etc /usr/lib/python3* -name '*.py' -o -name '*.conf' | head -400 | xargs cat 2>/dev/null"
    vm.server.run(f"{text} | head -c 4194304 > /tmp/text; dd if=/tmp/text of={array.path} bs=64k oflag=direct "
                  "status=none conv=fsync")
    stats = array.stats()
    size = stats["written_bytes"]
    ok(size > 1 << 20, f"only {size} bytes of text")
    ge(0.5, stats["stored_bytes"] / size, "the share that is stored")
    vm.server.run(f"cmp -n {size} {array.path} /tmp/text")
    vm.server.run(f"dd if=/dev/zero of={array.path} bs=64k count=16 seek=64 oflag=direct status=none")
    ge(16 * 1024, array.stats()["stored_bytes"] - stats["stored_bytes"], "bytes of zeroes")
    vm.server.run(f"blkdiscard -o 0 -l {1 << 20} {array.path}; cmp -n {1 << 20} {array.path} /dev/zero")
    vm.server.run(f"blkdiscard -z -o {1 << 20} -l {1 << 20} {array.path}; cmp -n {2 << 20} {array.path} /dev/zero")


@needs(machines=1, own_modules=True)
def test_a_full_disk_is_written_again_and_again(vm: Lab) -> None:
    """Each block, with what cannot be compressed: segments are collected, nothing is lost, no write fails. A member
    that fails meanwhile is replaced at once, not when there is nothing more to collect."""
    array = begin(vm, "codec=none")
    vm.server.run("modprobe loop; truncate -s 24m /run/new; losetup /dev/loop0 /run/new")
    vm.defer(vm.server.run, "losetup -D; rm /run/new")
    array.fio("--rw=write --bs=128k --iodepth=8 --refill_buffers").clean(100)
    # Reads are slow and writes are not, so that those wait for segments all the time: there is always a need.
    vm.server.run("modprobe dm_delay")
    for number in (0, 1):
        ec.become(vm, number, f"0 {24 * 2048} delay /dev/ram{number} 0 10 /dev/ram{number} 0 0")
    before = array.stats()
    load = array.fio("--rw=randwrite --bs=4k --iodepth=16 --io_size=24m --refill_buffers --verify=crc32c "
                     "--verify_fatal=1")
    # What was collected for those before it does not count: the need of that ends by itself.
    until(lambda: array.stats()["writes"] > before["writes"] + 100, 60, "the load writes")
    mark = array.stats()["collected_segments"]
    until(lambda: array.stats()["collected_segments"] > mark + 3, 60, "segments are collected")
    ec.fails(vm, 2)
    array.becomes("degraded")
    is_replaced_at_once(vm, array, "/dev/loop0")
    for number in (0, 1):
        ec.works(vm, number)
    load.clean(200)
    array.becomes("clean")
    array.stop()
    array = ec.assemble(vm, f"{ec.line(0, 1, mode='assemble')},/dev/loop0")
    eq(array.state(), "clean")


def is_replaced_at_once(vm: Lab, array: ec.Array, device: str) -> None:
    """Some segments are collected meanwhile; with the lock held for as long as there is a need, all of them are."""
    before = array.stats()["collected_segments"]
    replacement = vm.server.start_job(f"echo {device} > {array.control}/replace")

    def collected() -> int:
        return array.stats()["collected_segments"] - before
    until(lambda: not replacement.running or collected() > 20, 100, "it is replaced, or has to wait")
    ge(20, collected(), "segments that the replacement has waited for")
    eq(replacement.wait(20).code, 0)


@needs(machines=1, own_modules=True)
def test_a_disk_that_promised_too_much_is_trimmed_when_it_is_full(vm: Lab) -> None:
    """ENOSPC comes for what needs room, and for nothing that gives some back; then there is room again."""
    array = begin(vm, "codec=none size=44M")
    full = vm.server.try_run(f"dd if=/dev/urandom of={array.path} bs=64k oflag=direct 2>&1", 200)
    eq((full.code, "No space left on device" in full.out), (1, True), full.out)
    written = int(full.out.rpartition(" bytes")[0].split()[-1]) >> 20
    ge(written, 34)
    before = array.checksum(16, written - 16)
    # More blocks than not, so that less is live than there is room for, and no segment is empty; several at once, so
    # that some wait for a batch of others; while there are writes that ask for room that is not there yet.
    others = vm.server.start_job(f"for i in $(seq 30); do dd if=/dev/urandom of={array.path} bs=64k seek=640 count=4 "
                             "oflag=direct 2>/dev/null; done")
    array.fio("--rw=randtrim --bs=4k --iodepth=1 --numjobs=4 --offset_increment=4m --size=4m --io_size=2560k").clean()
    others.wait(60)
    eq(array.state(), "clean")
    array.fio("--rw=randwrite --bs=4k --iodepth=16 --size=16m --io_size=2m --refill_buffers --verify=crc32c "
              "--verify_fatal=1").clean()
    eq(array.checksum(16, written - 16), before)
    array.stop()
    array = ec.assemble(vm, ec.line(mode="assemble"))
    eq((array.state(), array.checksum(16, written - 16)), ("clean", before))


@needs(machines=1, own_modules=True)
def test_file_systems_are_made_trimmed_and_checked(vm: Lab) -> None:
    """ext4 and xfs: files are written and removed, trimmed, and what is left is whole."""
    array = begin(vm, mib=128)
    for name in ("ext4", "xfs"):
        vm.server.run(f"{people.MAKE[name].format(array.path)} && mkdir -p /mnt && mount {array.path} /mnt && "
                      "cp -r /usr/lib/python3/dist-packages /mnt/a 2>/dev/null; cp -r /etc /mnt/b; rm -r /mnt/a; "
                      "fstrim /mnt; diff -r --no-dereference /etc /mnt/b; umount /mnt", 200)
        vm.server.run(people.CHECK[name].format(array.path), 100)
        vm.server.run(f"wipefs -qa {array.path}")


@needs(machines=1, own_modules=True)
def test_lines_that_are_wrong_are_refused_with_one_line(vm: Lab) -> None:
    """Each with its errno, and a line in the log that says what is to be done."""
    array = begin(vm)
    array.stop()
    paths = ",".join(ec.path(member) for member in range(3))
    table = (
        ("", "EINVAL", "name missing"),
        ("nonsense", "EINVAL", "unknown or empty option"),
        (f"mode=make name=e members={paths}", "EINVAL", "mode=make is unknown"),
        (f"name=a/b members={paths}", "EINVAL", "name=a/b is not"),
        (f"name={'n' * 28} members={paths}", "ENAMETOOLONG", "is not 1 to 27"),
        ("name=e members=dm-0,dm-1", "EINVAL", "no path that begins with"),
        (f"name=e members={ec.path(0)}", "EINVAL", "1 members: an array has 3"),
        (f"name=e members={paths},/dev/ram3", "EINVAL", "more than 3 devices"),
        (f"name=e members={ec.path(0)},{ec.path(0)}", "EINVAL", "twice"),
        (f"mode=create name=e members={ec.path(0)},{ec.path(1)}", "EINVAL", "a new array has 3"),
        (f"name=e members={paths} size=1G", "EINVAL", "size= is for a new array"),
        (f"mode=create name=e members={paths} size=x", "EINVAL", "size=x is no number"),
        (f"mode=create name=e members={paths} size=900G force=1", "EINVAL", "is not between a block and"),
        (f"name=e members={paths} codec=zstd", "EINVAL", "codec=zstd is unknown"),
        (f"mode=create name=e members={paths} matrix=cauchy", "EINVAL", "matrix=cauchy"),
        (f"name=e members={paths} member_timeout_ms=1", "EINVAL", "member_timeout_ms=1 is not in"),
        (f"name=e members={paths} recover_every_n=-1", "EINVAL", "recover_every_n=-1 is not in"),
        (f"name=e members={ec.path(0)},/dev/nosuch", "ENOENT", "/dev/nosuch: cannot be opened"),
        (f"name=e members={ec.path(0)},/dev/null", "ENOTBLK", "/dev/null: cannot be opened"),
        (f"name=e members={ec.path(0)},/dev/empty", "EINVAL", "is no member of an array"),
        (f"mode=create name=e members={paths}", "EEXIST", "is or was a member of an array: force=1"),
        (f"mode=create name=e members={paths.replace('/dev/dm-1', '/dev/again')} force=1", "EINVAL", "same device"),
        (ec.line(0, 1, mode="assemble"), "EUCLEAN", "member 0: a slot of its superblock is damaged"),
    )
    vm.server.run(f"printf x | dd of={ec.path(0)} bs=1 seek=24 conv=notrunc,fsync status=none")
    vm.server.run("modprobe loop; truncate -s 24m /tmp/l; ln -s $(losetup -f --show /tmp/l) /dev/empty; "
                  f"ln -s {ec.path(0)} /dev/again")
    vm.defer(vm.server.run, "losetup -D; rm /dev/empty /dev/again")
    wrong = []
    for line, errno, text in table:
        mark = vm.server.log_mark()
        found = ec.try_assemble(vm, line or "\n")
        lines = vm.server.log_matches("rnbd_ec: ", mark)
        if (found, len(lines)) != (errno, 1) or text not in lines[0]:
            wrong.append(f"{line!r}: {found}, {lines}")
    eq(wrong, [], "lines that went otherwise")
    array = ec.assemble(vm, ec.line(0, 1, mode="assemble", options="force=1"))
    eq(array.state(), "degraded")
    array.stop()
    array = ec.assemble(vm, ec.line(mode="assemble"))
    eq(ec.try_assemble(vm, ec.line(mode="assemble")), "EEXIST")
    eq(ec.try_assemble(vm, ec.line(mode="assemble").replace("ec0", "ec1")), "EBUSY")
    vm.server.run(f"exec 9< {array.path}; echo 1 > {array.control}/stop && exit 1; exit 0")
    eq(array.present, True)
    # Nothing of an array is left where a new one is made, in neither slot.
    before = array.attribute("uuid")
    array.stop()
    array = ec.assemble(vm, ec.line(options="force=1"))
    ok(array.attribute("uuid") != before, "the array that was there")


@needs(machines=1, own_modules=True)
def test_what_two_damaged_slots_hide_is_given_up_by_force_only(vm: Lab) -> None:
    """All three members are there. Two have lost the superblocks of the last assembly, and the third one was not in
    it: what is left fits, and the log is newer. It is refused; `force=1` gives that up, once and for all."""
    array = begin(vm)
    array.fio("--rw=write --bs=64k --size=2m --refill_buffers").clean()
    before = array.checksum(0, 3)
    array.stop()
    array = ec.assemble(vm, ec.line(0, 1, mode="assemble"))
    array.fio("--rw=write --bs=64k --offset=2m --size=1m --end_fsync=1 --refill_buffers").clean()
    newer = array.checksum(0, 3)
    # As if the power failed: the stop writes nothing.
    for member in (0, 1):
        ec.fails(vm, member)
    array.stop()
    for member in (0, 1):
        ec.works(vm, member)
        damage_newer_slot(vm, member)
    mark = vm.server.log_mark()
    eq(ec.try_assemble(vm, ec.line(mode="assemble")), "EUCLEAN")
    lines = vm.server.log_matches("rnbd_ec: ", mark)
    eq((len(lines), "slots of superblocks are damaged, or cannot be read" in lines[0]), (1, True), str(lines))
    array = ec.assemble(vm, ec.line(mode="assemble", options="force=1"))
    eq((array.state(), array.checksum(0, 3)), ("clean", before))
    ok(before != newer, "nothing was given up")
    array.fio("--rw=write --bs=64k --offset=3m --size=1m --refill_buffers").clean()
    array.stop()
    array = ec.assemble(vm, ec.line(mode="assemble"))
    eq((array.state(), array.checksum(0, 3)), ("clean", before))


def damage_newer_slot(vm: Lab, member: int) -> None:
    """Changes a byte of the superblock that counts: its slot says that it was written more often than the other."""
    disk, slots = ec.path(member), (0, BLOCK)
    newer = max(slots, key=lambda slot: int(vm.server.run(f"od -An -tu8 -j {slot + 64} -N 8 {disk}")))
    vm.server.run(f"printf x | dd of={disk} bs=1 seek={newer + 24} conv=notrunc,fsync status=none")
