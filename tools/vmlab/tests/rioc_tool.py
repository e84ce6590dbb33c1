# SPDX-License-Identifier: GPL-2.0
"""/dev/rioc and the program rioc: objects of a server in the memory of another machine."""
from __future__ import annotations

import json
from pathlib import Path

from kdir import programs
from vmlab import paths, rnbd, seed, tier
from vmlab.checks import eq, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs

TIER = tier.ALL
PEER = Path(__file__).resolve().parents[1] / "peer"
CONTROL = "/sys/class/rioc-client/ctl"
ADD = "/sys/class/rioc-server/ctl/add_store"
SECONDS = 120.0


def modules(lab: Lab) -> None:
    """The modules of both sides alone, and the program."""
    for machine in lab.machines:
        machine.run("mods -r")
    lab.defer(end, lab)
    lab.server.run("mods ours rioc-server", 120)
    lab.client.push(programs.RIOC.build(), "/usr/bin/rioc")
    lab.client.run("chmod 755 /usr/bin/rioc; mods ours rioc-client", 120)


def begin(lab: Lab, ram_mib: int = 64, paths: int = 1) -> None:
    """A store bb of the server, a session bb of the client, and the program."""
    modules(lab)
    eq(lab.server.write(ADD, f"name=bb ram_mib={ram_mib}", SECONDS), "")
    eq(connect(lab, paths=paths), "")


def connect(lab: Lab, name: str = "bb", options: str = "", paths: int = 1) -> str:
    """The errno of connecting a session."""
    line = " ".join(f"path=ip:10.0.{number}.2" for number in range(paths))
    return lab.client.write(f"{CONTROL}/connect", f"sessname={name} {line} {options}".strip(), SECONDS)


def end(lab: Lab) -> None:
    """Unloads all."""
    for machine in (lab.client, lab.server):
        if machine.alive:
            machine.run("mods -r", 120)


def back(lab: Lab) -> None:
    """Waits until the session has a path again."""
    state = f"{CONTROL}/sessions/bb/state"
    paths.back_seconds(lab, lambda: lab.client.read(state) == "connected", 60, "a path is back")


def fails(lab: Lab, line: str, *words: str) -> None:
    """A command that fails, and says so in these words."""
    said = lab.client.run(f"! {line} 2>&1")
    for word in words:
        ok(word in said, f"{line} does not say {word!r}: {said}")


@needs(wires=1, own_modules=True)
def test_objects_are_put_got_copied_and_removed(pair: Lab) -> None:
    """What a user does, with sizes beside those of blocks and of operations, and what is said about errors."""
    begin(pair)
    run = pair.client.run
    eq(json.loads(run("rioc -o json info bb"))["durable"], False)
    for number, size in enumerate((0, 1, 4095, 4096, 4097, 114688, 114689, 1 << 20, 5_000_001)):
        name = f"1:{number}"
        run(f"head -c {size} /dev/urandom > /run/o; rioc put bb {name} /run/o; rioc get bb {name} | cmp - /run/o", 60)
        eq(json.loads(run(f"rioc -o json stat bb 1:{number}"))["size"], size)
    eq(sorted(run("rioc ls bb").split()), [f"1:{number}" for number in range(9)])
    # A copy, and what is written to its source and to itself later.
    run("rioc cow bb 1:8 2:8; head -c 5000001 /run/o > /run/c; rioc get bb 2:8 | cmp - /run/c")
    run("printf abc | rioc put bb 1:8 --offset 4094; rioc get bb 2:8 | cmp - /run/c")
    eq(run("rioc get bb 1:8 --offset 4094 --length 3"), "abc")
    run("rioc cow bb 2:8 3:0 --offset 8192 --length 200000 --to 4096; rioc get bb 3:0 --offset 4096 > /run/p; "
        "tail -c +8193 /run/c | head -c 200000 | cmp - /run/p")
    # A smaller file makes the object smaller; a longer one has zeroes.
    run("printf hello | rioc put bb 1:8; rioc truncate bb 1:8 8192; rioc get bb 1:8 > /run/p")
    eq(run("stat -c %s /run/p; head -c 5 /run/p").split(), ["8192", "hello"])
    run("rioc rm bb 1:0 1:1; rioc flush bb 1:8")
    fails(pair, "rioc get bb 1:0", "not there", "rioc ls bb")
    fails(pair, "rioc put bb 1:8 --new /run/p", "there already", "rioc rm bb 1:8")
    fails(pair, "rioc ls cc", "no session cc", "sessname=cc path=")
    fails(pair, "rioc truncate bb 1:8 0x100000000000", "less than 16 TiB")
    eq(pair.client.read(f"{CONTROL}/sessions/bb/state"), "connected")
    eq(pair.client.read(f"{CONTROL}/sessions/bb/store"), "bb (in memory)")


@needs(wires=1, own_modules=True)
def test_a_line_for_connect_says_what_is_wrong(pair: Lab) -> None:
    """Its errno, and one line of the log; a session that is used is not disconnected."""
    begin(pair)
    mark = pair.client.log_mark()
    eq(connect(pair), "EEXIST")
    eq(connect(pair, "cc"), "ENOENT")
    eq(connect(pair, "cc", "store=bb colour=red"), "EINVAL")
    eq(connect(pair, "cc", "store=bb"), "")
    eq(pair.client.write(f"{CONTROL}/disconnect", "sessname=dd"), "ENOENT")
    eq(pair.client.write(f"{CONTROL}/disconnect", "cc"), "EINVAL")
    pair.client.run("rm -f /run/held")
    held = pair.client.start_job("rioc lease cc 7:7 -- sh -c 'touch /run/held; sleep 3'")
    until(lambda: pair.client.exists("/run/held"), 20, "a program uses the session")
    eq(pair.client.write(f"{CONTROL}/disconnect", "sessname=cc"), "EBUSY")
    held.ok(30)
    eq(pair.client.write(f"{CONTROL}/disconnect", "sessname=cc"), "")
    for line in ("connect: session bb exists", "session cc: the server does not give store cc: ENOENT",
                 "connect: unknown or empty option 'colour=red'", "disconnect: 'cc': only sessname=NAME",
                 "disconnect: session cc is used by 1 open files"):
        ok(len(pair.client.log_matches(line, mark)) >= 1, line)


# A lease of one file, which another file of the same session cannot end.
RELEASES = """
import ctypes, errno, fcntl, os, struct
def ask(file, kind, lease=0, name=b""):
    room = ctypes.create_string_buffer(name)
    of = (0, kind == 13, 0, len(name), ctypes.addressof(room) if name else 0)
    request = bytearray(struct.pack("=4I14Q", 1, kind, 0, lease, *of, *[0] * 9))
    try:
        fcntl.ioctl(file, 3 << 30 | 128 << 16 | 0xb9 << 8 | 1, request)
    except OSError as failed:
        return errno.errorcode[failed.errno], 0
    return 0, struct.unpack_from("=I", request, 12)[0]
one, other = (os.open("/dev/rioc", os.O_RDWR) for _ in range(2))
for file in (one, other):
    assert ask(file, 1, name=b"bb")[0] == 0
done, lease = ask(one, 13)
print(done, *(ask(file, 14, lease)[0] for file in (other, one, one)))
"""


@needs(wires=1, own_modules=True)
def test_a_lease_holds_against_another_session(pair: Lab) -> None:
    """Until its command has ended, also by SIGKILL; commands within use it. Only its file ends it, and one of a program
    that was killed in an outage is never asked for."""
    begin(pair)
    eq(connect(pair, "cc", "store=bb"), "")
    run = pair.client.run
    run("printf old | rioc put bb 1:1")
    other = "env -u RIOC_LEASE rioc"
    out = run(f"rioc lease bb 1:1 --writer -- sh -c '{other} get cc 1:1 2>&1; printf new | rioc put bb 1:1; "
              "rioc get bb 1:1'")
    ok("a lease excludes it" in out and out.endswith("new"), out)
    out = run(f"rioc lease bb 1:1 -- sh -c '{other} get cc 1:1; printf more | {other} put cc 1:1 2>&1; exit 0'")
    ok(out.startswith("new") and "a lease excludes it" in out, out)
    eq(run("rioc lease bb 1:1 -- sh -c 'exit 7'; echo $?"), "7\n")
    job = pair.client.start_job("rioc lease bb 1:1 --writer -- sleep 100 & echo $! > /run/pid; wait")
    until(lambda: "lease" in run("rioc get cc 1:1 2>&1; true"), 10, "the lease is taken")
    run("kill -9 $(cat /run/pid)")
    until(lambda: run("rioc get cc 1:1 2>&1; true") == "new", 20, "the lease has ended with its program")
    job.kill()
    eq(run(f"python3 -S - <<'E'\n{RELEASES}E\n"), "0 ESTALE 0 ESTALE\n")
    pair.cut(0)
    until(lambda: all(pair.client.read(f"{CONTROL}/sessions/{name}/state") == "waiting" for name in ("bb", "cc")), 40,
          "no path is left")
    before = pair.server.read("/sys/class/rioc-server/ctl/stores/bb/stats")
    run("timeout -s KILL 1 rioc lease bb 1:2 -- true; true")
    pair.mend(0)
    back(pair)
    run("sleep 1")
    eq(pair.server.read("/sys/class/rioc-server/ctl/stores/bb/stats"), before)


@needs(wires=2, own_modules=True, timeout=240)
def test_what_is_written_survives_lost_paths(pair: Lab) -> None:
    """One path is lost, then all: a put waits, and is the right one when it is done. Programs that wait can be killed,
    and fail after the time that they may wait."""
    begin(pair, paths=2)
    run = pair.client.run
    run("head -c 3000000 /dev/urandom > /run/o; echo 1 > /sys/class/rtrs-client/bb/mpath_policy")
    load = pair.client.start_job("for n in 1 2 3 4 5 6; do rioc put bb 1:$n /run/o && rioc get bb 1:$n | cmp - /run/o "
                                 "|| exit 1; done")
    pair.cut(0)
    load.ok(90)
    pair.cut(1)
    until(lambda: pair.client.read(f"{CONTROL}/sessions/bb/state") == "waiting", 40, "no path is left")
    waits = pair.client.start_job("rioc put bb 2:1 /run/o && rioc get bb 2:1 | cmp - /run/o")
    killed = pair.client.start_job("exec rioc put bb 2:2 /run/o")
    run("sleep 1; pkill -9 -f 'put bb 2:2'")
    until(lambda: not killed.running, 5, "a program that waits is killed")
    pair.mend(0)
    pair.mend(1)
    back(pair)
    waits.ok(90)
    eq(pair.client.read(f"{CONTROL}/sessions/bb/state"), "connected")
    run("echo 1 > /sys/class/rtrs-client/bb/fast_io_fail_tmo")
    pair.cut(0)
    pair.cut(1)
    until(lambda: pair.client.read(f"{CONTROL}/sessions/bb/state") == "failing", 60, "they have waited enough")
    fails(pair, "rioc put bb 2:3 /run/o", "sessions/bb/state")
    pair.mend(0)
    pair.mend(1)
    back(pair)
    run("rioc get bb 2:1 | cmp - /run/o")


@needs(wires=1, own_modules=True)
def test_a_server_that_was_loaded_again_has_a_new_store(pair: Lab) -> None:
    """The session waits for the store of its name, says that nothing is left, and goes on; and the module, which stays
    while a program has the device open, unloads in an outage."""
    begin(pair)
    run, mark = pair.client.run, pair.client.log_mark()
    run("printf old | rioc put bb 1:1")
    eq(pair.server.write(ADD.replace("add", "del"), "bb"), "")
    fails(pair, "rioc get bb 1:1", "the server has removed the store")
    eq(pair.server.write(ADD, "name=bb ram_mib=64", SECONDS), "")
    # The session finds it by this.
    fails(pair, "rioc get bb 1:1", "was begun anew meanwhile")
    fails(pair, "rioc get bb 1:1", "not there")
    eq(len(pair.client.log_matches("store bb was begun anew", mark)), 1)
    run("printf old | rioc put bb 1:1")
    mark = pair.client.log_mark()
    half = pair.client.start_job("(head -c 5000000 /dev/zero; until [ -e /run/go ]; do sleep 0.1; done; echo more) | "
                                 "rioc put bb 2:2 2>&1")
    until(lambda: "2:2" in run("rioc ls bb"), 20, "a half is written")
    pair.server.run("mods -r; mods ours rioc-server", 120)
    eq(pair.server.write(ADD, "name=bb ram_mib=64", SECONDS), "")
    until(lambda: pair.client.log_matches("store bb was begun anew", mark), 60, "the session has found the new store")
    run("touch /run/go")
    done = half.wait(20)
    ok(done.code == 1 and "was begun anew meanwhile" in done.out, f"a half of an object is called written: {done}")
    ok("2:2" not in run("rioc ls bb"), "a file of before has written into the new store")
    fails(pair, "rioc get bb 1:1", "not there")
    run("printf new | rioc put bb 1:1; exec 3<>/dev/rioc; ! rmmod rioc_client 2>/dev/null; exec 3>&-")
    pair.cut(0)
    until(lambda: pair.client.read(f"{CONTROL}/sessions/bb/state") == "waiting", 40, "no path is left")
    run("rmmod rioc_client", 30)
    paths.mend_for_a_new_session(pair)


@needs(wires=1, own_modules=True, timeout=240)
def test_what_waits_in_an_outage_is_not_done_in_a_new_store(pair: Lab) -> None:
    """Programs write, delete and take a lease while the server is away; when it is back it has a new store in memory:
    they are told, and nothing of what they have asked for is done there."""
    begin(pair)
    run, mark = pair.client.run, pair.client.log_mark()
    run("printf old | rioc put bb 1:1; head -c 3000000 /dev/urandom > /run/o")
    pair.cut(0)
    until(lambda: pair.client.read(f"{CONTROL}/sessions/bb/state") == "waiting", 40, "no path is left")
    # All have attached to the store of before, and wait for a path.
    waiting = [pair.client.start_job(line) for line in (
        "rioc put bb 3:3 /run/o 2>&1", "rioc rm bb 1:1 2>&1", "rioc lease bb 3:3 --writer -- true 2>&1")]
    run("sleep 2")
    pair.server.run("mods -r; mods ours rioc-server", 120)
    eq(pair.server.write(ADD, "name=bb ram_mib=64", SECONDS), "")
    pair.mend(0)
    back(pair)
    until(lambda: pair.client.log_matches("store bb was begun anew", mark), 60, "the session has found the new store")
    for done in [job.wait(60) for job in waiting]:
        ok(done.code == 1 and "was begun anew meanwhile" in done.out, f"it is not told: {done}")
    shown = (line.split() for line in pair.server.read("/sys/class/rioc-server/ctl/stores/bb/stats").splitlines())
    stats = {name: int(value) for name, value in shown}
    # Changes that have come: what fails is counted as well.
    eq({name: stats[name] for name in ("objects", "writes", "others", "failed")},
       {"objects": 0, "writes": 0, "others": 0, "failed": 0})
    eq(run("rioc ls bb"), "")


@needs(wires=1, own_modules=True)
def test_another_store_of_the_name_has_kept_nothing(pair: Lab) -> None:
    """A log that replaces a store in memory, and a new log that replaces another; the same log has kept all."""
    rnbd.ram_disk(pair, 16)
    begin(pair)
    run, mark = pair.client.run, pair.client.log_mark()

    def replace(line: str) -> None:
        run("printf old | rioc put bb 1:1")
        eq(pair.server.write(ADD.replace("add", "del"), "bb"), "")
        eq(pair.server.write(ADD, f"name=bb log=/dev/ram0 {line}", SECONDS), "")

    for line in ("mode=create", "mode=create force=1"):
        replace(line)
        fails(pair, "rioc get bb 1:1", "was begun anew meanwhile")
        fails(pair, "rioc get bb 1:1", "not there")
    replace("mode=assemble")
    eq(run("rioc get bb 1:1"), "old")
    eq(len(pair.client.log_matches("store bb was begun anew", mark)), 2)


@needs(wires=1, own_modules=True)
def test_a_client_that_has_changed_nothing_goes_on_with_its_log(pair: Lab) -> None:
    """Its log is deleted and added again, and has kept no operation of it: its first change is carried out."""
    modules(pair)
    rnbd.ram_disk(pair, 16)
    eq(pair.server.write(ADD, "name=bb log=/dev/ram0 mode=create", SECONDS), "")
    eq(connect(pair), "")
    for text in ("first", "second"):
        eq(pair.server.write(ADD.replace("add", "del"), "bb"), "")
        eq(pair.server.write(ADD, "name=bb log=/dev/ram0", SECONDS), "")
        pair.client.run(f"printf {text} | rioc put bb 1:1")
        eq(pair.client.run("rioc get bb 1:1"), text)


# Flips the first bit of the letters, wherever they are on a disk.
FLIP = """
import os
with open("/dev/ram0", "r+b", 0) as disk:
    found = disk.read().find(b"damaged" * 9)
    assert found > 0
    disk.seek(found)
    disk.write(b"e")
    os.fsync(disk.fileno())
"""


@needs(wires=1, own_modules=True)
def test_a_bit_that_flips_is_an_error(pair: Lab) -> None:
    """Of the medium: found by the client in whole blocks, by the server in parts; what is written again is well."""
    rnbd.ram_disk(pair, 16)
    modules(pair)
    eq(pair.server.write(ADD, "name=bb log=/dev/ram0 mode=create", SECONDS), "")
    eq(connect(pair), "")
    run, mark = pair.client.run, pair.client.log_mark()
    run("yes damaged | tr -d '\\n' | head -c 4096 > /run/bad; yes well | head -c 12288 > /run/well; cat /run/bad "
        "/run/well > /run/o; rioc put bb 1:1 /run/o; rioc get bb 1:1 | cmp - /run/o")
    pair.server.run(f"python3 -S - <<'E'\n{FLIP}E\n")
    fails(pair, "rioc get bb 1:1", "error")
    eq(len(pair.client.log_matches("object 1:1: what was read at 0 is not what was written there", mark)), 1)
    fails(pair, "rioc get bb 1:1 --offset 1 --length 9", "error")
    fails(pair, "sh -c 'printf x | rioc put bb 1:1 --offset 9'", "error")
    run("rioc get bb 1:1 --offset 4096 | cmp - /run/well")
    run("rioc put bb 1:1 --offset 0 /run/bad; rioc get bb 1:1 | cmp - /run/o")


@needs(wires=1, own_modules=True)
def test_a_log_is_checked_and_what_goes_on_is_shown(pair: Lab) -> None:
    """`rioc top` on both sides; `rioc check` of a log that is in use, whole, damaged, and of what is none."""
    rnbd.ram_disk(pair, 16)
    modules(pair)
    pair.server.push(programs.RIOC.build(), "/usr/bin/rioc")
    eq(pair.server.write(ADD, "name=bb log=/dev/ram0 mode=create"), "")
    eq(connect(pair), "")
    run, serve = pair.client.run, pair.server.run
    serve("chmod 755 /usr/bin/rioc")
    run("yes damaged | tr -d '\\n' | head -c 4096 > /run/o; seq 9999 >> /run/o; rioc put bb 1:1 /run/o; "
        "rioc cow bb 1:1 2:2; seq 9999 | rioc put bb 3:3")
    # The table is written meanwhile, so that the log is not followed from its beginning.
    run("for n in 1 2; do head -c 3000000 /dev/urandom | rioc put bb 4:4; done", 60)
    shown = json.loads(run("rioc -o json top"))["sessions"][0]
    eq((shown["session"], shown["paths_connected"], shown["in_flight"]), ("bb", 1, 0))
    ok(shown["written_bytes"] > 50000, str(shown))
    rows = run("timeout 4 rioc top bb; true")
    ok("writes/s" in rows and rows.count("bb (durable)") > 1, rows)
    ok(any(line.split()[:4] == ["bb", "durable", "1", "4"] for line in serve("rioc top --once").splitlines()), "top")
    ok("in use" in serve("rioc check /dev/ram0 2>&1; echo $?"), "a log in use")
    eq(pair.client.write(f"{CONTROL}/disconnect", "sessname=bb"), "")
    eq(pair.server.write(ADD.replace("add", "del"), "bb"), "")
    until(lambda: serve("rioc check /dev/ram0; echo $?").endswith("clean\n0\n"), 20, "the device is free")
    serve(f"python3 -S - <<'E'\n{FLIP}E\n")
    said = serve("rioc check /dev/ram0; echo $?")
    for words in ("lost: object 1:1: 4096 bytes from 0 on", "lost: object 2:2: 4096 bytes from 0 on", "damaged\n4\n"):
        ok(words in said, said)
    ok("3:3" not in said, said)
    eq(json.loads(serve("rioc -o json check /dev/ram0; true"))["damaged_blocks"], 1)
    # What the check has read is what was written before: the log is opened, and the rest is there.
    eq(pair.server.write(ADD, "name=bb log=/dev/ram0"), "")
    eq(connect(pair), "")
    run("seq 9999 > /run/o; rioc get bb 3:3 | cmp - /run/o")
    eq(serve("head -c 1000000 /dev/zero > /run/none; rioc check /run/none 2>&1; echo $?").split()[-1], "8")


@needs(wires=1, own_modules=True)
def test_the_ioctl_takes_anything(pair: Lab) -> None:
    """Calls that are right and wrong, of three programs: no errno but those of the page, nothing beside the buffer."""
    begin(pair, ram_mib=16)
    pair.client.push(PEER / "rioc_fuzzer.py", "/run/rioc_fuzzer.py")
    jobs = [pair.client.start_job(f"python3 -S /run/rioc_fuzzer.py bb {seed.fresh().randrange(1 << 32)} 15")
            for _ in range(3)]
    for job in jobs:
        lines = job.ok(120).splitlines()
        eq(lines[:-1], [])
        calls, done = map(int, lines[-1].split())
        ok(calls > 300 and done > calls // 10, lines[-1])
    eq(pair.client.run("printf x | rioc put bb 9:9; rioc get bb 9:9"), "x")
