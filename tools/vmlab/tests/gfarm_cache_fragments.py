# SPDX-License-Identifier: GPL-2.0
"""Fragments of pages that get lost, come twice, or in another order: each page has its own bytes.

    a holder in user space (peer/gfarm_cache_lossy.py) ── rxe0 ── gfarm_ra, a node that reads      one machine
"""
from __future__ import annotations

import json
import shlex
from typing import Any

from vmlab import gfarm_mount, gfarm_node, tier
from vmlab.checks import eq, ge, in_time, ok
from vmlab.gfarm import FOLDER
from vmlab.gfarm_node import KEY
from vmlab.lab import Lab
from vmlab.needs import needs

SMP = 2

NAME = "fragments"
PAGE, READ = 4096, 16384
SCRIPTS = ("gfarm_cache_wire.py", "gfarm_cache_liar.py", "gfarm_cache_lossy.py")
# A read of 16 KiB for each of 55 cases, and some of the last pages of the first chunk and the first ones of the second.
SIZE = (1 << 20) + 9000


# Each loss in turn is in the simulation of the cache (tools/sim-cache) in each run; what a reader does then, in
# gfarm_cache_hostile.*.
@needs(machines=1, timeout=300, tier=tier.ALL)
def test_each_fragment_of_a_read_is_lost_in_turn(vm: Lab) -> None:
    """Each is lost, comes twice, last, never; reversed; half; none: bytes are right, only its page from the gfsd."""
    servers = gfarm_mount.start(vm)
    folder = gfarm_node.bring_peer(vm.server, *SCRIPTS)
    gfarm_mount.put_random(servers, NAME, SIZE, "fs1")
    servers.run(f"gfexport /{NAME} > {FOLDER}/{NAME}.copy")
    with gfarm_node.node(servers, "ib_mtu=1024") as mount:
        words = [mount.folder, KEY, *mount.content(servers, NAME), f"{FOLDER}/{NAME}.copy", f"{mount.at}/{NAME}"]
        told: list[dict[str, Any]] = json.loads(vm.server.run(
            f"exec python3 -I -S -c 'import sys; sys.path.insert(0, \"{folder}\"); import gfarm_cache_lossy; "
            "gfarm_cache_lossy.main()' " + " ".join(map(shlex.quote, words)), 240))
        eq([row["what"] for row in told if not row["right"]], [], "reads with other bytes, or none")
        lost = [row for row in told if row["what"].endswith("is lost")]
        again = [row["what"] for row in lost if row["asked"] > 1]
        # On a busy host the holder is late now and then, and the file server is asked.
        ok(again, f"of {len(lost)} losses, the holder was asked again for none")
        in_time(len(again) >= len(lost) // 4, f"of {len(lost)} losses, the holder was asked again for {again}")
        came = [row for row in told if "never comes" not in row["what"]]
        ge(len(came), 51, "reads of which everything comes in the end")
        share = sum(row["gfsd"] for row in came) / (len(came) * READ)
        print(f"# {share:.2f} of the bytes from the file server, the longest read took "
              f"{max(row['seconds'] for row in told):.2f} s", flush=True)
        ok(share < 1, "the holder has given no page")
        in_time(share <= 0.8, f"{share:.2f} of the bytes came from the file server")
        never = {row["what"]: row["gfsd"] for row in told if row not in came}
        ge(len(never), 7, "reads of which a fragment never comes")
        ge(min(never.values()), PAGE, f"bytes from the file server: {never}")
        ok(PAGE in never.values(), f"never only one page from the file server: {never}")
        in_time(sorted(never.values())[len(never) // 2] == PAGE,
                f"not one page from the file server where a fragment never came: {never}")
