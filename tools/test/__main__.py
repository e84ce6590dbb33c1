# SPDX-License-Identifier: GPL-2.0
"""Every test of the tree, from the cheapest to the virtual machines, and one closing line.

    python3 tools/test [--check-only] [--host-only] [PATTERN..]

PATTERNs choose VM tests (`io.*`); with one given, only those run. Each stage prints its own lines;
the last line of all is made from the stages' counters and nothing else.
"""
import argparse
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, __file__.rpartition("/")[0])

import stages  # noqa: E402


def main() -> int:
    """Runs the stages; returns 0 only when nothing failed and every stage reported."""
    parser = argparse.ArgumentParser(prog="test", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check-only", action="store_true", help="style, lint and unit tests only")
    parser.add_argument("--host-only", action="store_true", help="everything but the virtual machines")
    parser.add_argument("patterns", nargs="*", metavar="PATTERN")
    options = parser.parse_args()

    plan = [] if options.patterns else list(stages.CHECKS)
    if not options.check_only:
        plan += [] if options.patterns else list(stages.OBJECTS)
        if not options.host_only:
            plan += stages.machines(options.patterns)

    total = stages.Counts()
    for stage in plan:
        began = time.monotonic()
        print(f"## {stage.name}", flush=True)
        counts = stage.run()
        total += counts
        print(f"## {stage.name}: {counts} in {time.monotonic() - began:.0f} s", flush=True)
    print(total, flush=True)
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main())
