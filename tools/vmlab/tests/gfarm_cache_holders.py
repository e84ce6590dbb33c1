# SPDX-License-Identifier: GPL-2.0
"""A holder of pages that lies: each byte is right, and no page is its.

    a holder in user space (peer/gfarm_cache_holder.py) ── rxe0 ── gfarm_ra, a node that reads      one machine
"""
from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from vmlab import gfarm_mount, gfarm_node, tier
from vmlab.checks import TooSlow, eq, ge, ok, until
from vmlab.gfarm import FOLDER
from vmlab.gfarm_node import KEY, Node
from vmlab.lab import Lab
from vmlab.machine import Job
from vmlab.needs import needs

SMP = 2
TIER = tier.ALL

SCRIPTS = ("gfarm_cache_wire.py", "gfarm_cache_liar.py", "gfarm_cache_holder.py")
MODE, HELD = "/run/mode", f"{FOLDER}/held"
# Not a whole number of pages.
SIZE, FILES = 30_001, 5
READ_FILES = tier.of(3, FILES)      # in each mode
# The holder is a program, which is slow on a busy host.
OPTIONS = "ib_mtu=1024,cc_timeout_ms=2000"
# How a holder sends pages: as it should; each fragment twice, the last first; behind random datagrams, and messages for
# the public queue pair to that of replies; behind what it has sent for another request, and its reply.
GIVES = ("right", "twice", "garbage", "again")
# Every other fragment; those of other requests, places and lengths; none of those that it announces; pages that were
# not asked for; another size; an unknown status; the reply to another request; nothing, and fragments behind that; a
# wrong bit in each fragment; wrong sums, none, and one too few; all right, and the reply to the public queue pair.
LIES = ("half", "foreign", "nothing", "more", "size", "status", "other", "miss", "late", "silent", "damaged", "sums",
        "unsummed", "short", "elsewhere")
TRIES = 10


@dataclass
class Holder:
    """The holder, the node that reads from it, and the digests of the files that it has."""

    mount: Node
    wanted: dict[str, str]
    job: Job
    mode: str = "right"
    # Of how many requests the keys were compared when it has ended.
    keys: int = 0

    def turn(self, mode: str) -> None:
        """Makes it answer like this from now on."""
        if mode == self.mode:
            return
        machine, flag, self.mode = self.mount.machine, f"{MODE}.{mode}", mode
        machine.run(f"rm -f {flag}; echo -n {mode} > {MODE}.new; mv {MODE}.new {MODE}")
        if mode != "end":
            until(lambda: machine.exists(flag) or not self.job.running, 60, f"it is told to be {mode}", pause=0.05)
            ok(self.job.running, "the holder has died")

    def told(self) -> int:
        """Counts answers of a holder, things that are none, and silences."""
        counts = self.mount.ibstat()
        names = ("told_data", "told_miss", "told_late", "dropped_body", "dropped_queue_pair", "timeouts")
        return sum(counts[name] for name in names)

    def pages(self) -> int:
        """The number of pages that the node has taken."""
        return self.mount.ibstat()["peer_pages"]

    def check(self, what: str) -> None:
        """Files are right, read by one process, and not from the page cache."""
        self.mount.forget()
        wanted = dict(list(self.wanted.items())[:READ_FILES])
        said = self.mount.machine.run(f"cd {self.mount.at} && sha256sum {' '.join(wanted)}", 120)
        found = {name: digest for digest, name in (line.split() for line in said.splitlines())}
        eq(found, wanted, what)


@contextmanager
def holder(vm: Lab, more: str = "") -> Iterator[Holder]:
    """A holder of some files, for the body; the mount may have more options."""
    servers = gfarm_mount.start(vm)
    folder = gfarm_node.bring_peer(vm.server, *SCRIPTS)
    names = [f"held{number}" for number in range(FILES)]
    wanted = {name: gfarm_mount.put_random(servers, name, SIZE, "fs1") for name in names}
    with gfarm_node.node(servers, f"{OPTIONS}{more and ','}{more}") as mount:
        copies = "; ".join(f"gfexport /{name} > {HELD}/{'-'.join(mount.content(servers, name))}" for name in names)
        told = servers.run(f"rm -rf {HELD} {MODE}*; mkdir {HELD}; echo -n right > {MODE}; {copies}; ls {HELD}", 120)
        eq(len(told.split()), FILES, f"copies: {told}")
        words = [mount.folder, KEY, HELD, MODE]
        job = vm.server.start_job(f"exec python3 -I -S -c 'import sys; sys.path.insert(0, \"{folder}\"); import "
                                  "gfarm_cache_holder; gfarm_cache_holder.main()' " + " ".join(map(shlex.quote, words)),
                                  300)
        found = Holder(mount, wanted, job)
        until(lambda: vm.server.exists(f"{MODE}.right") or not job.running, 60, "the holder is a member", pause=0.05)
        try:
            yield found
        except BaseException:
            job.kill()
            raise
        if job.running:
            found.turn("end")
            said = json.loads(job.ok(60))
            print(f"# asked as a holder: {said['asked']}", flush=True)
            # The same one twice is a chance of one in a million.
            keys: list[int] = said["keys"]
            found.keys = len(keys)
            eq(len(set(keys)), len(keys), "different keys of the queue pair, one for each request")


@needs(machines=1, timeout=400)
def test_a_holder_that_lies(vm: Lab) -> None:
    """It sends other fragments, too few, too late, or says what is not so: files are right, and no page is its."""
    with holder(vm) as liar:
        for mode in (*GIVES, *LIES, "right"):
            liar.turn(mode)
            lies, answers, pages = mode in LIES, liar.told(), liar.pages()
            # A busy machine may take it for dead for a moment, and so does one that it has been silent to.
            for _ in range(TRIES):
                liar.check(mode)
                if liar.told() > answers if lies else liar.pages() > pages:
                    break
                time.sleep(0.3)
            else:
                raise TooSlow(f"{mode}: it was not asked in time")
            if lies:
                eq(liar.pages() - pages, 0, f"{mode}: pages of it that were taken")
    ge(liar.keys, 10, "requests whose keys were compared")
