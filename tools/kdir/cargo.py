# SPDX-License-Identifier: GPL-2.0
"""The cargo that builds the programs of tools/, and the folder that it builds them in."""
import os
import re
import shutil
import subprocess
import sys

from kdir import checkouts, config

CARGO_MIN = (1, 85)


def command() -> list[str]:
    """The host's cargo where it is new enough, else the one of the Debian root."""
    if shutil.which("cargo"):
        answer = subprocess.run(["cargo", "--version"], capture_output=True, text=True, check=False).stdout
        if (found := re.search(r"(\d+)\.(\d+)", answer)) and (int(found[1]), int(found[2])) >= CARGO_MIN:
            return ["cargo"]
    return [sys.executable, "-B", str(config.REPOSITORY / "tools/kdir"), "run", "cargo"]


def environment() -> dict[str, str]:
    """The variables of a build: what cargo builds is kept in the cache, so that a fresh clone at the same place has its
    crates."""
    return {"CARGO_TARGET_DIR": os.environ.get("CARGO_TARGET_DIR") or f"{config.cache_dir()}/cargo-{checkouts.name()}"}
