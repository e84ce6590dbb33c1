# SPDX-License-Identifier: GPL-2.0
"""Sessions of rioc_client whose paths are lost at the wrong moment."""
from __future__ import annotations

from vmlab import paths, tier
from vmlab.checks import eq, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs
from vmlab.tests import rioc_tool

TIER = tier.ALL
STATE = f"{rioc_tool.CONTROL}/sessions/bb/state"


@needs(wires=2, own_modules=True, timeout=240)
def test_a_path_to_another_store_does_not_hide_that_it_is_new(pair: Lab) -> None:
    """One path is lost and not noticed, the other one finds another life of the store: it is refused, and the session
    says that what was written is gone when it goes on there."""
    rioc_tool.begin(pair, paths=2)
    run, mark = pair.client.run, pair.client.log_mark()
    paths.set_all(pair, "bb", heartbeat_interval_ms=60000)
    paths.rest(5)     # for the interval that had begun
    run("printf old | rioc put bb 1:1")
    pair.cut(0)
    pair.server.run("mods -r; mods ours rioc-server", 120)
    eq(pair.server.write(rioc_tool.ADD, "name=bb ram_mib=64", rioc_tool.SECONDS), "")
    # The other path comes back by itself, and is not used.
    until(lambda: pair.client.log_matches("bb", mark), 30, "the server has ended its paths")
    paths.rest(5)
    eq(pair.client.read(STATE).strip(), "connected")
    pair.mend(0)
    get = pair.client.start_job("rioc get bb 1:1 2>&1")
    paths.back_seconds(pair, lambda: bool(pair.client.log_matches("store bb was begun anew", mark)), 90,
                       "the session says what was lost")
    ok(get.wait(60).code != 0, "what was lost is read")


@needs(wires=1, own_modules=True, timeout=240)
def test_a_lease_that_nobody_waits_for_ends(pair: Lab) -> None:
    """A program is killed while its lease is asked for in an outage: nobody has it in the end."""
    rioc_tool.begin(pair)
    eq(rioc_tool.connect(pair, "cc", "store=bb"), "")
    run = pair.client.run
    run("printf old | rioc put bb 1:1")
    pair.cut(0)
    job = pair.client.start_job("exec rioc lease bb 1:1 --writer -- sleep 100")
    until(lambda: pair.client.read(STATE).strip() == "waiting", 40, "the path is lost")
    run("pkill -9 -f 'lease bb 1:1'")
    until(lambda: not job.running, 10, "it is killed")
    pair.mend(0)
    paths.back_seconds(pair, lambda: pair.client.read(STATE).strip() == "connected", 60, "the path is back")
    other = "env -u RIOC_LEASE rioc lease cc 1:1 --writer -- true 2>&1"
    until(lambda: pair.client.try_run(other).code == 0, 60, "another one gets the lease")
