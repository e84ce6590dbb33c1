# SPDX-License-Identifier: GPL-2.0
"""Power failures of a server of objects whose disk has a volatile cache, and really loses it: see power.py.

    rioc_ledger.py (client) ── /dev/rioc ── wire ── rioc-server ── loop0 ── page cache ── vda
"""
from __future__ import annotations

from pathlib import Path

import pytest

from vmlab import paths, seed, tier
from vmlab.checks import eq, ge, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.tests import power, rioc_tool

PEER = Path(__file__).resolve().parents[1] / "peer"
FOLDER = "/run/ledger"
WRITERS = 3
LOG = f"name=bb log=/dev/{power.DEVICE}"


def serve(lab: Lab, options: str = "") -> None:
    """The server's disk, modules and store, after each of its boots."""
    lab.server.run(power.CACHE)
    lab.server.run("mods ours rioc-server", 120)
    eq(lab.server.write(rioc_tool.ADD, f"{LOG} {options}".strip(), rioc_tool.SECONDS), "")


def done(lab: Lab) -> int:
    """The operations that the writers were answered."""
    return sum(int(count) for count in lab.client.run(f"cat {FOLDER}/[0-9] 2>/dev/null || true").split())


@pytest.mark.parametrize("crashes", [pytest.param(1, id="the_power_failure_of_a_cache"),
                                     pytest.param(3, id="three_power_failures_of_a_cache",
                                                  marks=pytest.mark.tier(tier.ALL))])
@needs(wires=1, disk_mib=64, own_modules=True, disruptive=True, timeout=600)
def test_what_was_acknowledged_survives(pair: Lab, crashes: int) -> None:
    """Under load: writes, copies, truncations and deletions that were answered are there, whole and once; what was in
    flight is carried out when the server is back."""
    for machine in pair.machines:
        machine.run("mods -r")
    pair.defer(rioc_tool.end, pair)
    serve(pair, "mode=create force=1")
    pair.client.run(f"mods ours rioc-client; mkdir {FOLDER}", 120)
    eq(rioc_tool.connect(pair), "")
    for name in ("rioc_fuzzer.py", "rioc_ledger.py"):
        pair.client.push(PEER / name, f"/run/{name}")
    chance = seed.fresh().randrange(1 << 32)
    job = pair.client.start_job(f"python3 -S /run/rioc_ledger.py bb {chance} {WRITERS} {FOLDER}")
    state = f"{rioc_tool.CONTROL}/sessions/bb/state"
    for _ in range(crashes):
        before = done(pair)
        until(lambda before=before: done(pair) > before + 200, 60, "the writers write")
        pair.reboot(pair.server)
        serve(pair)
        paths.back_seconds(pair, lambda: pair.client.read(state).strip() == "connected", 90, "the session is back")
    before = done(pair)
    until(lambda: done(pair) > before + 100, 60, "the writers go on")
    pair.client.run(f"touch {FOLDER}/stop")
    lines = job.ok(120).splitlines()
    ok(lines and lines[-1].startswith("ok"), f"{lines[:4]}")
    ge(int(lines[-1].split()[1]), 300, "operations")
