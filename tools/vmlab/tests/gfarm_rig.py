# SPDX-License-Identifier: GPL-2.0
"""The servers of Gfarm in the lab (gfarm.py), seen through gfarm2fs: what the kernel's mount is compared with.

No module under test is loaded.
"""
from __future__ import annotations

import hashlib

from vmlab import gfarm as rig
from vmlab import seed, tier
from vmlab.checks import eq, ok
from vmlab.gfarm import FOLDER, Gfarm
from vmlab.lab import Lab
from vmlab.needs import needs

SMP = 2
# The other tests of Gfarm use what is shown here.
TIER = tier.LONG

ENTRIES = 80
BIG_BYTES, PART_BYTES = 6 << 20, 64 << 10


def digest(text: bytes) -> str:
    """The sum, as sha256sum prints it."""
    return hashlib.sha256(text).hexdigest()


def told(gfarm: Gfarm, path: str) -> list[str]:
    """The words of gfmd about a file: number, owner, size, time of change, replicas."""
    return [*gfarm.run(f"gfls -li {path}").split(), *gfarm.replicas(path)]


def check(gfarm: Gfarm, command: str, wanted: str) -> None:
    """The output of a command has this digest."""
    eq(gfarm.run(f"{command} | sha256sum", 120).split()[0], wanted, command)


@needs(machines=1, timeout=240)
def test_files_of_gfarms_own_programs_are_the_same_through_fuse(vm: Lab) -> None:
    """gfreg, gfrep and gfexport; owners, modes and space; another user's private file."""
    gfarm = rig.start(vm)
    text = seed.fresh().randbytes(BIG_BYTES + 1)
    gfarm.put(text, "/programs", copies=2)
    eq(gfarm.replicas("/programs"), ["fs1", "fs2"], "replicas")
    check(gfarm, "gfexport /programs", digest(text))
    gfarm.run("gfmkdir /people; gfmkdir /people/alice; gfchown alice /people/alice")
    said = gfarm.try_run("gfreg /etc/hosts /people/alice/hosts", "alice")
    eq(said.code, 0, f"alice writes a file: {said.out}")
    gfarm.run("gfchmod 600 /people/alice/hosts")
    ok(gfarm.try_run("gfls /", "bob").code, "bob, whom Gfarm does not know, sees a directory")
    with gfarm.fuse() as folder:
        check(gfarm, f"cat {folder}/programs", digest(text))
        eq(gfarm.run(f"stat -c '%a %s' {folder}/people/alice/hosts").split()[0], "600")
        ok(int(gfarm.run(f"stat -f -c %b {folder}")) > 0, "the space of the gfsds")


@needs(machines=1, timeout=300)
def test_a_tree_is_made_and_read_through_fuse(vm: Lab) -> None:
    """Odd names, links, modes and contents, as on another file system."""
    gfarm = rig.start(vm)
    program = gfarm.push("gfarm_tree.py")
    with gfarm.fuse() as folder:
        gfarm.run(f"mkdir {folder}/tree {FOLDER}/tree; python3 {program} make {FOLDER}/tree {ENTRIES}; "
                  f"python3 {program} make {folder}/tree {ENTRIES}", 200)
        found = gfarm.run(f"python3 {program} compare {folder}/tree {FOLDER}/tree without-times", 120).split()
        eq(int(found[0]), ENTRIES, "entries")
        gfarm.run(f"rm -r {folder}/tree {FOLDER}/tree", 120)


@needs(machines=1, timeout=240)
def test_servers_die_freeze_and_come_back(vm: Lab) -> None:
    """A reader goes on with the other replica; a frozen gfsd answers when it thaws; a cut network loses nothing."""
    gfarm = rig.start(vm)
    text = seed.fresh().randbytes(BIG_BYTES)
    gfarm.put(text, "/faults", copies=2)
    gfarm.put(text, "/single", "fs2")
    gfarm.kill(vm, "fs1")
    check(gfarm, "gfexport /faults", digest(text))
    gfarm.bring_up("fs1")
    gfarm.freeze(vm, "fs2")
    job = gfarm.machine.start_job("gfexport /single | sha256sum", 100)
    ok(gfarm.machine.try_run("sleep 2").code == 0 and job.running, "a frozen gfsd has answered")
    gfarm.thaw("fs2")
    eq(job.ok().split()[0], digest(text), "after the thaw")
    gfarm.cut(vm)
    job = gfarm.machine.start_job("gfexport /single | sha256sum", 100)
    ok(gfarm.machine.try_run("sleep 2").code == 0 and job.running, "a cut network carries")
    gfarm.mend()
    eq(job.ok().split()[0], digest(text), "after the cut")


@needs(machines=1, timeout=300, own_modules=True)
def test_a_database_keeps_files_when_gfmd_is_restarted(vm: Lab) -> None:
    """PostgreSQL behind gfmd: names, generations and replicas are there again."""
    gfarm = rig.start(vm, persistent=True)
    text = seed.fresh().randbytes(PART_BYTES)
    gfarm.put(text, "/kept", copies=2)
    before = told(gfarm, "/kept")
    gfarm.kill(vm, "meta")
    ok(not gfarm.is_up("meta"), "gfmd has ended")
    gfarm.bring_up("meta")
    eq(told(gfarm, "/kept"), before, "the file")
    check(gfarm, "gfexport /kept", digest(text))
