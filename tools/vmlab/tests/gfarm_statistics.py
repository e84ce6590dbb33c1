# SPDX-License-Identifier: GPL-2.0
"""Statistics of a mount of Gfarm: counters below /proc/fs/gfarm, and tracepoints."""
from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from vmlab import gfarm_mount, tier
from vmlab.checks import eq, ge, ok, until
from vmlab.gfarm_mount import mounted, put_random
from vmlab.lab import Lab
from vmlab.machine import Machine
from vmlab.needs import needs
from vmlab.trace import FOLDER, MOUNT

TIER = tier.ALL

BYTES = 3_000_000
# More than are closed by one question. All are closed at once: on a slow machine one after the other takes too long.
FILES = 40
OPEN_AND_CLOSE = "import os, sys; opened = [os.open(name, os.O_RDONLY) for name in sys.argv[1:]]; os.closerange(3, 99)"


@contextmanager
def traced(machine: Machine) -> Iterator[None]:
    """All events of gfarm_ra are recorded meanwhile."""
    machine.run(f"{MOUNT}; cd {FOLDER}; echo > trace; "
                "echo 4096 > buffer_size_kb; echo 1 > events/gfarm/enable")
    try:
        yield
    finally:
        machine.run(f"cd {FOLDER}; echo 0 > events/gfarm/enable; echo > trace")


def events(machine: Machine, event: str) -> list[dict[str, str]]:
    """The values of each event of this name that was recorded."""
    lines = re.findall(rf": gfarm_{event}: (.*)", machine.read(f"{FOLDER}/trace"))
    return [dict(pair.split("=") for pair in line.split()) for line in lines]


def total(found: list[dict[str, str]], value: str) -> int:
    """The sum of a value."""
    return sum(int(event[value]) for event in found)


@needs(machines=1, timeout=240)
def test_each_request_is_counted_and_traced(vm: Lab) -> None:
    """Of each kind as many events as the counter says, and as many microseconds and bytes."""
    gfarm = gfarm_mount.start(vm)
    gfarm.run("gfmkdir /counted; gfln -s one /counted/link")
    digest = put_random(gfarm, "counted/one", BYTES)
    with traced(gfarm.machine), mounted(gfarm) as mount:
        gfarm.run(f"ls -l {mount.at}/counted; readlink {mount.at}/counted/link; df {mount.at}; "
                  f"test ! -e {mount.at}/counted/absent")
        eq(mount.sha256("counted/one"), digest)

        def agree() -> bool:
            """Files are closed by a worker, some time after the program has."""
            stats, requests = mount.stats(), events(gfarm.machine, "request")
            names = {event["request"] for event in requests}
            each = {name: [event for event in requests if event["request"] == name] for name in names}
            return "gfsd_close" in names and len(requests) == stats["gfmd_requests"] + stats["gfsd_requests"] and all(
                (stats[name], stats[f"{name}_us"]) == (len(those), total(those, "us")) for name, those in each.items())

        until(agree, 20, "counters and events agree")
        ok(gfarm.machine.try_run(f"echo 0 > {mount.folder}/stats").code, "counters were written")
        stats = mount.stats()
        for kind in ("attributes", "link", "list", "open", "usage"):
            ge(stats[f"gfmd_{kind}"], 1, kind)
        for name in stats:
            if name.endswith("_us_max"):
                ok(stats[name] <= stats[name.removesuffix("_max")], f"{name} is more than the sum")
        connected = [event["server"] for event in events(gfarm.machine, "connected")]
        for server in ("gfmd", "gfsd"):
            eq(connected.count(server), stats[f"{server}_connects"], f"connections to {server}")
        received = events(gfarm.machine, "received")
        eq((total(received, "bytes"), stats["gfsd_bytes"]), (BYTES, BYTES), "bytes")
        eq(min(int(event["position"]) for event in received), 0, "the first position")
        requests = events(gfarm.machine, "request")
        absent = {"request": "gfmd_attributes", "error": "-2"}
        ok(any(absent.items() <= event.items() for event in requests), "no event tells of the name that is not there")
    gfarm.run("gfrm -r /counted")


@needs(machines=1, timeout=240)
def test_what_is_made_again_is_counted_and_traced(vm: Lab) -> None:
    """A gfsd that dies under a reader: the file is opened again, which an event says with the reason."""
    gfarm = gfarm_mount.start(vm)
    digest = put_random(gfarm, "again", BYTES, copies=2)
    with traced(gfarm.machine), mounted(gfarm, gfarm_mount.PATIENT) as mount:
        reader = mount.reader("again", 4096)
        until(lambda: reader.reads, 30, "it reads")
        victim = gfarm_mount.serving(gfarm.machine)[0]
        gfarm.kill(vm, victim)
        mount.forget()
        reader.go_on()
        eq(reader.digest(), digest)
        gfarm.bring_up(victim)
        again = events(gfarm.machine, "again")
        eq(total(again, "requests"), mount.stats()["gfsd_retries"], "retries")
        ge(len(again), 1, "events")
        ok(all(event["server"] == "gfsd" and int(event["error"]) < 0 for event in again), f"no reason in {again}")


@needs(machines=1, timeout=240)
def test_files_are_closed_together_and_soon(vm: Lab) -> None:
    """Fewer questions than files; a moment later gfmd gives the numbers of removed files to new ones."""
    gfarm = gfarm_mount.start(vm)
    names = " ".join(f"closed{number}" for number in range(FILES))
    numbers = f"stat -c %i {names}"
    with gfarm.fuse() as folder, mounted(gfarm) as mount:
        gfarm.run(f"cd {folder}; for name in {names}; do echo $name > $name; done", 60)
        old = set(gfarm.run(f"cd {mount.at}; {numbers}").split())
        before = mount.stats()
        gfarm.run(f"cd {mount.at}; python3 -I -S -c '{OPEN_AND_CLOSE}' {names}; sleep 1.5", 60)
        after = mount.stats()
        opened, closed = (after[kind] - before.get(kind, 0) for kind in ("gfmd_open", "gfmd_close"))
        eq((opened, closed < FILES), (FILES, True), f"questions; {closed} of them close")
        gfarm.run(f"cd {folder}; rm {names}; for name in {names}; do echo $name > $name; done", 60)
        eq(set(gfarm.run(f"cd {folder}; {numbers}").split()), old, "numbers of files that are open are not used again")
        gfarm.run(f"cd {folder}; rm {names}")


@needs(machines=1, timeout=240)
def test_a_small_file_is_one_read_where_its_gfsd_agrees_with_gfmd(vm: Lab) -> None:
    """What it has is asked for before a first read only after a file whose time was set, or which is long."""
    gfarm = gfarm_mount.start(vm)
    lengths = {"first": 3000, "dated": 3000, "next": 3000, "last": 3000, "long": 200_000}
    digests = {name: put_random(gfarm, name, length) for name, length in lengths.items()}
    with gfarm.fuse() as folder:
        gfarm.run(f"touch -d 2001-02-03 {folder}/dated")
    with mounted(gfarm) as mount:
        def asked(name: str) -> tuple[int, int]:
            before = mount.stats()
            eq(mount.sha256(name), digests[name], name)
            after = mount.stats()
            stats, reads = (after.get(kind, 0) - before.get(kind, 0) for kind in ("gfsd_stat", "gfsd_read"))
            return stats, reads

        eq(asked("first"), (0, 1), "the gfsd tells what gfmd told")
        eq(asked("dated"), (0, 2), "another time: read again")
        eq(asked("next"), (1, 1), "after a file with another time")
        eq(asked("last"), (0, 1), "after one with the same")
        eq(asked("long")[0], 1, "questions before a long read")
    gfarm.run(f"gfrm {' '.join(f'/{name}' for name in lengths)}")
