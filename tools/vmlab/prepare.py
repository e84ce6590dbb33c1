# SPDX-License-Identifier: GPL-2.0
"""`prepare`: makes the guests' image and saves the machines that nearly all tests wake from.

No module is needed for it, so it can run beside their build."""
from __future__ import annotations

import argparse
import os
import subprocess
import sys

from vmlab import needs, tier
from vmlab.assets import TOOLS
from vmlab.lab import Lab, Spec


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `prepare`."""
    parser.add_argument("--long", action="store_true", help="the machines of a long run")


def usual() -> list[Spec]:
    """The labs of nearly all tests."""
    return [needs.shape(machines, smp=smp, sets=()) for smp in (1, tier.RACES) for machines in (1, 2)]


def run(options: argparse.Namespace) -> int:
    """Boots each of the usual labs whose machines are not all saved; returns 0."""
    if options.long:
        os.environ[tier.VARIABLE] = "1"
    # Waits for another run that is at it.
    subprocess.run([sys.executable, "-B", str(TOOLS / "kdir"), "guests"], stdout=subprocess.DEVNULL, check=True)
    for spec in usual():
        lab = Lab(spec)
        try:
            if not lab.saved:
                print(f"# saved {spec.title}, after {lab.boot():.0f} s", flush=True)
        finally:
            lab.close()
            lab.forget()
    return 0
