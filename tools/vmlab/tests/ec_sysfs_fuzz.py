# SPDX-License-Identifier: GPL-2.0
"""Every file in sysfs of rnbd_ec, written at random by several threads while arrays come and go: nothing breaks, and
the array that is in use goes on.

What is written is in tools/vmlab/peer/ec_sysfs_fuzzer.py. The seed is new in each run; VMLAB_SEED=N gives one again.
"""
from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from vmlab import ec, seed, tier
from vmlab.checks import eq, ge, ok
from vmlab.lab import Lab
from vmlab.needs import needs

SMP = 2
TIER = tier.ALL

FOLDER = Path(__file__).resolve().parents[1] / "peer"
PROGRAM = "ec_sysfs_fuzzer.py"
SECONDS = tier.of(8, 300)
DISKS = 7
ARRAY = "/sys/devices/virtual/block/ec*/ec"
WRITTEN = {"/sys/devices/virtual/rnbd-ec/ctl/assemble", *(f"{ARRAY}/{name}" for name in (
    "replace", "fail", "recover_every_n", "stop"))}


@needs(machines=1, own_modules=True, timeout=240)
def test_random_writes_to_every_file_of_arrays(vm: Lab) -> None:
    """No complaint, no hang; what must be refused is; the IO of the watched array is right, and goes on."""
    chance = seed.fresh()
    ec.disks(vm, count=DISKS)
    ec.load(vm)
    array = ec.assemble(vm)
    history = array.history(writers=1)
    for name in ("sysfs_fuzzer.py", PROGRAM):
        vm.client.push(FOLDER / name, f"/run/{name}")
    disks = [ec.path(number) for number in range(DISKS)]
    job = {"seed": chance.randrange(1 << 32), "seconds": SECONDS, "members": disks[:3], "spare": disks[3:]}
    out = vm.client.run(f"nice -n -15 python3 -S /run/{PROGRAM} '{json.dumps(job)}'", 6 * SECONDS + 100)
    report: dict[str, Any] = json.loads(out.splitlines()[-1])
    counts: dict[str, Counter[str]] = {kind: Counter(said) for kind, said in report["counts"].items()}
    said = sum(counts.values(), Counter())
    print(f"# {said.total()} writes, {report['reads']} reads, {report['ios']} IOs: {dict(said.most_common())}",
          flush=True)
    for kind, errors in sorted(counts.items()):
        print(f"#   {kind}: {dict(errors.most_common())}", flush=True)
    eq((report["stuck"], report["failures"]), ([], []), "threads that did not end, and what was not expected")
    eq(sorted(WRITTEN - counts.keys()), [], "files that were not written")
    history.clean()
    eq(array.state(), "clean")
    taken = sum(errors["ok"] for kind, errors in counts.items() if kind.endswith("/assemble"))
    ge(taken, 1, "arrays that were made or assembled")
    ok(report["ios"], "no IO was done on the arrays that come and go")
    eq(vm.client.names("/sys/block/dm-3/holders"), [], "who has a spare device")
