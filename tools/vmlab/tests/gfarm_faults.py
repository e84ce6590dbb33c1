# SPDX-License-Identifier: GPL-2.0
"""Servers of Gfarm that die, freeze and come back while the kernel reads from them.

No wrong byte is read, and what cannot be read fails within the time that the mount's options give.
"""
from __future__ import annotations

import json
import time
from collections.abc import Callable

from vmlab import gfarm_mount, tier
from vmlab.checks import eq, ge, in_time, ok, until
from vmlab.gfarm import ADDRESSES, GFSD_PORT, GFSDS, Gfarm
from vmlab.gfarm_mount import PATIENT, SHORT, mounted, put_random, serving
from vmlab.lab import Lab
from vmlab.needs import needs

SMP = 2

BYTES, START_BYTES = 6 << 20, 128 << 10
# More than the reads of a file that may wait (net/waiting.rs), of 1 MiB each.
AHEAD_BYTES = 40 << 20
# connect, receive and reconnect of SHORT, and what an emulated machine takes beside.
GIVES_UP_SECONDS = 30.0
# Has a file open, and asks for its size when it is told to.
IDLE = """
import errno, os, sys, time
file = os.open(sys.argv[1], os.O_RDONLY)
os.read(file, 100)
open("/run/looked", "w").close()
while not os.path.exists("/run/go"):
    time.sleep(0.1)
try:
    print(os.fstat(file).st_size)
except OSError as error:
    print(errno.errorcode[error.errno])
"""
# Reads files that stay open, and opens another one when it is told to; prints what that has, or its error, and when.
LATE = """
import errno, os, sys, time
at, count = sys.argv[1], int(sys.argv[2])
files = [os.open(f"{at}/idle{number}", os.O_RDONLY) for number in range(count)]
for file in files:
    os.read(file, 100)
open("/run/waits", "w").close()
while not os.path.exists("/run/go"):
    time.sleep(0.02)
began = time.monotonic()
try:
    said = os.read(os.open(f"{at}/late", os.O_RDONLY), 100).decode()
except OSError as error:
    said = errno.errorcode[error.errno]
print(said, time.monotonic() - began)
"""
# Stops the processes that serve clients of the gfsd at an address, and prints them.
STOP = """
import os, signal, sys
rows = [line.split() for line in open("/proc/net/tcp").readlines()[1:]]
served = {f"socket:[{row[9]}]" for row in rows if row[1] == sys.argv[1] and row[3] == "01"}
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        links = {os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")}
    except OSError:
        continue
    if links & served:
        os.kill(int(pid), signal.SIGSTOP)
        print(pid)
"""
# Has files open, and stops the processes of their gfsd, again and again, so that gfmd keeps what it has closed. Then it
# reads them once more, at a time at which gfmd has no room for them; prints how often, and what it has read then.
KEPT = """
import errno, os, subprocess, sys, time
at, server, count, rounds, seconds = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
began, stopped = time.monotonic(), []
for turn in range(rounds + 1):
    if turn == rounds:
        time.sleep(max(0.0, began + seconds - time.monotonic()))
    files, said = [], ""
    try:
        for number in range(count):
            files.append(os.open(f"{at}/kept{number}", os.O_RDONLY))
            os.posix_fadvise(files[-1], 0, 0, os.POSIX_FADV_DONTNEED)
            said += os.read(files[-1], 100).decode()
    except OSError as error:
        said = errno.errorcode[error.errno]
    if turn < rounds:
        stop = [sys.executable, "-I", "-S", "/run/stop.py", server]
        stopped += subprocess.run(stop, capture_output=True, text=True, check=True).stdout.split()
    for file in files:
        os.close(file)
    print(turn, said, flush=True)
print(*stopped)
"""
KEPT_FILES, KEPT_ROUNDS, KEPT_MAX = 12, 3, 40
# FULL_MS_MIN (gfarm_ra/proto/gfmd.rs), and more.
FULL_SECONDS = 32
# Far below receive_timeout=: from SIGKILL to the end of a task, and an unmount.
KILLED_SECONDS = 1.0


# Another_replica_answers_for_a_gfsd_that_is_frozen shows in each run that the next one is asked.
@needs(machines=1, timeout=240, tier=tier.ALL)
def test_another_replica_answers_for_a_gfsd_that_is_killed(vm: Lab) -> None:
    """A gfsd dies in the middle of a file, twice: each of the two has its turn."""
    gfarm = gfarm_mount.start(vm)
    wanted = put_random(gfarm, "two", BYTES, copies=2)
    with mounted(gfarm, PATIENT) as mount:
        for _turn in range(2):
            reader = mount.reader("two", START_BYTES)
            until(lambda reader=reader: reader.reads, 20, "it reads")
            victim = serving(vm.server)[0]
            gfarm.kill(vm, victim)
            reader.go_on()
            eq(reader.digest(), wanted, f"after {victim} was killed")
            gfarm.bring_up(victim)
            mount.forget()
        ok(mount.stats()["gfsd_retries"] > 0, "nothing was tried again")


@needs(machines=1, timeout=240)
def test_another_replica_answers_for_a_gfsd_that_is_frozen(vm: Lab) -> None:
    """After receive_timeout=; the bytes are right."""
    gfarm = gfarm_mount.start(vm)
    wanted = put_random(gfarm, "two", BYTES, copies=2)
    with mounted(gfarm, PATIENT) as mount:
        reader = mount.reader("two", START_BYTES)
        until(lambda: reader.reads, 20, "it reads")
        victim = serving(vm.server)[0]
        gfarm.freeze(vm, victim)
        reader.go_on()
        eq(reader.digest(), wanted, f"after {victim} was frozen")
        gfarm.thaw(victim)


@needs(machines=1, timeout=240)
def test_without_any_gfsd_a_read_fails_in_time_or_waits(vm: Lab) -> None:
    """EIO after reconnect_timeout=, with a line in the log; with a long one the read goes on when they are back."""
    gfarm = gfarm_mount.start(vm)
    wanted = put_random(gfarm, "none", BYTES, copies=2)
    with mounted(gfarm, SHORT) as mount:
        gfarm.kill(vm, *GFSDS)
        mark, began = vm.server.log_mark(), time.monotonic()
        mount.fails("cat none > /dev/null", "Input/output error", 90)
        in_time((took := time.monotonic() - began) < GIVES_UP_SECONDS, f"EIO after {took:.0f} s")
        ok(vm.server.log_matches("gfarm", mark), "no line in the log")
        eq(vm.server.run(f"stat -c %s {mount.at}/none").strip(), str(BYTES), "gfmd still answers")
    with mounted(gfarm, "reconnect_timeout=60,connect_timeout=3") as mount:
        job = vm.server.start_job(f"sha256sum {mount.at}/none", 120)
        time.sleep(4)
        ok(job.running, f"it did not wait: {job.wait(1).out if not job.running else ''}")
        for name in GFSDS:
            gfarm.bring_up(name)
        eq(job.ok().split()[0], wanted, "when the gfsds are back")


@needs(machines=1, timeout=300, own_modules=True)
def test_gfmd_is_restarted_under_load(vm: Lab) -> None:
    """Open files go on (error 98, the descriptors are opened again), and so do names; gfmd has a database. A file that
    is written on after that is not what it was for who had it open and did nothing."""
    gfarm = gfarm_mount.start(vm, persistent=True)
    wanted = put_random(gfarm, "load", BYTES, copies=2)
    gfarm.put(b"first\n", "/idle")
    gfarm.machine.push_bytes(IDLE.encode(), "/run/idle.py")
    gfarm.run("rm -f /run/looked /run/go")
    with mounted(gfarm, "reconnect_timeout=60,actimeo=0") as mount:
        reader = mount.reader("load", START_BYTES)
        idle = vm.server.start_job(f"exec python3 -I -S /run/idle.py {mount.at}/idle", 200)
        until(lambda: reader.reads and vm.server.exists("/run/looked"), 20, "both read")
        gfarm.kill(vm, "meta")
        job = vm.server.start_job(f"stat -c %s {mount.at}/load", 100)
        gfarm.bring_up("meta")
        reader.go_on()
        eq(reader.digest(), wanted, "the open file")
        eq(job.ok().strip(), str(BYTES), "a name that was asked for meanwhile")
        mount.forget()
        eq(mount.sha256("load"), wanted, "opened again")
        ok(mount.stats()["gfmd_connects"] >= 2, "gfmd was not connected again")
        with gfarm.fuse() as folder:
            gfarm.run(f"echo second >> {folder}/idle; touch /run/go")
        ok(idle.ok(60).strip() in ("ESTALE", "13"), "who has it open is told the old size")


@needs(machines=1, timeout=240)
def test_a_cut_network_is_a_pause(vm: Lab) -> None:
    """Reads and names wait while every packet is lost, and go on afterwards."""
    gfarm = gfarm_mount.start(vm)
    wanted = put_random(gfarm, "cut", BYTES)
    with mounted(gfarm, "actimeo=0") as mount:
        reader = mount.reader("cut", START_BYTES)
        until(lambda: reader.reads, 20, "it reads")
        gfarm.cut(vm)
        reader.go_on()
        job = vm.server.start_job(f"stat -c %s {mount.at}/cut", 100)
        time.sleep(3)
        ok(reader.job.running and job.running, "something was answered")
        gfarm.mend()
        eq(reader.digest(90), wanted, "after the cut")
        eq(job.ok().strip(), str(BYTES), "the name")


@needs(machines=1, timeout=300, own_modules=True)
def test_whoever_waits_for_a_server_can_be_killed(vm: Lab) -> None:
    """Each way to wait for a server, with servers that are frozen, cut off and dead: SIGKILL ends it within a second,
    and then nothing that it has begun to read holds up a task that takes inodes back, or an unmount. gfmd has a
    database, so that it comes back."""
    gfarm = gfarm_mount.start(vm, persistent=True)
    for number in range(3):
        put_random(gfarm, f"blocked{number}", BYTES if number else AHEAD_BYTES, "fs2")
    states: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
        "frozen": (lambda: gfarm.freeze(vm, "fs2", "meta"), lambda: gfarm.thaw("fs2", "meta")),
        "cut off": (lambda: gfarm.cut(vm), gfarm.mend),
        "dead": (lambda: gfarm.kill(vm, "fs2", "meta"), lambda: None),
    }
    for state, (begin, end) in states.items():
        killed_in_time(gfarm, state, begin)
        end()


def killed_in_time(gfarm: Gfarm, state: str, begin: Callable[[], None], *ways: str) -> None:
    """All that waits for servers ends within a second of SIGKILL, once something has happened to them."""
    machine, program = gfarm.machine, gfarm.push("gfarm_killed.py")
    machine.run("rm -f /run/waits /run/go")
    with mounted(gfarm, f"actimeo=0,reconnect_timeout=60,readahead={AHEAD_BYTES >> 12}") as mount:
        job = machine.start_job(f"exec python3 -I -S {program} {mount.at} /run/waits /run/go {' '.join(ways)}", 400)
        until(lambda: machine.exists("/run/waits"), 20, "the files are open")
        begin()
        machine.push_bytes(b"", "/run/go")
        took: dict[str, float | None] = json.loads(job.ok(350))
        print(f"# {state}: {took}", flush=True)
        eq([way for way, seconds in took.items() if seconds is None], [], f"{state}: has not waited")
        late = {way: seconds for way, seconds in took.items() if seconds and seconds > KILLED_SECONDS}
        in_time(not late, f"{state}: it took {late} s")


@needs(machines=1, timeout=300)
def test_who_drops_the_pages_of_a_file_keeps_no_one_waiting(vm: Lab) -> None:
    """A read waits for a process of a gfsd that is stopped, and the file is rewritten by another one: the task that is
    told so drops its pages. Each can be killed meanwhile, and so can who meets the file by a mapping."""
    gfarm = gfarm_mount.start(vm)
    put_random(gfarm, "blocked0", BYTES, "fs2")
    vm.server.push_bytes(STOP.encode(), "/run/stop.py")
    server, stopped = gfarm_mount.in_hex(ADDRESSES["fs2"], GFSD_PORT), list[str]()
    with gfarm.fuse() as folder:

        def rewrite() -> None:
            stopped.extend(gfarm.run(f"python3 -I -S /run/stop.py {server}").split())
            gfarm.run(f"head -c 100000 /dev/urandom > {folder}/blocked0")

        killed_in_time(gfarm, "rewritten", rewrite, "read", "stat", "fault")
        ge(len(stopped), 1, "processes that were stopped")
        gfarm.run(f"kill -CONT {' '.join(stopped)}")


@needs(machines=1, timeout=300)
def test_a_listing_does_not_wait_for_the_gfsd_of_a_file(vm: Lab) -> None:
    """A read waits for a process of a gfsd that is stopped, and the file is rewritten: the directory is listed."""
    gfarm = gfarm_mount.start(vm)
    put_random(gfarm, "blocked0", BYTES, "fs2")
    vm.server.push_bytes(STOP.encode(), "/run/stop.py")
    server = gfarm_mount.in_hex(ADDRESSES["fs2"], GFSD_PORT)
    with gfarm.fuse() as folder, mounted(gfarm, "actimeo=0,reconnect_timeout=60,receive_timeout=60") as mount:
        gfarm.run("rm -f /run/waits /run/go")
        waits = "exec 3< blocked0; head -c 1 <&3; touch /run/waits; until [ -e /run/go ]; do sleep 0.1; done"
        job = vm.server.start_job(f"cd {mount.at} && {waits}; tail -c 1 <&3 | wc -c", 200)
        until(lambda: gfarm.machine.exists("/run/waits"), 20, "the file is open")
        stopped = gfarm.run(f"python3 -I -S /run/stop.py {server}").split()
        # Who begins to read behind the change has another process of the gfsd, and waits for none.
        gfarm.run("touch /run/go; sleep 2")
        gfarm.run(f"head -c 100000 /dev/urandom > {folder}/blocked0; sleep 2")
        ok(job.running, "the reader does not wait")
        ok("blocked0" in gfarm.run(f"timeout -s KILL 20 ls {mount.at}").split(), "the file is not in a listing")
        gfarm.run(f"kill -CONT {' '.join(stopped)}")
        job.wait(200)


@needs(machines=1, timeout=300)
def test_an_open_does_not_wait_for_the_gfsds_of_other_files(vm: Lab) -> None:
    """All descriptors are in use. The files that were read before the others are of a gfsd that is frozen: one of
    another gfsd gives its own to a file that is opened. If there is none, the open fails after a second."""
    gfarm = gfarm_mount.start(vm)
    *frozen, last = (f"/idle{number}" for number in range(8))
    for name in (*frozen, last, "/late"):
        gfarm.put(b"late", name, "fs2" if name in frozen else "fs1")
    vm.server.push_bytes(LATE.encode(), "/run/late.py")
    for count, wanted, least, most in ((8, "late", 0.0, KILLED_SECONDS), (7, "ENFILE", 0.9, 1.0 + KILLED_SECONDS)):
        vm.server.run("rm -f /run/waits /run/go")
        with mounted(gfarm, f"open_files={count}") as mount:
            job = vm.server.start_job(f"exec python3 -I -S /run/late.py {mount.at} {count}", 200)
            until(lambda: vm.server.exists("/run/waits"), 20, "the files are open")
            gfarm.freeze(vm, "fs2")
            vm.server.push_bytes(b"", "/run/go")
            said, seconds = job.ok(150).split()
            print(f"# {count} descriptors: {said} after {seconds} s", flush=True)
            eq(said, wanted, f"with {count} descriptors")
            in_time(least <= float(seconds) <= most, f"with {count} descriptors: {said} after {seconds} s")
        gfarm.thaw("fs2")


@needs(machines=1, timeout=240)
def test_a_file_that_is_removed_or_truncated_while_it_is_read(vm: Lab) -> None:
    """A reader gets the old bytes, an end, or an error, and never other bytes; the name is gone at the next look."""
    gfarm = gfarm_mount.start(vm)
    wanted = put_random(gfarm, "going", BYTES)
    with gfarm.fuse() as folder, mounted(gfarm, SHORT) as mount:
        reader = mount.reader("going", START_BYTES)
        until(lambda: reader.reads, 20, "it reads")
        vm.server.run(f"rm {folder}/going")
        reader.go_on()
        said = reader.job.wait(60)
        ok(said.code or said.out.strip() == wanted, f"other bytes: {said.out}")
        until(lambda: vm.server.try_run(f"cat {mount.at}/going").code == 1, 20, "the name is gone")
        put_random(gfarm, "shrinks", BYTES)
        reader = mount.reader("shrinks", START_BYTES)
        until(lambda: reader.reads, 20, "it reads")
        vm.server.run(f"truncate -s 1000 {folder}/shrinks")
        reader.go_on()
        ok(reader.job.wait(60).code in (0, 1), "the reader ends")
        until(lambda: vm.server.run(f"wc -c < {mount.at}/shrinks").strip() == "1000", 20, "the size")


@needs(machines=1, timeout=300, own_modules=True, waits=True, tier=tier.ALL)
def test_what_gfmd_keeps_open_for_frozen_gfsds_stops_no_one(vm: Lab) -> None:
    """gfmd keeps the descriptors of closed files that a process of a gfsd has open which is stopped. When it has no
    room left, another process of gfmd has, and the files are read."""
    gfarm = gfarm_mount.start(vm, persistent=True)
    for number in range(KEPT_FILES):
        gfarm.put(f"{number};".encode(), f"/kept{number}", "fs2")
    wanted = "".join(f"{number};" for number in range(KEPT_FILES))
    # gfmd writes its journal a moment after the program has ended: the last file was empty once.
    vm.server.run("sync; sleep 3")
    gfarm.kill(vm, "meta")
    gfarm.run(f"echo max_open_files {KEPT_MAX} >> /etc/gfmd.conf")
    gfarm.bring_up("meta")
    vm.server.push_bytes(STOP.encode(), "/run/stop.py")
    vm.server.push_bytes(KEPT.encode(), "/run/kept.py")
    server = gfarm_mount.in_hex(ADDRESSES["fs2"], GFSD_PORT)
    mark = vm.server.log_mark()
    with mounted(gfarm, "connect_timeout=5,receive_timeout=3,reconnect_timeout=10") as mount:
        program = f"exec python3 -I -S /run/kept.py {mount.at} {server} {KEPT_FILES} {KEPT_ROUNDS} {FULL_SECONDS}"
        *said, stopped = vm.server.start_job(program, 200).ok().splitlines()
        print(f"# {said}", flush=True)
        eq(said, [f"{turn} {wanted}" for turn in range(KEPT_ROUNDS + 1)], "what was read")
        ok(vm.server.log_matches("its process is full", mark), "gfmd had room for all")
    gfarm.run(f"kill -CONT {stopped}")
