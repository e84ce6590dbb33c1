# SPDX-License-Identifier: GPL-2.0
"""Records of the drivers about their state machines: enough to replay them, and to see what a driver leaves out.

The oracle replays the records after every test with modules that record; here is shown that there are records.
"""
from __future__ import annotations

import re

from vmlab import paths, replay, rnbd
from vmlab.checks import ByChance, Failed, eq, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs

SMP = 2

CLIENT_PATH, AVAILABILITY, TURNS = "rtrs_client: path", "rtrs_client: availability", "rnbd_client: turns"
SERVER_PATH = "rtrs_server: path"
ONCE = ["1", "0"]       # stats/reconnects of a path that was lost once, and was back at the first attempt
# Numbers of the operations in proto: what is done when a disk is mapped, its path lost and connected again, and the
# disk unmapped.
OPERATIONS = {
    CLIENT_PATH: {1: "timer", 3: "teardown", 7: "attempt", 8: "IO is admitted", 9: "heartbeat", 12: "removal",
                  13: "run of the teardown"},
    AVAILABILITY: {1: "path is admitted", 2: "requeue", 3: "timer", 4: "no timer", 5: "IO fails",
                   6: "reopening is queued", 7: "reopening"},
    TURNS: {1: "OPEN", 2: "number is used", 3: "CLOSE", 4: "wake"},
    SERVER_PATH: {1: "teardown", 2: "response", 3: "run of the teardown", 5: "removal"},
}
LINE = re.compile(r"(\w+: \w+) ([0-9a-f]{8}) (\d+) (step|did) (.+)")


def _without(records: list[str], gone: re.Match[str]) -> list[str]:
    """The records without this line; the rest of its machine is counted as if it had never been."""
    def told(line: re.Match[str]) -> str:
        kind, machine, number, verb, rest = line.groups()
        later = (kind, machine) == gone.group(1, 2) and int(number) > int(gone[3])
        return f"{kind} {machine} {int(number) - later} {verb} {rest}"
    found = filter(None, map(LINE.search, records))
    return [told(line) for line in found if line.group(1, 2, 3) != gone.group(1, 2, 3)]


def _is_demanded(line: re.Match[str]) -> bool:
    """Whether it is missed: messages in a turn are no promise, nor are runs of a teardown that find it done."""
    kind, words = line[1], line[5]
    return (kind, words) != (CLIENT_PATH, "d 0") and (kind != TURNS or words == "4")


@needs(wires=1)
def test_a_path_that_was_lost_is_replayed(pair: Lab) -> None:
    """Set-up, loss, connection again and removal agree with the state machines; without any operation they do not."""
    marks = [(machine, machine.log_mark()) for machine in (pair.client, pair.server)]
    rnbd.start(pair)
    disk = rnbd.map_disk(pair)
    pair.server.run("for p in /sys/class/rtrs-server/s1/paths/*; do echo 1 > $p/disconnect; done")
    until(lambda: paths.count(pair, "reconnects", 0) >= 1 and paths.state(pair) == "connected", 30, "it is back")
    connects = pair.client.read(f"{paths.to_wire(pair)}/stats/reconnects").split()
    until(lambda: disk.attribute("state") == "open", 30, "the disk is opened again")
    disk.unmap()

    def records() -> list[str]:
        return [text for machine, mark in marks for text in machine.records(mark)]

    def is_over() -> bool:
        done = [(line[1], line[5]) for line in filter(None, map(LINE.search, records())) if line[4] == "did"]
        return done.count((CLIENT_PATH, "c")) == 1 and done.count((SERVER_PATH, "5")) == 2
    try:
        until(is_over, 10, "the path is removed, and both of the server's")
    except Failed as why:
        if connects == ONCE:
            raise
        raise ByChance(f"{why}; reconnects and failed ones: {connects}") from None
    found = records()
    figures, wrong = replay.judge(found)
    eq(wrong, [], "disagreements")
    # A path, its session and the turns of the client; a path of the server for each connect.
    eq(figures, f"5 records whole, 0 cut, {len(found)} lines")
    operations = [line for line in filter(None, map(LINE.search, found)) if line[4] == "did"]
    for kind, numbers in OPERATIONS.items():
        seen = {int(line[5].split()[0], 16) for line in operations if line[1] == kind}
        eq(seen & set(numbers), set(numbers), f"operations of {kind}")
    for line in filter(_is_demanded, operations):
        ok(replay.judge(_without(found, line))[1], f"nothing is missed without `{line[0]}`")
