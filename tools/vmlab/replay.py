# SPDX-License-Identifier: GPL-2.0
"""Records of drivers about their state machines (their parameter trace), replayed on the host (tools/replay).

The modules are loaded with the parameter set; the records are lines of the kernel log, which tests do not see and the
oracle judges after each test: the machine has to decide as is recorded, and the driver has to do that.
"""
from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from kdir import cargo
from vmlab.assets import TOOLS

SWITCHES = "/sys/module/{rtrs_client,rtrs_server,rnbd_client}/parameters/trace"
AT_ITS_END = re.compile(r"^\w+: \w+ [0-9a-f]{8}, at its end: ")
RECORD = re.compile(r"(rtrs_client|rtrs_server|rnbd_client): \w+ [0-9a-f]{8} \d+ (step|did) ")

# Has the loaded modules record; those of C cannot.
BEGIN = f"for switch in {SWITCHES}; do [ ! -e $switch ] || echo 1 > $switch; done"


@cache
def program() -> Path:
    """The replay, compiled when a process asks for the first time."""
    environment = os.environ | cargo.environment()
    subprocess.run([*cargo.command(), "build", "--release", "--locked", "--quiet", "--manifest-path",
                    str(TOOLS / "Cargo.toml"), "--package", "ferrofabric-replay"], env=environment, check=True)
    return Path(environment["CARGO_TARGET_DIR"]) / "release/replay"


def is_record(text: str) -> bool:
    """Whether this line of the kernel log is one of a record."""
    return RECORD.search(text) is not None


def judge(log: Iterable[str], is_over: bool = True) -> tuple[str, list[str]]:
    """Returns the number of steps replayed, and where a record and the model disagree, in words. Unless it `is_over`, a
    record may end in the middle of something: the machine lost its power."""
    records = [text for text in log if is_record(text)]
    if not records:
        return "", []
    said = subprocess.run([program()], input="\n".join(records), capture_output=True, text=True, check=False)
    *wrong, figures = said.stdout.splitlines() or [f"the replay ended with {said.returncode}: {said.stderr.strip()}"]
    if said.returncode and not wrong:
        wrong = [figures]
    return figures, [text for text in wrong if is_over or not AT_ITS_END.match(text)]
