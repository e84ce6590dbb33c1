# SPDX-License-Identifier: GPL-2.0
"""Rights of users on a mount of a real Gfarm: gfmd checks the user of the mount, the kernel each local user.

Rights that change elsewhere are changed by Gfarm's own programs, beside the mount.
"""
from __future__ import annotations

import shlex

from vmlab import gfarm_mount
from vmlab.checks import ByChance, Failed, eq, ok
from vmlab.gfarm import FOLDER, FUSE, Gfarm
from vmlab.gfarm_mount import Mount, mounted
from vmlab.lab import Lab
from vmlab.needs import needs

DENIED = "Permission denied"
SIGNS = f"{FOLDER}/signs"
# Debian's, with a group of many daemons: whoever has no number of his own here.
NOBODY, NOGROUP = "--reuid=65534 --regid=65534 --clear-groups", "--reuid=42 --regid=65534 --clear-groups"


def said(gfarm: Gfarm, who: str, command: str) -> str:
    """Returns the output of a command of a local user (a name, or the arguments of setpriv)."""
    become = f"setpriv {who}" if who.startswith("-") else gfarm.become(who)
    return gfarm.machine.try_run(f"{become} bash -c {shlex.quote(command)} 2>&1").out.strip()


def denied(gfarm: Gfarm, who: str, command: str, about: str) -> None:
    """A command is refused to a local user."""
    found = said(gfarm, who, command)
    if DENIED not in found:
        raise Failed(f"{about}: {who} got {found!r}")


def asked(mount: Mount) -> int:
    """The questions to gfmd so far."""
    return mount.stats()["gfmd_requests"]


@needs(machines=1, timeout=240)
def test_rights_are_those_of_the_moment(vm: Lab) -> None:
    """Revoked is refused and granted is let in at the next open, whatever is cached; by execve, too; of a directory
    after actimeo= at the latest."""
    gfarm = gfarm_mount.start(vm)
    gfarm.put(b"#!/bin/sh\necho secret\n", "/rights")
    gfarm.run("gfchmod 644 /rights; gfmkdir /closed; gfchmod 755 /closed; gfreg /etc/hosts /closed/file")
    for actimeo in (600, 0):
        with mounted(gfarm, f"allow_other,actimeo={actimeo}") as mount:
            read, run, ask = (f"{what} {mount.at}/rights" for what in ("tail -n 1", "exec", "test -r"))
            eq(said(gfarm, "bob", read), "echo secret", "before")
            gfarm.run("gfchmod 600 /rights")
            denied(gfarm, "bob", read, "revoked")
            denied(gfarm, "bob", read, "revoked, again")
            gfarm.run("gfchmod 644 /rights")
            before = asked(mount)
            eq(said(gfarm, "bob", read), "echo secret", "granted")
            ok(not actimeo or asked(mount) - before <= 5, f"{asked(mount) - before} questions for one open")
            gfarm.run("gfchmod 711 /rights")
            eq(said(gfarm, "bob", f"{ask}; echo $?"), "0" if actimeo else "1", "access(2), as old as actimeo= allows")
            denied(gfarm, "bob", read, "only to run")
            gfarm.run("gfchmod 755 /rights")
            eq(said(gfarm, "bob", run), "secret", "to run")
            gfarm.run("gfchmod 644 /rights")
            denied(gfarm, "bob", run, "to run, revoked")
            # The directory that a process is in is not looked up by its name again.
            wait = "touch {0}; until [ -e {1} ]; do sleep 0.05; done"
            gfarm.run(f"mkdir -m 1777 {SIGNS}")
            inside = f"cd {mount.at}/closed && cat file && {wait.format(f'{SIGNS}/in', f'{SIGNS}/go')}; cat file"
            job = vm.server.start_job(f"{gfarm.become('bob')} bash -c {shlex.quote(inside)} 2>&1", 60)
            gfarm.run(f"until [ -e {SIGNS}/in ]; do sleep 0.05; done; gfchmod 700 /closed; touch {SIGNS}/go")
            eq(DENIED in job.wait(60).out, not actimeo, "in a directory that was closed")
            gfarm.run(f"gfchmod 755 /closed; rm -r {SIGNS}")
    gfarm.run("gfrm -r /rights /closed")


@needs(machines=1, timeout=240)
def test_gfmd_judges_each_open_of_a_file_that_is_open(vm: Lab) -> None:
    """The mount's user, whom gfmd judges, opens no file whose right is revoked, also while others have it open; with
    nocto neither does who comes after them, as far as what was granted is not younger than actimeo=."""
    gfarm = gfarm_mount.start(vm)
    for options in ("actimeo=1", "nocto,actimeo=1"):
        gfarm.put(b"hers", "/held")
        gfarm.run("gfchmod 644 /held")
        with mounted(gfarm, options, user="alice") as mount:
            hold = f"exec 3< held; touch {SIGNS}.in; until [ -e {SIGNS}.go ]; do sleep 0.05; done; cat <&3"
            job = vm.server.start_job(f"cd {mount.at}; bash -c {shlex.quote(hold)}", 60)
            gfarm.run(f"until [ -e {SIGNS}.in ]; do sleep 0.05; done; cat {mount.at}/held")
            gfarm.run("gfchmod 600 /held; sleep 1.1")
            mount.fails("cat held", DENIED)
            gfarm.run(f"touch {SIGNS}.go")
            eq(job.wait(60).out, "hers", "who has it open reads on")
            mount.fails("cat held", DENIED)
            gfarm.run(f"gfrm /held; rm {SIGNS}.in {SIGNS}.go")


@needs(machines=1, timeout=240)
def test_who_is_let_in_is_asked_by_the_name(vm: Lab) -> None:
    """A log that others may not read is renamed, and known by its new name: the next one, which they may read, is."""
    gfarm = gfarm_mount.start(vm)
    with gfarm.fuse() as folder, mounted(gfarm, "allow_other,actimeo=1") as mount:
        gfarm.run(f"echo first > {folder}/log; chmod 600 {folder}/log")
        denied(gfarm, "bob", f"cat {mount.at}/log", "the first one")
        gfarm.run(f"mv {folder}/log {folder}/log.1; echo next > {folder}/log; chmod 644 {folder}/log")
        gfarm.run(f"stat {mount.at}/log.1; sleep 1.1")
        eq(said(gfarm, "bob", f"cat {mount.at}/log"), "next", "the next one")
        denied(gfarm, "bob", f"cat {mount.at}/log.1", "the first one, by its new name")
        gfarm.run(f"rm {folder}/log {folder}/log.1")


@needs(machines=1, timeout=240)
def test_an_open_directory_is_not_the_next_one_with_its_number(vm: Lab) -> None:
    """Who has a directory open that is gone does not list a private one to which gfmd has given its number, and does
    not look into it."""
    gfarm = gfarm_mount.start(vm)
    gfarm.run(f"gfmkdir /lent /lent/file; gfchmod 755 /lent; rm -rf {SIGNS}; mkdir -m 1777 {SIGNS}")
    with mounted(gfarm, "allow_other,actimeo=600") as mount:
        held = f"cd {mount.at}/lent && ls && touch {SIGNS}/in && until [ -e {SIGNS}/go ]; do sleep 0.05; done"
        job = vm.server.start_job(f"{gfarm.become('bob')} bash -c {shlex.quote(f'{held}; ls; stat secret')} 2>&1", 60)
        gfarm.run(f"until [ -e {SIGNS}/in ]; do sleep 0.05; done")
        inode = "gfls -dli /lent | awk '{print $1}'"
        before = gfarm.run(inode)
        gfarm.run("gfrm -r /lent; gfmkdir /lent; gfchmod 700 /lent; gfreg /etc/hosts /lent/secret")
        if gfarm.run(inode) != before:
            raise ByChance("gfmd has given the number of another directory that was removed")
        gfarm.run(f"touch {SIGNS}/go")
        found = job.wait(60).out
        ok(found.startswith("file\n") and "secret\n" not in found, f"bob found {found!r}")
    gfarm.run(f"gfrm -r /lent; rm -r {SIGNS}")


@needs(machines=1, timeout=240)
def test_users_have_their_rights(vm: Lab) -> None:
    """A private file is opened by its owner's mount only; uid= and gid= show all files as one user's; what belongs to
    nobody here is nobody's."""
    gfarm = gfarm_mount.start(vm)
    gfarm.run("gfmkdir -p /people/alice; gfchown alice /people/alice")
    gfarm.put(b"root's", "/private")
    gfarm.put(b"group's", "/grouped")
    gfarm.run("gfchmod 600 /private; gfchmod 640 /grouped; gfsetfacl -m user:alice:r--,mask::--- /grouped")
    hers = "/people/alice/mine"
    made = gfarm.try_run(f"cd; echo hers > mine && gfreg mine {hers} && gfchmod 600 {hers}", "alice")
    eq(made.code, 0, f"alice writes a file: {made.out}")
    with mounted(gfarm, "allow_other,uid=1001,gid=77", user="alice") as mount:
        eq(gfarm.run(f"stat -c '%u %g %a' {mount.at}/people/alice/mine"), "1001 77 600\n")
        eq(said(gfarm, "alice", f"cat {mount.at}/people/alice/mine"), "hers")
        mount.fails("cat private", DENIED)
        denied(gfarm, "bob", f"cat {mount.at}/people/alice/mine", "another's file")
    # More than a page of /proc/mounts, in parts as mount.gfarm passes them.
    many = [f"usermap={'+'.join(f'user{part}x{number}/{number + 1}' for number in range(16))}" for part in range(40)]
    maps = ",".join((*many, "usermap=alice/1001+root/0", "groupmap=gfarmadm/50"))
    with mounted(gfarm, f"allow_other,{maps}") as mount:
        shown = next(word for word in mount.options if word.startswith("usermap="))
        ok(len(shown) > 4096 and shown.endswith("+user39x15/16+alice/1001+root/0"), shown)
        eq(gfarm.run(f"stat -c '%u' {mount.at}/people/alice"), "1001\n")
        eq(gfarm.run(f"stat -c '%u %g' {mount.at}/private"), "0 50\n")
        eq(said(gfarm, "--reuid=1002 --regid=50 --clear-groups", f"cat {mount.at}/grouped"), "group's")
    with mounted(gfarm, "allow_other") as mount:
        eq(gfarm.run(f"stat -c '%u %g' {mount.at}{hers} {mount.at}/grouped"), "65534 65534\n0 65534\n")
        eq(gfarm.run(f"cat {mount.at}/private"), "root's", "who mounts owns what is of the mount's user")
        eq(gfarm.run(f"stat -c %a {mount.at}/grouped"), "640\n", "the mode of a file with an ACL that lets no group in")
        denied(gfarm, NOBODY, f"cat {mount.at}{hers}", "a file of nobody here")
        denied(gfarm, NOGROUP, f"cat {mount.at}/grouped", "a group of nobody here")
    gfarm.run("gfrm -r /people /private /grouped")
    if gfarm.machine.exists(f"{FUSE}/private"):
        raise Failed("gfarm2fs is still mounted")


@needs(machines=1, timeout=240)
def test_a_mount_is_for_who_mounts(vm: Lab) -> None:
    """gfmd sees one user: others are let in by allow_other, and one of them by uid=; a descriptor may be passed on."""
    gfarm = gfarm_mount.start(vm)
    gfarm.put(b"all's", "/public")
    read = f"cat {gfarm_mount.AT}/public"
    with mounted(gfarm) as mount:
        eq(gfarm.run(read), "all's", "who mounts")
        for command in (read, f"stat {mount.at}/public", f"ls {mount.at}", f"cd {mount.at}"):
            denied(gfarm, "bob", command, "without allow_other")
        eq(said(gfarm, "bob", f"stat -c %F {mount.at}"), "directory", "the root's attributes")
        eq(gfarm.run(f"{gfarm.become('bob')} cat < {mount.at}/public"), "all's", "a file that is passed on")
        ok("allow_other" not in mount.options, f"{mount.options}")
    with mounted(gfarm, "uid=1002,gid=1002") as mount:
        eq(said(gfarm, "bob", read), "all's", "whose files these are")
        eq(gfarm.run(read), "all's", "who mounts, as well")
        denied(gfarm, "alice", read, "another one")
    with mounted(gfarm, "allow_other") as mount:
        ok("allow_other" in mount.options, f"{mount.options}")
        eq(said(gfarm, "bob", read), "all's", "with allow_other")
        ok(vm.server.try_run(f"mount -i -o remount,uid=5 {mount.at}").code, "a remount has changed it")
    gfarm.run("gfrm /public")
