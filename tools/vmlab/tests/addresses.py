# SPDX-License-Identifier: GPL-2.0
"""Addresses of paths: link-local ones, which only an interface makes whole."""
from __future__ import annotations

import re

from vmlab import paths, rnbd, tier
from vmlab.checks import eq, ok, until
from vmlab.lab import Lab
from vmlab.machine import Machine
from vmlab.needs import needs

TIER = tier.ALL


def _link_local(machine: Machine) -> str:
    found = re.search(r"inet6 (fe80:\S+)/64", machine.run("ip -6 address show dev eth0 scope link"))
    ok(found, "eth0 has no link-local address")
    return found[1] if found else ""


@needs(wires=1, own_modules=True)
def test_a_path_has_link_local_ends(pair: Lab) -> None:
    """The interface is given by name and by number; the path is connected again over the same."""
    client, server = _link_local(pair.client), _link_local(pair.server)
    number = pair.client.read("/sys/class/net/eth0/ifindex")
    rnbd.start(pair)
    for scope in ("eth0", number):
        ends = f"ip:{client}%{scope}@ip:{server}%{scope}"
        disk = rnbd.map_disk(pair, line=f"sessname=s1 path={ends} device_path=ram0 access_mode=rw")
        ok(paths.names(pair)[0].endswith(f"@ip:{server}%{scope}"), "the path is named after its ends")
        disk.fio("--rw=randwrite --bs=4k --iodepth=8 --number_ios=64 --size=8m").clean(60)
        paths.reconnect(pair, f"{rnbd.session_file('paths')}/{paths.names(pair)[0]}")
        eq(paths.states(pair), ["connected"])
        disk.unmap()
        # A session that has not ended yet is used again, with the path that it has.
        until(lambda: pair.client.names(rnbd.SESSIONS) in ([], ["ctl"]), 10, "the session has ended")
