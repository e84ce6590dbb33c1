# SPDX-License-Identifier: GPL-2.0
"""The stages of the tiers: their order, and the sum of several runs (tools/test)."""
from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from kdir.config import REPOSITORY
from vmlab.checks import until

sys.path.insert(0, str(REPOSITORY / "tools/test"))

import hold
import schedule
import stages
import units
import waiting

CI = REPOSITORY / ".ci/run"
# Takes the place of make: `make TIER` runs what the test has written for the tier.
MAKE = "#!/bin/sh\nfor tier; do :; done\nexec sh \"$RUNS/$tier\"\n"
# A unit test that passes, and leaves a folder.
LEAVES = """import tempfile
import unittest


class LeavesTest(unittest.TestCase):
    def test_one(self):
        tempfile.mkdtemp()
"""
COUNTED = "echo '{}' > \"$FERROFABRIC_COUNTS\"\n"


class ScheduleTest(unittest.TestCase):
    """The order of the stages."""

    def setUp(self) -> None:
        """Nothing has run."""
        self.ran: list[str] = []

    def stage(self, name: str, *after: str, beside: bool = False,
              work: Callable[[], None] = lambda: None) -> stages.Stage:
        """A stage that notes that it ran."""
        def run(_out: stages.Output) -> stages.Counts:
            work()
            self.ran.append(name)
            return stages.Counts(passed=1)
        return stages.Stage(name, run, after, beside)

    def test_a_stage_comes_after_those_that_it_needs(self) -> None:
        """And as soon as they have ended: lanes do not wait for each other."""
        go = threading.Event()
        plan = stages.Plan((self.stage("long", work=lambda: self.assertTrue(go.wait(5))), self.stage("last", "long"),
                            self.stage("a", "absent"), self.stage("b", "a", work=go.set)))
        schedule.Schedule(plan).run()
        self.assertEqual(self.ran, ["a", "b", "long", "last"])

    def test_machines_run_beside_the_others_and_are_told_when_those_have_ended(self) -> None:
        """A lock that is let go tells them."""
        held = hold.Hold()
        got: list[str] = []

        def machines() -> None:
            subprocess.run(["flock", "--shared", held.name, "true"], check=True, timeout=20)
            got.extend(self.ran)
        plan = stages.Plan((self.stage("machines", "a", beside=True, work=machines), self.stage("a"), self.stage("b"),
                            self.stage("c")), held)
        schedule.Schedule(plan).run()
        self.assertEqual((sorted(got), self.ran[-1]), (["a", "b", "c"], "machines"))

    def test_a_stage_that_raises_has_failed_and_the_others_run(self) -> None:
        """The closing line must follow every error."""
        def work() -> None:
            raise OSError("gone")
        plan = stages.Plan((self.stage("a", work=work), self.stage("b", "a")))
        schedule.Schedule(plan, 1).run()
        self.assertEqual([(stage.counts.passed, stage.counts.failed) for stage in plan.stages], [(0, 1), (1, 0)])

    def test_nothing_begins_after_an_interrupt(self) -> None:
        """Running stages end by themselves: a terminal tells them, too."""
        told = threading.Event()
        # Where tests run in the background of a shell the signal is ignored, and Python leaves it so.
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))

        def work() -> None:
            os.kill(os.getpid(), signal.SIGINT)
            told.wait(5)
        plan = stages.Plan((self.stage("a", work=work), self.stage("b", "a"), self.stage("c", "b", beside=True)))
        with self.assertRaises(KeyboardInterrupt):
            schedule.Schedule(plan).run()
        told.set()
        until(lambda: threading.active_count() == 1, 5, "the lanes have ended", pause=0.01)
        self.assertEqual(self.ran, ["a"])

    def test_each_tier_has_its_stages(self) -> None:
        """Virtual machines only where they belong, and no name twice."""
        for tier, machines in ((stages.CHECK, False), (stages.TEST, True), (stages.ALL, True), (stages.REST, True),
                               (stages.LONG, True)):
            names = [stage.name for stage in stages.plan(tier, []).stages]
            self.assertEqual((stages.MACHINES in names, len(names)), (machines, len(set(names))), tier)


    def test_what_make_test_leaves_out_of_the_lives_of_arrays_the_rest_has(self) -> None:
        """All of them are in one of the two parts of CI."""
        (first, middle), (begin, last) = (stages.ARRAYS[tier].split("..") for tier in (stages.TEST, stages.REST))
        self.assertEqual((middle, f"{first}..{last}"), (begin, stages.ARRAYS[stages.ALL]))
        self.assertIn(stages._arrays, [stage.work for stage in stages.plan(stages.REST, []).stages])


class SumTest(unittest.TestCase):
    """One closing line for the two parts of CI."""

    def run_ci(self, **parts: str) -> tuple[int, str]:
        """Status and last line of .ci/run with these scripts as the tiers."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {"make": MAKE, "test": "exit 1", "test-rest": "exit 1", **parts}.items():
                (Path(folder) / name).write_text(text, encoding="ascii")
            (Path(folder) / "make").chmod(0o755)
            result = subprocess.run([CI], env=os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "RUNS": folder},
                                    capture_output=True, text=True, check=False, timeout=60)
            return result.returncode, result.stdout.splitlines()[-1]

    @staticmethod
    def counted(passed: int, failed: int = 0, skipped: int = 0) -> str:
        """A part that has run to its end."""
        return COUNTED.format(json.dumps({"passed": passed, "failed": failed, "skipped": skipped}))

    def test_both_parts_are_summed(self) -> None:
        """And the status says whether something failed."""
        both = {"test": self.counted(7, 0, 1), "test-rest": self.counted(3)}
        self.assertEqual(self.run_ci(**both), (0, "10 passed, 0 failed, 1 skipped"))
        both["test-rest"] = self.counted(2, 1) + "exit 1"
        self.assertEqual(self.run_ci(**both), (1, "9 passed, 1 failed, 1 skipped"))

    def test_a_part_that_ends_before_its_time_has_failed(self) -> None:
        """Whatever the other one says."""
        both = {"test": self.counted(7), "test-rest": "kill -9 $$"}
        self.assertEqual(self.run_ci(**both), (1, "7 passed, 1 failed"))
        self.assertEqual(self.run_ci(), (1, "0 passed, 2 failed"))

    def test_second_attempts_are_counted_together(self) -> None:
        """Two parts have as many as one run."""
        with tempfile.TemporaryDirectory() as folder:
            for more, failed in ((1, 0), (2, 1)):
                files = [Path(folder) / name for name in ("make-test", "make-rest")]
                for file, again in zip(files, (2, more), strict=True):
                    counts = stages.Counts(passed=7, again=("io.one",) * again)
                    file.write_text(json.dumps(dataclasses.asdict(counts)), "ascii")
                words = sys.executable, "-B", REPOSITORY / "tools/test", "sum", *files
                result = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False, timeout=60)
                self.assertEqual(result.stdout.splitlines()[-1], f"14 passed, {failed} failed")

    def test_what_failed_is_told_once_more_at_the_end(self) -> None:
        """Failures of both parts are told: who is shown the last lines only sees the names, and why."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "make-test"
            counts = stages.Counts(passed=7, failed=1)
            file.write_text(json.dumps({**dataclasses.asdict(counts), "failures": ["  io.one", "      why"]}), "ascii")
            words = sys.executable, "-B", REPOSITORY / "tools/test", "sum", file, file.with_name("no")
            command = list(map(str, words))
            result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
            self.assertEqual(result.stdout.splitlines(), [
                "## what failed:", "##   io.one", "##       why", "##   no: it has ended without counting",
                "# again: 0", "7 passed, 2 failed"])


class WaitingTest(unittest.TestCase):
    """The lines that people see while stages run, and of those that failed."""

    def test_the_line(self) -> None:
        """The times of the last run make it; the virtual machines are beside the others."""
        names, told = ["lint", "units", "machines"], list[str]()
        before = {"lint": 100.0, "units": 60.0, "machines": 240.0}
        with waiting.Waiting(names, "machines", 2, before, told.append, pause=1000) as view:
            with mock.patch("waiting.time.monotonic", return_value=10.0):
                view.begin("lint")
                view.begin("machines")
            self.assertEqual(view.line(40.0),
                             "## 0 of 3 stages, about 4 min left; running: lint (30 s), machines (30 s)")
            view.end("machines")
            self.assertEqual(view.line(40.0), "## 1 of 3 stages, about 65 s left; running: lint (30 s)")
        unknown = waiting.Waiting(names, "machines", 2, {}, told.append)
        self.assertEqual(unknown.line(0.0), "## 0 of 3 stages; running: ")

    def test_it_is_told_while_stages_run(self) -> None:
        """But for the virtual machines alone, which tell for themselves."""
        for name, expected in (("lint", True), ("machines", False)):
            told = list[str]()
            with waiting.Waiting(["lint", "machines"], "machines", 2, {}, told.append, pause=0.01) as view:
                view.begin(name)
                time.sleep(0.2)
            self.assertEqual(bool(told), expected, name)

    def test_what_failed(self) -> None:
        """A program is told with its lines and its command; virtual machines have a list of their own."""
        def one(out: stages.Output) -> stages.Counts:
            return out.one("lint.x", out.stream(["sh", "-c", "echo ordinary; echo 'error: bad'; exit 1"])[0])
        stage = stages.Stage("lint", one)
        stage.run(at_once=False)
        self.assertEqual(stage.failures, ["  lint.x", "      ordinary", "      error: bad",
                                          "    repeat: sh -c 'echo ordinary; echo '\"'\"'error: bad'\"'\"'; exit 1'"])
        said = "# what failed:\n#   io.x\n#       bad\n#     repeat: run io.x\n# again: 0\n0 passed, 1 failed"
        stage = stages.Stage("machines", lambda out: out.closing(*out.stream(["echo", said])))
        stage.run(at_once=False)
        self.assertEqual(stage.failures, ["  io.x", "      bad", "    repeat: run io.x"])

    def test_a_stage_that_cannot_run_is_told(self) -> None:
        """Its name is told."""
        def work(_out: stages.Output) -> stages.Counts:
            raise OSError("gone")
        stage = stages.Stage("lint", work)
        stage.run(at_once=False)
        self.assertEqual(stage.failures, ["  lint", "      OSError: gone"])


class CountsTest(unittest.TestCase):
    """Programs that count, and the whole."""

    def test_what_unittest_skips_has_not_passed(self) -> None:
        """Nor has it failed."""
        for status, last, expected in ((0, "OK", (7, 0, 0)), (0, "OK (skipped=2)", (5, 0, 2)),
                                       (1, "FAILED (failures=1, errors=1, skipped=2)", (3, 2, 2)),
                                       (1, "OK", (6, 1, 0))):
            self.assertEqual(units.counts(status, ["Ran 7 tests in 0.1s", "", last]), expected, last)

    def test_no_test_at_all_is_a_failure(self) -> None:
        """Also if the program says that all is well."""
        self.assertEqual(units.counts(0, []), (0, 1, 0))

    def test_unit_tests_that_leave_a_file_have_failed(self) -> None:
        """Though each of them has passed."""
        for leaves, failed in ((False, 0), (True, 1)):
            with tempfile.TemporaryDirectory() as top:
                folder = Path(top) / "tool/unit"
                folder.mkdir(parents=True)
                (folder / "__init__.py").touch()
                (folder.parent / "__init__.py").touch()
                text = LEAVES if leaves else LEAVES.replace("mkdtemp", "gettempdir")
                (folder / "of_tool.py").write_text(text, encoding="ascii")
                counts = stages._units(stages.Output(at_once=False), folder)
                self.assertEqual((counts.passed, counts.failed), (2 - failed, failed), leaves)

    def test_second_attempts_are_added_up(self) -> None:
        """Attempts of each stage that had some count."""
        out = stages.Output(at_once=False)
        first = out.closing(0, ["ok 1 a", "# again: 2 (a.x, b.y)", "5 passed, 0 failed, 1 skipped"])
        self.assertEqual(first, stages.Counts(5, 0, 1, ("a.x", "b.y")))
        none = out.closing(0, ["# again: 0", "1 passed, 0 failed"])
        self.assertEqual((none.again, (first + none).again), ((), ("a.x", "b.y")))


if __name__ == "__main__":
    unittest.main()
