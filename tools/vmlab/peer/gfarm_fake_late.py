# SPDX-License-Identifier: GPL-2.0
"""Runs in the guest: how often a gfmd is asked whose answers are under way for longer than actimeo=.

They are old when they come. Who has asked uses them once, and asks nothing twice; others ask for themselves.
"""
from __future__ import annotations

import os
import subprocess
import sys

import gfarm_fake_lies as lies
import gfarm_fake_wire as wire
from gfarm_fake_judge import AT, Judge, mounted

LATE_SECONDS, ACTIMEO = 1.4, 1
OTHER = 65534
# As another user: a directory is held open and walked from, so that the way to the mount is not counted.
AS_OTHER = """
import os, sys
path, = sys.argv[1:]
os.setgroups([]); os.setgid({0}); os.setuid({0})
os.stat(path)
"""
# What is asked for, each after actimeo=: the names of the way, and for others the root, of which there is no name.
WAYS = (("stat", ("d{0}", "f{0}"), False, 2), ("stat by another user", ("d{0}", "f{0}"), True, 3))


def late(fields: wire.Fields) -> list[wire.Turn]:
    """The right answer, when it is old."""
    return [LATE_SECONDS, lies.joined(fields)]


def asked(judge: Judge, path: str, is_other: bool) -> int:
    """The questions for the attributes of a path, and of what is on the way to it."""
    script = judge.world.script
    script.disarm()
    script.arm("gfmd.attributes", late)
    if is_other:
        subprocess.run([sys.executable, "-I", "-S", "-c", AS_OTHER.format(OTHER), path], check=True)
    else:
        os.stat(path)
    return script.disarm().get("gfmd.attributes", 0)


def answers_that_are_late(judge: Judge, _seed: int) -> None:
    """Each name is asked for once by each walk."""
    with mounted(f"allow_other,actimeo={ACTIMEO},connect_timeout=20,receive_timeout=20,reconnect_timeout=20"):
        judge.honest("honest servers")
        for number, (name, way, is_other, most) in enumerate(WAYS):
            path = "/".join((AT, *(part.format(70 + number) for part in way)))
            for walk in ("first", "second"):
                found = asked(judge, path, is_other)
                wrong = "" if found == most else f"{found} questions, not {most}"
                judge.report(f"{name}, {walk}", wrong, 0, judge.log.lines())
        held = os.open(AT, os.O_RDONLY | os.O_DIRECTORY)
        judge.world.script.arm("gfmd.attributes", late)
        os.fstat(held)
        os.fstat(held)
        found = judge.world.script.disarm().get("gfmd.attributes", 0)
        os.close(held)
        judge.report("another use", "" if found == 2 else f"{found} questions, not 2", 0, judge.log.lines())
