# SPDX-License-Identifier: GPL-2.0
"""Hostile peers of a node of Gfarm's cooperative cache: nothing that they send is believed, served or waited for.

    liar (user-space verbs) ── rxe0 ── gfarm_ra, a node      one machine
"""
from __future__ import annotations

import json
import shlex
import time
from typing import Any

from vmlab import gfarm_mount, gfarm_node, tier
from vmlab.checks import eq, ge, in_time, ok
from vmlab.gfarm import FOLDER, Gfarm
from vmlab.gfarm_node import KEY, Node
from vmlab.lab import Lab
from vmlab.machine import Job
from vmlab.needs import needs
from vmlab.paths import figure
from vmlab.seed import fresh

SMP = 2

SCRIPTS = ("gfarm_cache_wire.py", "gfarm_cache_liar.py")
# Not a whole number of pages.
SIZE = 300_001
# A part of a file goes to the file server after 2 s without an answer, and this one has two; with a program's start.
FLOOD_SECONDS = 8.0
DATAGRAMS = tier.of(30_000, 100_000)
LINE = "gfarm_ra: a node of the cache has dropped datagrams"


def _prepare(vm: Lab, name: str) -> tuple[Gfarm, str]:
    """Servers with a file, whose content the liar has as well; its digest."""
    servers = gfarm_mount.start(vm)
    gfarm_node.bring_peer(vm.server, *SCRIPTS)
    digest = gfarm_mount.put_random(servers, name, SIZE, "fs1")
    servers.run(f"gfexport /{name} > {FOLDER}/{name}.copy")
    return servers, digest


def _liar(servers: Gfarm, mount: Node, name: str, *command: object) -> Job:
    """A member that lies."""
    words = [mount.folder, KEY, *mount.content(servers, name), f"{FOLDER}/{name}.copy", *command]
    return servers.machine.start_job("exec python3 -I -S -c 'import sys; sys.path.insert(0, \"/tmp/peer\"); "
                                     "import gfarm_cache_liar; gfarm_cache_liar.main()' "
                                     + " ".join(shlex.quote(str(word)) for word in words), 240)


def _check_log(vm: Lab, mark: int, began: float) -> None:
    """The log has one line a minute at most."""
    lines = len(vm.server.log_matches(LINE, mark))
    ok(1 <= lines <= 2 + (time.monotonic() - began) / 60, f"{lines} lines in the log")


@needs(machines=1, timeout=300)
def test_each_lie_is_counted_and_none_is_believed(vm: Lab) -> None:
    """Changed, cut off, too long, repeated, of strangers, from elsewhere, fields out of range: counted by reason."""
    servers, digest = _prepare(vm, "lies")
    with gfarm_node.node(servers, "ib_mtu=1024") as mount:
        eq(mount.sha256("lies"), digest, "before")
        mark, began = vm.server.log_mark(), time.monotonic()
        told: list[dict[str, Any]] = json.loads(_liar(servers, mount, "lies", "lie").ok(240))
        bad = [lie for lie in told if lie["said"] or lie["found"] != lie["wanted"]]
        eq(bad, [], "lies that were counted otherwise")
        ge(len(told), 14, "lies")
        _check_log(vm, mark, began)
        mount.forget()
        eq(mount.sha256("lies"), digest, "after")


# Proto judges each datagram, and is fuzzed on the host in each run.
@needs(machines=1, timeout=400, tier=tier.ALL)
def test_many_random_datagrams(vm: Lab) -> None:
    """Random bytes and changed messages to all queue pairs while a file is read: it is right, members are served."""
    servers, digest = _prepare(vm, "noise")
    with gfarm_node.node(servers, "ib_mtu=1024") as mount:
        eq(mount.sha256("noise"), digest, "before")
        mark, began = vm.server.log_mark(), time.monotonic()
        job = _liar(servers, mount, "noise", "barrage", DATAGRAMS, fresh().randrange(1 << 30))
        reads, slowest = 0, 0.0
        while job.running:
            mount.forget()
            start = time.monotonic()
            eq(mount.sha256("noise"), digest, f"read {reads}")
            reads, slowest = reads + 1, max(slowest, time.monotonic() - start)
        said = json.loads(job.ok(300))
        eq(said["sent"], DATAGRAMS, "datagrams")
        ge(said["others"], 2, "queue pairs")
        ok(said["right"], "a member is not served any more")
        ge(reads, 2, "reads")
        counts = mount.ibstat()
        figure(f"{reads} reads of {SIZE >> 10} KiB in a flood: {slowest:.1f} s at most, {counts['cuts']} cuts, "
               f"{counts['dropped_receiver']} messages cost no code, {counts['dropped_code']} did")
        in_time(slowest < FLOOD_SECONDS, f"a read took {slowest:.1f} s")
        ge(counts["datagrams"], DATAGRAMS // 10, "datagrams that have come")
        ge(counts["dropped_code"], 1000, "wrong codes")
        ge(counts["dropped_magic"], 1000, "wrong beginnings")
        # Right ones only: until the pages are cached again they are a miss.
        ok(counts["requests"] <= said["tries"], f"random datagrams were taken for requests: {said}, {counts}")
        _check_log(vm, mark, began)


@needs(machines=1, timeout=300)
def test_no_more_is_served_than_the_administrator_lets(vm: Lab) -> None:
    """One request at a time with ib_num_rrpc=1, the others are told to come later; 1 MiB/s with cc_share=1."""
    servers, digest = _prepare(vm, "shared")
    with gfarm_node.node(servers, "ib_num_rrpc=1,ib_mtu=1024") as mount:
        eq(mount.sha256("shared"), digest, "before")
        said = json.loads(_liar(servers, mount, "shared", "crowd", 10).ok(120))
        counts = mount.ibstat()
        eq((said["data"], said["busy"], said["others"]), (counts["said_data"], counts["said_busy"], 0), "answers")
        ge(said["data"], 10, "requests that were served")
        ge(said["busy"], 1, "requests that came at the same time")
    for options, least, most in (("cc_share=1", 1.3, 30), ("ib_num_rrpc=4", 0, 1e9)):
        with gfarm_node.node(servers, f"{options},ib_mtu=1024") as mount:
            eq(mount.sha256("shared"), digest, "before")
            # 2 MiB, of which a tenth of a second's share and one request are not waited for.
            said = json.loads(_liar(servers, mount, "shared", "greed", 8).ok(120))
            ok(least <= said["seconds"] <= most, f"{options}: {said}")
            if least:
                ge(said["busy"], 1, f"{options}: requests beyond the share")
            else:
                # On a busy host the next request may come before the node has seen that the last answer is sent.
                in_time(not said["busy"], f"{options}: {said}")
            eq(said["credits"], 4 if "rrpc" in options else 16, "requests at a time")
            bytes_sent = mount.ibstat()["said_bytes"]
            # A request whose answer was lost may have been served.
            ok(8 << 18 <= bytes_sent <= 8 + said["lost"] << 18, f"{bytes_sent} bytes, {said}")


@needs(machines=1, timeout=300)
def test_a_silent_peer_is_waited_for_as_long_as_the_administrator_lets(vm: Lab) -> None:
    """It answers probes and no request: with cc_timeout_ms=50 no request waits for longer, and the file is read."""
    servers, _ = _prepare(vm, "silent")
    wanted = gfarm_mount.put_random(servers, "wide", 12 << 20, "fs1")
    for limit, first in ((50, 50), (400, 100)):
        vm.server.run("rm -f /run/heard")
        with gfarm_node.node(servers, f"cc_timeout_ms={limit}") as mount:
            liar = _liar(servers, mount, "silent", "silence", "/run/heard")
            # It may be taken for dead for a moment.
            for _ in range(20):
                mount.forget()
                eq(mount.sha256("wide"), wanted, "the file")
                if mount.ibstat()["timeouts"]:
                    break
                time.sleep(1)
            vm.server.push_bytes(b"", "/run/heard")
            asked = json.loads(liar.ok(60))
            ge(len(asked), 1, "requests to it")
            eq(min(asked), first, f"the first one waits for: {asked}")
            ok(max(asked) <= limit, f"{asked}")
            counts = mount.ibstat()
            ge(counts["timeouts"], 1, "requests without an answer")
            eq(counts["peer_pages"], 0, "pages from it")
