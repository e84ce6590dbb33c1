# SPDX-License-Identifier: GPL-2.0
"""Paths of the server: fail-over, reconnects, dead clients, limits, removal.

    scripted peer (user-space verbs) ── rxe0 ── rtrs-server + rnbd-server      one machine, 10.0.0.1 and 10.0.1.1
"""
from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import paths
import pytest

from vmlab import loaded, rnbd, tier
from vmlab.checks import TooSlow, eq, ge, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.tests.hostile import PATIENT, bring_peer
from vmlab.tests.lifecycle import LOAD, settle

SMP = 2

FILES = ("scripted_peer.py", "messages.py", "client.py", "paths.py")
OTHER = "10.0.1.1"
PARAMETERS = "/sys/module/rtrs_server/parameters"
DELAY_MS = int(paths.DELAY_SECONDS * 1000)
# Cases that are about the server's own settings; in the others the scripted peer's silence is no death.
WITH_DEFAULTS = ("a_dead_client_is_noticed", "a_second_path_between_the_same_addresses")
ALSO_WITH_N = ("d26_a_write_sent_again_waits_for_the_old_one", "all_that_was_in_flight_is_sent_again",
               "a_newer_attempt_takes_the_place_of_a_live_path")
# Of them, what repeats in each run what the host's tests show: the pure rules do not know whether keys are invalidated.
REPEATED = ("d26_a_write_sent_again_waits_for_the_old_one_with_n",
            "a_newer_attempt_takes_the_place_of_a_live_path_with_n")
# What another case shows in each run: the same with new keys.
ALSO_IN_ALL = ("all_that_was_in_flight_is_sent_again_with_n",)
WAITING = ("a_path_that_is_never_finished",)
LEAVING_LOG = r"path closed|rejected"


def _prepare(lab: Lab, rtrs: str = PATIENT) -> None:
    """A second address, a late device over ram1, and the server with these parameters."""
    vm = lab.server
    vm.run(f"ip addr add {OTHER}/24 dev eth0 2>/dev/null || true")
    rnbd.ram_disk(lab, 8, 4)
    vm.run("modprobe dm_delay; dmsetup create late --table "
           f"\"0 $(blockdev --getsz /dev/ram1) delay /dev/ram1 0 {DELAY_MS}\"; udevadm settle; ls /dev/dm-0")
    lab.defer(_remove_late, lab)
    if not vm.exists("/tmp/peer/paths.py"):
        bring_peer(vm, FILES)
    rnbd.load_server(lab, rtrs=rtrs)


def _remove_late(lab: Lab) -> None:
    mods = "" if loaded.shared_in(lab.server) else "mods -r; "
    lab.server.run(f"dmsetup resume late; {mods}dmsetup remove --retry late", 60)


def _play(lab: Lab, name: str) -> str:
    """Runs a case of paths.py; returns what it printed before its verdict."""
    done = lab.server.try_run(f"cd /tmp/peer && python3 -S -m paths {name} {lab.server_address} {OTHER}", 150)
    *words, verdict = done.out.strip().split("\n")
    if verdict.startswith("Late: "):
        raise TooSlow(verdict)
    eq((verdict, done.code), ("ok", 0), " ".join(words))
    return " ".join(words)


def _cases() -> Iterator[tuple[str, str, str, str]]:
    """The cases of peer/paths.py: its test, name, parameters of the server, title."""
    for name, function in paths.CASES.items():
        title = function.__doc__ or ""
        if name != "the_memory_limit_refuses_with_enomem":
            yield name, name, "" if name in WITH_DEFAULTS else PATIENT, title
        if name in ALSO_WITH_N:
            yield f"{name}_with_n", name, f"{PATIENT} always_invalidate=N", f"{title} (always_invalidate=N)"


def _table(waits: bool) -> list[Any]:
    """The cases of one of two tests, those with the same parameters together."""
    def of(test: str) -> str:
        return tier.LONG if test in REPEATED else tier.ALL if test in ALSO_IN_ALL else tier.CORE
    return [pytest.param(*case, id=test, marks=pytest.mark.tier(of(test)))
            for test, *case in sorted(_cases(), key=lambda case: case[2])
            if (test in WAITING) == waits]


@pytest.mark.parametrize(("name", "rtrs", "title"), _table(waits=False))
@needs(machines=1, timeout=200)
def test_case(lab: Lab, name: str, rtrs: str, title: str) -> None:
    """One case of the scripted peer."""
    del title       # for the list of tests
    _prepare(lab, rtrs)
    said = _play(lab, name)
    if said:
        print(f"# {said}", flush=True)


@pytest.mark.parametrize(("name", "rtrs", "title"), _table(waits=True))
@needs(machines=1, timeout=200, waits=True)
def test_waiting_case(lab: Lab, name: str, rtrs: str, title: str) -> None:
    """The same for a case that waits for half a minute."""
    test_case(lab, name, rtrs, title)


@needs(machines=1, own_modules=True)
def test_the_memory_limit_refuses_with_enomem(lab: Lab) -> None:
    """One session fits: the second is rejected with ENOMEM and one line, and accepted after the first has ended."""
    _prepare(lab, "heartbeat_interval_ms=60000 max_memory_mib=100 sess_queue_depth=512")
    mark = lab.server.log_mark()
    _play(lab, "the_memory_limit_refuses_with_enomem")
    lines = lab.server.log_matches(r"max_memory_mib", mark)
    ge(len(lines), 1, "lines in the kernel log that name the limit")
    eq(lab.server.write(f"{PARAMETERS}/max_memory_mib", "1"), "")
    _play_refused(lab)
    until(lambda: not lab.server.names("/sys/class/rtrs-server"), 10, "no session is left")
    time.sleep(1)       # its memory goes after its files
    # A session of 64 MiB, and 32 MiB for copies of its path.
    eq(lab.server.write(f"{PARAMETERS}/max_memory_mib", "90"), "")
    eq(lab.server.write(f"{PARAMETERS}/write_copy_max", "65536"), "")
    _play_refused(lab)
    eq(lab.server.write(f"{PARAMETERS}/write_copy_max", "0"), "")
    _play(lab, "a_stale_attempt_is_refused")
    eq(lab.server.write(f"{PARAMETERS}/max_memory_mib", "0"), "")
    _play(lab, "a_stale_attempt_is_refused")


def _play_refused(lab: Lab) -> None:
    done = lab.server.try_run("cd /tmp/peer && python3 -S -m paths a_stale_attempt_is_refused "
                              f"{lab.server_address} {OTHER}", 60)
    ok(done.code == 1 and "REJECTED" in done.out, f"a session got in over the limit: {done.out}")


@needs(machines=1, own_modules=True, memory_mib=320, timeout=240)
def test_a_session_that_memory_cannot_hold_is_refused(lab: Lab) -> None:
    """No limit, and chunks for all free memory of a small machine: ENOMEM, and nothing is left behind."""
    _prepare(lab, "heartbeat_interval_ms=60000 max_memory_mib=0 sess_queue_depth=2048 max_chunk_size=131072")
    free = "awk '/MemAvailable/ {print int($2 / 1024)}' /proc/meminfo"
    lab.server.run("echo 3 > /proc/sys/vm/drop_caches")
    before = int(lab.server.run(free))
    mark = lab.server.log_mark()
    for _ in range(3):
        _play_refused(lab)
    until(lambda: int(lab.server.run(f"echo 3 > /proc/sys/vm/drop_caches; {free}")) > before - 40, 20,
          "the memory is back")
    ok(lab.server.log_matches("what is free", mark), "the kernel log does not say why")
    eq(lab.server.names("/sys/class/rtrs-server"), [], "sessions that are left")


@needs(machines=1, own_modules=True)
def test_settings_are_checked_and_may_change(lab: Lab) -> None:
    """The parameters' files: mode, default, range, errors; a wrong value leaves the old one."""
    _prepare(lab, "")
    vm = lab.server
    total = int(vm.run("awk '/MemTotal/ {print int($2 / 1024)}' /proc/meminfo"))
    limit = int(vm.read(f"{PARAMETERS}/max_memory_mib"))
    ok(abs(limit - total / 4) < 2 + total / 100, f"max_memory_mib is {limit} of {total} MiB")
    for name, default, least, most in (("heartbeat_interval_ms", "1000", 100, 60000),
                                       ("heartbeat_missed_max", "4", 1, 100)):
        file = f"{PARAMETERS}/{name}"
        eq(vm.run(f"stat -c %a {file}").strip(), "644")
        eq(vm.read(file), default, name)
        for text, errno in ((str(least - 1), "ERANGE"), (str(most + 1), "ERANGE"), ("-1", "EINVAL"), ("x", "EINVAL"),
                            (str(least), ""), (f"{most}\n", "")):
            eq(vm.write(file, text), errno, f"{name} = {text!r}")
        eq(vm.read(file), str(most), name)
    vm.run("mods -r")
    for line in ("heartbeat_interval_ms=99", "heartbeat_missed_max=0", "max_memory_mib=-1"):
        ok(vm.try_run(f"mods {lab.modules} rtrs-server {line}").code, f"loaded with {line}")


@needs(machines=1, own_modules=True, timeout=200)
def test_unloading_in_every_state(lab: Lab) -> None:
    """The module unloads with paths in set-up, serving, deferred, closing behind a slow disk, and waiting for that."""
    _prepare(lab)
    vm = lab.server
    for invalidate in ("Y", "N"):
        job = vm.start_job(f"cd /tmp/peer && python3 -S -m paths leave_states {lab.server_address} {OTHER} "
                           "> /tmp/states 2>&1", 90)
        until(lambda: vm.exists("/tmp/states") and "ready" in vm.read("/tmp/states"), 40,
              "the paths are in their states")
        vm.run("rmmod rnbd_server", 60)
        vm.run("mods -r", 60)
        job.kill()
        job.wait(20)
        vm.run("rm /tmp/states")
        if invalidate == "Y":
            vm.run(f"mods {lab.modules} rtrs-server {PATIENT} always_invalidate=N && "
                   f"mods {lab.modules} rnbd-server dev_search_path=/dev", 120)


# -- with a real client --------------------------------------------------------------------------------------

@needs(own_modules=True, timeout=200)
def test_a_queue_depth_of_one(pair: Lab) -> None:
    """sess_queue_depth=1, one chunk for everything: map, write, read, verify, unmap (D22)."""
    for rtrs in ("sess_queue_depth=1", "sess_queue_depth=1 always_invalidate=N"):
        rnbd.start(pair, rtrs=rtrs, mib=8)
        disk = rnbd.map_disk(pair)
        disk.fio("--rw=randwrite --bs=4k --iodepth=4 --size=512k --verify=crc32c --verify_fatal=1", 150).clean()
        disk.fio("--rw=randrw --bs=64k --numjobs=2 --iodepth=2 --size=1m", 150).clean()
        disk.unmap()
        pair.server.run("mods -r", 60)
        pair.client.run("mods -r", 60)
        rnbd.remove_module(pair.server, "brd")


@needs(timeout=240)
def test_the_rdma_device_is_removed_under_io(pair: Lab) -> None:
    """`rdma link delete` on the server under load: IO ends, the path is closed, and a new link serves again."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair)
    rnbd.round_robin(pair)
    fio = disk.fio(LOAD)
    settle(disk)
    pair.defer(pair.server.try_run, "rdma link show rxe0 2>/dev/null || rdma link add rxe0 type rxe netdev eth0")
    pair.server.run("rdma link delete rxe0", 60)
    until(lambda: not pair.server.names("/sys/class/rtrs-server"), 20, "the session is gone")
    fio.job.kill()
    fio.job.wait(60)
    disk.unmap("force")
    pair.server.run("rdma link add rxe0 type rxe netdev eth0")
    disk = rnbd.map_disk(pair)
    disk.fio("--rw=randwrite --bs=4k --iodepth=4 --size=1m --verify=crc32c --verify_fatal=1", 120).clean()
    disk.unmap()


@needs(disruptive=True, timeout=200)
def test_a_killed_client_leaves_nothing(pair: Lab) -> None:
    """Power failure of a client under load: its session ends within the heartbeat limit, the disk is free."""
    rnbd.start(pair)
    disk = rnbd.map_disk(pair)
    rnbd.round_robin(pair)
    disk.fio(LOAD)
    settle(disk)
    pair.client.kill()
    began = time.monotonic()
    until(lambda: not pair.server.names("/sys/class/rtrs-server"), 15, "the session is gone")
    print(f"# gone after {time.monotonic() - began:.1f} s", flush=True)
    eq(pair.server.names("/sys/class/rnbd-server/ctl/devices"), [], "devices that are still open")
    pair.server.run("mods -r", 60)


@needs(own_modules=True, timeout=300, waits=True, tier=tier.ALL)
def test_a_c_client_comes_back_before_the_server_has_noticed(pair: Lab) -> None:
    """The server's end stops answering and does not count heartbeats; the C client's reconnect is accepted."""
    rnbd.ram_disk(pair)
    rnbd.load_server(pair, modules="ours", rtrs=PATIENT)
    rnbd.load_client(pair, modules="c")
    disk = rnbd.map_disk(pair)
    rnbd.round_robin(pair)
    path = rnbd.session_file("paths/ip:10.0.0.1@ip:10.0.0.2")
    pair.defer(pair.client.try_run, "tc qdisc del dev eth0 root 2>/dev/null")
    # Nothing that the client says comes through: the server's path stays as it is.
    pair.client.run("modprobe sch_netem; tc qdisc add dev eth0 root netem loss 100%")
    eq(pair.client.write(f"{path}/disconnect", "1", 90), "")
    eq(len(pair.server.names("/sys/class/rtrs-server/s1/paths")), 1, "paths on the server")
    pair.client.run("tc qdisc del dev eth0 root")
    mark, began = pair.server.log_mark(), time.monotonic()
    eq(pair.client.write(f"{path}/reconnect", "1", 90), "")
    until(lambda: pair.client.read(f"{path}/state") == "connected", 30, "the path is back")
    print(f"# back after {time.monotonic() - began:.1f} s: {pair.server.log_matches(LEAVING_LOG, mark)}", flush=True)
    until(lambda: disk.attribute("state") == "open", 20, "the disk is open again")
    disk.fio("--rw=randwrite --bs=4k --iodepth=4 --size=1m --verify=crc32c --verify_fatal=1", 120).clean()
    disk.unmap()


# interop.* has a C client in each run, and the scripted one of this file has paths that come and go.
@needs(wires=2, own_modules=True, timed=True, timeout=300, tier=tier.ALL)
def test_paths_of_a_c_client_come_and_go_under_load(pair: Lab) -> None:
    """Two paths, closed in turn from the server's sysfs under a load whose history is clean; both are used."""
    rnbd.ram_disk(pair)
    rnbd.load_server(pair, modules="ours")
    rnbd.load_client(pair, modules="c")
    disk = rnbd.map_disk(pair, line=rnbd.request(pair, wires=2))
    rnbd.round_robin(pair)
    base = "/sys/class/rtrs-server/s1/paths"
    for wire in range(2):
        eq(pair.server.write(f"{base}/ip:10.0.{wire}.1@ip:10.0.{wire}.2/stats/rdma", "1"), "")
    # The C client fails the requests that it is about to send on a path that goes.
    history = disk.history(200, errors="allowed")
    settle(disk)
    counts = [pair.server.read(f"{base}/ip:10.0.{wire}.1@ip:10.0.{wire}.2/stats/rdma").split() for wire in range(2)]
    ok(all(len(row) == 4 and int(row[2]) > 0 for row in counts), f"stats of two paths under load: {counts}")
    for wire in (1, 0):
        other = f"{base}/ip:10.0.{wire}.1@ip:10.0.{wire}.2"
        eq(pair.server.write(f"{other}/disconnect", "1", 60), "")
        until(lambda where=other: not pair.server.exists(where), 30, "the path is gone")
        # On a busy host C's attempt may fail; it tries again by itself.
        errno = pair.client.write(rnbd.session_file(f"paths/ip:10.0.{wire}.1@ip:10.0.{wire}.2/reconnect"), "1", 90)
        ok(errno in ("", "ENOTCONN"), f"reconnect: {errno}")
        until(lambda where=other: pair.server.exists(where), 60, "the path is back")
    history.clean()
    eq(pair.server.write("/sys/class/rnbd-server/ctl/devices/ram0/sessions/s1/force_close", "1"), "")
    disk.unmap("force")
