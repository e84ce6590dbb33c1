# SPDX-License-Identifier: GPL-2.0
"""A worker process with tests of its own: verdicts, and the search for the test that leaks."""
from __future__ import annotations

import queue
import unittest
from pathlib import Path
from typing import Any

from vmlab.runner import Heard, Worker

FOLDER = Path(__file__).resolve().parent / "leaking"
SECONDS = 60.0


class WorkerTest(unittest.TestCase):
    """Orders to a worker, and what it answers."""

    def setUp(self) -> None:
        """A worker that has found the tests of `leaking`."""
        self.heard: Heard = queue.SimpleQueue()
        self.start()

    def start(self, **more: object) -> None:
        """Starts the worker, with more options."""
        options = {"modules": "ours", "accel": None, "append": "", "verbose": False, "keep": False, "long": False,
                   "tests": str(FOLDER), **more}
        self.worker = Worker(0, options, self.heard)
        self.addCleanup(self.worker.close)
        self.plan = self.heard.get(timeout=SECONDS)[1]

    def answers(self, **order: object) -> list[dict[str, Any]]:
        """What comes of an order, without the word that ends it."""
        self.worker.tell(**order)
        lines = []
        while "idle" not in (line := self.heard.get(timeout=SECONDS)[1]):
            self.assertNotIn("gone", line)
            lines.append(line)
        return lines

    def test_the_plan_and_the_verdicts(self) -> None:
        """Each test is found, and answered for."""
        self.assertEqual(self.plan["broken"], {})
        names = [test["name"] for test in self.plan["plan"]]
        self.assertEqual(names, ["leaking.clean", "leaking.leaks", "leaking.fails", "leaking.slow",
                                 "leaking.loses_a_path", "leaking.by_chance"])
        answers = self.answers(do="tests", names=names[:3])
        self.assertEqual([(line["name"], line["verdict"]) for line in answers],
                         [("leaking.clean", "ok"), ("leaking.leaks", "ok"), ("leaking.fails", "not ok")])
        self.assertIn("on purpose", answers[2]["why"])

    def test_what_is_too_slow_on_a_busy_host_runs_again(self) -> None:
        """Once, and its line says so."""
        self.start(busy_share=-1, quiet_seconds=0)
        (line,) = self.answers(do="tests", names=["leaking.slow"])
        self.assertEqual((line["verdict"], line["why"]), ("ok", ""))
        self.assertIn("again when the host is quiet: too slow on purpose", line["said"])

    def test_what_meets_a_documented_chance_runs_again(self) -> None:
        """Also where the host is quiet."""
        self.start(busy_share=2)
        (line,) = self.answers(do="tests", names=["leaking.by_chance"])
        self.assertEqual((line["verdict"], line["why"]), ("ok", ""))
        self.assertIn("again: a late packet", line["said"])

    def test_what_is_too_slow_on_a_quiet_host_fails(self) -> None:
        """The host is never busy enough."""
        self.start(busy_share=2)
        (line,) = self.answers(do="tests", names=["leaking.slow"])
        self.assertEqual(line["verdict"], "not ok")
        self.assertIn("too slow on purpose", line["why"])

    def test_what_rxe_has_lost_on_a_busy_host_runs_again(self) -> None:
        """A failure while rxe has ended a queue pair by itself counts as one of the host."""
        self.start(busy_share=-1, quiet_seconds=0)
        (line,) = self.answers(do="tests", names=["leaking.loses_a_path"])
        self.assertEqual((line["verdict"], line["why"]), ("ok", ""))
        self.assertIn("again when the host is quiet: a path is lost", line["said"])

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


if __name__ == "__main__":
    unittest.main()
