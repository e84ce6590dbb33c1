# SPDX-License-Identifier: GPL-2.0
"""Servers of Gfarm that lie, break off, or say nothing: requests fail in time, nothing else happens, and the mount
works again with servers that behave.

    gfarm_ra ── lo ── a fake gfmd, two fake gfsds (peer/gfarm_fake*.py)      one machine

What the lies are, and what must come of each, stands in peer/gfarm_fake_lies.py.
"""
from __future__ import annotations

from vmlab import gfarm_fake, seed, tier
from vmlab.checks import ok
from vmlab.lab import Lab
from vmlab.needs import needs

# The next test of the file begins when this one has unmounted; the oracle then looks at what is left.
SECONDS = 220


def check(lab: Lab, group: str, least: int, number: int = 0) -> None:
    """Nothing is wrong with any case of a group, of which there are so many at least."""
    rows = gfarm_fake.run(lab, group, SECONDS, number)
    for row in rows:
        if row["wrong"]:
            print(f"# {row['name']}: {row['wrong']} ({row['seconds']} s); {row['lines']}", flush=True)
    wrong = [f"{row['name']}: {row['wrong']}" for row in rows if row["wrong"]]
    ok(not wrong, f"{len(wrong)} of {len(rows)}: {'; '.join(wrong[:5])}")
    ok(len(rows) >= least, f"only {len(rows)} cases ran")


@needs(machines=1, timeout=240, waits=True)
def test_a_gfmd_that_lies_about_names(vm: Lab) -> None:
    """Lengths, counts, numbers, types, names, errors, directories without end: EIO mostly, and a line in the log."""
    check(vm, "names", 40)


@needs(machines=1, timeout=240, waits=True)
def test_a_gfmd_that_lies_about_open_files(vm: Lab) -> None:
    """gfsds without a name or a port, thousands of them or none, other objects, and gfsds that let nobody in."""
    check(vm, "opening", 20)


# a_gfmd_that_lies_about_open_files has thousands of gfsds in each run.
@needs(machines=1, timeout=240, waits=True, tier=tier.ALL)
def test_answers_that_are_long(vm: Lab) -> None:
    """Thousands of gfsds: strangers do not take the places of those that have addresses, and open files no memory."""
    check(vm, "long", 2)


@needs(machines=1, timeout=240, waits=True)
def test_gfsds_that_lie_about_bytes(vm: Lab) -> None:
    """More, fewer, none, chunks that do not fit, sizes that grow: the read fails with EIO after reconnect_timeout=."""
    check(vm, "content", 14)


@needs(machines=1, timeout=240, waits=True)
def test_a_lie_that_is_told_once_is_read_again(vm: Lab) -> None:
    """What one gfsd has told wrongly another tells, or the same one when it is asked again: the bytes are right."""
    check(vm, "replicas", 10)


@needs(machines=1, timeout=240, waits=True)
def test_servers_that_are_silent_or_slow(vm: Lab) -> None:
    """Bytes that never come, or one now and then: no request waits longer than its options say."""
    check(vm, "silence", 11)


@needs(machines=1, timeout=240, waits=True)
def test_answers_that_are_older_than_actimeo(vm: Lab) -> None:
    """A gfmd that is slower than actimeo= is asked for each name of a walk once: who has asked uses the answer, old as
    it is. Another use, and another walk, ask for themselves."""
    check(vm, "late", 6)


@needs(machines=1, timeout=240, waits=True)
def test_a_login_that_goes_wrong(vm: Lab) -> None:
    """Another protocol, lengths that are none, unknown errors, silence, the end at each step: nothing is mounted."""
    check(vm, "logins", 30)


# The decoders of proto are given all kinds of bytes on the host in each run; what a reader is told then,
# gfsds_that_lie_about_bytes shows.
@needs(machines=1, timeout=240, waits=True, tier=tier.ALL)
def test_answers_that_end_early(vm: Lab) -> None:
    """Answers end at boundaries of fields and between them, in every kind of answer."""
    check(vm, "boundaries", 60)


# The decoders of proto are fuzzed on the host in each run.
@needs(machines=1, timeout=240, waits=True, tier=tier.ALL)
def test_answers_that_are_changed_at_random(vm: Lab) -> None:
    """Bytes that are others, missing, or too many, anywhere: nothing hangs, and the mount works afterwards."""
    check(vm, "random", 40, seed.fresh().getrandbits(32))


@needs(machines=1, timeout=240, waits=True)
def test_a_task_that_is_killed_in_the_middle_of_an_answer(vm: Lab) -> None:
    """It ends at once, also in the middle of its question. The others get their answers by the same connection, which
    is not made anew."""
    check(vm, "killed", 14)


@needs(machines=1, timeout=240, waits=True)
def test_more_files_than_workers_wait_for_servers_that_come_back(vm: Lab) -> None:
    """160 files are read when all servers stop. The worker of gfmd has its place all the same: all files are read."""
    check(vm, "many", 1)


@needs(machines=1, timeout=240, waits=True)
def test_files_that_are_closed_while_gfmd_is_silent(vm: Lab) -> None:
    """300 files, and 140 tasks that ask: it closes each descriptor later, also behind one that it does not know, and
    has no more open than open_files=. Who waits until it can answer, or for a descriptor, is told EIO by umount -f,
    which leaves none open of a file that was to be opened anew."""
    check(vm, "closed", 5)
