# SPDX-License-Identifier: GPL-2.0
"""Stores of rioc whose objects have files: what was flushed comes back, memory is smaller than the objects, files fail.

    scripted clients (user-space verbs) ── rxe0 ── rtrs-server + rioc-server ── files      one machine
"""
from __future__ import annotations

import pytest

from vmlab import ec, tier
from vmlab.checks import eq, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.tests import hostile
from vmlab.tests.rioc import CONTROL, FILES, load, refuses, stats
from vmlab.tests.rioc import deed as other_deed

FOLDER = "/mnt/objects"
STORE = f"name=bb ram_mib=1 backing={FOLDER}"
DISK_MIB = 24
NAMES = 4000
# A line that is wrong, its errno, and what its line in the log says.
WRONG = ((f"name=cc ram_mib=1 backing={FOLDER}", "EBUSY", "if a store has it"),
         ("name=cc ram_mib=1 backing=/mnt/nothing", "ENOENT", "cannot be opened"),
         ("name=cc ram_mib=1 backing=/etc/passwd", "ENOTDIR", "cannot be opened"),
         ("name=cc ram_mib=1 backing=/proc", "ENOENT", "cannot be written"),
         ("name=cc ram_mib=1 backing=/mnt/odd", "EINVAL", f"{1:032x} is no object"),
         ("name=cc ram_mib=1 backing=/mnt/long", "EFBIG", f"{2:032x} is no object"),
         ("name=cc ram_mib=1 backing=/mnt/taken", "EEXIST", "move away a file .rioc"),
         ("name=cc ram_mib=1 backing=mnt", "EINVAL", "is no path"),
         (f"name=cc ram_mib=1 backing={FOLDER} evict=objects", "EINVAL", "leave out one"),
         (f"name=cc log=/dev/ram0 backing={FOLDER}", "ENOTSUP", "beside log= is not built"))


def deed(name: str, lab: Lab) -> str:
    """The command of a deed."""
    return f"cd /tmp/peer && python3 -S rioc_backing_deeds.py {name} {lab.server_address} {FOLDER}"


def does(lab: Lab, name: str) -> None:
    """Does a deed."""
    eq(lab.server.run(deed(name, lab), 200).splitlines()[-1], "ok", name)


def begin(lab: Lab, mount: str) -> None:
    """A folder, mounted with a command, and the server with its store."""
    lab.server.run(f"mkdir -p {FOLDER} && {mount}")
    lab.defer(lab.server.try_run, f"umount {FOLDER}; rmmod ext4 2>/dev/null")
    lab.defer(lab.server.try_run, "mods -r")
    load(lab, STORE)
    hostile.bring_peer(lab.server, (*FILES, "rioc_backing_deeds.py"))


def disk(lab: Lab) -> str:
    """A disk that a test may let fail; the command that mounts it. A journal would end at the first error."""
    ec.disks(lab, DISK_MIB, 1)
    return (f"modprobe ext4 && mkfs.ext4 -q -O ^has_journal -E lazy_itable_init=0 {ec.path(0)} && "
            f"mount -o errors=continue {ec.path(0)} {FOLDER}")


def state(lab: Lab) -> str:
    """The state of the store."""
    return lab.server.read(f"{CONTROL}/stores/bb/state")


@needs(machines=1, own_modules=True, timeout=240)
def test_what_was_flushed_comes_back(vm: Lab) -> None:
    """Objects of twice the memory are there after the end of a store and of the module; wrong lines are told."""
    begin(vm, disk(vm))
    vm.server.run(f"touch '{FOLDER}/of somebody else'")
    vm.server.run(f"mkdir -p /mnt/odd/{1:032x} /mnt/long /mnt/taken && touch /mnt/taken/.rioc && "
                  f"truncate -s 17T /mnt/long/{2:032x}")
    for line, errno, says in WRONG:
        refuses(vm, line, errno, says)
    does(vm, "objects_are_left")
    found = stats(vm)
    eq(found["dirty"], 0, "all was flushed")
    # Blocks that objects share are clean in each of them.
    ok(found["clean"] and found["blocks"] <= found["blocks_max"] < found["objects"] * 8, f"more than memory: {found}")
    ok(0 < found["hits"] < found["reads"], f"reads of files: {found}")
    ok(state(vm).startswith("files"), state(vm))
    for command in (f"echo bb > {CONTROL}/del_store", "rmmod rioc_server; mods ours rioc-server"):
        vm.server.run(command, 60)
        eq(vm.server.write(f"{CONTROL}/add_store", STORE), "")
        does(vm, "objects_are_found")
    vm.server.run("rmmod rioc_server", 60)
    # A file of a task that is no process is closed a moment later.
    until(lambda: vm.server.try_run(f"umount {FOLDER}").code == 0, 20, "nothing has the folder")


@pytest.mark.tier(tier.ALL)
@needs(machines=1, own_modules=True, timeout=240)
def test_a_small_memory_gives_the_bytes_of_arrays(vm: Lab) -> None:
    """What the scripted client does to any store, with files."""
    begin(vm, f"mount -t tmpfs -o size=40m none {FOLDER}")
    for name in ("each_operation", "bytes_are_those_of_arrays", "a_copy_of_an_operation_is_answered_with_the_same"):
        eq(vm.server.run(other_deed(name, vm), 200).splitlines()[-1], "ok", name)
    until(lambda: vm.server.run(f"ls {FOLDER}").split() == [], 20, "the files of deleted objects")
    eq(vm.server.run(other_deed("bytes_are_those_of_arrays", vm), 200).splitlines()[-1], "ok")


@needs(machines=1, own_modules=True, timeout=240)
def test_a_disk_that_fails_loses_nothing(vm: Lab) -> None:
    """A flush is EIO and says so in the log and in the state; the same bytes are written when the disk works."""
    begin(vm, disk(vm))
    does(vm, "a_file_is_there")
    mark = vm.server.log_mark()
    ec.fails(vm, 0, DISK_MIB)
    does(vm, "a_flush_fails")
    ok(state(vm).startswith("failing: its files give error 5"), state(vm))
    lines = vm.server.log_matches("rioc_server", mark)
    eq(len([line for line in lines if "a file cannot be written" in line]), 1, f"{lines}")
    ec.works(vm, 0, DISK_MIB)
    does(vm, "a_flush_goes_on")
    ok(state(vm).startswith("files"), state(vm))
    eq(vm.server.write(f"{CONTROL}/del_store", "bb"), "")
    eq(vm.server.log_matches("are lost", mark), [])


@needs(machines=1, own_modules=True, timeout=240)
def test_a_file_system_that_hangs_holds_up_nobody(vm: Lab) -> None:
    """Its store is deleted: what waits for files is ENODEV, who deletes it can be killed, others come and go, and the
    module says that it is in use. When it goes on all is written."""
    begin(vm, disk(vm))
    does(vm, "a_file_is_there")
    vm.server.run("dmsetup suspend --noflush --nolockfs m0")
    try:
        flush = vm.server.start_job(f"{deed('a_flush_hangs', vm)} 2>&1", 60)
        until(lambda: stats(vm)["writes"] > 1, 20, "it has written")
        vm.server.run("sleep 2")
        delete = vm.server.start_job(f"echo bb > {CONTROL}/del_store & echo $! > /run/pid; wait", 60)
        eq(flush.ok(20).splitlines()[-1], "ok")
        vm.server.run(f"timeout -s KILL 10 sh -c 'echo name=dd ram_mib=1 > {CONTROL}/add_store; "
                      f"echo dd > {CONTROL}/del_store'", 20)
        for _ in range(2):
            said = vm.server.run("timeout -s KILL 5 rmmod rioc_server 2>&1; echo $?", 20)
            ok("in use" in said or "temporarily unavailable" in said, f"rmmod: {said}")
            vm.server.run("kill -9 $(cat /run/pid); true")
            until(lambda: not delete.running, 5, "who deletes it is killed")
        eq(vm.server.write(f"{CONTROL}/add_store", STORE), "EBUSY")
    finally:
        vm.server.run("dmsetup resume m0")
    until(lambda: vm.server.write(f"{CONTROL}/add_store", STORE) == "", 20, "the file system goes on")
    does(vm, "a_flush_goes_on")
    vm.server.run("rmmod rioc_server", 60)


@pytest.mark.tier(tier.ALL)
@needs(machines=1, own_modules=True, timeout=240)
def test_files_that_are_full_lose_nothing(vm: Lab) -> None:
    """Memory and files are full: ENOSPC, all is read, what is deleted makes room; of very many files few are open."""
    begin(vm, f"mount -t tmpfs -o size=1m none {FOLDER}")
    does(vm, "files_are_full")
    eq(vm.server.write(f"{CONTROL}/del_store", "bb"), "")
    vm.server.run(f"cd {FOLDER} && rm -f * && seq {NAMES} | xargs printf '%032x\\n' | xargs touch", 60)
    most = vm.server.run(f"""
        read before rest < /proc/sys/fs/file-nr; most=0
        echo "name=bb ram_mib=8 backing={FOLDER}" > {CONTROL}/add_store &
        while kill -0 $! 2>/dev/null; do
            read now rest < /proc/sys/fs/file-nr
            test $((now - before)) -gt $most && most=$((now - before))
        done
        wait $! && echo $most""", 60)
    ok(int(most.split()[-1]) < NAMES // 4, f"open files: {most}")
    eq(stats(vm)["objects"], NAMES)
