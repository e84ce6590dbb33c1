# SPDX-License-Identifier: GPL-2.0
"""What the client records of its paths: enough to replay it, and to see what the driver leaves out.

The oracle replays the records after every test with the client's modules; here is shown that there are records.
"""
from __future__ import annotations

import re

from vmlab import paths, replay, rnbd
from vmlab.checks import eq, ok, until
from vmlab.lab import Lab
from vmlab.needs import needs

# Numbers of proto::recovery::record::Operation.
OPERATIONS = {1: "timer", 3: "teardown", 7: "attempt", 8: "IO is admitted", 9: "heartbeat", 12: "removal"}
LINE = re.compile(r"path (\S+) (\d+) (\w+) (\S+)")


def _without(records: list[str], number: int) -> list[str]:
    """The records without the line of this number; the rest is counted as if it had never been."""
    def told(text: str) -> str:
        return LINE.sub(lambda m: f"path {m[1]} {int(m[2]) - (int(m[2]) > number)} {m[3]} {m[4]}", text)
    found = ((text, LINE.search(text)) for text in records)
    return [told(text) for text, line in found if line and int(line[2]) != number]


@needs(wires=1)
def test_a_path_that_was_lost_is_replayed(pair: Lab) -> None:
    """Set-up, loss, connection again and removal agree with the state machine; without any operation they do not."""
    mark = pair.client.log_mark()
    rnbd.start(pair)
    disk = rnbd.map_disk(pair)
    pair.server.run("for p in /sys/class/rtrs-server/s1/paths/*; do echo 1 > $p/disconnect; done")
    until(lambda: paths.count(pair, "reconnects", 0) >= 1 and paths.state(pair) == "connected", 30, "it is back")
    disk.unmap()

    def records() -> list[str]:
        return pair.client.records(mark)
    until(lambda: any(text.endswith(" did c") for text in records()), 10, "the path is removed")
    figures, wrong = replay.judge(records())
    eq(wrong, [], "disagreements")
    eq(figures.partition(" lines")[0], f"1 records whole, 0 cut, {len(records())}")
    operations = [found for found in map(LINE.search, records()) if found and found[3] == "did"]
    eq({int(found[4], 16) for found in operations} & set(OPERATIONS), set(OPERATIONS), "operations of such a path")
    for found in operations:
        ok(replay.judge(_without(records(), int(found[2])))[1], f"nothing is missed without `{found[0]}`")
