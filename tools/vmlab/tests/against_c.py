# SPDX-License-Identifier: GPL-2.0
"""Ours beside the C drivers in the same machines: what user space and the peer see is the same, but for what is listed.

    one machine: map with the C modules, look at all of sysfs, unmap, unload; the same with ours; compare
"""
from __future__ import annotations

import json
import re
from pathlib import Path

from vmlab import paths, rnbd, wire
from vmlab.checks import eq, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.uevents import Uevents

SMP = 2

PROGRAM = Path(__file__).resolve().parents[1] / "peer" / "sysfs_tree.py"
IN_GUEST = "/run/sysfs_tree.py"
VIRTUAL = "/sys/devices/virtual"
FOLDERS = {"rtrs-client": f"{VIRTUAL}/rtrs-client", "rtrs-server": f"{VIRTUAL}/rtrs-server",
           "rnbd-client": f"{VIRTUAL}/rnbd-client", "rnbd-server": f"{VIRTUAL}/rnbd-server",
           "disk": f"{VIRTUAL}/block/rnbd0", "class/rtrs-client": "/sys/class/rtrs-client",
           "class/rtrs-server": "/sys/class/rtrs-server", "class/rnbd-client": "/sys/class/rnbd-client",
           "class/rnbd-server": "/sys/class/rnbd-server", "rtrs_server": "/sys/module/rtrs_server/parameters",
           "rnbd_server": "/sys/module/rnbd_server/parameters"}
# Of a device of neither side; a write to it is the last event.
LAST_EVENT = "/sys/devices/system/cpu/cpu0/uevent"
Entry = list[str]
KIND, MODE, TEXT = range(3)
# Names that only ours has, with the reason.
ONLY_OURS = {
    "rtrs-client/s1/mp_policy": "mpath_policy by the name that the documents of C give it (D28)",
    "rtrs-client/s1/fast_io_fail_tmo": "IO waits in an outage (D21)",
    "rtrs-client/s1/reconnect_delay_ms": "connects at once, then with back-off (D23)",
    "rtrs-client/s1/heartbeat_interval_ms": "how soon a silent peer is noticed (D24)",
    "rtrs-client/s1/heartbeat_missed_max": "the same",
    "rtrs_server/heartbeat_interval_ms": "the same at the server",
    "rtrs_server/heartbeat_missed_max": "the same at the server",
    "rtrs_server/max_memory_mib": "the server's memory has a limit",
    "rtrs_server/write_copy_max": "short writes are copied (decision 0032)",
    "rtrs_server/trace": "steps of state machines are logged, for the tests",
    "disk/wwid": "the disk's identity (decision 0011)",
    "disk/rnbd/cache_losses": "power failures of the server (decision 0012)",
    "disk/rnbd/pi_stats": "protection information (decision 0019)",
    "rnbd-server/ctl/devices/ram0/sessions/s1/pi_stats": "the same at the server",
    "rnbd_server/pi": "what the server offers of it",
    "rnbd_server/sidecar": "whether it looks for a sidecar (decision 0022)",
    "rnbd_server/srv_verify": "what the server verifies of it",
    "disk/queue/io_timeout": "a request has a time limit (D24)",
}
# Names whose text differs: what ours has to match, and the reason.
OTHER_TEXT: dict[str, tuple[str, str]] = {}
# Counters and times: the number of words is compared, and that they are numbers.
NUMBERS = re.compile(r"\s*\d+")
# What is done with the disk while the wire is captured; on one processor, so that the order is always the same.
DEEDS = """
taskset -pc 0 $$ >/dev/null
dd if=/dev/zero of={disk} bs=4k count=1 seek=2 oflag=direct status=none
dd if={disk} of=/dev/null bs=4k count=1 skip=2 iflag=direct status=none
dd if=/dev/zero of={disk} bs=64k count=2 oflag=direct status=none
dd if={disk} of=/dev/null bs=64k count=2 iflag=direct status=none
dd if=/dev/zero of={disk} bs=4k count=1 oflag=direct,dsync status=none
blkdiscard -o 1M -l 64K {disk}
blkdiscard -z -o 2M -l 64K {disk}
"""
# What our client and our server say that C does not, as (pattern, what C says), with the reason.
CLIENT_SAYS = {
    # The question for the server's boot and the disks' identities (decisions 0011, 0012) is in reserved bytes.
    r"(?<=^admin write_imm imm type 0 0 bytes and 0000000002000000)46464231[0-9a-f]{16}": 24 * "0",
    # So is that it knows the fence message (decision 0023); our server says nothing to a client that has not said it.
    r"(?<=^REQ 0000bd1b0002[0-9a-f]{8}0100 uuids 01)464e4331": 8 * "0",
}
SERVER_SAYS: dict[str, str] = {}
# What our client says twice.
ASKED = "admin write_imm imm type 0 0 bytes and 00000000020000"


def collect(lab: Lab, modules: str) -> tuple[dict[str, Entry], list[str]]:
    """The files in sysfs of a mapped disk with these modules, which are loaded for it and unloaded; and its events."""
    rnbd.ram_disk(lab, 16)
    rnbd.load_server(lab, modules)
    rnbd.load_client(lab, modules)
    watch = Uevents(lab.client)
    disk = rnbd.map_disk(lab)
    disk.fio("--rw=randrw --bs=4k --size=64k --iodepth=4").clean()
    lab.client.push(PROGRAM, IN_GUEST)
    words = " ".join(f"{name}={folder}" for name, folder in FOLDERS.items())
    entries: dict[str, Entry] = json.loads(lab.client.run(f"python3 -I -S {IN_GUEST} {words}"))
    eq(lab.client.write(f"{disk.control}/resize", "16384"), "", "resize")
    path = paths.to_wire(lab)
    eq(lab.client.write(f"{path}/disconnect", "1"), "", "disconnect")
    until(lambda: disk.attribute("state") == "closed", 10, "the disk is closed")
    eq(lab.client.write(f"{path}/reconnect", "1", 60), "", "reconnect")
    until(lambda: disk.attribute("state") == "open", 20, "the disk is open")
    disk.unmap()
    paths.rest(1)
    # Events come in order.
    eq(lab.client.write(LAST_EVENT, "change"), "", "the last event")
    watch.wait_for(f"DEVPATH={LAST_EVENT[4:].removesuffix('/uevent')}\n")
    events = [event for event in watch.end().split("\n\n") if VIRTUAL[4:] in event]
    rnbd.unload(lab, lab.client)
    rnbd.remove_module(lab.client, "brd")
    return entries, [_event(text) for text in events]


def _event(text: str) -> str:
    """The content of an event, but for the numbers that count events and disks."""
    numbers = ("SEQNUM", "DISKSEQ")
    return " ".join(sorted(line for line in text.splitlines() if "=" in line and not line.startswith(numbers)))


def form(text: str) -> str:
    """A regular expression for all texts that differ from this one in their numbers only."""
    return r"\s*\d+".join(re.escape(part) for part in NUMBERS.split(text))


def compare(ours: dict[str, Entry], c: dict[str, Entry]) -> list[str]:
    """All differences that are not listed, in words."""
    wrong = [f"only C has {name}" for name in c.keys() - ours.keys()]
    wrong += [f"only ours has {name}" for name in ours.keys() - c.keys() - ONLY_OURS.keys()]
    for name in sorted(ours.keys() & c.keys()):
        mine, theirs = ours[name], c[name]
        if mine[:TEXT] != theirs[:TEXT]:
            wrong.append(f"{name} is {mine[:TEXT]}, in C {theirs[:TEXT]}")
        wanted, _why = OTHER_TEXT.get(name, (form(theirs[TEXT]), ""))
        if not re.fullmatch(wanted, mine[TEXT]):
            wrong.append(f"{name} has {mine[TEXT]!r}, in C {theirs[TEXT]!r}")
    return wrong


@needs(machines=1, own_modules=True, timed=True, timeout=200)
def test_sysfs_of_a_mapped_disk(vm: Lab) -> None:
    """Names, modes, links, forms and events of both sides, the disk's queue included: what differs is listed."""
    for modules in ("c", "ours"):
        ok(vm.assets.module_set(modules), f"the module set '{modules}' is not built")
    (c, events_c), (ours, events) = collect(vm, "c"), collect(vm, "ours")
    eq(compare(ours, c), [], "differences")
    # Client and server are in one machine, and do not wait for each other.
    for side in ("the client", "the server"):
        mine, theirs = ([event for event in said if ("rtrs-server" in event) == (side == "the server")]
                        for said in (events, events_c))
        eq(mine, theirs, f"events of {side}")
    eq(sorted((ONLY_OURS.keys() | OTHER_TEXT.keys()) - ours.keys()), [], "listed, but not there")


def session(pair: Lab, client: str, server: str) -> list[wire.Message]:
    """The messages of a session with these modules: map, write, read, flush, FUA, discard, write zeroes, unmap."""
    rnbd.null_disk(pair, "gb=1 memory_backed=1 discard=1 cache_size=4 fua=1")
    rnbd.load_server(pair, server)
    rnbd.load_client(pair, client)
    if client == "ours":
        rnbd.copy_reads(pair, 0)
    with wire.captured(pair) as messages:
        disk = rnbd.map_disk(pair, "nullb0", session="wiretest")
        pair.client.run(DEEDS.format(disk=disk.path))
        disk.unmap()
    for machine in pair.machines:
        rnbd.unload(pair, machine)
    rnbd.remove_module(pair.server, "null_blk")
    return messages


def said(messages: list[wire.Message], by_client: bool) -> list[str]:
    """The messages of one side, without heartbeats; and without those that end a connection, which either may do
    first."""
    return [str(message) for message in messages
            if message.from_client == by_client and not message.is_heartbeat and message.kind not in ("DREQ", "DREP")]


def differences(ours: list[str], c: list[str], listed: dict[str, str]) -> list[str]:
    """The messages that only one has sent, after what is listed was replaced in ours; and another order, if that is
    all."""
    mine = ours
    for pattern, text in listed.items():
        mine = [re.sub(pattern, text, line) for line in mine]
    # One question more: each path is asked before it is used, the first one too.
    mine = [line for number, line in enumerate(mine) if not (line == mine[number - 1] and ASKED in line)]
    wrong = [f"only ours: {line}" for line in mine if line not in c]
    wrong += [f"only C: {line}" for line in c if line not in mine]
    # Messages of the connection manager leave by a queue pair of their own: which comes first on the wire is chance.
    for is_management in () if wrong else (True, False):
        a, b = ([line for line in said if (line.split()[0] in wire.MANAGEMENT.values()) == is_management]
                for said in (mine, c))
        if a != b:
            at = next((number for number, two in enumerate(zip(a, b, strict=False)) if two[0] != two[1]), len(b))
            wrong.append(f"message {at} of {len(a)}, in C {len(b)}, is another: {a[at:at + 2]}, in C {b[at:at + 2]}")
    return wrong


@needs(own_modules=True, timed=True, timeout=240)
def test_bytes_of_a_session(pair: Lab) -> None:
    """Captured on the wire: what our client says to a C server, and our server to a C client, is what C says, while no
    READ is copied."""
    c = session(pair, "c", "c")
    ok(len(said(c, True)) > 20, f"only {len(c)} messages were captured")
    client = differences(said(session(pair, "ours", "c"), True), said(c, True), CLIENT_SAYS)
    server = differences(said(session(pair, "c", "ours"), False), said(c, False), SERVER_SAYS)
    eq((client, server), ([], []), "our client, our server")
