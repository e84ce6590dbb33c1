# SPDX-License-Identifier: GPL-2.0
"""The report never looks better than what happened."""
from __future__ import annotations

import contextlib
import io
import unittest

from vmlab.ktap import Report


def lines(out: io.StringIO) -> list[str]:
    """The lines that were printed."""
    return out.getvalue().splitlines()


class ReportTest(unittest.TestCase):
    """Closing lines and exit states."""

    def test_a_good_run(self) -> None:
        """Every planned test passed."""
        out = io.StringIO()
        with Report(["a.x", "a.y"], out) as report:
            report.ok("a.x", 1.25)
            report.ok("a.y", 0.5)
        self.assertEqual(lines(out), ["KTAP version 1", "1..2", "ok 1 a.x # 1.2 s", "ok 2 a.y # 0.5 s",
                                      "# again: 0", "2 passed, 0 failed"])
        self.assertEqual(report.close(), 0)

    def test_a_failure_is_told_with_its_reason(self) -> None:
        """The reason follows indented, and the exit status is not 0."""
        out = io.StringIO()
        with Report(["a"], out) as report:
            report.not_ok("a", 0, "first\nsecond")
        self.assertEqual(lines(out)[2:], ["not ok 1 a # 0.0 s", "#   first", "#   second", "# what failed:",
                                          "#   a", "#       first", "#       second", "# again: 0",
                                          "0 passed, 1 failed"])
        self.assertEqual(report.close(), 1)

    def test_skipped_tests_are_counted_apart(self) -> None:
        """The third number appears only if there is one."""
        out = io.StringIO()
        with Report(["a", "b"], out) as report:
            report.ok("a", 0)
            report.skip("b", "no such thing here")
        self.assertEqual(lines(out)[-1], "1 passed, 0 failed, 1 skipped")
        self.assertEqual(report.close(), 0)

    def test_tests_that_never_ran_count_as_failed(self) -> None:
        """A harness that dies half way can not look like success."""
        out = io.StringIO()
        with contextlib.suppress(KeyError), Report(["a", "b", "c"], out) as report:
            report.ok("a", 0)
            raise KeyError
        self.assertEqual(lines(out)[-1], "1 passed, 2 failed")
        self.assertEqual(report.close(), 1)

    def test_an_empty_plan_is_no_success(self) -> None:
        """A filter that matches nothing must not be green."""
        out = io.StringIO()
        with Report([], out) as report:
            pass
        self.assertEqual(lines(out)[-1], "0 passed, 0 failed")
        self.assertEqual(report.close(), 1)

    def test_nothing_but_skips_is_no_success(self) -> None:
        """The same for a run in which nothing was shown."""
        with Report(["a"], io.StringIO()) as report:
            report.skip("a", "why")
        self.assertEqual(report.close(), 1)

    def test_a_result_that_was_not_planned_is_an_error(self) -> None:
        """Nor can a test be counted twice."""
        report = Report(["a"], io.StringIO())
        report.ok("a", 0)
        with self.assertRaises(ValueError):
            report.ok("a", 0)

    def test_tests_that_ran_again_are_named(self) -> None:
        """Above the closing line; as many as may be are no failure."""
        out = io.StringIO()
        with Report(["a", "b"], out, again_max=2) as report:
            for name in ("a", "b"):
                report.again(name)
                report.ok(name, 0)
        self.assertEqual(lines(out)[-2:], ["# again: 2 (a, b)", "2 passed, 0 failed"])
        self.assertEqual(report.close(), 0)

    def test_too_many_tests_that_ran_again_fail_the_run(self) -> None:
        """Although each of them has passed then."""
        out = io.StringIO()
        with Report(["a", "b"], out, again_max=1) as report:
            for name in ("a", "b"):
                report.again(name)
                report.ok(name, 0)
        self.assertEqual(lines(out)[-2:], ["not ok: at most 1 tests may run again", "2 passed, 1 failed"])
        self.assertIn("# again: 2 (a, b)", lines(out))
        self.assertEqual(report.close(), 1)

    def test_closing_twice_prints_once(self) -> None:
        """The closing line is the last line."""
        out = io.StringIO()
        report = Report(["a"], out)
        report.ok("a", 0)
        report.close()
        report.close()
        self.assertEqual(lines(out).count("1 passed, 0 failed"), 1)
