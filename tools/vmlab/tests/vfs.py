# SPDX-License-Identifier: GPL-2.0
"""Promises of vfs_ext to a file system: `ferrotest`, whose server is in memory and does what a mount's options say.

The tree and the bytes are computed (test/selftest/vfs/tree.rs), here a second time.
"""
from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from vmlab import tier
from vmlab.checks import eq, ge, matches, ok, until
from vmlab.lab import Lab
from vmlab.machine import Machine
from vmlab.needs import needs

AT = "/mnt/ferrotest"
BIG, ODD, INNER = 2, 3, 10
SIZES = {"big": (BIG, 8 << 20), "odd": (ODD, 1_000_003), "dir/inner": (INNER, 4097), "empty": (4, 0)}
READERS = 64

# Reads a file in each way there is, with an empty cache, and prints way and digest.
WAYS = r"""
import hashlib, mmap, os, sys
def digest(parts):
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
    return found.hexdigest()
def read(fd, size):
    return iter(lambda: os.read(fd, 100_001), b"")
def pread(fd, size):
    # Backwards, so that nothing is read ahead.
    return reversed([os.pread(fd, 300_000, at) for at in reversed(range(0, size, 300_000))])

def mapped(fd, size):
    if not size:
        return []
    return [mmap.mmap(fd, size, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE)]
def sendfile(fd, size):
    target = os.memfd_create("target")
    while os.sendfile(target, fd, None, 1 << 20):
        pass
    os.lseek(target, 0, 0)
    return read(target, size)

def splice(fd, size):
    source, sink = os.pipe()
    while count := os.splice(fd, sink, 60_000):
        while count:
            part = os.read(source, count)
            count -= len(part)
            yield part

def direct(fd, size):
    fd, buffer, at = os.open(path, os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 1 << 18), 0
    while count := os.preadv(fd, [buffer], at):
        yield buffer[:count]
        at += count

path = sys.argv[1]
for way in (read, pread, mapped, sendfile, splice, direct):
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    print(way.__name__, digest(way(fd, os.fstat(fd).st_size)))
    os.close(fd)
"""

# A server in user space for `-o port=`. Of each three answers the second ends in the middle, with its connection.
SERVER = """
import socket, struct, sys, threading
from array import array
silent, mask, size, files = len(sys.argv) > 1, (1 << 64) - 1, 1_000_003, {}
def data(number):
    salt = (number << 48 | number >> 16) & mask ^ 1 << 56
    return array("Q", ((i * 0x9e3779b97f4a7c15 & mask) ^ salt for i in range((size + 7) // 8))).tobytes()[:size]
files = {3: data(3), 10: data(10)[:4097]}
listener, turn = socket.create_server(("", 7500)), 0
def serve(stream, turn):
    number, _, position, count = struct.unpack(">4Q", stream.recv(32, socket.MSG_WAITALL))
    if silent:
        threading.Event().wait()
    answer = files[number][position:position + count]
    stream.sendall(struct.pack(">Q", len(answer)) + answer[:len(answer) // (1 + (turn % 3 == 1))])
    stream.close()
while True:
    threading.Thread(target=serve, args=(listener.accept()[0], turn), daemon=True).start()
    turn += 1
"""


def data(number: int, size: int, generation: int = 1) -> bytes:
    """The bytes of a file."""
    mask = (1 << 64) - 1
    salt = (number << 48 | number >> 16) & mask ^ (generation << 56 | generation >> 8) & mask
    words = array("Q", ((index * 0x9e3779b97f4a7c15 & mask) ^ salt for index in range((size + 7) // 8)))
    return words.tobytes()[:size]


@cache
def digest(number: int, size: int, generation: int = 1) -> str:
    """The sum that sha256sum prints of the file."""
    return hashlib.sha256(data(number, size, generation)).hexdigest()


def load(lab: Lab) -> Machine:
    """One machine with the module, and nothing mounted."""
    lab.server.run("mods -r")
    lab.server.run("mods ours vfs_test")
    return lab.server


@contextmanager
def mounted(vm: Machine, options: str = "") -> Iterator[str]:
    """A mount for the body; its unmount must succeed."""
    vm.run(f"mkdir -p {AT}; mount -t ferrotest none {AT} {'-o ' + options if options else ''}")
    try:
        yield AT
    finally:
        vm.run(f"if mountpoint -q {AT}; then umount {AT}; fi")


def state(vm: Machine) -> dict[str, int]:
    """The counters of the only mount."""
    lines = vm.run("cat /proc/fs/ferrotest/*/state").splitlines()
    return {name: int(count) for name, count in (line.split() for line in lines)}


def ways(vm: Machine, name: str) -> None:
    """Reads a file of the first generation in each way."""
    number, size = SIZES[name]
    found = vm.run(f"python3 - {AT}/{name} <<'END'\n{WAYS}\nEND", timeout=180).split()
    eq(len(found), 12, f"ways in {found}")
    for way, value in zip(found[::2], found[1::2], strict=True):
        eq(value, digest(number, size), f"{name} by {way}")


@needs(machines=1, own_modules=True)
def test_every_way_to_read_gives_the_bytes(vm: Lab) -> None:
    """read, pread, mmap, sendfile, splice and O_DIRECT of large, odd and empty files."""
    machine = load(vm)
    with mounted(machine):
        for name in SIZES:
            ways(machine, name)
        found = machine.run(f"cat {AT}/huge | head -c 20000000 | tail -c 1000 | sha256sum").split()[0]
        eq(found, hashlib.sha256(data(11, 20_000_000)[-1000:]).hexdigest(), "the middle of a huge file")
        eq(state(machine)["retries"], 0, "retries")
    machine.run("mods -r")


@needs(machines=1, own_modules=True)
def test_a_server_that_is_slow_or_short_gives_the_bytes(vm: Lab) -> None:
    """Late answers, answers in the reader's task, pieces, retries after a part, one page at a time."""
    machine = load(vm)
    for options in ("delay_ms=20", "inline", "short_bytes=30001,read_bytes=65536", "retry_every=2,read_bytes=65536",
                    "retry_every=3,short_bytes=5000,inline,read_bytes=20480", "readahead_pages=1,read_bytes=4096"):
        with mounted(machine, options):
            for name in ("odd", "dir/inner", "empty"):
                ways(machine, name)
            found = state(machine)
            eq(found["pending"], 0, f"{options}: subrequests without an answer")
            eq(found["retries"] > 0, "short" in options or "retry" in options, f"{options}: {found}")
    machine.run("mods -r")


@needs(machines=1, own_modules=True)
def test_errors_of_the_server_reach_the_reader(vm: Lab) -> None:
    """A failed and a dropped subrequest give EIO; what is read again later is right; early ends are zeroes."""
    machine = load(vm)
    for options in ("fail_every=1", "drop_every=1", "fail_every=1,inline", "drop_every=1,inline"):
        with mounted(machine, options):
            for flags in ("", "iflag=direct"):
                said = machine.try_run(f"dd if={AT}/odd of=/dev/null bs=64k {flags} 2>&1")
                ok(said.code and "Input/output error" in said.out, f"{options} {flags}: {said.out}")
            eq(state(machine)["pending"], 0, "subrequests without an answer")
    with mounted(machine, "fail_every=5,drop_every=7,read_bytes=65536"):
        machine.run(f"for turn in $(seq 50); do cat {AT}/odd > /tmp/odd 2>/dev/null && break; done")
        eq(machine.run("sha256sum < /tmp/odd").split()[0], digest(*SIZES["odd"]), "after failures")
    with mounted(machine, "end_at=5000"):
        shown = data(*SIZES["odd"])[:5000] + bytes(1_000_003 - 5000)
        eq(machine.run(f"sha256sum {AT}/odd").split()[0], hashlib.sha256(shown).hexdigest(), "an early end")
        eq(machine.run(f"dd if={AT}/odd bs=8k count=1 iflag=direct status=none | wc -c"), "5000\n", "O_DIRECT")
    machine.run("mods -r")


@needs(machines=1, own_modules=True)
def test_directories_have_all_their_names(vm: Lab) -> None:
    """5,000 entries, every third of 255 bytes; positions; names that are not there; links; stat; statfs."""
    machine = load(vm)
    with mounted(machine):
        wanted = [(f"entry {index:04}" + "x" * 255 * (index % 3 == 2))[:255] for index in range(5000)]
        eq(machine.run(f"ls -U {AT}/many").splitlines(), wanted, "names")
        script = (f"import os; found = list(os.scandir('{AT}/many')); "
                  "print(len(found), sum(e.inode() - 10000 - int(e.name[6:10]) for e in found), "
                  "all(e.is_file(follow_symlinks=False) for e in found))")
        eq(machine.run(f'python3 -c "{script}"'), "5000 0 True\n", "inode numbers and kinds")
        eq(machine.run(f"stat -c '%s %i' '{AT}/many/{wanted[4001]}' '{AT}/many/{wanted[2]}'"), "4001 14001\n2 10002\n")
        ok(machine.try_run(f"stat {AT}/many/entry").code, "a name that is not there")
        long_name = "y" * 256
        matches(machine.try_run(f"stat {AT}/{long_name} 2>&1").out, "File name too long")
        eq(machine.run(f"cd {AT}; stat -c %n *spaces*"), "a name with spaces, ü and \n\n", "an odd name")
        eq(machine.run(f"stat -c '%a %u %g %s %Y %F' {AT}/odd {AT}/dir {AT}/link"),
           "644 1000 100 1000003 1000000000 regular file\n755 1000 100 4096 1000000000 directory\n"
           "777 1000 100 9 1000000000 symbolic link\n")
        eq(machine.run(f"readlink {AT}/link {AT}/dangling; wc -c < {AT}/link"), "dir/inner\nnowhere/at all\n4097\n")
        ok(machine.try_run(f"cat {AT}/dangling").code, "a link to nowhere")
        eq(machine.run(f"stat -f -c '%S %b %f %a %c %d %l %t' {AT}"), "4096 1000 300 200 5012 7 255 66657272\n")
        matches(machine.try_run(f"cat {AT}/denied 2>&1").out, "Permission denied")
        before = state(machine)["refreshes"]
        machine.run(f"stat --cached=always {AT}/odd; stat --cached=never {AT}/odd")
        eq(state(machine)["refreshes"], before + 1, "refreshes")
    machine.run("mods -r")


@needs(machines=1, own_modules=True)
def test_nothing_is_written(vm: Lab) -> None:
    """Each change is refused with EROFS, before and after a remount that asks for it."""
    machine = load(vm)
    with mounted(machine):
        for remount in ("", f"mount -o remount,rw {AT}"):
            machine.try_run(remount)
            for deed in ("touch new", "mkdir new", "rm small", "rmdir dir", "mv small new", "ln small new",
                         "ln -s x new", "chmod 600 small", "chown 0 small", "truncate -s 0 small", "echo > small",
                         "touch small"):
                said = machine.try_run(f"cd {AT}; ({deed}) 2>&1")
                ok(said.code and "Read-only file system" in said.out, f"{deed}: {said.out}")
        script = (f"import mmap, os; fd = os.open('{AT}/small', os.O_RDONLY)\n"
                  "try: mmap.mmap(fd, 5, flags=mmap.MAP_SHARED, prot=mmap.PROT_WRITE)\n"
                  "except PermissionError: print('refused')")
        eq(machine.run(f"python3 - <<'END'\n{script}\nEND"), "refused\n", "a shared mapping to write to")
    machine.run("mods -r")


@needs(machines=1, own_modules=True)
def test_options_are_refused_by_name_and_shown(vm: Lab) -> None:
    """Unknown ones and bad values give EINVAL and a line that names the option; /proc/mounts shows the others."""
    machine = load(vm)
    for options, line in (("nonsense", "nonsense"), ("delay_ms=x", "delay_ms: not a number above 0"),
                          ("delay_ms", "delay_ms: not a number above 0"), ("inline=1", "inline: takes no value"),
                          ("delay_ms=4294967296", "delay_ms: not a number above 0"),
                          ("label", "label: needs a value")):
        mark = machine.log_mark()
        said = machine.try_run(f"mkdir -p {AT}; mount -i -t ferrotest none {AT} -o {options} 2>&1")
        ok(said.code, f"{options} was accepted")
        lines = said.out + "\n".join(machine.log_matches("ferrotest", mark))
        ok(line in lines, f"{options}: {lines!r}")
    said = machine.try_run(f"mount -t ferrotest other {AT} 2>&1")
    ok(said.code, "another source was accepted")
    with mounted(machine, r"delay_ms=5,stale,label=a\\040b\\\\c"):
        found = machine.run(f"grep {AT} /proc/mounts").split()
        eq(found[:3], ["none", AT, "ferrotest"])
        ok(found[3].startswith("ro,") and "generation=1,delay_ms=5,stale,label=" in found[3], found[3])
    with mounted(machine, "generation=3"):
        machine.run(f"mount -o remount,generation=4 {AT}")
        ok("generation=4" in machine.run(f"grep {AT} /proc/mounts"), "a remount")
    machine.run("mods -r")


@needs(machines=1, own_modules=True)
def test_a_file_that_is_rewritten_is_seen_at_the_next_open(vm: Lab) -> None:
    """Another generation is another inode: no byte of both in one read. Names that appear are found."""
    machine = load(vm)
    script = """
import hashlib, os, subprocess, sys
at, stale = sys.argv[1], sys.argv[2]
fd = os.open(f"{at}/odd", os.O_RDONLY)
first = os.pread(fd, 1000, 0)
print(os.path.exists(f"{at}/late"))
subprocess.run(["mount", "-o", f"remount,generation=2", at], check=True)
try:
    while part := os.pread(fd, 1 << 20, len(first)):
        first += part
    print(hashlib.sha256(first).hexdigest())
except OSError as why:
    print(why.errno)
print(hashlib.sha256(open(f"{at}/odd", "rb").read()).hexdigest())
print(os.path.exists(f"{at}/late"))
"""
    new = digest(*SIZES["odd"], generation=2)
    for options, old in (("readahead_pages=1", digest(*SIZES["odd"])), ("readahead_pages=1,stale", "116")):
        with mounted(machine, options):
            found = machine.run(f"python3 - {AT} x <<'END'\n{script}\nEND").split()
            eq(found, ["False", old, new, "True"], options)
    with mounted(machine, "forget"):
        eq(len(set(machine.run(f"cd {AT}; sha256sum odd; sha256sum odd").split())), 2, "digests")
        eq(state(machine)["bytes"], 2 * 1_000_003, "bytes of a file whose cached data is dropped at each open")
    with mounted(machine, "assume_ms=600000"):
        before = state(machine)["revalidations"]
        machine.run(f"for turn in $(seq 20); do stat {AT}/dir/inner; done > /dev/null")
        eq(state(machine)["revalidations"], before, "names that are taken to hold")
    machine.run("mods -r")


@needs(machines=1, own_modules=True)
def test_a_listing_saves_the_lookups(vm: Lab) -> None:
    """What the file system says of the names while a directory is read need not be looked up, nor is it made twice."""
    machine = load(vm)
    with mounted(machine, "remember,assume_ms=600000"):
        eq(machine.run(f"ls -U {AT}/many | wc -l"), "5000\n", "names")
        before = state(machine)
        ge(before["inodes"], 5000, "inodes")
        eq(machine.run(f"ls -lU {AT}/many | wc -l", timeout=180), "5001\n", "lines")
        after = state(machine)
        eq(after["lookups"], before["lookups"], "lookups")
        eq(after["inodes"], before["inodes"], "inodes")
        found = machine.run(f"for reader in $(seq 8); do find {AT} | sort | sha256sum & done; wait", timeout=180)
        eq(len(set(found.splitlines())), 1, "what several find at a time")
        eq(machine.run(f"cat {AT}/dir/inner | wc -c; readlink {AT}/link"), "4097\ndir/inner\n", "after a listing")
    machine.run("mods -r")


@needs(machines=1, own_modules=True)
def test_a_file_system_looks_before_each_read(vm: Lab) -> None:
    """What it drops before a read is read again, by read and splice."""
    machine = load(vm)
    script = f"""
import os
fd = os.open("{AT}/small", os.O_RDONLY)
for _ in range(3):
    os.pread(fd, 11, 0)
out, sink = os.pipe()
print(os.splice(fd, sink, 11, offset_src=0))
"""
    for options, reads in (("doubt", 4), ("", 1)):
        with mounted(machine, options):
            found = machine.run(f"python3 - <<'END'\n{script}\nEND").split()
            eq(found, ["11"], options)
            eq(state(machine)["bytes"], 11 * reads, f"{options}: bytes from the server")
    machine.run("mods -r")


ADD_KEY = """
import ctypes, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
kind, payload, *command = sys.argv[1:]
key = libc.syscall(248, kind.encode(), b"ferro:key", payload.encode(), len(payload), -3)
if "expired" in command:
    libc.syscall(250, 15, key, 1)
    import time; time.sleep(2.1)
libc.syscall(250, 3, key) if "revoked" in command else None
at = command[0]
print(subprocess.run(["mount", "-i", "-t", "ferrotest", "none", at, "-o", "secret=ferro:key"], stderr=-2).returncode)
"""


@needs(machines=1, own_modules=True)
def test_a_mount_gets_a_key_of_who_mounts(vm: Lab) -> None:
    """Of either type, from the session's keyring; a revoked one is an error of its own, an expired one is none."""
    machine = load(vm)
    machine.run(f"mkdir -p {AT}")
    for kind in ("user", "logon"):
        said = machine.run(f"python3 - {kind} 0123456789 {AT} <<'END'\n{ADD_KEY}\nEND")
        eq(said.split()[-1], "0", f"{kind}: {said}")
        eq(state(machine)["secret_bytes"], 10, kind)
        shown = machine.run(f"grep {AT} /proc/mounts")
        ok("secret" not in shown and "0123" not in shown, shown)
        machine.run(f"umount {AT}")
        for way, why in (("expired", "Required key not available"), ("revoked", "Key has been revoked")):
            done = machine.try_run(f"python3 - {kind} 0123456789 {AT} {way} 2>&1 <<'END'\n{ADD_KEY}\nEND")
            ok(why in done.out, f"{kind} {way}: {done.out}")
    done = machine.try_run(f"mount -i -t ferrotest none {AT} -o secret=none 2>&1")
    ok("Required key not available" in done.out, done.out)
    machine.run("mods -r")


@needs(machines=1, own_modules=True, smp=2)
def test_readers_share_what_they_read(vm: Lab) -> None:
    """64 readers of one file read each byte once from the server; an idle mount gives its memory back."""
    machine = load(vm)
    with mounted(machine, "delay_ms=20"):
        wanted = digest(*SIZES["odd"])
        found = machine.run(f"for reader in $(seq {READERS}); do sha256sum {AT}/odd & done; wait", timeout=180)
        eq({line.split()[0] for line in found.splitlines()}, {wanted}, "digests")
        eq(len(found.splitlines()), READERS)
        eq(state(machine)["bytes"], 1_000_003, "bytes from the server")
        machine.run(f"ls -lR {AT} > /dev/null", timeout=180)
        ge(state(machine)["inodes"], 5000, "inodes before")
        machine.run("echo 3 > /proc/sys/vm/drop_caches; sleep 0.2; echo 3 > /proc/sys/vm/drop_caches")
        until(lambda: state(machine)["inodes"] < 50, 10, "inodes are given back")
        eq(machine.run(f"sha256sum {AT}/odd").split()[0], wanted, "after the reclaim")
    machine.run("mods -r")


@needs(machines=1, own_modules=True, smp=2)
def test_an_unmount_ends_what_waits_for_the_server(vm: Lab) -> None:
    """-f makes readers of a silent server fail, -l waits for the last of them; no unload before; nothing is left."""
    machine = load(vm)
    for direct in ("", "iflag=direct"):
        with mounted(machine, "hold"):
            readers = [machine.start_job(f"dd if={AT}/{name} of=/dev/null bs=64k {direct}") for name in ("odd", "big")]
            until(lambda: state(machine)["pending"] >= 2, 20, "subrequests that wait")
            ok(machine.try_run(f"umount {AT}").code, "a mount in use was unmounted")
            ok(machine.try_run("rmmod vfs_test").code, "a module in use was unloaded")
            machine.try_run(f"umount -f {AT}")
            for reader in readers:
                ok(reader.wait(30).code, "a reader of a silent server ended well")
    machine.run(f"rm -f /run/go /run/open?; mount -t ferrotest none {AT} -o delay_ms=10,read_bytes=65536")
    readers = [machine.start_job(f"exec 3< {AT}/{name}; touch /run/open{number}; sha256sum <&3")
               for number, name in enumerate(("big", "big", "odd"))]
    # However slow the machine is, one of them is not done before the module was asked to go.
    held = machine.start_job(f"exec 3< {AT}/odd; touch /run/open3; until [ -e /run/go ]; do sleep 0.1; done")
    opened = [f"/run/open{number}" for number in range(4)]
    until(lambda: state(machine)["bytes"] > 0 and all(map(machine.exists, opened)), 20, "open files, the first bytes")
    machine.run(f"umount -l {AT}")
    ok(machine.try_run("rmmod vfs_test").code, "a module with open files was unloaded")
    machine.run("touch /run/go")
    eq(held.wait(20).code, 0, "who had a file open")
    machine.run("rm /run/go /run/open?")
    wanted = [digest(*SIZES[name]) for name in ("big", "big", "odd")]
    eq([reader.wait(60).out.split()[0] for reader in readers], wanted, "readers of a mount without a place")
    until(lambda: not machine.names("/proc/fs/ferrotest"), 20, "the end of the mount")
    machine.run("mods -r")
    ok(not machine.exists("/proc/fs/ferrotest"), "a directory in /proc is left")


@contextmanager
def server(vm: Machine, how: str = "") -> Iterator[None]:
    """The server in user space runs for the body."""
    job = vm.start_job(f"exec python3 - {how} <<'END'\n{SERVER}\nEND")
    try:
        until(lambda: vm.try_run("ss -Hltn 'sport = :7500'").out, 30, "the server listens")
        yield
    finally:
        job.kill()
        job.wait(20)


@needs(machines=1, own_modules=True)
def test_data_comes_from_a_socket_into_the_pages(vm: Lab) -> None:
    """A server in user space, whose connections break: what is missing is asked for again. Without it reads fail."""
    machine = load(vm)
    with server(machine), mounted(machine, "port=7500,read_bytes=65536"):
        for name in ("odd", "dir/inner"):
            ways(machine, name)
        found = state(machine)
        ge(found["retries"], 10, "retries")
        eq(found["pending"], 0, "subrequests without an answer")
    with mounted(machine, "port=7500"):
        ok(machine.try_run(f"cat {AT}/odd > /dev/null").code, "a read without a server")
    machine.run("mods -r")


@needs(machines=1, own_modules=True)
def test_a_reader_of_a_silent_server_can_be_killed(vm: Lab) -> None:
    """SIGKILL ends it at once, its request stays; umount -f ends the request too, by its connection."""
    machine = load(vm)
    with server(machine, "silent"), mounted(machine, "port=7500"):
        reader = machine.start_job(f"exec cat {AT}/odd")
        until(lambda: machine.try_run("ss -Htn state established 'dport = :7500'").out, 20, "a connection")
        reader.kill()
        ok(reader.wait(5).code, "it was not killed")
        ge(state(machine)["pending"], 1, "requests that wait")
        reader = machine.start_job(f"exec cat {AT}/odd > /dev/null")
        machine.try_run(f"until grep -qE 'netfs|folio' /proc/$(pidof -s cat)/stack; do sleep 0.1; done; umount -f {AT}")
        ok(reader.wait(5).code, "a reader of a silent server ended well")
        if machine.exists("/proc/fs/ferrotest/1/state"):
            eq(state(machine)["pending"], 0, "requests that wait after umount -f")
    machine.run("mods -r")


# Again and again; gfarm_mounting.mounts_come_and_go_* and an_unmount_ends_* show it in each run.
@needs(machines=1, own_modules=True, smp=2, tier=tier.ALL)
def test_mounts_come_and_go_under_load(vm: Lab) -> None:
    """Again and again: readers, reclaim, -f or -l at some moment, unload; the kernel finds no inode in use."""
    machine = load(vm)
    for turn in range(tier.of(8, 20)):
        options = ("delay_ms=2,read_bytes=16384", "inline", "retry_every=3,read_bytes=16384", "fail_every=9")[turn % 4]
        how = ("-f", "-l")[turn % 2]
        machine.run(f"mods ours vfs_test; mkdir -p {AT}; mount -t ferrotest none {AT} -o {options}")
        machine.run(f"for name in odd big huge; do cat {AT}/$name > /dev/null 2>&1 & done; ls {AT}/many > /dev/null & "
                    f"sleep 0.{turn % 5}; echo 3 > /proc/sys/vm/drop_caches; umount {how} {AT}; "
                    f"kill -9 $(jobs -p) 2>/dev/null; wait; mountpoint -q {AT} && umount {AT}; true")
        until(lambda: not machine.try_run("mods -r").code, 20, "an unload")


@needs(machines=1, own_modules=True)
def test_pages_of_a_request_come_from_several_places(vm: Lab) -> None:
    """Some through a scatter list, some as bytes, in any order; what is behind a gap is read again."""
    machine = load(vm)
    for options, names in (("lend", SIZES), ("lend,read_bytes=20480,inline", ("odd", "dir/inner"))):
        with mounted(machine, options):
            for name in names:
                ways(machine, name)
            ge(state(machine)["retries"], 5, "answers with a gap")
            eq(state(machine)["pending"], 0, "answers under way")


@needs(machines=1, own_modules=True)
def test_cached_pages_are_lent_as_they_are(vm: Lab) -> None:
    """Those before the page that is read are found and hold the file; that page is not found, nor is another inode."""
    machine = load(vm)
    with mounted(machine, "look,readahead_pages=16"):
        for name in ("big", "odd"):
            number, size = SIZES[name]
            eq(machine.run(f"sha256sum {AT}/{name}").split()[0], digest(number, size), name)
        ge(state(machine)["cached"], 10_000, "pages that were looked at")
        eq(state(machine)["wrong"], 0, "pages that were not as they should be")
