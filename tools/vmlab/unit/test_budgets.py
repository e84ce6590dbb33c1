# SPDX-License-Identifier: GPL-2.0
"""Files of tests over their budget are found on any host."""
from __future__ import annotations

import argparse
import io
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from vmlab import budgets, durations, patience, tier
from vmlab.budgets import Cost
from vmlab.ktap import Report

FILES = {f"file{number}": (20.0, 40.0) for number in range(budgets.PACE_FILES_MIN)}


def run_of(factor: float, **seconds: float) -> list[Cost]:
    """A run in which everything takes so many times what was measured, but for these files."""
    return [Cost(file, tier.CORE, seconds.get(file, core * factor)) for file, (core, _rest) in FILES.items()]


@mock.patch.dict(budgets.MEASURED, FILES, clear=True)
class BudgetsTest(unittest.TestCase):
    """Files against each other, sums against the host."""

    def test_a_file_that_grew_is_over_on_every_host(self) -> None:
        """And no other one is, however slow or fast the host."""
        limit = 20.0 * budgets.MARGIN * budgets.OVER
        for factor in (0.5, 1.0, 1.6, 3.0):
            self.assertEqual(budgets.over(run_of(factor)), [])
            now = max(factor, budgets.FASTEST)
            self.assertEqual(budgets.over(run_of(factor, file3=limit * now * 0.99)), [])
            (wrong,) = budgets.over(run_of(factor, file3=limit * now * 1.01))
            self.assertIn("file3, tests of core: ", wrong)

    def test_small_files_and_new_ones(self) -> None:
        """A boot more or less is no growth; a file that was not measured yet has what a new module gets."""
        with mock.patch.dict(budgets.MEASURED, {"small": (1.0, 0.0)}):
            self.assertEqual(budgets.over([*run_of(1.0), Cost("small", tier.CORE, 14.0)]), [])
            self.assertEqual(len(budgets.over([*run_of(1.0), Cost("small", tier.CORE, 16.0)])), 1)
        new = budgets.NEW[tier.ALL] * budgets.OVER
        self.assertEqual(budgets.over([*run_of(1.0), Cost("new", tier.ALL, new - 1)]), [])
        self.assertEqual(len(budgets.over([*run_of(1.0), Cost("new", tier.ALL, new + 1)])), 1)

    def test_a_file_that_is_over_is_measured_again(self) -> None:
        """The lesser of two costs counts, and what is within its budget is not measured twice."""
        asked: list[set[str]] = []

        def measure(files: set[str]) -> list[dict[str, Any]]:
            asked.append(files)
            return [{"file": file, "tier": tier.CORE, "cpu": second} for file in files]
        for second, wrong in ((30.0, 0), (400.0, 1), (900.0, 1)):
            found = budgets.cheaper(run_of(1.0, file3=500.0), measure)
            self.assertEqual({cost.file: cost.seconds for cost in found}["file3"], min(second, 500.0))
            self.assertEqual(len(budgets.over(found)), wrong)
        budgets.cheaper(run_of(1.0), measure)
        self.assertEqual(asked, [{"file3"}] * 3)

    def test_the_sum_of_a_tier(self) -> None:
        """More on a host that takes longer to wake a machine, no less on a faster one; only the tests of the tier."""
        limit = budgets.SUM[tier.CORE]
        for wakes, more in (([patience.WAKE_SECONDS] * 3, 1.0), ([patience.WAKE_SECONDS * 2] * 3, 2.0),
                            ([patience.WAKE_SECONDS / 2, 0.1, 99.0], 1.0)):
            under = [Cost("a", tier.CORE, limit * more - 1), Cost("a", tier.ALL, 5000.0)]
            self.assertEqual(budgets.total_over(under, wakes, tier.CORE), "")
            self.assertIn("all tests of all", budgets.total_over(under, wakes, tier.ALL))
            wrong = budgets.total_over([Cost("a", tier.CORE, limit * more + 1)], wakes, tier.CORE)
            self.assertIn("all tests of core", wrong)

    def test_only_whole_tiers_are_judged(self) -> None:
        """Neither some tests, nor a long run, nor one that repeats."""
        plain: dict[str, Any] = {"tests": [], "only": [], "without": [], "append": "", "modules": "ours", "repeat": 1,
                                 "long": False, "tier": tier.ALL}
        self.assertEqual(budgets.names(argparse.Namespace(**plain)), ["budgets.files", "budgets.core", "budgets.all"])
        self.assertEqual(budgets.names(argparse.Namespace(**{**plain, "tier": tier.REST})),
                         ["budgets.files", "budgets.all"])
        for other in ({"tests": ["io"]}, {"without": ["io"]}, {"append": "x"}, {"modules": "c"}, {"repeat": 2},
                      {"long": True}, {"tier": tier.LONG}):
            self.assertEqual(budgets.names(argparse.Namespace(**{**plain, **other})), [])

    def test_results_of_a_run(self) -> None:
        """Each has a name; where nothing was woken there is nothing to compare with."""
        planned = ["budgets.files", "budgets.core"]
        usual = [patience.WAKE_SECONDS]
        for wakes, cpu, closing in ((usual, 20.0, "2 passed, 0 failed"), (usual, 2000.0, "0 passed, 2 failed"),
                                    ([], 2000.0, "0 passed, 0 failed, 2 skipped")):
            times, out = durations.Durations(), io.StringIO()
            times.wakes = wakes
            times.add(name="new.x", file="new", tier=tier.CORE, seconds=1.0, cpu=cpu, phases={})
            with Report(planned, out) as report:
                budgets.judge(report, planned, times, lambda _files: [])
            self.assertEqual(out.getvalue().splitlines()[-1], closing)

    def test_what_is_left_of_all_counts_with_the_core_that_ran_before(self) -> None:
        """Each test of it as it ran last."""
        before = [{"file": "new", "tier": tier.CORE, "cpu": 1000.0}]
        room = budgets.SUM[tier.ALL] - 1000.0
        for cpu, closing in ((room - 1.0, "1 passed, 0 failed"), (room + 1.0, "0 passed, 1 failed")):
            times, out = durations.Durations(), io.StringIO()
            times.wakes = [patience.WAKE_SECONDS]
            times.add(name="new.x", file="new", tier=tier.ALL, seconds=1.0, cpu=cpu, phases={})
            planned = ["budgets.all"]
            with mock.patch.object(durations, "latest_of", lambda _tier: before), Report(planned, out) as report:
                budgets.judge(report, planned, times, lambda _files: [])
            self.assertEqual(out.getvalue().splitlines()[-1], closing)

    def test_the_table_is_the_median_of_the_runs(self) -> None:
        """The median of each file and tier counts."""
        runs = [[{"file": "io", "tier": "core", "cpu": cpu}, {"file": "io", "tier": "core", "cpu": 1.0},
                 {"file": "io", "tier": "all", "cpu": 7.0}] for cpu in (2.0, 9.0, 3.0)]
        self.assertEqual(budgets.table(runs), '    "io": (4, 7),')


class MeasuredTest(unittest.TestCase):
    """The table itself."""

    def test_no_file_is_left_behind(self) -> None:
        """One that was renamed or removed."""
        files = {file.stem for file in (Path(budgets.__file__).parent / "tests").glob("*.py")}
        self.assertEqual(set(budgets.MEASURED) - files, set())


if __name__ == "__main__":
    unittest.main()
