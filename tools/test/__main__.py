# SPDX-License-Identifier: GPL-2.0
"""The tests of the tree in tiers, mutants of the protocol code, and one closing line.

    python3 tools/test check                what needs no virtual machine      make check
    python3 tools/test test                 that, and a test of each rule      make test
    python3 tools/test test 'io.*'          some tests in virtual machines     make test ONLY='io.*'
    python3 tools/test all                  every test                         make test-all
    python3 tools/test rest                 what `all` has beyond `test`       make test-rest
    python3 tools/test long                 everything, longer and more often  make test-long
    python3 tools/test mutants [FILE...]    no mutant of the protocol code survives    make mutants
    python3 tools/test rules [FILE...]      a test fails without each rule of a driver make rules
    python3 tools/test TIER --list          what that is, without running it
    python3 tools/test sum FILE...          one closing line for several runs, each of which has written its counters to
                                            a file: FERROFABRIC_COUNTS=FILE python3 tools/test TIER

Each stage prints its own lines; at the end it is told where the time went. The last line of all is made from the
stages' counters and nothing else; the line above it counts the tests that ran a second time.
"""
import argparse
import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]

import schedule
import stages
import waiting

from kdir import config
from vmlab import telling
from vmlab.ktap import AGAIN_MAX, again_line

SUM = "sum"
# In the environment: a file for the counters of this run.
COUNTS = "FERROFABRIC_COUNTS"


def _show_times(plan: stages.Plan, tier: str, seconds: float) -> None:
    """Shows the time of each stage, the longest first; kept beside the times of the tests in virtual machines."""
    slowest = sorted(plan.stages, key=lambda stage: -stage.seconds)
    file = config.cache_dir() / "durations" / f"stages-{time.strftime('%Y%m%d-%H%M%S')}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"tier": tier, "seconds": round(seconds, 1),
                                "stages": {stage.name: round(stage.seconds, 1) for stage in slowest}}, indent=1))
    print(f"## {seconds:.0f} s in all; times: {file}")
    for stage in slowest:
        print(f"## {stage.seconds:7.1f} s  {stage.name}")


def _list(plan: stages.Plan, tier: str, patterns: list[str]) -> None:
    """Stages, and the tests in virtual machines."""
    for stage in plan.stages:
        print(stage.name)
    if any(stage.name == stages.MACHINES for stage in plan.stages):
        words = ["--tier", stages.TIERS[tier]] if tier in stages.TIERS and not patterns else patterns
        subprocess.run([*stages.PYTHON, "tools/vmlab", "run", "--list", *words], cwd=stages.REPOSITORY, check=False)


def _keep(counts: stages.Counts, failures: list[str]) -> bool:
    """Writes the counters, and what failed, for who sums several runs (`sum`); whether somebody wants to."""
    if file := os.environ.get(COUNTS):
        Path(file).write_text(json.dumps({**dataclasses.asdict(counts), "failures": failures}), encoding="ascii")
    return bool(file)


def _sum(files: list[str]) -> tuple[stages.Counts, list[str]]:
    """The counters of several runs and what failed in them; one that has left none has ended before its time, and has
    failed. Together they may have as many second attempts as one run."""
    total, failures = stages.Counts(), []
    for file in files:
        try:
            kept = json.loads(Path(file).read_text(encoding="ascii"))
            failures += kept.pop("failures", [])
            total += stages.Counts(**kept)
        except (OSError, ValueError, TypeError, AttributeError):
            failures.append(f"  {Path(file).name}: it has ended without counting")
            total += stages.Counts(failed=1)
    if len(total.again) > AGAIN_MAX:
        failures.append(f"  at most {AGAIN_MAX} tests may run again")
        total += stages.Counts(failed=1)
    return total, failures


def _close(counts: stages.Counts, failures: list[str], head: str = "") -> int:
    """Prints what failed, the line of the second runs and the closing line; returns the exit status."""
    if failures:
        print("\n".join(f"## {line}" for line in (telling.WHAT_FAILED, *failures)))
    print(again_line(counts.again))
    print(f"{head}{counts}", flush=True)
    return 1 if counts.failed or not counts.passed else 0


def main() -> int:
    """Runs a tier; returns 0 only when nothing failed and something passed."""
    parser = argparse.ArgumentParser(prog="test", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tier", choices=(*stages.TIERS, stages.CHECK, stages.LONG, stages.MUTANTS, stages.RULES, SUM))
    parser.add_argument("--host-only", action="store_true", help="everything but the virtual machines")
    parser.add_argument("--list", action="store_true", help="print what there is, run nothing")
    parser.add_argument("patterns", nargs="*", metavar="PATTERN")
    options = parser.parse_args()
    if options.tier == SUM:
        return _close(*_sum(options.patterns))
    plan = stages.plan(options.tier, options.patterns, options.host_only)
    if options.list:
        _list(plan, options.tier, options.patterns)
        return 0
    began = time.monotonic()
    schedule.Schedule(plan, before=waiting.before(config.cache_dir() / "durations", options.tier)).run()
    total = sum((stage.counts for stage in plan.stages), stages.Counts())
    _show_times(plan, options.tier, time.monotonic() - began)
    failures = [line for stage in plan.stages for line in stage.failures]
    # Where several runs are summed, the last line of all is the sum.
    return _close(total, failures, f"## {options.tier}: " if _keep(total, failures) else "")


if __name__ == "__main__":
    sys.exit(main())
