# SPDX-License-Identifier: GPL-2.0
"""Fake servers of Gfarm in a guest, and a user of a mount of them: peer/gfarm_fake*.py.

    for row in gfarm_fake.run(vm, "names", 120):
        print(row["name"], row["wrong"])
"""
from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

from vmlab import gfarm, loaded
from vmlab.checks import Failed
from vmlab.lab import Lab
from vmlab.patience import factor

PEER = Path(__file__).with_name("peer")
FOLDER = "/run/gfarm_fake"
FILES = ("gfarm_fake_wire.py", "gfarm_fake.py", "gfarm_fake_lies.py", "gfarm_fake_judge.py",
         "gfarm_fake_late.py", "gfarm_fake_run.py")
AT = "/mnt/gfarm_fake"
# Names a file of the host to which what comes of each lie is written while the test runs.
TELL = "VMLAB_GFARM_FAKE"


def run(lab: Lab, group: str, seconds: float, seed: int = 0) -> list[dict[str, Any]]:
    """Has the module loaded, and a group of lies told to a mount; answers what came of each."""
    machine = lab.server
    loaded.of(lab).load(machine, "gfarm", "mods ours gfarm_ra")
    machine.run(f"mkdir -p {FOLDER}")
    for name in FILES:
        machine.push(PEER / name, f"{FOLDER}/{name}")
    key = gfarm.new_key().strip()
    lab.defer(machine.try_run, f"umount -f {AT}; umount -l {AT}")
    # What a thread says of a peer that has gone does not stand between the rows.
    program = f"cd {FOLDER} && KEY={shlex.quote(key)} PATIENCE={factor():.1f} exec python3 -B -S gfarm_fake_run.py " \
              f"{group} {seed} 2> errors"
    script = f"echo {shlex.quote(key)} | keyctl padd logon gfarm:root @s > /dev/null && {program}"
    parts: list[str] = []

    def tell(part: str) -> None:
        """Output is kept also if the program hangs; somebody may look at it meanwhile."""
        parts.append(part)
        if file := os.environ.get(TELL):
            with Path(file).open("a", encoding="utf-8") as told:
                told.write(part)

    done = machine.start_job(f"keyctl session - bash -c {shlex.quote(script)} 2>&1", seconds, tell).wait()
    # What came after the last part.
    tell(done.out)
    code = done.code
    lines = "".join(parts).splitlines()
    rows = [json.loads(line) for line in lines if line.startswith("{")]
    if code:
        last = rows[-1]["name"] if rows else "none"
        rest = [line for line in lines if not line.startswith("{")] + machine.read(f"{FOLDER}/errors").splitlines()
        raise Failed(f"{group}: code {code} after {len(rows)} cases, the last one is '{last}': {rest[-8:]}")
    return rows
