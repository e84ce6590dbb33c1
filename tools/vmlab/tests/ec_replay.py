# SPDX-License-Identifier: GPL-2.0
"""rnbd_ec: what a power failure of all members leaves, at each of many moments of one history.

The members are slices of a device of dm-log-writes, which logs what becomes durable in one order for all of them. The
log is replayed up to many points, and the array is assembled there: with all members, and without each of them. It is
the file system that says what has to be there: guest/ec_replay.py.
"""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vmlab import ec, paths, rnbd, seed, tier
from vmlab.checks import WrongData, eq, ge
from vmlab.lab import Lab
from vmlab.needs import needs

TIER = tier.ALL

PROGRAM = Path(__file__).resolve().parents[1] / "guest/ec_replay.py"
IN_GUEST = "/run/ec_replay.py"
# The log has to have room on a disk of this size, of which as much takes memory as is written.
RAM_DISK_MIB, RAM_DISKS = 192, 5
POINTS = tier.of(64, 200)
# Steps of the load, and a member that fails in the middle of them and comes back. The array is stopped after each
# session, and assembled before the next: that is in the log too.
SESSIONS = [(30, None), (30, 1), *[(10, None)] * 6, (30, 2), *[(10, None)] * 5]
EXT4 = {
    "fs": "ext4", "mkfs": "mkfs.ext4 -q -F -m 0 -J size=4 -N 64 -E nodiscard,lazy_itable_init=0".split(),
    "mount": "discard", "look": "", "fsck": ["e2fsck", "-fn"], "member_kib": 10 << 10,
}
# xfs wants 300 MiB, but for its own tests.
XFS = {
    "fs": "xfs", "mkfs": "mkfs.xfs -q -f -K --unsupported -m reflink=0,rmapbt=0".split(),
    "mount": "discard", "look": "", "fsck": ["xfs_repair", "-n"], "member_kib": 32 << 10,
}
FILES = {"files": 6, "replaced": 2, "blocks": 16, "noise_kib": 256}


def replayed(lab: Lab, options: dict[str, Any]) -> None:
    """Runs the program in the machine, which finds nothing wrong."""
    options |= FILES | {"seed": seed.fresh().randrange(1 << 32), "points": POINTS, "sessions": SESSIONS}
    rnbd.ram_disk(lab, RAM_DISK_MIB, RAM_DISKS)
    lab.server.run(f"for name in dm_log_writes dm_snapshot {options['fs']}; do modprobe $name || exit; done")
    ec.load(lab)
    lab.server.push(PROGRAM, IN_GUEST)
    lines = lab.server.run(f"python3 -B -I -S {IN_GUEST} '{json.dumps(options)}'", 3600).splitlines()
    said = [json.loads(line) for line in lines]
    report = said[-1]
    if report["wrong"]:
        raise WrongData("\n".join(map(str, said[:-1])))
    paths.figure(f"{report['looks']} looks at {report['points']} points of {report['entries']} entries, "
                 f"{report['bytes'] >> 20} MiB; {report['refused']} times another member lacked something; recorded in "
                 f"{report['load_s']} s, replayed in {report['replay_s']} s")
    eq((report["points"], report["stats"]["member_returns"]), (POINTS, 2))
    ge(report["stats"]["collected_segments"], 10)


@needs(machines=1, own_modules=True, timeout=900)
def test_what_is_flushed_is_there_wherever_the_log_is_cut(vm: Lab) -> None:
    """ext4 at 64 points (200 in long runs): with all members, and at every other one without one (there each)."""
    replayed(vm, EXT4 | {"fill": [2, 6], "each": tier.is_long()})


@needs(machines=1, own_modules=True, timeout=3000, tier=tier.LONG)
def test_the_same_with_xfs(vm: Lab) -> None:
    """xfs at 200 points, with all members and without each."""
    replayed(vm, XFS | {"fill": [8, 6], "each": True})
