# SPDX-License-Identifier: GPL-2.0
"""A session's paths: added, lost, closed, removed, and added again; and what IO does meanwhile."""
from __future__ import annotations

import time

from vmlab import burst, paths, rnbd, seed, tier
from vmlab.checks import TooSlow, eq, ge, in_time, matches, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs

SMP = 2

RECONNECTING = 4        # sessions that share a thousand reconnects
LEAST_DEEDS = 12        # of which one in four takes a path away
DISK_MS = 1800          # longer than a slow wire (burst.py)
SUSPENDED = "slow"      # a device-mapper disk of the server that can be made not to answer


def dm_disk(lab: Lab, mib: int = 32, target: str = "linear /dev/ram0 0", count: int = 1) -> None:
    """/dev/dm-0 on the server, over the first of so many ram disks."""
    rnbd.ram_disk(lab, mib, count)
    lab.server.run(f"modprobe -a dm_mod dm_delay; dmsetup create {SUSPENDED} --table '0 {mib * 2048} {target}'")

    def remove() -> None:
        lab.server.run(f"dmsetup resume {SUSPENDED}; mods -r; for i in 1 2 3 4 5 6; do sleep 0.5; "
                       f"dmsetup remove {SUSPENDED} && break; done", 90)
    lab.defer(remove)


# Under load; routes.paths_come_and_go_between_requests and no_packet_of_a_removed_path_* show it in each run.
@needs(wires=2, tier=tier.ALL)
def test_a_path_is_added_and_removed_under_load(pair: Lab) -> None:
    """add_path, disconnect, reconnect and remove_path under load; the last number of paths is what it was."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair)
    history = disk.history()
    paths.wait_busy(disk)
    for _ in range(3):
        mark = pair.client.log_mark()
        eq(pair.client.write(rnbd.session_file("add_path"), f"ip:{pair.address(pair.server, 1)}"), "")
        paths.all_connected(pair, mark)
        eq(pair.client.write(f"{paths.to_wire(pair, 1)}/disconnect", "1"), "")
        eq(paths.state(pair, 1), "disconnected")
        paths.reconnect(pair, paths.to_wire(pair, 1))
        eq(paths.state(pair, 1), "connected")
        eq(pair.client.write(f"{paths.to_wire(pair, 1)}/remove_path", "1"), "")
        eq(len(paths.names(pair)), 1)
    history.clean(100)
    disk.unmap()


@needs(wires=2)
def test_no_packet_of_a_removed_path_follows_its_requests(pair: Lab) -> None:
    """A path is closed while writes on it have not arrived: they go elsewhere when none of them can arrive any more."""
    dm_disk(pair, target=f"delay /dev/ram0 0 0 /dev/ram0 0 {DISK_MS}")
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    disk = rnbd.map_disk(pair, "dm-0", line=rnbd.request(pair, "dm-0", wires=2))
    rnbd.round_robin(pair)
    mark = pair.server.log_mark()
    # The server's disk is slower than the wire: copies that went elsewhere are there when the late ones come.
    with burst.slow_wire(pair):
        burst.write(pair, disk)
        late = r"remote access error|ip:10\.0\.0\.\S+: client uses chunk"
        eq(pair.server.log_matches(late, mark), [], "late packets that the server met")
        if pair.server.log_matches(r"ip:10\.0\.1\.\S+: client uses chunk", mark):
            raise TooSlow("writes were at the server before the path was closed")
        burst.check(pair, disk)
    disk.unmap()


@needs(wires=2)
def test_a_closed_path_stays_closed(pair: Lab) -> None:
    """A path that the administrator disconnected is connected again only by the administrator."""
    with paths.two_paths(pair):
        eq(pair.client.write(f"{paths.to_wire(pair, 1)}/disconnect", "1"), "")
        paths.rest(4)
        eq(paths.state(pair, 1), "disconnected")
        paths.reconnect(pair, paths.to_wire(pair, 1))
        eq(paths.state(pair, 1), "connected")
        eq(paths.count(pair, "reconnects", 0, 1), 1, "successful reconnects")


@needs(wires=1)
def test_io_fails_when_its_time_without_a_path_is_over(pair: Lab) -> None:
    """fast_io_fail_tmo: IO waits for this time, then fails; with a path it works again."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair, options="access_mode=rw fast_io_fail_tmo=6")
    eq(pair.client.read(rnbd.session_file("fast_io_fail_tmo")), "6")
    pair.defer(pair.mend, 0)
    cut = paths.uptime(pair.client)
    pair.cut(0)
    until(lambda: disk.attribute("state") == "closed", 20, "the disk waits")
    began = paths.uptime(pair.client)
    read = pair.client.try_run(f"dd if={disk.path} of=/dev/null bs=4k count=1 iflag=direct", 60)
    ok(read.code, "a read succeeded without a path")
    ended = paths.uptime(pair.client)
    ge(ended - cut, 5.9, "seconds from the cut to the end of the read")
    in_time(ended - began <= 8.0, f"the read waited for {ended - began:.1f} s")
    # From then on nothing waits.
    began = paths.uptime(pair.client)
    ok(pair.client.try_run(f"dd if={disk.path} of=/dev/null bs=4k count=1 iflag=direct", 60).code, "a read succeeded")
    in_time((took := paths.uptime(pair.client) - began) <= 1.0, f"a later read waited for {took:.1f} s")
    pair.mend(0)
    paths.back_seconds(pair, lambda: disk.attribute("state") == "open", 30, "the disk is back")
    pair.client.run(f"dd if={disk.path} of=/dev/null bs=4k count=1 iflag=direct status=none")
    disk.unmap()


@needs(wires=1)
def test_d21_the_time_can_be_none_for_ever_or_changed_meanwhile(pair: Lab) -> None:
    """D21: 0 fails at once as the C driver does; off waits; a change applies to waiting IO."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair, options="access_mode=rw fast_io_fail_tmo=0")
    read = f"dd if={disk.path} of=/dev/null bs=4k count=1 iflag=direct status=none"
    pair.defer(pair.mend, 0)
    pair.cut(0)
    until(lambda: disk.attribute("state") == "closed", 20, "the disk waits")
    ok(pair.client.try_run(read, 20).code, "a read succeeded without a path")
    paths.set_all(pair, fast_io_fail_tmo="off")
    eq(pair.client.read(rnbd.session_file("fast_io_fail_tmo")), "off")
    pair.mend(0)
    paths.back_seconds(pair, lambda: disk.attribute("state") == "open", 30, "the disk is back")
    pair.cut(0)
    until(lambda: disk.attribute("state") == "closed", 20, "the disk waits")
    job = pair.client.start_job(read)
    paths.rest(3)
    ok(job.running, "a read did not wait although fast_io_fail_tmo is off")
    paths.set_all(pair, fast_io_fail_tmo=1)
    ok(job.wait(20).code, "a read succeeded without a path")
    pair.mend(0)
    paths.back_seconds(pair, lambda: disk.attribute("state") == "open", 30, "the disk is back")
    disk.unmap()


@needs(wires=1)
def test_settings_are_checked(pair: Lab) -> None:
    """Each setting has a range, a default, and an option of map_device; what is outside is EINVAL."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair)
    defaults = {"max_reconnect_attempts": "-1", "reconnect_delay_ms": "1000", "fast_io_fail_tmo": "600",
                "heartbeat_interval_ms": "1000", "heartbeat_missed_max": "3"}
    bad = {"max_reconnect_attempts": ("-2", "10000"), "reconnect_delay_ms": ("99", "600001"),
           "fast_io_fail_tmo": ("-2", "86401", "on"), "heartbeat_interval_ms": ("99", "60001"),
           "heartbeat_missed_max": ("0", "101", "")}
    for name, default in defaults.items():
        file = rnbd.session_file(name)
        eq(pair.client.read(file), default, name)
        for value in bad[name]:
            mark = pair.client.log_mark()
            eq(pair.client.write(file, value or "x"), "EINVAL", f"{name}={value}")
            matches(" ".join(text for _n, text in pair.client.kernel_log(mark)), name)
            if value:
                eq(rnbd.try_map(pair, rnbd.request(pair, session="s2", options=f"{name}={value}")), "EINVAL")
        eq(pair.client.read(file), default, name)
    eq(rnbd.try_map(pair, rnbd.request(pair, device="ram0", session="s1", options="reconnect_delay_ms=500")), "EEXIST")
    disk.unmap()
    options = " ".join(f"{name}=7" for name in ("max_reconnect_attempts", "heartbeat_missed_max"))
    disk = rnbd.map_disk(pair, options=f"access_mode=rw {options} io_timeout_ms=5000")
    eq(pair.client.read(rnbd.session_file("heartbeat_missed_max")), "7")
    eq(disk.queue("io_timeout"), "5000")
    disk.unmap()


@needs(wires=1)
def test_attempts_are_counted_and_a_path_is_left(pair: Lab) -> None:
    """max_reconnect_attempts: after this number the path stays closed and no task waits; reconnect connects it."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair, options="access_mode=rw max_reconnect_attempts=2")
    pair.server.run("mods -r", 60)
    until(lambda: disk.attribute("state") == "closed", 20, "the disk waits")
    read = pair.client.try_run(f"dd if={disk.path} of=/dev/null bs=4k count=1 iflag=direct", 60)
    ok(read.code, "a read succeeded without a server")
    eq(paths.state(pair), "disconnected")
    eq(paths.count(pair, "reconnects", 1), 2, "failed reconnects")
    paths.rest(3)
    eq(paths.count(pair, "reconnects", 1), 2, "failed reconnects, later")
    rnbd.load_server(pair)
    paths.reconnect(pair, paths.to_wire(pair))
    until(lambda: disk.attribute("state") == "open", 20, "the disk is back")
    disk.unmap()


@needs(wires=1)
def test_d24_a_request_that_is_never_answered_does_not_wait_for_ever(pair: Lab) -> None:
    """D24: the server is up and acknowledges, its disk does not answer: the path fails, and finally the IO."""
    dm_disk(pair)
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    disk = rnbd.map_disk(pair, "dm-0", options="access_mode=rw io_timeout_ms=2000 fast_io_fail_tmo=5")
    pair.server.run(f"dmsetup suspend --nolockfs {SUSPENDED}")
    mark = pair.client.log_mark()
    read = pair.client.try_run(f"dd if={disk.path} of=/dev/null bs=4k count=1 iflag=direct", 100)
    ok(read.code, "a read succeeded although the disk did not answer")
    matches(" ".join(text for _n, text in pair.client.kernel_log(mark)), "has had no answer in its time")
    pair.server.run(f"dmsetup resume {SUSPENDED}")
    until(lambda: disk.attribute("state") == "open", 60, "the disk is back")
    pair.client.run(f"dd if={disk.path} of=/dev/null bs=4k count=1 iflag=direct status=none")
    disk.unmap()


@needs(wires=2)
def test_d3_added_paths_have_the_sessions_poll_queues(pair: Lab) -> None:
    """D3: add_path to a session with poll queues, then polled IO over both; the C driver oopses."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair, options="access_mode=rw nr_poll_queues=2")
    rnbd.round_robin(pair)
    eq(pair.client.write(rnbd.session_file("add_path"), f"ip:{pair.address(pair.server, 1)}"), "")
    disk.fio("--rw=randrw --bs=4k --iodepth=8 --hipri --size=8m --verify=crc32c --number_ios=600").clean(100)
    for wire in (0, 1):
        ge(paths.count(pair, "rdma", 0, wire) + paths.count(pair, "rdma", 2, wire), 100, f"requests over wire {wire}")
    disk.unmap()


@needs(wires=2)
def test_d17_a_path_that_was_never_measured_does_not_win(pair: Lab) -> None:
    """D17: with min-latency the measured path takes the IO, not the one whose latency is not known yet."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair)
    until(lambda: pair.client.read(f"{paths.to_wire(pair)}/cur_latency") != "0 ns", 20, "the first path is measured")
    eq(pair.client.write(rnbd.session_file("mpath_policy"), "min-latency"), "")
    paths.set_all(pair, heartbeat_interval_ms=30000)
    eq(pair.client.write(rnbd.session_file("add_path"), f"ip:{pair.address(pair.server, 1)}"), "")
    before = paths.count(pair, "rdma", 0, 1)
    pair.client.run(f"dd if={disk.path} of=/dev/null bs=4k count=64 iflag=direct status=none")
    eq(pair.client.read(f"{paths.to_wire(pair, 1)}/cur_latency"), "0 ns")
    eq(paths.count(pair, "rdma", 0, 1), before, "reads over the path that was never measured")
    disk.unmap()


# Under load; sysfs.statistics_count_and_reset shows it in each run.
@needs(wires=1, tier=tier.ALL)
def test_d19_statistics_are_reset_under_load(pair: Lab) -> None:
    """D19: reset_all while IO is in flight: the number in flight is no statistic, and never negative."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair)
    fio = disk.fio("--rw=randread --bs=4k --iodepth=16 --size=16m --time_based --runtime=4")
    paths.wait_busy(disk)
    folder = paths.to_wire(pair)
    for _ in range(20):
        eq(pair.client.write(f"{folder}/stats/reset_all", "1"), "")
        inflight = paths.count(pair, "rdma", 4)
        ok(0 <= inflight <= 16, f"{inflight} requests in flight")
    fio.clean(60)
    eq(paths.count(pair, "rdma", 4), 0, "requests in flight afterwards")
    disk.unmap()


@needs(wires=1, waits=True)
def test_d25_a_lost_path_is_a_line_not_a_storm(pair: Lab) -> None:
    """D25: a path lost under load for ten seconds takes at most eight lines of the log."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair)
    rnbd.round_robin(pair)
    history = disk.history()
    paths.wait_busy(disk)
    mark = pair.client.log_mark()
    pair.defer(pair.mend, 0)
    pair.cut(0)
    time.sleep(10)
    pair.mend(0)
    history.clean(90)
    lines = [text for _n, text in pair.client.kernel_log(mark) if "rtrs" in text or "rnbd" in text]
    # On a busy host rxe may lose the path once more afterwards.
    end = next(number for number, text in enumerate(lines, 1) if "opened again" in text)
    ge(8, end, f"lines at most ({' / '.join(lines[:end])})")
    disk.unmap()


# The_only_rdma_device_goes_and_comes_back shows it in each run.
@needs(wires=2, timeout=240, tier=tier.ALL)
def test_the_rdma_device_goes_and_comes_back_under_load(pair: Lab) -> None:
    """`rdma link delete` on the client and then on the server, under IO over both wires: no error, and both return."""
    with paths.two_paths(pair) as disk:
        rnbd.round_robin(pair)
        history = disk.history()
        paths.wait_busy(disk)
        mark = pair.client.log_mark()
        for machine in (pair.client, pair.server):
            machine.run("rdma link delete rxe1", 60)
            until(lambda: paths.state(pair, 1) == "disconnected", 20, "the path is down")
            paths.not_lost(pair, mark)
            paths.rest(1)
            machine.run("rdma link add rxe1 type rxe netdev eth1")
            until(lambda: paths.state(pair, 1) == "connected", 30, "the path is back")
        history.clean(120)


@needs(wires=1, timeout=240)
def test_the_only_rdma_device_goes_and_comes_back(pair: Lab) -> None:
    """The same with the only path: IO waits for the device."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair)
    history = disk.history()
    paths.wait_busy(disk)
    pair.client.run("rdma link delete rxe0", 60)
    until(lambda: disk.attribute("state") == "closed", 20, "the disk waits")
    pair.client.run("rdma link add rxe0 type rxe netdev eth0")
    until(lambda: disk.attribute("state") == "open", 30, "the disk is back")
    history.clean(120)
    disk.unmap()


@needs(wires=2, timeout=300, tier=tier.ALL)
def test_everything_at_once_under_load(pair: Lab) -> None:
    """Paths are added and removed, policies change and all files are read, under thirty-two writers."""
    chance = seed.fresh()
    with paths.two_paths(pair) as disk:
        history = disk.history(writers=32, readers=2)
        paths.wait_busy(disk)
        reader = pair.client.start_job(f"while :; do grep -r . {rnbd.SESSIONS}/s1/ /sys/block/{disk.name}/rnbd "
                                       ">/dev/null 2>&1; done", 250)
        pair.defer(reader.kill)
        end = time.monotonic() + tier.of(6, 18)
        deeds = 0
        while time.monotonic() < end or deeds < LEAST_DEEDS:
            deeds += 1
            path = paths.to_wire(pair, 1)
            deed = chance.randrange(4)
            if deed == 0:
                eq(pair.client.write(f"{path}/remove_path", "1"), "")
                eq(pair.client.write(rnbd.session_file("add_path"), f"ip:{pair.address(pair.server, 1)}"), "")
            elif deed == 1:
                eq(pair.client.write(f"{path}/disconnect", "1"), "")
                paths.reconnect(pair, path)
            elif deed == 2:
                paths.reconnect(pair, path)
            eq(pair.client.write(rnbd.session_file("mpath_policy"), chance.choice("012")), "")
        reader.kill()
        history.clean(200)
        until(lambda: paths.states(pair) == ["connected", "connected"], 20, "both paths are up")


@needs(wires=1, timeout=300)
def test_a_device_that_is_gone_when_the_session_returns(pair: Lab) -> None:
    """The server restarts without the disk: its IO waits until the server has it again, larger than before."""
    rnbd.start(pair, mib=16)
    disk = rnbd.map_disk(pair)
    pair.server.run("mods -r && rmmod brd", 60)
    until(lambda: disk.attribute("state") == "closed", 20, "the disk waits")
    rnbd.load_server(pair)
    until(lambda: paths.state(pair) == "connected", 30, "the path is back")
    paths.rest(2)
    eq(disk.attribute("state"), "closed")
    job = pair.client.start_job(f"dd if={disk.path} of=/dev/null bs=4k count=1 iflag=direct status=none")
    pair.server.run("modprobe brd rd_nr=1 rd_size=32768 max_part=0")
    until(lambda: disk.attribute("state") == "open", 30, "the disk is back")
    job.ok()
    eq(disk.sectors, 65536, "size of the disk")
    disk.unmap()


@needs(wires=1, timeout=300)
def test_modules_unload_in_every_state(pair: Lab) -> None:
    """The client's modules are unloaded while the path is up, while it is lost, and while it connects."""
    for state in ("connected", "lost", "connecting"):
        rnbd.load_server(pair)
        rnbd.load_client(pair)
        pair.server.run("[ -e /dev/ram0 ] || modprobe brd rd_nr=1 rd_size=16384 max_part=0")
        rnbd.map_disk(pair)
        if state != "connected":
            pair.silence(0)
            until(lambda: paths.state(pair) == "disconnected", 30, "the loss is noticed")
        if state == "connecting":
            pair.server.run("mods -r", 60)
            pair.mend(0)
            paths.rest(0.5)
        pair.client.run("mods -r", 60)
        paths.mend_for_a_new_session(pair)
        pair.server.run("mods -r", 90)
    pair.server.run("rmmod brd")


@needs(wires=1, timeout=900, tier=tier.ALL)
def test_reconnects_leave_nothing(pair: Lab) -> None:
    """Of four sessions side by side: after the first ten of each, the memory of both machines does not grow any more.

    A thousand in make test-long, else forty.
    """
    times = tier.of(40, 1000)
    rnbd.start(pair, rtrs="sess_queue_depth=16", count=RECONNECTING)
    sessions = [f"s{number}" for number in range(RECONNECTING)]
    for number, session in enumerate(sessions):
        rnbd.map_disk(pair, f"ram{number}", session)
    folders = [paths.to_wire(pair, session=session) for session in sessions]

    def used_kib() -> list[int]:
        kib = "awk '/^(Slab|VmallocUsed|Percpu|KernelStack):/ {s += $2} END {print s}' /proc/meminfo"
        return [int(machine.run(f"sync; echo 3 > /proc/sys/vm/drop_caches; sleep 1; {kib}"))
                for machine in (pair.client, pair.server)]

    def reconnect(times: int) -> None:
        # One that connects by itself just then, on a busy host, says EBUSY.
        again = "until echo 1 > {}/reconnect; do [ $((tries += 1)) -lt 50 ] || exit 1; sleep 0.1; done"
        jobs = [pair.client.start_job(f"for i in $(seq {times}); do tries=0; {again.format(folder)}; done", 800)
                for folder in folders]
        for job in jobs:
            job.ok()

    reconnect(10)
    before = [min(two) for two in zip(used_kib(), used_kib(), strict=True)]
    reconnect(times // RECONNECTING)
    for session in sessions:
        ge(paths.count(pair, "reconnects", 0, session=session), 10 + times // RECONNECTING, "successful reconnects")

    def has_grown_little() -> bool:
        grown = [late - early for early, late in zip(before, used_kib(), strict=True)]
        paths.figure(f"kernel memory after {times} more reconnects: client {grown[0]:+} KiB, server {grown[1]:+} KiB")
        return max(grown) <= 2048

    # What the last lives of the paths have had is given back for some seconds more.
    until(has_grown_little, 20, "the kernel's memory has grown by 2048 KiB at most")


@needs(wires=2)
def test_d14_writes_that_cannot_be_sent(pair: Lab) -> None:
    """D14: the path of a write is lost while it is being sent, repeatedly; no reference count underflows."""
    with paths.two_paths(pair) as disk:
        rnbd.round_robin(pair)
        fio = disk.fio("--rw=randwrite --bs=16k --iodepth=8 --numjobs=2 --size=16m --time_based "
                       f"--runtime={tier.of(5, 8)}")
        paths.wait_busy(disk)
        while fio.job.running:
            for wire in (0, 1):
                folder = paths.to_wire(pair, wire)
                eq(pair.client.write(f"{folder}/disconnect", "1"), "")
                paths.reconnect(pair, folder)
        fio.clean(60)


@needs(wires=1, smp=1, timeout=400, tier=tier.ALL)
def test_as_many_paths_as_the_protocol_has(pair: Lab) -> None:
    """Eight from map_device, where the C driver takes six, the others by add_path; the 129th is refused."""
    hosts = [f"10.0.0.{host}" for host in range(100, 229)]
    for deed in ("add", "del"):
        pair.server.push_bytes("".join(f"addr {deed} {host}/24 dev eth0\n" for host in hosts).encode(), f"/run/{deed}")
    pair.server.run("ip -batch /run/add", 60)
    pair.defer(pair.server.run, "ip -batch /run/del", 60)
    # rxe drops what comes for an address that its table does not have yet, and the connection manager tries again
    # after four seconds.
    last = f"0000:0000:0000:0000:0000:ffff:0a00:00{int(hosts[-1].rpartition('.')[2]):02x}"
    until(lambda: last in pair.server.run("cat /sys/class/infiniband/rxe0/ports/1/gids/* 2>/dev/null || true"), 30,
          "rxe knows all addresses")
    rnbd.start(pair, rtrs="sess_queue_depth=16 max_chunk_size=8192")
    # One heartbeat of each path in each second, the server's, keeps the emulated machines busy enough.
    line = " ".join(f"path=ip:{host}" for host in hosts[:8])
    disk = rnbd.map_disk(pair, line=f"sessname=s1 {line} device_path=ram0 access_mode=rw heartbeat_interval_ms=20000")
    eq(len(paths.names(pair)), 8)
    for host in hosts[8:128]:
        eq(pair.client.write(rnbd.session_file("add_path"), f"ip:{host}", 60), "")
    eq(paths.states(pair), ["connected"] * 128)
    eq(pair.client.write(rnbd.session_file("add_path"), f"ip:{hosts[128]}", 60), "ENOSPC")
    rnbd.round_robin(pair)
    disk.fio("--rw=randwrite --bs=4k --iodepth=16 --size=2m --verify=crc32c --verify_fatal=1", 120).clean(150)
    used = pair.client.run(f"cat {rnbd.session_file('paths')}/*/stats/rdma").splitlines()
    eq(sum(int(line.split()[2]) > 0 for line in used), 128, "paths that have written")
    disk.unmap()
    # Of so many disconnect requests at once rxe loses some: those paths end with the server's heartbeats.
    until(lambda: not pair.server.names("/sys/class/rtrs-server"), 30, "the server has ended the session")
