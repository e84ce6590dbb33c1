# SPDX-License-Identifier: GPL-2.0
"""Mounting a Gfarm file system: options, keys, addresses; unmounting and unloading."""
from __future__ import annotations

import re
import time

from kdir import programs
from vmlab import gfarm, gfarm_mount
from vmlab.checks import eq, in_time, matches, ok, until
from vmlab.gfarm_mount import AT, SHORT, mounted, put_random, try_mount
from vmlab.lab import Lab
from vmlab.needs import needs

# In nobody's network: a dummy interface swallows what is sent there.
SILENT = "10.0.0.77"
# Has many files open at a time, and reads each of them twice from its file server.
MANY = """
import os, sys
files = [os.open(f"{sys.argv[1]}/{number}", os.O_RDONLY) for number in range(int(sys.argv[2]))]
for turn in range(2):
    for number, file in enumerate(files):
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        if os.pread(file, 100, 0) != b"%d\\n" % number or not os.fstat(file).st_size:
            sys.exit(f"file {number}")
    print(len(os.listdir(sys.argv[1])))
"""
# Reads a file below /proc into memory that is a page of another file, which has to be read for that.
STALL = """
import mmap, os, sys
with open(sys.argv[1], "rb") as file:
    view = mmap.mmap(file.fileno(), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
print(os.readv(os.open(sys.argv[2], os.O_RDONLY), [view]) > 0)
"""
# Reads what is open, with O_DIRECT, after each of some umount -f.
FORCED = """
import ctypes, errno, mmap, os, sys
libc = ctypes.CDLL(None, use_errno=True)
at, name = sys.argv[1:]
file, page = os.open(f"{at}/{name}", os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 4096)
for turn in range(3):
    if libc.umount2(at.encode(), 1) == 0 or ctypes.get_errno() != errno.EBUSY:
        sys.exit(f"umount -f: {ctypes.get_errno()}")
    if os.preadv(file, [page], turn * 4096) != 4096:
        sys.exit(f"page {turn}")
"""
REFUSED = {
    "nonsense": "nonsense", "readahead=0": "readahead=0 is not in 1..=16384", "readahead": "readahead",
    "connections=65": "connections=65 is not in 1..=64", "actimeo=x": "actimeo=x is not in 0..=3600",
    "hosts=fs1": "hosts=fs1 is not", "uid=4294967295": "uid=4294967295 is not", "gid=4294967296": "gid=4294967296 is",
    "ra_async=2": "ra_async=2 is not in 0..=1", "ra_sync=2": "ra_sync=2 is not 0 or 1", "key=": "key",
    "ib_port=1": "ib_port= has no effect", "connect_timeout=601": "connect_timeout=601 is not in 1..=600",
}


@needs(machines=1, timeout=240)
def test_options_are_refused_by_name_and_shown(vm: Lab) -> None:
    """Unknown ones and bad values give EINVAL and a line that names them; /proc/mounts shows those in force."""
    servers = gfarm_mount.start(vm)
    for options, words in REFUSED.items():
        mark = vm.server.log_mark()
        said = try_mount(servers, options)
        lines = said.out + "\n".join(vm.server.log_matches("gfarm", mark))
        ok(said.code and words in lines, f"{options}: code {said.code}, {lines!r}")
    said = vm.server.try_run(f"mount -i -t gfarm {gfarm_mount.SOURCE} {AT} 2>&1")
    ok(said.code and "username= is missing" in said.out + "\n".join(vm.server.log_matches("gfarm")), said.out)
    with mounted(servers, "readahead=100,actimeo=7,uid=5,connections=2") as mount:
        for shown in ("ro", "username=root", "readahead=100", "actimeo=7", "uid=5", "connections=2"):
            ok(shown in mount.options, f"{shown} is not in {mount.options}")
        secret = servers.keys["root"].split()[1]
        for place in ("/proc/mounts", "/proc/self/mountinfo", f"{mount.folder}/status", f"{mount.folder}/stats"):
            ok(secret not in vm.server.read(place) and "key=" not in vm.server.read(place), f"a secret in {place}")
        vm.server.run(f"mount -i -o remount {AT}")
        ok(vm.server.try_run(f"mount -i -o remount,readahead=5 {AT}").code, "an option was changed")


@needs(machines=1, timeout=300)
def test_keys_that_are_wrong_expired_or_missing(vm: Lab) -> None:
    """Each is an error of its own, with what to do; so is a user whom Gfarm does not know."""
    servers = gfarm_mount.start(vm)
    expired = servers.keys["root"].replace(servers.keys["root"][:8], "12345678", 1)
    for key, user, words in ((None, "root", "no valid key"), ("text", "root", "gfkey -c"), (expired, "root", "expired"),
                             (gfarm.new_key(), "root", "gfkey|key of"), ("", "bob", "user not known|not let in")):
        mark, began = vm.server.log_mark(), time.monotonic()
        said = try_mount(servers, gfarm_mount.SHORT, key=key, user=user)
        took = time.monotonic() - began
        lines = said.out + "\n".join(vm.server.log_matches("gfarm", mark))
        ok(said.code, f"{user} was let in with {key!r}")
        matches(lines, words, f"{user}, {(key or '')[:8]!r}")
        ok(not key or key.split()[-1] not in lines, "the key is shown")
        in_time(took < 40, f"{words}: it took {took:.1f} s")
    with mounted(servers):
        pass


@needs(machines=1, timeout=240)
def test_a_key_that_is_replaced(vm: Lab) -> None:
    """New connections are made with the key that keyctl or a remount has given; one that expires soon is announced."""
    servers = gfarm_mount.start(vm)
    wanted = put_random(servers, "keyed", 100_000)
    vm.defer(_give_key, servers, servers.keys["root"])
    add = "keyctl padd logon gfarm:root"
    vm.server.run(f"echo {servers.keys['root'].strip()} | {add} @u > /dev/null; mkdir -p {AT}")
    vm.defer(vm.server.run, "keyctl purge logon gfarm:root > /dev/null")
    options = f"username=root,{gfarm_mount.HOSTS},{SHORT}"
    script = f"keyctl link @u @s; exec mount -i -t gfarm {gfarm_mount.SOURCE} {AT} -o {options}"
    vm.server.run(f"keyctl session - bash -c '{script}'")
    mount = gfarm_mount.Mount(vm.server, AT)
    renewals = (f"{add} @u", f"keyctl session - bash -c '{add} @s && exec mount -i -o remount {AT}'")
    try:
        for renewal in renewals:
            eq(mount.sha256("keyed"), wanted)
            # The clock of a guest may be behind.
            behind = time.time() - float(vm.server.run("date +%s"))
            key = _give_key(servers, gfarm.new_key(7000 - behind))
            servers.kill(vm, "fs1")
            servers.bring_up("fs1")
            mount.forget()
            ok(vm.server.try_run(f"cat {AT}/keyed").code, "a gfsd has let the old key in")
            mark = vm.server.log_mark()
            vm.server.run(f"echo {key} | {renewal}")
            eq(mount.sha256("keyed"), wanted, f"after {renewal}")
            left = int(re.findall(r"key expires in (\d+) s", vm.server.read(f"{mount.folder}/status"))[0])
            ok(0 < left <= 7000, f"{left} seconds are left")
            until(lambda mark=mark: vm.server.log_matches("the key of root expires in 11. min", mark), 20, "it is said")
            ok(vm.server.try_run(f"stat {AT}/keyed").code == 0, "gfmd is connected")
    finally:
        vm.server.run(f"umount {AT}")


def _give_key(servers: gfarm.Gfarm, key: str) -> str:
    """Gives the servers another key of the administrator."""
    servers.keys["root"] = key
    servers.machine.run(f"echo '{key.strip()}' > {gfarm.home('root')}/.gfarm_shared_key")
    return key.strip()


@needs(machines=1, timeout=240)
def test_connections_that_no_file_uses(vm: Lab) -> None:
    """They end after idle_timeout=, all but one of a gfsd, where there is a process for each; the last one after ten
    times as long. What is read then is read by a new one."""
    servers = gfarm_mount.start(vm)
    names = [f"idle{number}" for number in range(3)]
    wanted = [put_random(servers, name, 100_000) for name in names]
    with mounted(servers, "idle_timeout=1") as mount:
        readers = [mount.reader(name, 1000) for name in names]
        until(lambda: all(reader.reads for reader in readers), 30, "all read")
        eq(gfarm_mount.connections(vm.server), len(names), "one for each file that is open")
        for reader, digest in zip(readers, wanted, strict=True):
            reader.go_on()
            eq(reader.digest(), digest)
        until(lambda: gfarm_mount.connections(vm.server) == 1, 20, "all but one end")
        until(lambda: gfarm_mount.connections(vm.server) == 0, 40, "the last one ends")
        mount.forget()
        eq(mount.sha256(names[0]), wanted[0], "by a new one")


@needs(machines=1, timeout=240)
def test_more_open_files_than_descriptors(vm: Lab) -> None:
    """The files that were not read for the longest time give theirs back, and are opened again when they are read;
    names are walked meanwhile."""
    servers = gfarm_mount.start(vm)
    count, descriptors = 24, 8
    with servers.fuse() as folder:
        servers.run(f"mkdir {folder}/many; for i in $(seq 0 {count - 1}); do echo $i > {folder}/many/$i; done", 120)
    with mounted(servers, f"open_files={descriptors}") as mount:
        said = servers.run(f"python3 -I -S - {mount.at}/many {count} <<'END'\n{MANY}\nEND", 100)
        eq(said, f"{count}\n{count}\n", "all are read, and listed")
        opened = mount.stats()["gfmd_open"]
        ok(opened >= 3 * count - descriptors, f"{opened} descriptors: the limit has not been kept")
    servers.run("gfrm -r /many")


@needs(machines=1, timeout=240)
def test_addresses_without_a_gfmd(vm: Lab) -> None:
    """A port without a server fails at once, a silent address within connect_timeout; the next address is tried."""
    servers = gfarm_mount.start(vm)
    for source, least, most in (("127.0.1.100:602", 0, 10), (SILENT, 2, 20), ("host.without.address", 0, 5)):
        began = time.monotonic()
        said = try_mount(servers, gfarm_mount.SHORT, source=source)
        took = time.monotonic() - began
        ok(said.code and took >= least, f"{source}: {took:.1f} s, {said.out}")
        in_time(took < most, f"{source}: {took:.1f} s, {said.out}")
    said = try_mount(servers, gfarm_mount.SHORT, source=f"127.0.1.100:602,{gfarm_mount.SOURCE}")
    eq(said.code, 0, said.out)
    vm.server.run(f"umount {AT}")


@needs(machines=1, timeout=240)
def test_the_names_of_gfsds_are_looked_up(vm: Lab) -> None:
    """Without hosts=, by key.dns_resolver; one that has no address is a line in the log, and an error in time."""
    servers = gfarm_mount.start(vm)
    wanted = put_random(servers, "named", 100_000, "fs2")
    hosts = vm.server.read("/etc/hosts") + "\n"
    vm.defer(vm.server.push_bytes, hosts.encode(), "/etc/hosts")
    with mounted(servers, SHORT, hosts="") as mount:
        vm.server.push_bytes(re.sub(r".* fs2\n", "", hosts).encode(), "/etc/hosts")
        mark = vm.server.log_mark()
        mount.fails("cat named", "Input/output error")
        said = vm.server.log_matches("gfsd fs2: its address is not found: add it to hosts=", mark)
        eq(len(said), 1, "lines that say so")
        vm.server.push_bytes(hosts.encode(), "/etc/hosts")
        # The kernel's keys remember for some seconds that there is none.
        until(lambda: not vm.server.try_run(f"cat {mount.at}/named").code, 40, "the name is found")
        eq(mount.sha256("named"), wanted)


@needs(machines=1, timeout=240)
def test_unmounting_under_load(vm: Lab) -> None:
    """A busy mount stays; -l takes the name away and its readers go on; -f ends requests that wait."""
    servers = gfarm_mount.start(vm)
    wanted = put_random(servers, "load", 4 << 20)
    said = try_mount(servers, "")
    eq(said.code, 0, said.out)
    reader = gfarm_mount.Reader(vm.server, f"{AT}/load", 65536)
    try:
        until(lambda: reader.reads, 20, "it reads")
        ok("busy" in vm.server.try_run(f"umount {AT} 2>&1").out, "a busy mount was unmounted")
        vm.server.run(f"umount -l {AT}")
        ok(vm.server.try_run(f"ls {AT}/load").code, "the mount is still there")
    finally:
        reader.go_on()
    eq(reader.digest(), wanted, "after umount -l")
    eq(try_mount(servers, "").code, 0, "mounted again")
    servers.freeze(vm, "fs1", "fs2")
    job = vm.server.start_job(f"dd if={AT}/load of=/dev/null bs=64k iflag=direct 2>&1", 60)
    until(lambda: gfarm_mount.serving(vm.server), 20, "it asks a gfsd")
    began = time.monotonic()
    vm.server.try_run(f"umount -f {AT}", 30)
    said = job.wait(30)
    ok(said.code, f"code {said.code}: {said.out}")
    in_time((took := time.monotonic() - began) < 20, f"umount -f took {took:.1f} s")
    vm.server.run(f"! mountpoint -q {AT} || umount {AT}")


@needs(machines=1, timeout=240)
def test_what_begins_after_a_forced_unmount_is_read(vm: Lab) -> None:
    """umount -f of a mount that is in use fails what waits then, and no read that begins afterwards."""
    servers = gfarm_mount.start(vm)
    put_random(servers, "open", 20_000)
    with mounted(servers):
        vm.server.run(f"python3 -I -S - {AT} open <<'END'\n{FORCED}END", 60)


@needs(machines=1, timeout=240)
def test_mounting_beside_an_unmount(vm: Lab) -> None:
    """An unmount waits for who reads a file below /proc. Another mount meanwhile has another number, and its files."""
    servers, at = gfarm_mount.start(vm), "/mnt/gfarm2"
    put_random(servers, "stalls", 4096)
    vm.server.push_bytes(STALL.encode(), "/run/stall.py")
    with mounted(servers, at="/mnt/gfarm3") as other:
        eq(try_mount(servers, "").code, 0)
        state = gfarm_mount.Mount(vm.server, AT).folder
        servers.freeze(vm, "fs1", "fs2")
        try:
            reader = vm.server.start_job(f"exec python3 -I -S /run/stall.py {other.at}/stalls {state}/stats", 60)
            until(lambda: gfarm_mount.serving(vm.server), 20, "it asks a gfsd")
            unmount = vm.server.start_job(f"exec umount {AT}", 60)
            until(lambda: "proc_" in vm.server.try_run("cat /proc/$(pidof -s umount)/stack").out, 20, "it waits")
            with mounted(servers, at=at) as mount:
                ok(mount.folder != state and mount.stats(), f"{mount.folder} beside {state}")
        finally:
            servers.thaw("fs1", "fs2")
        eq(reader.ok(30), "True\n")
        unmount.ok(30)


@needs(machines=1, timeout=240)
def test_a_remount_by_mount_gfarm(vm: Lab) -> None:
    """mount(8) runs the helper: attributes of the mount point change, other options do not, and open files stay."""
    servers = gfarm_mount.start(vm)
    wanted = put_random(servers, "again", 1 << 20)
    vm.defer(vm.server.run, "rm /usr/sbin/mount.gfarm")
    vm.server.push(programs.MOUNT_GFARM.build(), "/usr/sbin/mount.gfarm")
    vm.server.run("chmod 755 /usr/sbin/mount.gfarm")
    with mounted(servers, "readahead=64") as mount:
        reader = mount.reader("again", 65536)
        until(lambda: reader.reads, 20, "it reads")
        before = mount.options
        attributes = {"noatime", "nodev", "noexec", "nosuid", "nosymfollow"}
        vm.server.run(f"mount -o remount,{','.join(attributes)} {AT}")
        eq(set(mount.options), {*before, *attributes} - {"relatime"}, "after a remount")
        vm.server.run(f"mount -o remount,rw,exec {AT}")
        eq(set(mount.options), {*before, *attributes} - {"relatime", "noexec"}, "with one attribute less")
        for options in ("readahead=5", "username=alice", "nonsense"):
            said = vm.server.try_run(f"mount -o remount,{options} {AT} 2>&1")
            ok(said.code, f"{options} was changed")
        matches(vm.server.try_run(f"mount -o remount,readahead=5 {AT} 2>&1").out, "cannot be changed by a remount")
        reader.go_on()
        eq(reader.digest(), wanted, "the open file")
    # What is the VFS's is taken by the VFS, or refused by it.
    vm.server.push_bytes(servers.keys["root"].encode(), "/run/own.key")
    vm.server.run("chmod 600 /run/own.key")
    options = f"{gfarm_mount.SOURCE} {AT} -o user=root,keyfile=/run/own.key,{gfarm_mount.HOSTS}"
    vm.server.run(f"mount -t gfarm {options},lazytime,sync")
    shown = vm.server.run(f"findmnt -n -o OPTIONS {AT}; umount {AT}")
    ok("lazytime" in shown and "sync" in shown, shown)
    # mount(8) leaves it out on a machine without SELinux.
    refused = vm.server.try_run(f"mount.gfarm {options},context=system_u:object_r:tmp_t:s0 2>&1; rm /run/own.key")
    matches(refused.out, "the kernel refuses option context")


@needs(machines=1, timeout=240, own_modules=True)
def test_mounts_come_and_go_and_the_module_too(vm: Lab) -> None:
    """Several users' mounts of one file system, again and again; then the module unloads."""
    servers = gfarm_mount.start(vm)
    wanted = put_random(servers, "file", 100_000)
    for _turn in range(3):
        with mounted(servers) as mount, mounted(servers, user="alice", at="/mnt/gfarm2") as other:
            eq(mount.sha256("file"), wanted)
            eq(other.sha256("file"), wanted)
            ok(vm.server.try_run("rmmod gfarm_ra 2>&1").code, "the module of a mount was unloaded")
        vm.server.run("mods -r; mods ours gfarm_ra")
    vm.server.run("mods -r")
    ok(not vm.server.exists("/proc/fs/gfarm"), "/proc/fs/gfarm is left")
    eq(gfarm_mount.connections(vm.server), 0, "connections that are left")
