# SPDX-License-Identifier: GPL-2.0
"""A worker process with tests of its own: verdicts, and the search for the test that leaks."""
from __future__ import annotations

import os
import queue
import tempfile
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from vmlab.runner import Heard, Worker
from vmlab.verdict import AGAIN, CHANCE, EMULATION, LATER, TIME

FOLDER = Path(__file__).resolve().parent
SECONDS = 60.0


class Workers(unittest.TestCase):
    """Orders to a worker, and what it answers."""

    tests = ""      # a folder

    def setUp(self) -> None:
        """A worker that has found the tests of the folder."""
        self.heard: Heard = queue.SimpleQueue()
        self.start()

    def start(self, **more: object) -> None:
        """Starts the worker, with more options. What its labs leave, also logs that are kept, goes with the test."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        options = {"modules": "ours", "accel": None, "append": "", "verbose": False, "keep": False, "long": False,
                   "tests": str(FOLDER / self.tests), **more}
        with mock.patch.dict(os.environ, TMPDIR=folder.name):
            self.worker = Worker(0, options, self.heard)
        self.addCleanup(self.worker.close)
        self.plan = self.heard.get(timeout=SECONDS)[1]

    def answers(self, **order: object) -> list[dict[str, Any]]:
        """The answers to an order, without the word that ends it."""
        self.worker.tell(**order)
        lines = []
        while "idle" not in (line := self.heard.get(timeout=SECONDS)[1]):
            self.assertNotIn("gone", line)
            lines.append(line)
        return lines


class WorkerTest(Workers):
    """Verdicts, and the search for the test that leaks."""

    tests = "leaking"

    def test_the_plan_and_the_verdicts(self) -> None:
        """Each test is found, and answered for."""
        self.assertEqual(self.plan["broken"], {})
        names = [test["name"] for test in self.plan["plan"]]
        self.assertEqual(names, ["leaking.clean", "leaking.leaks", "leaking.fails", "leaking.slow",
                                 "leaking.by_chance"])
        answers = self.answers(do="tests", names=names[:3])
        self.assertEqual([(line["name"], line["verdict"]) for line in answers],
                         [("leaking.clean", "ok"), ("leaking.leaks", "ok"), ("leaking.fails", "not ok")])
        self.assertIn("on purpose", answers[2]["why"])

    def test_what_is_too_slow_on_a_busy_host_runs_again(self) -> None:
        """Once, and its line says so."""
        self.start(busy_share=-1, quiet_seconds=0)
        (line,) = self.answers(do="tests", names=["leaking.slow"])
        self.assertEqual((line["verdict"], line["why"], line["again"]), ("ok", "", TIME))
        self.assertIn("again: too slow on purpose", line["said"])

    def test_what_meets_a_documented_chance_runs_again(self) -> None:
        """Also where the host is quiet."""
        self.start(busy_share=2)
        (line,) = self.answers(do="tests", names=["leaking.by_chance"])
        self.assertEqual((line["verdict"], line["why"], line["again"]), ("ok", "", CHANCE))
        self.assertIn("again: a late packet", line["said"])

    def test_what_is_too_slow_on_a_quiet_host_fails(self) -> None:
        """The host is never busy enough."""
        self.start(busy_share=2)
        (line,) = self.answers(do="tests", names=["leaking.slow"])
        self.assertEqual(line["verdict"], "not ok")
        self.assertIn("too slow on purpose", line["why"])

    def test_a_group_without_a_leak(self) -> None:
        """The unload is a test that passes."""
        self.answers(do="tests", names=["leaking.clean"])
        (line,) = self.answers(do="unload", name="leaking.unload", tests=["leaking.clean"])
        self.assertEqual((line["name"], line["verdict"]), ("leaking.unload", "ok"))

    def test_the_test_that_leaks_is_named(self) -> None:
        """Each test of the group runs again alone; only the unload answers, and names the one."""
        group = ["leaking.clean", "leaking.leaks"]
        self.answers(do="tests", names=group)
        (line,) = self.answers(do="unload", name="leaking.unload", tests=group)
        self.assertEqual((line["name"], line["verdict"]), ("leaking.unload", "not ok"))
        self.assertIn("left behind, a reference", line["why"])
        self.assertIn("after leaking.leaks alone", line["why"])
        self.assertNotIn("after leaking.clean alone", line["why"])
        # The worker goes on, and answers for its tests again.
        (line,) = self.answers(do="tests", names=["leaking.clean"])
        self.assertEqual(line["verdict"], "ok")


class JudgedTest(Workers):
    """Lines of machines count, whenever they come, and whatever a test says of itself."""

    tests = "judged"

    def one(self, name: str, **order: object) -> dict[str, Any]:
        """The answer for one test."""
        (line,) = self.answers(**{"do": "tests", "names": [f"judged.{name}"], **order})
        return line

    def final(self, name: str, *found: str) -> None:
        """A test that is not excused, and why."""
        line = self.one(name)
        self.assertEqual((line["verdict"], line["again"]), ("not ok", ""), line)
        for text in found:
            self.assertIn(text, line["why"])

    def unload(self) -> dict[str, Any]:
        """The answer for the end of a group."""
        (line,) = self.answers(do="unload", name="judged.unload", tests=[])
        return line

    def setUp(self) -> None:
        """The host is always busy, and never quiet."""
        self.heard = queue.SimpleQueue()
        self.start(busy_share=-1, quiet_seconds=0)

    def test_what_the_lab_has_found_is_final(self) -> None:
        """A chance, or a limit of time, excuses nothing of it."""
        self.final("chance_and_what_the_lab_found", "a late packet", "refcount_t: underflow", "was not decided",
                   "left behind", "'mr': 3")
        self.final("too_slow_and_a_warning", "it took 9 s", "fake.c:1")

    def test_the_state_of_rxe_excuses_no_wrong_data(self) -> None:
        """Declared or not."""
        self.final("wrong_data_while_rxe_is_dead", "found BBBB")
        self.final("wrong_data_while_rxe_gives_up", "found 'BBBB', expected 'AAAA'")

    def test_the_state_of_rxe_excuses_a_declared_wait_only(self) -> None:
        """Its state excuses nothing in a test that has not declared it."""
        self.final("a_wait_that_fails_while_rxe_is_dead", "the path is back")
        line = self.one("a_declared_wait_that_fails")
        self.assertEqual((line["verdict"], line["again"]), ("ok", CHANCE))

    def test_a_failure_is_final(self) -> None:
        """However busy the host was."""
        self.final("fails", "on purpose")

    def test_a_complaint_in_the_body(self) -> None:
        """The complaint is named."""
        self.final("a_warning_in_the_body", "server: kernel: WARNING")

    def test_a_complaint_at_the_unload(self) -> None:
        """The test passes, the end of its group does not."""
        for name, found in (("a_warning_at_the_unload", "kernel: WARNING"),
                            ("a_record_at_the_unload", "was not decided")):
            self.assertEqual(self.one(name)["verdict"], "ok")
            line = self.unload()
            self.assertEqual(line["verdict"], "not ok")
            self.assertIn(found, line["why"])
        self.assertEqual(self.one("after_it")["verdict"], "ok")
        self.assertEqual(self.unload()["verdict"], "ok")

    def test_a_complaint_before_a_power_failure(self) -> None:
        """The new boot does not know of it."""
        self.final("a_warning_before_a_reboot", "server: kernel: WARNING")
        self.final("a_record_before_a_power_failure", "was not decided")

    def test_a_machine_may_be_dead_only_if_the_test_killed_it(self) -> None:
        """Also if the test boots it again."""
        self.assertEqual(self.one("a_machine_is_killed")["verdict"], "ok")
        self.final("a_machine_dies", "server: the machine died")
        self.final("a_machine_dies_and_is_booted", "server: the machine died")

    def test_a_complaint_between_two_tests(self) -> None:
        """The next one tells of it."""
        self.assertEqual(self.one("says_something_later")["verdict"], "ok")
        self.final("after_it", "before this test", "server: kernel: WARNING")

    def test_the_emulation_breaks(self) -> None:
        """A broken emulation excuses what comes of it, and nothing else."""
        line = self.one("the_emulation_breaks")
        self.assertEqual((line["verdict"], line["again"]), ("ok", EMULATION), line)
        self.final("the_emulation_breaks_after_a_warning", "the machine died")
        self.final("the_emulation_breaks_beside_a_warning", "client: kernel: WARNING")

    def test_too_slow_beside_other_labs(self) -> None:
        """The second attempt is made when it is asked for, and the logs of both are kept."""
        first = self.one("too_slow", alone=False)
        self.assertEqual((first["verdict"], first["again"]), (LATER, ""))
        (second,) = self.answers(do="again", name="judged.too_slow", logs=first["logs"])
        self.assertEqual((second["verdict"], second["again"]), ("ok", TIME))
        self.assertIn(f"logs of both attempts: {first['logs']}", second["said"])
        for folder in (Path(first["logs"]), Path(first["logs"]) / AGAIN):
            self.assertIn("an ordinary line", (folder / "server.log").read_text(encoding="utf-8"))


class UndeclaredTest(Workers):
    """Tests that do not say what they show, or when they run."""

    tests = "undeclared"

    def test_they_fail(self) -> None:
        """Whatever is run: they are no part of the plan that works."""
        self.assertEqual(sorted(self.plan["broken"]), ["undeclared.of_no_tier", "undeclared.silent"])
        case = next(test for test in self.plan["plan"] if test["name"] == "undeclared.case")
        self.assertEqual((case["title"], case["tier"]), ("A case.", "all"))


if __name__ == "__main__":
    unittest.main()
