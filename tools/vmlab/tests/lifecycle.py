# SPDX-License-Identifier: GPL-2.0
"""Ends and interruptions of IO, processes or the other machine: nothing hangs or leaks."""
from __future__ import annotations

import time

from vmlab import paths, rnbd, tier
from vmlab.checks import eq, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.uevents import Uevents

SMP = 2

LOAD = "--rw=randrw --bs=4k --iodepth=16 --size=8m --time_based --runtime=60"


def settle(disk: rnbd.Disk, seconds: float = 1.5) -> None:
    """Gives the load time to be in full flight."""
    paths.wait_busy(disk, 20)
    time.sleep(seconds)


@needs()
def test_killing_fio_leaves_the_disk_usable(pair: Lab) -> None:
    """kill -9 of a busy fio; the next reader gets data, and the disk unmaps."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair)
    rnbd.round_robin(pair)
    fio = disk.fio(LOAD)
    settle(disk)
    fio.job.kill()
    fio.job.wait(60)
    pair.client.run(f"dd if={disk.path} of=/dev/null bs=64k count=16 iflag=direct status=none")
    disk.unmap()


@needs()
def test_unmap_is_refused_while_the_disk_is_open(pair: Lab) -> None:
    """normal returns EBUSY and changes nothing; force removes the disk, and its user gets errors."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair)
    holder = pair.client.start_job(f"rm -f /run/held; exec 9<{disk.path}; touch /run/held; sleep 600")
    until(lambda: pair.client.exists("/run/held"), 20, "the disk is open")
    eq(pair.client.write(f"{disk.control}/unmap_device", "normal"), "EBUSY")
    eq(disk.attribute("state"), "open")
    eq(pair.client.write(f"{disk.control}/unmap_device", "force", 60), "")
    until(lambda: not disk.present, 20, "the disk is gone")
    holder.kill()
    holder.wait(20)


@needs()
def test_forced_unmap_under_load_ends_the_load(pair: Lab) -> None:
    """fio gets errors and ends by itself; no task waits without end."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair)
    rnbd.round_robin(pair)
    fio = disk.fio(LOAD)
    settle(disk)
    eq(pair.client.write(f"{disk.control}/unmap_device", "force", 90), "")
    ok(fio.wait(60).code, "fio ended without an error")
    until(lambda: not disk.present, 20, "the disk is gone")


# Paths.modules_unload_in_every_state shows it in each run.
@needs(timeout=180, tier=tier.ALL)
def test_unloading_the_client_with_io_in_flight(pair: Lab) -> None:
    """An open disk keeps the module; after its last close, the unload removes the disk."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair)
    rnbd.round_robin(pair)
    fio = disk.fio(LOAD)
    settle(disk)
    held = pair.client.try_run("rmmod rnbd_client", 60)
    if held.code == 0:      # the C driver's disks do not hold it: removed, and the load ends with errors
        fio.wait(60)
    else:
        fio.job.kill()
        fio.job.wait(60)
        until(lambda: pair.client.try_run("rmmod rnbd_client", 60).code == 0, 20, "the module unloads")
    ok(not disk.present, "the disk stayed")


# Paths_server.unloading_in_every_state shows it in each run.
@needs(timeout=180, tier=tier.ALL)
def test_unloading_the_server_with_io_in_flight(pair: Lab) -> None:
    """The server may be unloaded at any time: the client's IO ends with errors after its time limit."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair)
    rnbd.fail_fast(pair, 3)
    rnbd.round_robin(pair)
    fio = disk.fio(LOAD)
    settle(disk)
    pair.server.run("rmmod rnbd_server", 90)
    ok(fio.wait(90).code, "fio ended without an error")
    disk.unmap("force")


@needs(timeout=180)
def test_kill_9_of_a_mapping_shell(pair: Lab) -> None:
    """The shell that writes to map_device is killed while the host does not answer."""
    rnbd.start(pair)
    job = pair.client.start_job(f"echo 'sessname=k1 path=ip:10.0.0.99 device_path=ram0' > {rnbd.CONTROL}/map_device")
    time.sleep(2)
    job.kill()
    until(lambda: not job.running, 100, "the killed shell is gone")
    disk = rnbd.map_disk(pair, session="k1")
    disk.unmap()


@needs(disruptive=True, timeout=300)
def test_the_server_dies_under_io(pair: Lab) -> None:
    """Power failure of the server: IO ends with errors, the disk unmaps by force, the modules unload."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair)
    rnbd.fail_fast(pair, 3)
    rnbd.round_robin(pair)
    fio = disk.fio(f"{LOAD} --runtime=200", 220)
    settle(disk)
    pair.server.kill()
    ok(fio.wait(120).code, "fio ended without an error")
    disk.unmap("force")
    pair.client.run("mods -r", 90)


@needs(disruptive=True, timeout=300)
def test_a_new_server_is_found_after_the_old_one_died(pair: Lab) -> None:
    """The server machine crashes while idle and boots; the client maps its disk again after a forced unmap."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair)
    pair.reboot(pair.server)
    rnbd.ram_disk(pair)
    rnbd.load_server(pair)
    disk.unmap("force")
    disk = rnbd.map_disk(pair)
    pair.client.run(f"dd if=/dev/zero of={disk.path} bs=64k count=16 oflag=direct status=none")
    disk.unmap()


# Administration.* has several disks of a session in each run.
@needs(tier=tier.ALL)
def test_several_disks_in_one_session(pair: Lab) -> None:
    """Three disks share a session and its queue; each has its own data; they are unmapped one by one."""
    rnbd.start(pair, mib=8, count=3)
    disks = [rnbd.map_disk(pair, f"ram{number}") for number in range(3)]
    rnbd.round_robin(pair)
    eq(pair.client.names(rnbd.SESSIONS), ["s1"], "sessions")
    pair.client.run(" & ".join(f"dd if=/dev/urandom of={disk.path} bs=64k count=64 oflag=direct status=none"
                               for disk in disks) + " & wait")
    sums = [disk.checksum() for disk in disks]
    eq(len(set(sums)), 3, "disks with data of their own")
    backing = pair.server.run("md5sum /dev/ram0 /dev/ram1 /dev/ram2").split()[::2]
    eq(sums, backing, "checksums at the client and at the server")
    for number, disk in enumerate(disks):
        disk.unmap()
        left = [other for other in disks[number + 1:] if not other.present]
        eq(left, [], "disks that went with another one")
    until(lambda: not pair.client.exists(f"{rnbd.SESSIONS}/s1"), 10, "the session is gone")


# Administration.* and paths_server.* have several sessions in each run.
@needs(tier=tier.ALL)
def test_several_sessions(pair: Lab) -> None:
    """Sessions are independent: one is unmapped, the other continues."""
    rnbd.start(pair, mib=8, count=2)
    one, two = rnbd.map_disk(pair, "ram0", "a"), rnbd.map_disk(pair, "ram1", "b")
    fio = two.fio("--rw=randwrite --bs=4k --iodepth=4 --size=1m --verify=crc32c --verify_fatal=1")
    one.unmap()
    fio.clean(120)
    eq([name for name in pair.client.names(rnbd.SESSIONS) if name != "ctl"], ["b"])


@needs()
def test_a_read_only_mapping_is_read_only(pair: Lab) -> None:
    """No write passes, not even after blockdev --setrw; the server says ro too."""
    rnbd.start(pair, mib=8)
    disk = rnbd.map_disk(pair, options="access_mode=ro")
    before = pair.server.run("md5sum < /dev/ram0")
    eq(pair.client.run(f"blockdev --getro {disk.path}").strip(), "1")
    for turn in ("at first", "after setrw"):
        ok(pair.client.try_run(f"dd if=/dev/urandom of={disk.path} bs=4k count=1 oflag=direct conv=notrunc").code,
           f"a write passed {turn}")
        pair.client.try_run(f"blockdev --setrw {disk.path}")
    eq(pair.server.run("md5sum < /dev/ram0"), before, "the server's disk")
    eq(pair.server.read("/sys/class/rnbd-server/ctl/devices/ram0/sessions/s1/access_mode"), "ro")
    eq(pair.server.read("/sys/class/rnbd-server/ctl/devices/ram0/sessions/s1/read_only"), "1")


@needs()
def test_resize_changes_the_capacity(pair: Lab) -> None:
    """resize sets the number of sectors of the client's disk."""
    rnbd.start(pair, mib=16)
    disk = rnbd.map_disk(pair)
    for text, sectors in (("16384", 16384), ("0x4000\n", 16384), ("32768", 32768)):
        eq(pair.client.write(f"{disk.control}/resize", text), "", f"writing {text!r}")
        eq(disk.sectors, sectors)
    eq(pair.client.run(f"blockdev --getsz {disk.path}").strip(), "32768")


@needs(timeout=180)
def test_force_close_and_remap(pair: Lab) -> None:
    """The server closes a disk: its IO fails, the others continue; remap is rejected while the disk is mapped."""
    rnbd.start(pair, mib=8, count=3)
    disk, other = rnbd.map_disk(pair, "ram0"), rnbd.map_disk(pair, "ram1")
    eq(pair.server.write("/sys/class/rnbd-server/ctl/devices/ram0/sessions/s1/force_close", "1"), "")
    until(lambda: not pair.server.exists("/sys/class/rnbd-server/ctl/devices/ram0"), 10, "the server lets go")
    # The client does not know yet: what it sends for the number of that device reaches no other one.
    late = rnbd.map_disk(pair, "ram2")
    before = late.checksum()
    ok(pair.client.try_run(f"dd if=/dev/urandom of={disk.path} bs=4k count=1 oflag=direct").code, "a write passed")
    eq(late.checksum(), before)
    ok(pair.client.try_run(f"dd if={disk.path} of=/dev/null bs=4k count=1 iflag=direct").code, "a read passed")
    pair.client.run(f"dd if={other.path} of=/dev/null bs=4k count=1 iflag=direct status=none")
    disk.unmap("force")
    disk = rnbd.map_disk(pair, "ram0")
    pair.client.run(f"dd if={disk.path} of=/dev/null bs=4k count=1 iflag=direct status=none")


@needs(timeout=180)
def test_disconnect_and_reconnect_by_hand(pair: Lab) -> None:
    """The path disconnects on request; IO fails after its time limit, and continues after a reconnect."""
    rnbd.start(pair, mib=8)
    disk = rnbd.map_disk(pair)
    rnbd.fail_fast(pair, 2)
    path = rnbd.session_file("paths/ip:10.0.0.1@ip:10.0.0.2")
    eq(pair.client.write(f"{path}/disconnect", "1", 60), "")
    eq(pair.client.read(f"{path}/state"), "disconnected")
    ok(pair.client.try_run(f"dd if={disk.path} of=/dev/null bs=4k count=1 iflag=direct", 30).code == 1, "a read passed")
    eq(pair.client.write(f"{path}/reconnect", "1", 60), "")
    eq(pair.client.read(f"{path}/state"), "connected")
    until(lambda: disk.attribute("state") == "open", 20, "the disk is back")
    pair.client.run(f"dd if={disk.path} of=/dev/null bs=4k count=1 iflag=direct status=none")
    disk.unmap()


# On_the_wire.d4_polled_io_uses_the_poll_connections shows it in each run.
@needs(timeout=180, tier=tier.ALL)
def test_poll_queues_carry_polled_io(pair: Lab) -> None:
    """nr_poll_queues makes queues that io_uring can poll, with verified data."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair, options="access_mode=rw nr_poll_queues=2")
    rnbd.round_robin(pair)
    eq(disk.attribute("nr_poll_queues"), "2")
    eq(disk.queue("io_poll"), "1")
    disk.fio("--hipri --rw=randwrite --bs=4k --iodepth=4 --size=1m --verify=crc32c --verify_fatal=1", 120).clean()
    disk.fio("--hipri --rw=randread --bs=16k --iodepth=8 --numjobs=2 --size=2m", 120).clean()


@needs()
def test_all_processors_as_poll_queues(pair: Lab) -> None:
    """nr_poll_queues=-1 makes one for each processor."""
    rnbd.start(pair, mib=8)
    disk = rnbd.map_disk(pair, options="access_mode=rw nr_poll_queues=-1")
    eq(disk.attribute("nr_poll_queues"), pair.client.run("nproc").strip())


@needs()
def test_uevents_come_as_from_c(pair: Lab) -> None:
    """add with the disk, remove without it, and the names that udev builds on."""
    rnbd.start(pair, mib=8)
    watch = Uevents(pair.client, "--subsystem-match=block")
    disk = rnbd.map_disk(pair)
    disk.unmap()
    watch.wait_for("ACTION=remove")
    events = watch.end()
    ok("ACTION=add" in events, f"no add: {events}")
    ok("DEVNAME=/dev/rnbd0" in events and "DEVTYPE=disk" in events, f"no name: {events}")
