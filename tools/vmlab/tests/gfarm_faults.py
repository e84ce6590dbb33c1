# SPDX-License-Identifier: GPL-2.0
"""Servers of Gfarm that die, freeze and come back while the kernel reads from them.

No wrong byte is read, and what cannot be read fails within the time that the mount's options give.
"""
from __future__ import annotations

import time

from vmlab import gfarm_mount
from vmlab.checks import eq, in_time, ok, until
from vmlab.gfarm import GFSDS
from vmlab.gfarm_mount import SHORT, mounted, put_random, serving
from vmlab.lab import Lab
from vmlab.needs import needs

BYTES, START_BYTES = 6 << 20, 128 << 10
# connect, receive and reconnect of SHORT, and what an emulated machine takes beside.
GIVES_UP_SECONDS = 30.0


@needs(machines=1, timeout=240)
def test_another_replica_answers_for_a_gfsd_that_is_killed(vm: Lab) -> None:
    """In the middle of a file, twice: each of the two gfsds has its turn."""
    gfarm = gfarm_mount.start(vm)
    wanted = put_random(gfarm, "two", BYTES, copies=2)
    with mounted(gfarm, SHORT) as mount:
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
    with mounted(gfarm, SHORT) as mount:
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
    """Open files go on (error 98, the descriptors are opened again), and so do names; gfmd has a database."""
    gfarm = gfarm_mount.start(vm, persistent=True)
    wanted = put_random(gfarm, "load", BYTES, copies=2)
    with mounted(gfarm, "reconnect_timeout=60,actimeo=0") as mount:
        reader = mount.reader("load", START_BYTES)
        until(lambda: reader.reads, 20, "it reads")
        gfarm.kill(vm, "meta")
        job = vm.server.start_job(f"stat -c %s {mount.at}/load", 100)
        gfarm.bring_up("meta")
        reader.go_on()
        eq(reader.digest(), wanted, "the open file")
        eq(job.ok().strip(), str(BYTES), "a name that was asked for meanwhile")
        mount.forget()
        eq(mount.sha256("load"), wanted, "opened again")
        ok(mount.stats()["gfmd_connects"] >= 2, "gfmd was not connected again")


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


@needs(machines=1, timeout=240)
def test_a_blocked_reader_can_be_killed(vm: Lab) -> None:
    """Readers and those who ask for names, of frozen servers: SIGKILL ends them at once."""
    gfarm = gfarm_mount.start(vm)
    put_random(gfarm, "blocked", BYTES, "fs2")
    with mounted(gfarm, "actimeo=0") as mount:
        gfarm.freeze(vm, "fs2")
        job = vm.server.start_job(f"exec cat {mount.at}/blocked > /dev/null", 120)
        time.sleep(2)
        ok(job.running, "a frozen gfsd has answered")
        gfarm.freeze(vm, "meta")
        other = vm.server.start_job(f"exec ls {mount.at}/blocked", 120)
        time.sleep(2)
        ok(other.running, "a frozen gfmd has answered")
        began = time.monotonic()
        job.kill()
        other.kill()
        ok(job.wait(20).code and other.wait(20).code, "they were not killed")
        in_time((took := time.monotonic() - began) < 10, f"SIGKILL took {took:.1f} s")
        gfarm.thaw("meta", "fs2")


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
