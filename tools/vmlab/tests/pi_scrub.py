# SPDX-License-Identifier: GPL-2.0
"""A scrub of a device that keeps tuples in a sidecar, while clients use it.

    client /dev/rnbd0 ══ rnbd-server ── /dev/ram0 or a device of the device mapper, with a sidecar
                              └── ctl/devices/D/sidecar/scrub
"""
from __future__ import annotations

import time

from vmlab import paths, rnbd
from vmlab.checks import eq, ge, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.people import Verifier
from vmlab.tests.pi import map_with, no_errors, server_stats
from vmlab.tests.pi_devices import mapped
from vmlab.tests.pi_store import DATA, DEVICES, at_the_medium, format_disk

VALUES = ("blocks", "checked", "good", "unwritten", "not_empty", "bad")


def scrub_file(device: str = "ram0") -> str:
    """The file in which a scrub of a device of the server is begun and looked at."""
    return f"{DEVICES}/{device}/sidecar/scrub"


def found(lab: Lab, device: str = "ram0") -> dict[str, str]:
    """The findings of the scrub so far."""
    return dict(line.split() for line in lab.server.read(scrub_file(device)).splitlines())


def counts(lab: Lab, device: str = "ram0") -> dict[str, int]:
    """The numbers of a scrub that has finished, and add up."""
    until(lambda: found(lab, device)["state"] == "finished", 60, "the scrub has finished")
    numbers = {name: int(number) for name, number in found(lab, device).items() if name in VALUES}
    eq(numbers["checked"], numbers["blocks"], str(numbers))
    eq(numbers["good"] + numbers["unwritten"] + numbers["bad"], numbers["blocks"], str(numbers))
    return numbers


def command(lab: Lab, word: str, device: str = "ram0") -> str:
    """Writes to the file; the error's name."""
    return lab.server.write(scrub_file(device), word)


@needs(wires=1)
def test_a_device_in_use_is_scrubbed(pair: Lab) -> None:
    """While fio writes and verifies: nothing is wrong. Then what the medium has changed is found, block by block."""
    rnbd.start(pair, mib=16)
    format_disk(pair)
    disk = map_with(pair, "require")
    eq(found(pair)["state"], "idle")
    eq(command(pair, "stop"), "ENOENT", "none runs")
    blocks = disk.sectors // 8
    load = Verifier(disk, 600)
    for _ in range(3):
        eq(command(pair, "start"), "")
        eq(counts(pair)["bad"], 0, "bad blocks while the device is written")
    load.end()
    no_errors(pair, disk)
    # All of it has data now; what the medium changes is found where it is, and nothing else.
    pair.client.run(f"dd if=/dev/urandom of={disk.path} bs=1M oflag=direct status=none || true")
    flip = ("python3 -S -c 'b = bytearray(open(\"/run/bad\", \"rb\").read()); b[99] ^= 1; "
            "open(\"/run/bad\", \"wb\").write(b)'")
    bad = (0, 17, 1000, blocks - 1)
    for number in bad:
        at_the_medium(pair, "read", DATA + number, "/run/bad")
        pair.server.run(flip)
        at_the_medium(pair, "write", DATA + number, "/run/bad")
    mark = pair.server.log_mark()
    eq(command(pair, "start"), "")
    numbers = counts(pair)
    eq((numbers["good"], numbers["bad"]), (blocks - len(bad), len(bad)), str(numbers))
    for number in bad:
        eq(len(pair.server.log_matches(f"ram0: scrub: data block {number}: its data do not fit its guard", mark)), 1)
    eq(len(pair.server.log_matches(f"ram0: scrub finished: {blocks - 4} good, 0 never written, 4 bad", mark)), 1)
    eq(server_stats(pair)["read_errors"], "0", "a scrub is no client's read")
    disk.unmap()
    ok(not pair.server.exists(scrub_file()), "the file is still there")


@needs(wires=1)
def test_blocks_that_cannot_be_read_are_named(pair: Lab) -> None:
    """Two data blocks and a block of tuples that cannot be read: only they, and the blocks that the tuples are of, are
    bad, and the scrub goes on behind them."""
    rnbd.ram_disk(pair, 16)
    sectors = 16 << 11
    mapped(pair.server, pair, "holes", f"0 {sectors} linear /dev/ram0 0")
    format_disk(pair, "dm-0")
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    disk = map_with(pair, "require", device="dm-0")
    pair.client.run(f"dd if=/dev/urandom of={disk.path} bs=1M count=4 oflag=direct status=none")
    blocks = disk.sectors // 8
    disk.unmap()        # the tuples are not in the server's memory any more
    table, at = [], 0
    # The tuples are those of blocks 2560 to 2815.
    for number in (5, 700, blocks + 10):
        begin = (DATA + number) * 8
        table += [f"{at} {begin - at} linear /dev/ram0 {at}", f"{begin} 8 error"]
        at = begin + 8
    table.append(f"{at} {sectors - at} linear /dev/ram0 {at}")
    lines = "\\n".join(table)
    pair.server.run(f"printf '{lines}\\n' > /run/table && dmsetup suspend holes && dmsetup load holes /run/table && "
                    "dmsetup resume holes")
    disk = map_with(pair, "require", device="dm-0")
    mark = pair.server.log_mark()
    eq(command(pair, "start", "dm-0"), "")
    numbers = counts(pair, "dm-0")
    eq((numbers["good"], numbers["bad"]), (1022, 2 + 256), str(numbers))
    for number in (5, 700, 2560):
        eq(len(pair.server.log_matches(f"dm-0: scrub: data block {number}: it cannot be read", mark)), 1)
    disk.unmap()


@needs(wires=1)
def test_a_scrub_is_stopped(pair: Lab) -> None:
    """A word stops it, and the last unmap while it runs; a second one and unknown words are refused."""
    rnbd.ram_disk(pair, 64)
    # A slow medium, so that it still runs: each read takes 20 ms.
    pair.server.run("modprobe dm_delay")
    mapped(pair.server, pair, "slow", f"0 {64 << 11} delay /dev/ram0 0 20")
    format_disk(pair, "dm-0")
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    disk = map_with(pair, "require", device="dm-0")
    mark = pair.server.log_mark()
    for word in ("1", "Start", "start now", "x" * 4000):
        eq(command(pair, word, "dm-0"), "EINVAL", repr(word[:9]))
    ok(pair.server.log_matches("dm-0: scrub: 'start now' is not start, mend or stop", mark), "no line")
    eq(command(pair, "start", "dm-0"), "")
    eq(command(pair, "start", "dm-0"), "EBUSY")
    until(lambda: int(found(pair, "dm-0")["checked"]) > 0, 30, "it has begun")
    eq(command(pair, "stop", "dm-0"), "")
    until(lambda: command(pair, "start", "dm-0") == "", 30, "it was stopped, and begins anew")
    until(lambda: int(found(pair, "dm-0")["checked"]) > 0, 30, "it has begun")
    ge(3000, int(found(pair, "dm-0")["checked"]), "it does not run to the end")
    # Clients' IO goes on beside it.
    pair.client.run(f"dd if=/dev/urandom of={disk.path} bs=4096 count=20 oflag=direct status=none", 60)
    began = time.monotonic()
    disk.unmap()
    paths.figure(f"unmapped while a scrub runs: {time.monotonic() - began:.1f} s")
    ok(not pair.server.exists(scrub_file("dm-0")), "the file is still there")
    rnbd.remove_module(pair.server, "rnbd-server")
