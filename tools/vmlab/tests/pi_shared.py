# SPDX-License-Identifier: GPL-2.0
"""A disk with a sidecar that two servers share: one of them has it at a time.

    client /dev/rnbd0, rnbd1 ══ rnbd-server ── /dev/loop0, /dev/loop1 ── one file
"""
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from vmlab import paths, rnbd
from vmlab.checks import eq, in_time, ok, until
from vmlab.lab import Lab
from vmlab.machine import Job
from vmlab.needs import needs
from vmlab.tests.pi import map_with
from vmlab.tests.pi_devices import mapped
from vmlab.tests.pi_scrub import command as scrub_command
from vmlab.tests.pi_scrub import counts as scrub_counts
from vmlab.tests.pi_store import DEVICES, TOOL, bring_tool, format_disk, scrub

MIB = 16
HOLDER = r"the server '\w+' \(boot [0-9a-f]{16}\)"
WAITS = f"marked as in use by {HOLDER}: waiting 6000 ms"
CURE = r"uses the device: unmap it there; if that server is down for certain, `pi-sidecar fsck --clear-in-use /dev/"


def shows(lab: Lab, device: str, file: str, options: str = "") -> None:
    """The server's loop device shows this file."""
    lab.server.run(f"[ ! -e /sys/block/{device}/loop ] || losetup -d /dev/{device}; "
                   f"losetup {options} /dev/{device} /run/{file}")


def writes(disk: rnbd.Disk, number: int) -> str:
    """Writes a block of 4096 bytes and flushes it."""
    return f"dd if=/run/area of={disk.path} bs=4096 count=1 seek={number} oflag=direct conv=fsync status=none"


def reads(disk: rnbd.Disk, number: int) -> str:
    """Reads it; fails if it is not as it was written."""
    return (f"dd if={disk.path} of=/run/back bs=4096 count=1 skip={number} iflag=direct status=none && "
            "cmp /run/area /run/back")


def begin(lab: Lab) -> None:
    """Loads the modules, and makes what the client writes."""
    rnbd.load_server(lab)
    rnbd.load_client(lab)
    lab.client.run("head -c 4096 /dev/urandom > /run/area")


def is_lost_when_formatted(lab: Lab) -> None:
    """A server's mark is there, but another machine has formatted the device: the mark came late."""
    first = map_with(lab, "crc64", "loop0")
    lab.server.run(f"{TOOL} format --force /run/two")
    mark = lab.server.log_mark()

    def is_fenced() -> bool:
        # The server writes the mark with the superblock, perhaps just then.
        lab.server.run("dd if=/run/two of=/dev/loop1 bs=512 count=1 oflag=direct conv=notrunc status=none")
        return bool(lab.server.log_matches("'loop0'.*: fenced: .* has taken the device", mark))

    until(is_fenced, 20, "the first is fenced once more", pause=1)
    first.unmap()


@needs(wires=1)
def test_two_servers_do_not_have_a_disk_at_a_time(pair: Lab) -> None:
    """Loop devices over one file are the disk of two servers: the second is refused while the first lives, as is the
    program, also behind a growth, which writes the mark's block, and with sectors of 4096 bytes, where it is written
    with the superblock. It takes the disk when the first is down; one that has lost it does no IO any more."""
    lab = pair
    loops = " ".join(f"loop{number}" for number in range(6))
    lab.server.run(f"modprobe loop max_loop=6; truncate -s {MIB}M /run/one")
    lab.defer(lab.server.run, f"mods -r; for d in {loops}; do [ ! -e /sys/block/$d/loop ] || losetup -d /dev/$d; "
              "done; rm -f /run/one /run/two", 60)
    shows(lab, "loop0", "one", "--sector-size 4096")
    bring_tool(lab.server)
    lab.server.run(f"{TOOL} format --force /dev/loop0")
    begin(lab)
    mark = lab.server.log_mark()
    first = map_with(lab, "crc64", "loop0")
    lab.client.run(writes(first, 3))
    eq(lab.server.log_matches("waiting", mark), [], "a device that was closed is waited for")
    grow = f"{DEVICES}/loop0/sidecar/grow"
    lab.server.run(f"truncate -s {2 * MIB}M /run/one; losetup -c /dev/loop0")
    eq(lab.server.write(grow, "start"), "")
    until(lambda: "state finished" in lab.server.read(grow), 20, "the device has grown")
    # What is left of a server that is down.
    lab.server.run("cp /run/one /run/two")
    shows(lab, "loop5", "two")
    for device in loops.split()[1:5]:
        shows(lab, device, "one")
    # All of them wait at the same time.
    words = ("scrub", "fsck --repair", "format --force")
    jobs: list[Job] = [lab.server.start_job(f"{TOOL} {word} /dev/loop{number} 2>&1")
                       for number, word in enumerate(words, 2)]
    with ThreadPoolExecutor(1) as pool:
        refused = pool.submit(rnbd.try_map, lab, rnbd.request(lab, "loop1", options="access_mode=rw pi=crc64"))
        second = map_with(lab, "crc64", "loop5")
        eq(refused.result(), "EBUSY")
    for device in ("loop1", "loop5"):
        ok(lab.server.log_matches(f"'{device}': it is {WAITS}", mark), f"no wait: {device}")
    ok(lab.server.log_matches(f"'loop1': not opened: {HOLDER} {CURE}loop1`", mark), "no cure in the log")
    for number, job in enumerate(jobs, 2):
        done = job.wait(30)
        ok(done.code and f"{CURE}loop{number}`" in done.out, f"{words[number - 2]}: {done.out}")
    lab.client.run(f"{reads(second, 3)} && {writes(first, 4)} && {reads(first, 3)}")
    second.unmap()
    # The mark of the one that lives is removed, once more if it was just being written: it does nothing from then on.
    mark = lab.server.log_mark()

    def is_fenced() -> bool:
        # Fails if the server has written its mark just then.
        lab.server.try_run(f"{TOOL} fsck --clear-in-use /dev/loop1")
        return bool(lab.server.log_matches("'loop0'.*: fenced: .* has taken the device", mark))

    until(is_fenced, 20, "the first is fenced", pause=1)
    second = map_with(lab, "crc64", "loop1")
    eq(lab.server.log_matches("waiting", mark), [], "a device without a mark is waited for")
    for command in (writes(first, 5), reads(first, 3)):
        ok(lab.client.try_run(command).code, f"a server that has lost its disk does IO: {command}")
    for number in (5, 3):
        lab.client.run(f"{writes(second, number)} && {reads(second, number)}")
    first.unmap()
    eq(len(lab.server.log_matches("fenced", mark)), 1, "lines about it")
    second.unmap()
    found = scrub(lab, "loop0")
    eq((found["good"], found["bad"]), (3, 0), str(found))
    mark = lab.server.log_mark()
    map_with(lab, "crc64", "loop0").unmap()
    eq(lab.server.log_matches("waiting", mark), [], "a device that was closed is waited for")
    is_lost_when_formatted(lab)


# Suspends a disk as soon as its mark was written anew: what it does not answer next is a look at it. A mark that
# is written late costs a server the disk.
STAND_STILL = """{{
mark() {{ dd if=/dev/ram{number} bs=512 skip=1 count=1 iflag=direct status=none | md5sum; }}
old=$(mark); while [ "$old" = "$(mark)" ]; do sleep 0.05; done; dmsetup suspend --nolockfs disk{number}; }}"""

CONTENT = "dd if=/dev/ram1 bs=1M iflag=direct status=none | md5sum"


def become(lab: Lab, number: int, kind: str) -> None:
    """Gives a disk of the server a table of this kind while it is in use."""
    below = "" if kind == "error" else f"/dev/ram{number} 0"
    lab.server.run(f"dmsetup load disk{number} --table '0 {MIB * 2048} {kind} {below}' && dmsetup resume disk{number}")


def formatted(lab: Lab, number: int) -> None:
    """Makes a disk of the server that can be replaced, and a sidecar on it."""
    mapped(lab.server, lab, f"disk{number}", f"0 {MIB * 2048} linear /dev/ram{number} 0")
    format_disk(lab, f"dm-{number}")


def failing_write(lab: Lab) -> tuple[rnbd.Disk, Job]:
    """Begins a write that fails when the lease of its disk, the fifth one, has ended: its data take 8 s, and the disk
    answers with errors from now on."""
    formatted(lab, 4)
    lab.server.run("modprobe dm_delay")
    below = "/dev/mapper/disk4 2048 0 /dev/mapper/disk4 2048 8000"
    mapped(lab.server, lab, "slow", f"0 2048 linear /dev/mapper/disk4 0\n2048 {(MIB - 1) * 2048} delay {below}")
    disk = map_with(lab, "crc64", "dm-5")
    journal = "dd if=/dev/ram4 bs=4096 skip=1 count=255 iflag=direct status=none | md5sum"
    before = lab.server.run(journal)
    began = paths.uptime(lab.server)
    job = lab.client.start_job(f"dd if=/dev/urandom of={disk.path} bs=8192 count=1 seek=2 oflag=direct status=none")
    until(lambda: lab.server.run(journal) != before, 10, "the record of the write is there")
    become(lab, 4, "error")
    in_time(paths.uptime(lab.server) - began < 3.5, "the write ends before the lease")
    return disk, job


@needs(wires=1)
def test_a_lease_ends_while_a_disk_does_not_answer(pair: Lab) -> None:
    """Of four disks two stand still, and one of these is another server's when it goes on; two answer with errors, and
    one of these is closed meanwhile. Where the mark was not written anew no IO is begun: requests wait, or fail."""
    lab = pair
    rnbd.ram_disk(lab, MIB, 5)
    for number in range(4):
        formatted(lab, number)
    begin(lab)
    disks = [map_with(lab, "crc64", f"dm-{number}") for number in range(4)]
    lab.client.run(" && ".join(writes(disk, 3) for disk in (disks[1], disks[3])))
    for number in (1, 3):
        # Its journal is empty then: it has nothing to write by itself.
        disks[number].unmap()
        disks[number] = map_with(lab, "crc64", f"dm-{number}")
    still, taken, closed, back = disks
    unseen, failed = failing_write(lab)
    # That of the others has something: its clock ticks, and looks at the lease.
    lab.client.run(f"{writes(still, 3)} && {writes(closed, 3)}")
    mark = lab.server.log_mark()
    lab.server.run(" & ".join(STAND_STILL.format(number=number) for number in (0, 1)) + " & wait")
    lab.defer(lab.server.try_run, "dmsetup resume disk0; dmsetup resume disk1")
    become(lab, 2, "error")
    become(lab, 3, "error")
    looks: list[Job] = []

    def are_without_lease() -> bool:
        # Those that come in time are with the disk, and change nothing there.
        looks.append(lab.client.start_job(f"dd if={taken.path} of=/dev/null bs=4096 count=1 iflag=direct status=none"))
        return (all(lab.server.log_matches(f"dm-{number}: it does not answer: its requests wait", mark)
                    for number in (0, 1)) and
                all(len(lab.server.log_matches(f"'dm-{number}': its mark of use cannot be written anew", mark)) > 2
                    for number in (2, 3)))

    until(are_without_lease, 30, "leases end", pause=0.5)
    jobs = [lab.client.start_job(writes(disk, 4)) for disk in (still, taken)]
    # What answers with errors does so at once, and can be closed.
    for disk in (closed, back):
        ok(lab.client.try_run(reads(disk, 3), 20).code, "a disk that answers with errors is read")
    # What was not begun ends no writes of one that answers again.
    ok(lab.client.try_run(writes(back, 5), 20).code, "a disk that answers with errors is written")
    # What no client waits for is not begun: it would count as not readable.
    eq(scrub_command(lab, "start", "dm-3"), "")
    closed.unmap()
    ok(failed.wait(20).code, "a write of a disk that answers with errors has succeeded")
    ok(all(job.running for job in jobs), "a write has ended without its disk")
    # Another server has taken the second one, and written its mark: nothing else is written there.
    lab.server.run("dd if=/dev/urandom of=/dev/ram1 bs=512 seek=1 count=1 oflag=direct conv=notrunc status=none; "
                   f"{CONTENT} > /run/before; dmsetup resume disk0; dmsetup resume disk1")
    become(lab, 2, "linear")
    become(lab, 3, "linear")
    become(lab, 4, "linear")
    jobs[0].ok(30)
    lab.client.run(f"{reads(still, 4)} && {reads(still, 3)}")
    ok(jobs[1].wait(30).code, "a write of a disk that another server has succeeded")
    eq(rnbd.try_map(lab, rnbd.request(lab, "dm-1", "s2", "access_mode=ro pi=crc64")), "EBUSY")
    ok(lab.server.log_matches("'dm-1': fenced: something that left no name has taken the device", mark), "no line")
    until(lambda: lab.client.try_run(reads(back, 3)).code == 0, 20, "a disk that answers again is used")
    lab.client.run(f"{writes(back, 4)} && {reads(back, 4)}")
    # What a write has left that failed then is seen now: its blocks are not lost.
    until(lambda: lab.client.try_run(f"dd if={unseen.path} bs=8192 count=1 skip=2 iflag=direct status=none | "
                                     "cmp -n 8192 - /dev/zero").code == 0, 20, "its blocks are not lost")
    eq(scrub_counts(lab, "dm-3")["bad"], 0, "blocks that were not read")
    for job in looks:
        job.wait(30)
    for disk in (still, taken, back, unseen):
        disk.unmap()
    lab.server.run(f"{CONTENT} | cmp - /run/before")
    for number in (0, 3):
        found = scrub(lab, f"dm-{number}")
        eq((found["good"], found["bad"]), (2, 0), str(found))
