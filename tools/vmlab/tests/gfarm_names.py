# SPDX-License-Identifier: GPL-2.0
"""Names of a real Gfarm that change elsewhere while the kernel knows them, and how often gfmd is asked."""
from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vmlab import gfarm_mount, tier
from vmlab.checks import eq, ge, ok, until
from vmlab.gfarm_mount import Mount, mounted, put_random
from vmlab.lab import Lab
from vmlab.machine import Machine
from vmlab.needs import needs
from vmlab.paths import figure
from vmlab.trace import FOLDER, MOUNT

# What is known of a name holds for actimeo=, 1 s by default; files are looked at by each open.
KNOWN = "sleep 1.1"
FILES = tier.of(100, 300)
# Reads a file that is removed meanwhile: by its descriptor as before, by its name no more.
HELD = """
import os, sys
path, other = sys.argv[1:]
held = os.open(path, os.O_RDONLY)
first = os.read(held, 4)
os.unlink(other)
print(first + os.pread(held, 100, 4) == b"hard link\\n", os.fstat(held).st_size)
try:
    open(path)
except FileNotFoundError:
    print("gone")
"""
# Looks a name up, and opens what it has found when it is told to.
OPENED = """
import errno, os, sys, time
name = os.open(sys.argv[1], os.O_PATH)
open("/run/looked", "w").close()
while not os.path.exists("/run/go"):
    time.sleep(0.1)
try:
    print(os.read(os.open(f"/proc/self/fd/{name}", os.O_RDONLY), 100))
except OSError as error:
    print(errno.errorcode[error.errno])
"""

# Reads a file, and once more from its file server when it is told to.
KEPT = """
import errno, os, sys, time
file = os.open(sys.argv[1], os.O_RDONLY)
os.read(file, 100)
open("/run/looked", "w").close()
while not os.path.exists("/run/go"):
    time.sleep(0.1)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
try:
    print(os.pread(file, 100, 0))
except OSError as error:
    print(errno.errorcode[error.errno])
"""

# Asks gfmd when it is told to, and at once again for the same: prints how many questions that were.
LATE = """
import os, sys, time
folder, stats, what = sys.argv[1:]
held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
entries = os.scandir(held)      # reads nothing yet
def look():
    os.close(os.open("file", os.O_PATH, dir_fd=held))
def attributes():
    os.fstat(held)
first, again = {"name": (look, look), "listing": (lambda: list(entries), look),
                "attributes": (attributes, attributes)}[what]
def asked():
    return int(dict(line.split() for line in open(stats))["gfmd_requests"])
time.sleep(2.5)     # longer than actimeo=
open("/run/looked", "w").close()
while not os.path.exists("/run/go"):
    time.sleep(0.1)
first()
before = asked()
again()
print(asked() - before)
"""

# A program that begins: it imports modules.
START = """
import importlib, sys
sys.path.insert(0, sys.argv[1])
print(len({importlib.import_module(f"m{number}") for number in range(1, int(sys.argv[2]) + 1)}))
"""

# Reads a directory whose names are long, so that a call brings some of them only; after the first call another mount
# adds names before those that were read, or removes them again. Prints how many of the names that stay were not read
# once, and how many there are.
CHANGED = """
import os, sys
at, elsewhere, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
def name(number):
    return f"{number:04}".ljust(200, "x")
for number in range(200, 200 + count):
    os.symlink("nowhere", f"{elsewhere}/{name(number)}")
for change in ("add", "remove"):
    entries = os.scandir(at)
    read = [next(entries).name]
    for number in range(100):
        if change == "add":
            os.symlink("nowhere", f"{elsewhere}/{name(number)}")
        else:
            os.unlink(f"{elsewhere}/{name(number)}")
    read += [entry.name for entry in entries]
    print(sum(read.count(name(number)) != 1 for number in range(200, 200 + count)), len(os.listdir(elsewhere)))
"""

# Walks to a file again and again, by its name alone or to open it.
WALKS = 50
WALK = """
import os, sys
path, count, opens = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for _ in range(count):
    if opens:
        os.close(os.open(path, os.O_RDONLY))
    else:
        os.stat(path)
"""
# What each check of a name looks at, and what one does that is not under RCU, and each open.
PROBES = {"met": "vfs_ext_helper_dentry_age_ms", "again": "vfs_ext_helper_name"}


@contextmanager
def counted(machine: Machine) -> Iterator[Callable[[], tuple[int, int]]]:
    """Names that path walks meet are counted meanwhile: all of them, and those that are checked without RCU."""
    probes = "".join(f"echo 'p:{name} {function}' >> kprobe_events; " for name, function in PROBES.items())
    enable = f"for name in {' '.join(PROBES)}; do echo %d > events/kprobes/$name/enable; done"
    machine.run(f"{MOUNT}; cd {FOLDER}; {probes}{enable % 1}")

    def hits() -> tuple[int, int]:
        rows = dict(re.findall(r"(\w+) +(\d+) +\d+", machine.read(f"{FOLDER}/kprobe_profile")))
        return int(rows["met"]), int(rows["again"])

    try:
        yield hits
    finally:
        machine.run(f"cd {FOLDER}; {enable % 0}; echo > kprobe_events; echo > trace")


@needs(machines=1, timeout=300)
def test_a_walk_within_actimeo_stays_under_rcu(vm: Lab) -> None:
    """Names and rights that are young are checked without a reference to them, also for other users than the mount's;
    and the walk comes again to check those that are not."""
    gfarm = gfarm_mount.start(vm)
    gfarm.machine.push_bytes(WALK.encode(), "/run/walk.py")
    with gfarm.fuse() as folder:
        gfarm.run(f"mkdir -p {folder}/walk/to/it; echo text > {folder}/walk/to/it/file; chmod -R go+rX {folder}/walk")
    for actimeo, opens in ((600, 0), (600, 1), (0, 0)):
        with mounted(gfarm, f"allow_other,actimeo={actimeo}") as mount, counted(gfarm.machine) as hits:
            path = f"{mount.at}/walk/to/it/file"
            gfarm.run(f"stat {path}")
            for user in ("root", "bob"):
                before = hits()
                said = gfarm.try_run(f"python3 -I -S /run/walk.py {path} {WALKS} {opens}", user=user)
                eq(said.code, 0, f"{user}: {said.out}")
                met, again = (now - then for now, then in zip(hits(), before, strict=True))
                figure(f"actimeo={actimeo}, {user}: {met} names met, {again} checked without RCU, or opened")
                if actimeo:
                    eq((met, again), (4 * WALKS, opens * WALKS), f"names that {user} met, and met again or opened")
                else:
                    ge(again, 4 * WALKS, f"names that {user} met again")
    # The root has no name whose age would send the walk back.
    with mounted(gfarm, "allow_other") as mount:
        path = f"{mount.at}/walk/to/it/file"
        eq(gfarm.try_run(f"stat {path}", user="bob").code, 0, "bob")
        gfarm.run(f"gfchmod 750 /; {KNOWN}")
        eq(gfarm.try_run(f"stat {path}", user="bob").code, 1, "bob, who may not look into the root any more")
        gfarm.run("gfchmod 755 /; gfrm -r /walk")


@needs(machines=1, timeout=300)
def test_a_name_that_stands_for_another_object(vm: Lab) -> None:
    """A file renamed over another, removed, and replaced by a directory with the same name."""
    gfarm = gfarm_mount.start(vm)
    old, new = put_random(gfarm, "name", 70_000), put_random(gfarm, "other", 50_000, "fs2")
    with gfarm.fuse() as folder, mounted(gfarm) as mount:
        eq(mount.sha256("name"), old, "the first file")
        gfarm.run(f"mv {folder}/other {folder}/name")
        eq(mount.sha256("name"), new, "the file that was renamed")
        eq(gfarm.run(f"stat -c %s {mount.at}/name").strip(), "50000", "its size")
        gfarm.run(f"rm {folder}/name")
        mount.fails("cat name", "No such file or directory")
        gfarm.run(f"mkdir {folder}/name && echo inner > {folder}/name/inner; {KNOWN}")
        eq(gfarm.run(f"cat {mount.at}/name/inner"), "inner\n", "a directory in its place")
        gfarm.run(f"rm -r {folder}/name; ln -s elsewhere {folder}/name; {KNOWN}")
        eq(gfarm.run(f"readlink {mount.at}/name"), "elsewhere\n", "a link in its place")
        gfarm.run(f"rm {folder}/name; ln -s nowhere {folder}/name; {KNOWN}")
        eq(gfarm.run(f"readlink {mount.at}/name"), "nowhere\n", "another link")
        gfarm.run(f"rm {folder}/name")


@needs(machines=1, timeout=300)
def test_a_name_whose_object_was_found_by_another_name(vm: Lab) -> None:
    """A file is renamed, another one gets its name, and the first is found by its new name: each name opens its own."""
    gfarm = gfarm_mount.start(vm)
    with gfarm.fuse() as folder, mounted(gfarm, "actimeo=600") as mount:
        gfarm.run(f"echo first > {folder}/known")
        eq(gfarm.run(f"cat {mount.at}/known"), "first\n", "the first file")
        gfarm.run(f"mv {folder}/known {folder}/renamed && echo second > {folder}/known; {KNOWN}")
        eq(gfarm.run(f"cat {mount.at}/renamed {mount.at}/known {mount.at}/renamed"), "first\nsecond\nfirst\n")
        gfarm.run(f"rm {folder}/renamed {folder}/known")


@needs(machines=1, timeout=300)
def test_a_name_that_is_opened_when_its_object_was_found_by_another(vm: Lab) -> None:
    """An open asks by the name that is opened, not by the one that its file was found by last."""
    gfarm = gfarm_mount.start(vm)
    with gfarm.fuse() as folder, mounted(gfarm, "actimeo=600") as mount:
        gfarm.run(f"echo first > {folder}/known; ln {folder}/known {folder}/link")
        gfarm.machine.push_bytes(OPENED.encode(), "/run/opened.py")
        opener = gfarm.machine.start_job(f"python3 -I -S /run/opened.py {mount.at}/known")
        until(lambda: gfarm.machine.exists("/run/looked"), 20, "the name is looked up")
        eq(gfarm.run(f"cat {mount.at}/link"), "first\n", "by the other name")
        gfarm.run(f"mv {folder}/known {folder}/moved; echo second > {folder}/known; touch /run/go")
        eq(opener.wait(20).out, "ESTALE\n", "what was looked up before is another file's name now")
        eq(gfarm.run(f"cat {mount.at}/known {mount.at}/link"), "second\nfirst\n", "by a walk")
        gfarm.run(f"rm {folder}/known {folder}/moved {folder}/link /run/opened.py /run/looked /run/go")


@needs(machines=1, timeout=300)
def test_a_log_that_is_rotated_while_it_is_open(vm: Lab) -> None:
    """A log is renamed and written on: its new name is read, and the next log; who has it open meets no other file."""
    gfarm = gfarm_mount.start(vm)
    gfarm.machine.push_bytes(KEPT.encode(), "/run/kept.py")
    with gfarm.fuse(options="-s") as folder, mounted(gfarm) as mount:
        gfarm.run(f"echo first > {folder}/log; rm -f /run/looked /run/go; {KNOWN}")
        opener = gfarm.machine.start_job(f"exec python3 -I -S /run/kept.py {mount.at}/log", 120)
        until(lambda: gfarm.machine.exists("/run/looked"), 20, "it is open")
        gfarm.run(f"mv {folder}/log {folder}/log.1; echo second >> {folder}/log.1; echo next > {folder}/log; {KNOWN}")
        eq(gfarm.run(f"cat {mount.at}/log.1"), "first\nsecond\n", "by its new name")
        eq(gfarm.run(f"cat {mount.at}/log {mount.at}/log.1"), "next\nfirst\nsecond\n", "and the next one")
        gfarm.run(f"echo third >> {folder}/log.1; {KNOWN}; touch /run/go")
        said = opener.ok(60).strip()
        ok(said in ("b'first\\n'", "ESTALE"), f"who has it open: {said}")
        eq(gfarm.run(f"cat {mount.at}/log.1"), "first\nsecond\nthird\n", "after that")
        gfarm.run(f"rm {folder}/log {folder}/log.1 /run/kept.py /run/looked /run/go")


@needs(machines=1, timeout=300)
def test_a_name_that_was_not_there(vm: Lab) -> None:
    """It is not there for a while, as `actimeo` says; but an open asks, and finds what was made meanwhile."""
    gfarm = gfarm_mount.start(vm)
    with gfarm.fuse() as folder, mounted(gfarm, "actimeo=600") as mount:
        mount.fails("cat late", "No such file or directory")
        gfarm.run(f"echo made since > {folder}/late; {KNOWN}")
        mount.fails("stat late", "No such file or directory")
        eq(gfarm.run(f"cat {mount.at}/late"), "made since\n", "by an open")
        eq(gfarm.run(f"stat -c %s {mount.at}/late"), "11\n", "and then by its name alone")
        gfarm.run(f"rm {folder}/late")


@needs(machines=1, timeout=300)
def test_an_answer_that_is_late_is_old(vm: Lab) -> None:
    """What gfmd tells holds from when it was asked: an answer that was under way for longer than actimeo= does not
    hold, of a name, of attributes, or of a listing."""
    gfarm = gfarm_mount.start(vm)
    gfarm.machine.push_bytes(LATE.encode(), "/run/late.py")
    gfarm.run("gfmkdir /late; gfreg /etc/hosts /late/file")
    for what in ("name", "attributes", "listing"):
        with mounted(gfarm, "actimeo=2") as mount:
            gfarm.run("rm -f /run/looked /run/go")
            job = gfarm.machine.start_job(
                f"exec python3 -I -S /run/late.py {mount.at}/late {mount.folder}/stats {what}", 120)
            until(lambda: gfarm.machine.exists("/run/looked"), 20, "it is about to ask")
            gfarm.freeze(vm, "meta")
            gfarm.run("touch /run/go; sleep 4")
            gfarm.thaw("meta")
            eq(job.ok(60), "1\n", f"questions after a late answer, {what}")
    gfarm.run("gfrm -r /late; rm /run/late.py /run/looked /run/go")


@needs(machines=1, timeout=300)
def test_a_directory_that_moves(vm: Lab) -> None:
    """What is below it is found by the new name, also by files that are known; the old one is gone."""
    gfarm = gfarm_mount.start(vm)
    with gfarm.fuse() as folder, mounted(gfarm) as mount:
        gfarm.run(f"mkdir -p {folder}/from/deep; echo text > {folder}/from/deep/file; {KNOWN}")
        eq(gfarm.run(f"cat {mount.at}/from/deep/file; ls {mount.at}/from"), "text\ndeep\n", "before")
        gfarm.run(f"mv {folder}/from {folder}/to")
        eq(gfarm.run(f"cat {mount.at}/to/deep/file"), "text\n", "by the new name")
        mount.fails("cat from/deep/file", "No such file or directory")
        eq(gfarm.run(f"cd {mount.at}/to/deep; ls -a; cat file"), ".\n..\nfile\ntext\n", "in it")
        gfarm.run(f"rm -r {folder}/to")


@needs(machines=1, timeout=300)
def test_a_file_with_two_names(vm: Lab) -> None:
    """One inode; when the name is gone by which it was found, it is read by the other one."""
    gfarm = gfarm_mount.start(vm)
    with gfarm.fuse() as folder, mounted(gfarm) as mount:
        gfarm.run(f"echo hard link > {folder}/one; ln {folder}/one {folder}/two; {KNOWN}")
        eq(gfarm.run(f"stat -c %h {mount.at}/one {mount.at}/two"), "2\n2\n", "links")
        eq(len(set(gfarm.run(f"stat -c %i {mount.at}/one {mount.at}/two").split())), 1, "inodes")
        gfarm.run(f"rm {folder}/two")
        eq(gfarm.run(f"cat {mount.at}/one"), "hard link\n", "by the name that is left")
        gfarm.machine.push_bytes(HELD.encode(), "/run/held.py")
        eq(gfarm.run(f"python3 -I -S /run/held.py {mount.at}/one {folder}/one; rm /run/held.py"), "True 10\ngone\n",
           "a file that is open and removed")


def closes_stay(mount: Mount) -> bool:
    """Whether no file is closed at gfmd for longer than a close is put off."""
    before = mount.stats().get("gfmd_close")
    time.sleep(1)
    return mount.stats().get("gfmd_close") == before


@needs(machines=1, timeout=300)
def test_a_directory_that_changes_while_it_is_read(vm: Lab) -> None:
    """Names that are there all the time are read once each, whatever is added or removed before them meanwhile."""
    gfarm = gfarm_mount.start(vm)
    with gfarm.fuse() as folder, mounted(gfarm) as mount:
        gfarm.run(f"mkdir {folder}/changed")
        # More than the kernel asks for at a time.
        count = tier.of(400, 600)
        script = f"python3 -I -S - {mount.at}/changed {folder}/changed {count} <<'END'\n{CHANGED}\nEND"
        eq(gfarm.run(script, 200), f"0 {count + 100}\n0 {count}\n", "names that were not read once, and all names")
        gfarm.run(f"rm -r {folder}/changed", 120)


@needs(machines=1, timeout=300)
def test_gfmd_is_asked_as_seldom_as_can_be(vm: Lab) -> None:
    """A listing tells all attributes, an open is one question, and so is the first look at a name. With `nocto` what
    is known of names and opens holds: a program that starts again asks for next to nothing."""
    gfarm = gfarm_mount.start(vm)
    gfarm.run("gfmkdir /asked; gfln -s 1 /asked/link")
    with gfarm.fuse() as folder:
        gfarm.run(f"for i in $(seq {FILES}); do echo $i > {folder}/asked/m$i.py; done", 120)
    with mounted(gfarm, "actimeo=600") as mount:
        def asked(command: str) -> int:
            before = mount.stats()["gfmd_requests"]
            gfarm.run(f"cd {mount.at}/asked; {command}", 120)
            return mount.stats()["gfmd_requests"] - before
        eq(asked("true"), 1, "the first look at a name")
        ok(asked(f"ls -l | wc -l | grep -qx {FILES + 2}") <= 4, "ls -l: its entries, the end, and the target of a link")
        eq(asked("ls -l; readlink link; stat m1.py m2.py m3.py link"), 2, "again: the entries and the end")
        # A file is opened, and closed, by a question each; the close may come later.
        ok(asked("cat m1.py m2.py m3.py") <= 6, "opens")
        until(lambda: closes_stay(mount), 20, "the last close")
        eq(asked("test ! -e absent; test ! -e absent"), 1, "a name that is not there")
    with mounted(gfarm, "actimeo=600,nocto") as mount:
        script = f"python3 -I -S -B - {mount.at}/asked {FILES} <<'END'\n{START}\nEND"
        ok(asked(script) >= FILES, "a cold start: an open each")
        until(lambda: closes_stay(mount), 20, "the last close")
        ok((again := asked(script)) <= 10, f"a warm start: {again} questions")
        ok("nocto" in mount.options, f"{mount.options}")
    gfarm.run("gfrm -r /asked")


@needs(machines=1, timeout=300)
def test_a_tree_that_does_not_change_changes(vm: Lab) -> None:
    """With `nocto` what is cached of a file is read when it was rewritten elsewhere, as long as `actimeo` says; a page
    that is missing is not read from another content: ESTALE, and the next open finds that. A name that was not there
    and the open of a file that was closed to the user hold as long, and no longer."""
    gfarm = gfarm_mount.start(vm)
    gfarm.machine.push_bytes(KEPT.encode(), "/run/kept.py")
    with gfarm.fuse() as folder, mounted(gfarm, "actimeo=600,nocto") as mount:
        mount.fails("cat late", "No such file or directory")
        gfarm.run(f"echo first > {folder}/still; rm -f /run/looked /run/go")
        eq(gfarm.run(f"cat {mount.at}/still"), "first\n", "the first open")
        opener = gfarm.machine.start_job(f"exec python3 -I -S /run/kept.py {mount.at}/still", 120)
        until(lambda: gfarm.machine.exists("/run/looked"), 20, "it is open")
        gfarm.run(f"echo second > {folder}/still; echo made since > {folder}/late")
        eq(gfarm.run(f"cat {mount.at}/still"), "first\n", "what is cached")
        mount.fails("cat late", "No such file or directory")
        gfarm.run("touch /run/go")
        eq(opener.ok(60), "ESTALE\n", "what is missing")
        eq(gfarm.run(f"cat {mount.at}/still"), "second\n", "by the next open")
        gfarm.run(f"rm {folder}/still")
        eq(gfarm.run(f"cat {mount.at}/still"), "second\n", "what is cached of a file that is gone")
        gfarm.machine.write("/proc/sys/vm/drop_caches", "1")
        mount.fails("cat still", "Stale file handle")
        mount.fails("cat still", "No such file or directory")
        gfarm.run(f"rm {folder}/late /run/kept.py /run/looked /run/go")
    gfarm.put(b"for alice", "/lent")
    with mounted(gfarm, "actimeo=2,nocto", user="alice") as mount:
        eq(gfarm.run(f"cat {mount.at}/lent"), "for alice", "before")
        gfarm.run("gfchmod 600 /lent")
        until(lambda: gfarm.machine.try_run(f"stat {mount.at}/lent; cat {mount.at}/lent").code, 10, "it is closed")
    gfarm.run("gfrm /lent")
