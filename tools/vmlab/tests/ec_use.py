# SPDX-License-Identifier: GPL-2.0
"""An array of rnbd_ec in use: file systems that are exercised and fio that verifies, while its members fail in turn.

    ext4, xfs, btrfs, fio ── dm-3 to dm-6 ── /dev/ec0 ── rnbd_ec ── dm-0, 1, 2 ── /dev/ram0, 1, 2

The bytes of the exercisers are random, or one byte again and again, or zeroes: raw, compressed and left out.
`make test-all` has one of the file systems, by chance; `VMLAB_SEED=N` gives a run again, `--long` has all, for longer.
"""
from __future__ import annotations

from vmlab import ec, paths, rnbd, seed, tier
from vmlab.checks import eq, ge, ok
from vmlab.exerciser import Exerciser
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.people import Person, Verifier

SMP = 2
TIER = tier.ALL

MEMBER_MIB = 128
KINDS = ("ext4", "xfs", "btrfs")
FILES_MIB, VERIFIED_MIB = 56, 16
QUIET_SECONDS, DEGRADED_SECONDS = tier.of(1, 60), tier.of(1, 30)


def slices(lab: Lab, array: ec.Array) -> list[rnbd.Disk]:
    """A disk for each user."""
    begin = 0
    disks = []
    for number, mib in enumerate((*[FILES_MIB] * len(KINDS), VERIFIED_MIB)):
        lab.server.run(f"dmsetup create s{number} --table '0 {mib * 2048} linear {array.path} {begin * 2048}'")
        lab.defer(ec.remove, lab, f"s{number}")
        disks.append(rnbd.Disk(lab.server, f"dm-{3 + number}", "", ""))
        begin += mib
    ge(array.sectors, begin * 2048, "the slices are within the array")
    return disks


@needs(machines=1, own_modules=True, timeout=tier.of(400, 2400))
def test_file_systems_are_right_while_members_fail(vm: Lab) -> None:
    """File systems and fio at once; each member fails and returns, and each ninth read is rebuilt."""
    chance = seed.fresh()
    kinds = KINDS if tier.is_long() else chance.sample(KINDS, 1)
    number = chance.randrange(1 << 32)
    ec.disks(vm, MEMBER_MIB)
    ec.load(vm)
    array = ec.assemble(vm, ec.line(options="recover_every_n=9"))
    disks = slices(vm, array)
    exercisers = [Exerciser(vm, disk, kind, number) for disk, kind in zip(disks, kinds, strict=False)]
    everyone: list[Person] = [*exercisers, Verifier(disks[-1], 600)]
    for member in range(3):
        paths.rest(QUIET_SECONDS)
        ec.fails(vm, member, MEMBER_MIB)
        array.becomes("degraded")
        paths.rest(DEGRADED_SECONDS)
        ec.works(vm, member, MEMBER_MIB)
        array.becomes("clean", 120)
        if not all(one.running for one in everyone):
            break       # its end says what it has found
    for one in everyone:
        one.end()
    paths.figure(", ".join(f"{one.kind}: {sum(one.deeds.values())}" for one in exercisers))
    stats = array.stats()
    eq((stats["wrong_reads"], stats["member_returns"]), (0, 3))
    ok(stats["triggered_reads"] and stats["collected_segments"], f"nothing was rebuilt, or collected: {stats}")
