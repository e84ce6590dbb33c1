# SPDX-License-Identifier: GPL-2.0
"""Administration at inconvenient times: unmapping in an outage, fencing, remapping, reconfiguring the server."""
from __future__ import annotations

from vmlab import paths, rnbd
from vmlab.checks import ByChance, Failed, eq, ge, in_time, matches, ok, until
from vmlab.lab import Lab
from vmlab.machine import Job
from vmlab.needs import needs
from vmlab.tests.paths import SUSPENDED, dm_disk
from vmlab.tests.pi_store import SIDECAR

SCAN_MS = 1500          # of a read of the partition table
ADMIN_IDS = 8           # of a session: the messages that may be in flight
EXPORTS = "/sys/class/rnbd-server/ctl/devices"
USERS = f"dmsetup info -c --noheadings -o open {SUSPENDED}"     # their number


def keep_open(lab: Lab, disk: rnbd.Disk) -> Job:
    """Opens the disk and keeps it open until the job is killed."""
    job = lab.client.start_job(f"exec 9<{disk.path}; sleep 300", 320)
    lab.defer(job.kill)
    until(lambda: opened(disk), 10, f"{disk.name} is open")
    return job


def opened(disk: rnbd.Disk) -> bool:
    """Whether a process of the machine has the disk open."""
    found = disk.machine.try_run(f"ls -l /proc/[0-9]*/fd 2>/dev/null | grep -q ' {disk.path}$'")
    return found.code == 0


def read_block(disk: rnbd.Disk, seconds: float = 30) -> int:
    """The exit code of a read past the page cache."""
    line = f"dd if={disk.path} of=/dev/null bs=4k count=1 iflag=direct status=none"
    return disk.machine.try_run(line, seconds).code


def ask_in_vain(lab: Lab, names: list[str]) -> None:
    """Writes to map_device for disks that do not answer, and kills the writers, one after the other."""
    lines = "\n".join(rnbd.request(lab, name) for name in names)
    lab.client.run(f"while read line; do timeout -s KILL 0.7 sh -c \"echo '$line' > {rnbd.CONTROL}/map_device\"; done "
                   f"<<'END'\n{lines}\nEND\ntrue", 60)


def ask(lab: Lab, name: str) -> Job:
    """Writes to map_device for a disk that does not answer."""
    return lab.client.start_job(f"echo '{rnbd.request(lab, name)}' > {rnbd.CONTROL}/map_device", 200)


def lose(lab: Lab, disk: rnbd.Disk) -> None:
    """Cuts the only wire until the client has noticed."""
    lab.defer(lab.mend, 0)
    lab.cut(0)
    until(lambda: disk.attribute("state") == "closed", 20, "the client has noticed")


def scan_in_an_outage(lab: Lab, disk: rnbd.Disk) -> Job:
    """Reads the partition table in an outage: that waits for dirty pages with the disk's open_mutex locked."""
    keep_open(lab, disk)
    lose(lab, disk)
    # The other opener keeps the close from writing back.
    lab.client.run(f"dd if=/dev/zero of={disk.path} bs=4k count=64 conv=notrunc status=none")
    scan = lab.client.start_job(f"blockdev --rereadpt {disk.path}", 200)
    lab.defer(scan.kill)
    paths.rest(1)
    ok(scan.running, "reading the partition table did not wait for the link")
    return scan


@needs(wires=1, timeout=240)
def test_forced_unmap_while_the_partition_table_is_read(pair: Lab) -> None:
    """In an outage a scan waits under open_mutex: a forced unmap removes the disk, and the session works afterwards."""
    rnbd.start(pair, mib=8, count=2)
    disk = rnbd.map_disk(pair)
    scan = scan_in_an_outage(pair, disk)
    unmap = pair.client.start_job(f"echo force > {disk.control}/unmap_device", 100)
    until(lambda: not unmap.running, 15, "the forced unmap returns")
    eq(unmap.wait(5).code, 0, "the forced unmap")
    scan.wait(20)
    until(lambda: not disk.present, 10, f"{disk.name} is gone")
    paths.mend_for_a_new_session(pair)
    other = rnbd.map_disk(pair, "ram1")
    eq(read_block(other), 0, "a read of another disk")
    other.unmap()


@needs(wires=1, timeout=240)
def test_normal_unmap_while_the_partition_table_is_read(pair: Lab) -> None:
    """The disk is open: EBUSY at once, in an outage as well; who closes it meanwhile waits for the scan, which has the
    block layer's lock; and the session reconnects."""
    rnbd.start(pair, mib=8)
    disk = rnbd.map_disk(pair)
    other = pair.client.start_job(f"exec sleep 300 9< {disk.path}")
    until(lambda: opened(disk), 10, f"{disk.name} is open")
    scan = scan_in_an_outage(pair, disk)
    unmap = pair.client.start_job(f"echo normal > {disk.control}/unmap_device", 100)
    until(lambda: not unmap.running, 10, "the normal unmap returns")
    ok(unmap.wait(5).code, "an open disk was unmapped")
    other.kill()
    paths.rest(1)
    ok(other.running, "an unmap that did not get the lock of the scan has released it")
    pair.mend(0)
    paths.back_seconds(pair, lambda: disk.attribute("state") == "open", 30, "the disk is back")
    scan.wait(20)
    other.wait(20)
    eq(read_block(disk), 0, "a read")


def map_until_an_outage(lab: Lab) -> tuple[rnbd.Disk, Job]:
    """A writer of map_device whose disk's first partition scan waits, as its path went. The server's disk is slow."""
    dm_disk(lab, target=f"delay /dev/ram0 0 {SCAN_MS} /dev/ram0 0 0")
    rnbd.load_server(lab)
    rnbd.load_client(lab)
    disk = rnbd.Disk(lab.client, "rnbd0", "s1", "dm-0")
    lab.defer(disk.unmap_if_there)
    line = rnbd.request(lab, disk.remote)
    writer = lab.client.start_job(f"exec sh -c 'echo {line} > {rnbd.CONTROL}/map_device'", 200)
    until(lambda: disk.present, 30, f"{disk.name} is being mapped", pause=0.02)
    lose_path(lab)
    in_time(writer.running, "reading the partition table did not wait for the link")
    return disk, writer


def lose_path(lab: Lab) -> None:
    """Cuts the only wire until the client has noticed, without a look at its disks."""
    lab.defer(lab.mend, 0)
    lab.cut(0)
    until(lambda: paths.states(lab) != ["connected"], 20, "the client has noticed")


@needs(wires=1, timeout=240)
def test_a_disk_is_unmapped_while_its_partitions_are_read_first(pair: Lab) -> None:
    """An outage while map_device reads the table: its writer can be killed, a forced unmap ends all that waits."""
    disk, writer = map_until_an_outage(pair)
    until(lambda: pair.client.exists(f"{disk.control}/unmap_device"), 10, "the disk has its files")
    eq(disk.attribute("state"), "closed")
    eq(pair.client.write(f"{disk.control}/unmap_device", "normal"), "EBUSY", "the table is being read")
    matches(pair.client.try_run("rmmod rnbd_client 2>&1", 20).out, "in use", "an unload while the table is being read")
    writer.kill()
    until(lambda: not writer.running, 10, "the writer of map_device is gone")
    # The freeze of the queue waits for the table.
    tuner = pair.client.start_job(f"echo 32 > /sys/block/{disk.name}/queue/nr_requests", 100)
    eq(pair.client.write(f"{disk.control}/unmap_device", "force"), "")
    until(lambda: not disk.present, 10, f"{disk.name} is gone")
    until(lambda: not tuner.running, 10, "the writer of queue/nr_requests is gone")
    paths.mend_for_a_new_session(pair)
    rnbd.map_disk(pair, disk.remote).unmap()


@needs(wires=1, timeout=240)
def test_the_partition_table_is_read_after_an_outage(pair: Lab) -> None:
    """An outage while map_device reads the table: it goes on when the path is back, and the writer returns."""
    disk, writer = map_until_an_outage(pair)
    pair.mend(0)
    paths.back_seconds(pair, lambda: disk.attribute("state") == "open", 30, "the disk is back")
    eq(writer.wait(30).code, 0, "map_device")
    eq(read_block(disk), 0, "a read")


@needs(wires=1, timeout=240)
def test_unmapping_in_an_outage(pair: Lab) -> None:
    """A disk that is not open is unmapped without force, one with waiting IO by force, and its IO ends."""
    rnbd.start(pair, mib=8, count=2)
    idle, busy = rnbd.map_disk(pair, "ram0"), rnbd.map_disk(pair, "ram1")
    lose(pair, idle)
    write = pair.client.start_job(f"dd if=/dev/zero of={busy.path} bs=4k count=1 oflag=direct status=none", 100)
    until(lambda: opened(busy), 20, f"{busy.name} is open")
    paths.rest(1)
    ok(write.running, "a write did not wait for the link")
    eq(pair.client.write(f"{busy.control}/unmap_device", "normal"), "EBUSY")
    # The last but one of the session's disks.
    idle.unmap()
    ok(write.running, "the write waits no longer")
    busy.unmap("force")
    ok(write.wait(10).code, "a write to a disk that is gone succeeded")
    paths.mend_for_a_new_session(pair)
    rnbd.map_disk(pair, "ram0").unmap()


def two_disks(lab: Lab) -> tuple[rnbd.Disk, rnbd.Disk]:
    """ram0 and ram1 over both wires."""
    rnbd.start(lab, mib=16, count=2)
    disks = [rnbd.map_disk(lab, device, line=rnbd.request(lab, device, wires=2)) for device in ("ram0", "ram1")]
    eq(paths.states(lab), ["connected", "connected"])
    rnbd.round_robin(lab)
    return disks[0], disks[1]


def fence(lab: Lab, device: str) -> None:
    """Closes a device by force at the server."""
    eq(lab.server.write(f"{EXPORTS}/{device}/sessions/s1/force_close", "1"), "")
    until(lambda: not lab.server.exists(f"{EXPORTS}/{device}"), 10, "the server lets go")


# The server's line when it closes the lost path because a request has come again on the other one: decision 0006. If a
# packet of the lost path comes after that, it closes the other one: "what the protocol leaves open". A packet may be
# that late where a busy host stops the server's machine for a moment.
CHUNK_IN_USE = r"client uses chunk \d+ on .* before this path has answered"


def flap(lab: Lab) -> None:
    """One wire goes and comes back; the session and its other path do not notice."""
    mark, server_mark = lab.client.log_mark(), lab.server.log_mark()
    lab.defer(lab.mend, 0)
    # The server's end first: what is on the way is lost or has arrived before the client sends it over the other path.
    lab.silence(0)
    until(lambda: lab.server.read("/sys/class/net/eth0/carrier") == "0", 10, "the server sees the carrier go")
    lab.cut(0)
    until(lambda: paths.state(lab, 0) == "disconnected", 20, "the path is lost")
    lab.mend(0)
    paths.back_seconds(lab, lambda: paths.state(lab, 0) == "connected", 30, "the path is back")
    paths.rest(1)
    eq(paths.states(lab), ["connected", "connected"])
    lines = " / ".join(text for _n, text in lab.client.kernel_log(mark))
    ok("started anew" not in lines, f"the server was taken for another one: {lines}")
    if "requests wait" in lines:
        is_late = lab.server.log_matches(CHUNK_IN_USE, server_mark)
        raise (ByChance if is_late else Failed)(f"the session was lost: {lines}")
    matches(lines, "closed it, requests fail")


def is_fenced(disk: rnbd.Disk) -> None:
    """Checks that it is shown as closed, and that its IO fails at once."""
    eq(disk.attribute("state"), "closed")
    began = paths.uptime(disk.machine)
    ok(read_block(disk), "a read of a fenced disk succeeded")
    # It does not wait for fast_io_fail_tmo, which is ten minutes.
    in_time(paths.uptime(disk.machine) - began <= 15, "a read of a fenced disk has waited")


@needs(wires=2, timeout=240)
def test_a_fenced_disk_stays_fenced_when_a_path_returns(pair: Lab) -> None:
    """The other path and the other disk continue; the server does not open the fenced one until it is remapped."""
    disk, fenced = two_disks(pair)
    history = disk.history()
    paths.wait_busy(disk, history=history)
    fence(pair, "ram1")
    flap(pair)
    ok(not pair.server.exists(f"{EXPORTS}/ram1"), "the fenced device is open again")
    history.clean(100)
    is_fenced(fenced)
    eq(disk.attribute("state"), "open")
    eq(pair.client.write(f"{fenced.control}/remap_device", "1"), "")
    eq(fenced.attribute("state"), "open")
    eq(read_block(fenced), 0, "a read of the disk that was opened again")
    eq(pair.client.write(f"{fenced.control}/remap_device", "1"), "EALREADY")


@needs(wires=2, timeout=240)
def test_a_fenced_disk_that_another_client_has(pair: Lab) -> None:
    """The server rejects OPEN: the path reconnects nevertheless, and remap_device reports the reason."""
    disk, fenced = two_disks(pair)
    fence(pair, "ram1")
    # Over the wire that stays.
    line = f"sessname=s2 path=ip:{pair.address(pair.server, 1)} device_path=ram1 access_mode=rw"
    rival = rnbd.map_disk(pair, "ram1", "s2", line=line)
    flap(pair)
    is_fenced(fenced)
    eq(read_block(disk), 0, "a read of the other disk")
    eq(pair.client.write(f"{fenced.control}/remap_device", "1"), "EPERM")
    eq(fenced.attribute("state"), "closed")
    rival.unmap()
    eq(pair.client.write(f"{fenced.control}/remap_device", "1"), "")
    eq(read_block(fenced), 0, "a read of the disk that was opened again")


@needs(wires=2, timeout=240)
def test_the_only_disk_is_fenced(pair: Lab) -> None:
    """No other disk shows that the server is the same one: the other path does. An outage does not lift the fence."""
    rnbd.start(pair, mib=8)
    disk = rnbd.map_disk(pair, line=rnbd.request(pair, wires=2))
    fence(pair, "ram0")
    flap(pair)
    ok(not pair.server.exists(f"{EXPORTS}/ram0"), "the fenced device is open again")
    is_fenced(disk)
    for wire in (0, 1):
        pair.defer(pair.mend, wire)
        pair.cut(wire)
    until(lambda: paths.states(pair) == ["disconnected", "disconnected"], 20, "both paths are lost")
    for wire in (0, 1):
        pair.mend(wire)
    paths.back_seconds(pair, lambda: paths.states(pair) == ["connected", "connected"], 30, "both paths are back")
    paths.rest(1)
    ok(not pair.server.exists(f"{EXPORTS}/ram0"), "the fenced device is open again")
    is_fenced(disk)
    eq(pair.client.write(f"{disk.control}/remap_device", "1"), "")
    eq(read_block(disk), 0, "a read of the disk that was opened again")


@needs(timeout=180)
def test_a_fenced_disk_is_known_by_its_io(pair: Lab) -> None:
    """The first answer shows that the server has closed it: the state says so, and remap_device opens it again."""
    rnbd.start(pair, mib=8)
    disk = rnbd.map_disk(pair)
    fence(pair, "ram0")
    eq(disk.attribute("state"), "open", "state before any IO")
    ok(read_block(disk), "a read of a fenced disk succeeded")
    eq(disk.attribute("state"), "closed")
    eq(pair.client.write(f"{disk.control}/resize", "4096"), "ENOENT")
    eq(pair.client.write(f"{disk.control}/remap_device", "1"), "")
    eq(disk.attribute("state"), "open")
    eq(read_block(disk), 0, "a read of the disk that was opened again")
    disk.unmap()


@needs()
def test_a_disk_is_not_resized_to_nothing(pair: Lab) -> None:
    """0 sectors is no size: EINVAL and a line; the disk keeps its size."""
    rnbd.start(pair, mib=8)
    disk = rnbd.map_disk(pair)
    mark = pair.client.log_mark()
    eq(pair.client.write(f"{disk.control}/resize", "0"), "EINVAL")
    ge(len(pair.client.log_matches("resize", mark)), 1, "lines about it")
    eq(disk.sectors, 16384)


@needs(timeout=240)
def test_the_number_of_a_dead_disk_is_not_used_again(pair: Lab) -> None:
    """A mounted disk is unmapped by force: the next one has another number, and another file system."""
    rnbd.start(pair, mib=32)
    disk = rnbd.map_disk(pair)
    pair.client.run("modprobe ext4")
    pair.client.run(f"mkfs.ext4 -q {disk.path} && mkdir -p /mnt/dead /mnt/new && mount {disk.path} /mnt/dead && "
                    "echo hello > /mnt/dead/file && sync")
    pair.defer(pair.client.try_run, "umount /mnt/new; umount /mnt/dead")
    eq(pair.client.write(f"{disk.control}/unmap_device", "force"), "")
    until(lambda: not disk.present, 20, f"{disk.name} is gone")
    new = rnbd.map_disk(pair)
    ok(new.name != disk.name, f"{new.name} is in use by the dead disk")
    pair.client.run(f"mount {new.path} /mnt/new")
    eq(pair.client.run("cat /mnt/new/file").strip(), "hello")
    pair.client.run("umount /mnt/new")
    new.unmap()
    # Its last user gone, the number is free.
    pair.client.try_run("umount /mnt/dead")
    until(lambda: reused(pair, disk.name), 20, f"{disk.name} is used again")


def reused(lab: Lab, name: str) -> bool:
    """Maps and unmaps a disk; says whether it had this name."""
    disk = rnbd.map_disk(lab)
    disk.unmap()
    return disk.name == name


@needs(wires=1, timeout=240)
def test_a_silent_disk_keeps_no_other_from_being_opened(pair: Lab) -> None:
    """While a disk of the server does not answer its OPEN, another one is opened over the same session."""
    dm_disk(pair, 8, count=2)
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    pair.server.run(f"dmsetup suspend --nolockfs --noflush {SUSPENDED}")
    silent = rnbd.Disk(pair.client, "rnbd0", "s1", "dm-0")
    pair.defer(silent.unmap_if_there)
    writer = ask(pair, silent.remote)
    until(lambda: pair.server.run(USERS).strip() == "1", 30, "the server opens the silent disk")
    other = rnbd.map_disk(pair, "ram1")
    eq(read_block(other), 0, "a read of the other disk")
    ok(writer.running, "the silent disk was opened")
    pair.server.run(f"dmsetup resume {SUSPENDED}")
    writer.ok(60)
    eq(read_block(silent), 0, "a read of the disk that was silent")
    silent.unmap()
    # A server that looks for no sidecar reads nothing: it has opened the disk before that answers.
    eq(pair.server.write(SIDECAR, "off"), "")
    pair.defer(pair.server.write, SIDECAR, "auto")
    pair.server.run(f"dmsetup suspend --nolockfs --noflush {SUSPENDED}")
    mark = pair.server.log_mark()
    writer = ask(pair, silent.remote)
    until(lambda: pair.server.log_matches("'dm-0'.* opened as", mark), 20, "the server has opened the silent disk")
    pair.server.run(f"dmsetup resume {SUSPENDED}")
    writer.ok(60)


@needs(wires=1, timeout=240)
def test_a_silent_disk_keeps_no_other_from_coming_back(pair: Lab) -> None:
    """A path is lost while a disk of the server does not answer its OPEN: the session ends at the server all the same,
    and begins anew, with the other disk. What the silent one has opened is closed when it answers."""
    dm_disk(pair, 8, count=2)
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    other = rnbd.map_disk(pair, "ram1")
    pair.server.run(f"dmsetup suspend --nolockfs --noflush {SUSPENDED}")
    pair.defer(pair.server.run, f"dmsetup resume {SUSPENDED}")
    silent = rnbd.Disk(pair.client, "rnbd1", "s1", "dm-0")
    pair.defer(silent.unmap_if_there)
    writer = ask(pair, silent.remote)
    until(lambda: pair.server.run(USERS).strip() == "1", 30, "the server opens the silent disk")
    mark = pair.server.log_mark()
    lose(pair, other)
    until(lambda: pair.server.log_matches("session s1 ended", mark), 30, "the session ends at the server")
    pair.mend(0)
    paths.back_seconds(pair, lambda: other.attribute("state") == "open", 40, "the other disk is back")
    eq(read_block(other), 0, "a read of the other disk")
    eq(pair.server.log_matches("'dm-0'.* opened as", mark), [], "the silent disk was opened")
    pair.server.run(f"dmsetup resume {SUSPENDED}")
    writer.wait(60)
    if not silent.present:
        silent = rnbd.map_disk(pair, silent.remote)
    eq(read_block(silent), 0, "a read of the disk that was silent")
    silent.unmap()
    until(lambda: pair.server.run(USERS).strip() == "0", 10, "nobody has it open any more")


@needs(wires=1, timeout=240)
def test_disks_come_back_beside_a_silent_one(pair: Lab) -> None:
    """After an outage the disks are opened one after the other, and the first is silent: the second is back in seconds.
    However often the silent one is asked for, another disk is mapped, and a path is added; also under more names than
    a session has messages for, of which each is answered when its client waits no longer."""
    dm_disk(pair, 8, count=3)
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    silent = rnbd.map_disk(pair, "dm-0")
    other = rnbd.map_disk(pair, "ram1")
    eq(read_block(other), 0, "a read of the other disk")
    pair.server.run(f"dmsetup suspend --nolockfs --noflush {SUSPENDED}")
    pair.defer(pair.server.run, f"dmsetup resume {SUSPENDED}")
    mark = pair.server.log_mark()
    lose(pair, other)
    until(lambda: pair.server.log_matches("session s1 ended", mark), 30, "the session ends at the server")
    pair.mend(0)
    took = paths.back_seconds(pair, lambda: other.attribute("state") == "open", 40, "the other disk is back")
    # Somebody who asks for a disk waits for it for a minute.
    in_time(took <= 40, f"the other disk is back after {took:.0f} s only")
    eq(read_block(other), 0, "a read of the other disk")
    ok(silent.attribute("state") != "open", "the silent disk was opened")
    # A message stays on its way when its writer is killed: the same one takes one id, and others not the last.
    ask_in_vain(pair, ["./dm-0"] * ADMIN_IDS)
    began = paths.uptime(pair.client)
    rnbd.map_disk(pair, "ram2").unmap()
    in_time(paths.uptime(pair.client) - began <= 25, "another disk was not mapped beside one message")
    ask_in_vain(pair, ["./" * number + "dm-0" for number in range(1, ADMIN_IDS + 1)])
    # A writer that lives asks in turns with the others.
    writer = ask(pair, "./" * ADMIN_IDS + "./dm-0")
    eq(pair.client.write(rnbd.session_file("add_path"), f"ip:{pair.address(pair.server, 0, 6)}"), "", "add_path")
    began = paths.uptime(pair.client)
    rnbd.map_disk(pair, "ram2").unmap()
    in_time(paths.uptime(pair.client) - began <= 20, "another disk was not mapped beside a silent one")
    ok(writer.running, "the silent disk was opened")
    writer.kill()
    pair.server.run(f"dmsetup resume {SUSPENDED}")
    until(lambda: silent.attribute("state") == "open", 30, "the silent disk is back")
    eq(read_block(silent), 0, "a read of the disk that was silent")


@needs(wires=1, own_modules=True, timeout=240)
def test_the_client_is_unloaded_while_a_server_does_not_answer(pair: Lab) -> None:
    """A writer of map_device waits for a disk of the server that is silent, and another one for a message of others to
    be answered: rmmod ends these waits, not the server."""
    dm_disk(pair, 8, count=2)
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    other = rnbd.map_disk(pair, "ram1")
    pair.server.run(f"dmsetup suspend --nolockfs --noflush {SUSPENDED}")
    writers = [ask(pair, "./" * number + "dm-0") for number in range(ADMIN_IDS)]
    until(lambda: pair.server.run(USERS).strip() == "1", 30, "the server opens the silent disk")
    mark = pair.client.log_mark()
    pair.client.run("rmmod rnbd_client", 100)
    ok(not other.present and all(writer.wait(10).code for writer in writers), "the disk and its writers are gone")
    said = " ".join(pair.client.log_matches("is not mapped: ", mark))
    ok(said and "ETIMEDOUT" not in said and "Error(110)" not in said, f"the wait was over by itself: {said!r}")
    pair.server.run(f"dmsetup resume {SUSPENDED}")
