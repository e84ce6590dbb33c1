# SPDX-License-Identifier: GPL-2.0
"""Protection information in use: file systems that are exercised and fio that verifies, while paths fail.

    client: ext4, xfs, fio on /dev/rnbd{0,1,2} ══ two wires ══ server: three disks

`make test-all` exercises two of the modes for seconds; for longer, with a seed that was printed:

    VMLAB_SEED=7 python3 tools/vmlab run --long 'pi_use.*'
"""
from __future__ import annotations

from collections.abc import Callable

from vmlab import paths, rnbd, seed, tier
from vmlab.checks import eq, ok, until
from vmlab.exerciser import Exerciser
from vmlab.lab import Lab
from vmlab.needs import Test, needs
from vmlab.people import Person, Verifier
from vmlab.tests.pi import client_stats
from vmlab.tests.pi_devices import all_right, mapped, scsi_disk
from vmlab.tests.pi_store import format_disk, scrub

SMP = 2

DISK_MIB, COUNT = 48, 3
# How long nothing fails, with one path less, and without any.
QUIET_SECONDS, ALONE_SECONDS, OUTAGE_SECONDS = tier.of(2, 120), tier.of(1, 30), 3
ROUNDS = tier.of(1, 4)
MODES = ("crc64", "t10", "pass", "store")
# One of the modes is in each run, by chance; all of them are in a long one.
CHOSEN = seed.fresh().sample(MODES, 1)


def needs_mode(mode: str) -> Callable[[Test], Test]:
    """The needs of the test of a mode."""
    return needs(wires=2, timeout=tier.of(240, 2400), tier=tier.ALL if mode in CHOSEN else tier.LONG)


def map_all(lab: Lab, pi: str, devices: list[str]) -> list[rnbd.Disk]:
    """Maps the devices over both wires; IO waits for paths that come back."""
    options = f"access_mode=rw pi={pi}"
    disks = [rnbd.map_disk(lab, device, line=rnbd.request(lab, device, options=options, wires=2)) for device in devices]
    rnbd.round_robin(lab)
    rnbd.fail_fast(lab, "off")
    return disks


def all_connected(lab: Lab) -> None:
    """Both paths are back."""
    paths.back_seconds(lab, lambda: paths.states(lab) == ["connected"] * 2, 90, "the paths are back")


def trouble(lab: Lab, disks: list[rnbd.Disk]) -> None:
    """One wire is cut, then the other one too, and both are mended."""
    lab.defer(lab.mend, 0)
    lab.defer(lab.mend, 1)
    paths.rest(QUIET_SECONDS)
    lab.cut(0)
    until(lambda: paths.state(lab, 0) == "disconnected", 30, "the client has noticed")
    paths.rest(ALONE_SECONDS)
    lab.cut(1)
    until(lambda: disks[0].attribute("state") == "closed", 30, "the client has noticed that all are gone")
    paths.rest(OUTAGE_SECONDS)
    lab.mend(0)
    lab.mend(1)
    all_connected(lab)
    until(lambda: all(disk.attribute("state") == "open" for disk in disks), 60, "the disks are back")


def use(lab: Lab, pi: str, devices: list[str], expected: tuple[str, str, str]) -> None:
    """Exercises ext4, xfs and the third disk itself, with paths that fail; `expected` are mode, format, interval."""
    disks = map_all(lab, pi, devices)
    found = client_stats(disks[0])
    eq((found["mode"], found["format"], found["interval_bytes"]), expected)
    number = seed.fresh().randrange(1 << 32)
    exercisers = [Exerciser(lab, disk, kind, number) for disk, kind in zip(disks, ("ext4", "xfs"), strict=False)]
    everyone: list[Person] = [*exercisers, Verifier(disks[2], 600)]
    for _ in range(ROUNDS):
        trouble(lab, disks)
        if not all(one.running for one in everyone):
            break       # its end says what it has found
    paths.rest(QUIET_SECONDS)
    everyone[2].end()
    for one in exercisers:
        one.end()
        refused = sum(count for deed, count in one.deeds.items() if deed.endswith("refused"))
        ok(refused * 5 < sum(one.deeds.values()), f"{one.kind} refused too much: {one.deeds}")
        paths.figure(f"{one.kind}: {sum(one.deeds.values())} deeds, {refused} of them refused")
    for disk, device in zip(disks, devices, strict=True):
        all_right(lab, disk, device)
        disk.unmap()


@needs_mode("crc64")
def test_file_systems_are_right_with_crc64(pair: Lab) -> None:
    """ext4, xfs and fio on mode wire with CRC64, while one path and then all of them fail."""
    rnbd.ram_disk(pair, DISK_MIB, COUNT)
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    use(pair, "crc64", [f"ram{n}" for n in range(COUNT)], ("wire", "crc64", "4096"))


@needs_mode("t10")
def test_file_systems_are_right_with_t10(pair: Lab) -> None:
    """The same with tuples of 512 bytes, so that file systems and direct IO have blocks of 512 bytes."""
    rnbd.ram_disk(pair, DISK_MIB, COUNT)
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    use(pair, "t10", [f"ram{n}" for n in range(COUNT)], ("wire", "t10", "512"))


@needs_mode("pass")
def test_file_systems_are_right_in_mode_pass(pair: Lab) -> None:
    """The same on parts (dm-linear) of a SCSI disk that stores the tuples and verifies them."""
    scsi_disk(pair.server, pair, mib=DISK_MIB * COUNT)
    sectors = DISK_MIB * 2048
    for part in range(COUNT):
        mapped(pair.server, pair, f"part{part}", f"0 {sectors} linear /dev/sda {part * sectors}")
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    use(pair, "require", [f"dm-{part}" for part in range(COUNT)], ("pass", "t10", "512"))


@needs_mode("store")
def test_file_systems_are_right_in_mode_store(pair: Lab) -> None:
    """The same on disks that keep tuples in a sidecar, each of which is whole afterwards."""
    rnbd.ram_disk(pair, DISK_MIB, COUNT)
    devices = [f"ram{n}" for n in range(COUNT)]
    for device in devices:
        format_disk(pair, device)
    rnbd.load_server(pair)
    rnbd.load_client(pair)
    use(pair, "require", devices, ("store", "crc64", "4096"))
    for device in devices:
        found = scrub(pair, device)
        eq(found["bad"], 0, f"{device}: {found}")
        ok(found["good"] > 100, f"{device}: {found}")
