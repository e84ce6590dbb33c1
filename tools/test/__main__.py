# SPDX-License-Identifier: GPL-2.0
"""The tests of the tree in three tiers, mutants of the protocol code, and one closing line.

    python3 tools/test check                what needs no virtual machine      make check
    python3 tools/test test                 everything                         make test
    python3 tools/test test 'io.*'          some tests in virtual machines     make test ONLY='io.*'
    python3 tools/test long                 everything, longer and more often  make test-long
    python3 tools/test mutants [FILE...]    no mutant of the protocol code survives    make mutants
    python3 tools/test TIER --list          what that is, without running it

Each stage prints its own lines; at the end it is told where the time went. The last line of all is made from the
stages' counters and nothing else.
"""
import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]

import stages

from kdir import config


def _run(plan: stages.Plan) -> None:
    """The lanes side by side, then the stages that are alone."""
    def run_lane(lane: tuple[stages.Stage, ...]) -> None:
        for stage in lane:
            stage.run(at_once=len(plan.lanes) == 1)
    with ThreadPoolExecutor(len(plan.lanes)) as pool:
        list(pool.map(run_lane, plan.lanes))
    for stage in plan.alone:
        stage.run(at_once=True)


def _show_times(plan: stages.Plan, tier: str, seconds: float) -> None:
    """Where the time went, by stage, the longest first; kept beside the times of the tests in virtual machines."""
    slowest = sorted(plan.stages, key=lambda stage: -stage.seconds)
    file = config.cache_dir() / "durations" / f"stages-{time.strftime('%Y%m%d-%H%M%S')}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"tier": tier, "seconds": round(seconds, 1),
                                "stages": {stage.name: round(stage.seconds, 1) for stage in slowest}}, indent=1))
    print(f"## {seconds:.0f} s in all; times: {file}")
    for stage in slowest:
        print(f"## {stage.seconds:7.1f} s  {stage.name}")


def _list(plan: stages.Plan, patterns: list[str]) -> None:
    """Stages, and the tests in virtual machines."""
    for lane in plan.lanes:
        print(" -> ".join(stage.name for stage in lane))
    for stage in plan.alone:
        print(f"then {stage.name}")
    if any(stage.name == stages.MACHINES for stage in plan.alone):
        subprocess.run([*stages.PYTHON, "tools/vmlab", "run", "--list", *patterns], cwd=stages.REPOSITORY, check=False)


def main() -> int:
    """Runs a tier; returns 0 only when nothing failed and something passed."""
    parser = argparse.ArgumentParser(prog="test", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tier", choices=(stages.CHECK, stages.TEST, stages.LONG, stages.MUTANTS))
    parser.add_argument("--host-only", action="store_true", help="everything but the virtual machines")
    parser.add_argument("--list", action="store_true", help="print what there is, run nothing")
    parser.add_argument("patterns", nargs="*", metavar="PATTERN")
    options = parser.parse_args()
    plan = stages.plan(options.tier, options.patterns, options.host_only)
    if options.list:
        _list(plan, options.patterns)
        return 0
    began = time.monotonic()
    _run(plan)
    total = sum((stage.counts for stage in plan.stages), stages.Counts())
    _show_times(plan, options.tier, time.monotonic() - began)
    print(total, flush=True)
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main())
