# SPDX-License-Identifier: GPL-2.0
"""Modules that stay loaded, what is left behind, and where the time of a test went."""
from __future__ import annotations

import json
import os
import tempfile
import unittest
from pathlib import Path
from typing import Any, ClassVar, cast
from unittest import mock

from vmlab import durations, loaded, oracle, tier
from vmlab.lab import Lab
from vmlab.machine import Examination, Machine
from vmlab.phases import Clock

IDLE = [{"ifname": "rxe0", "pd": 1, "qp": 1, "cm_id": 2, "cq": 5}]


class FakeMachine:
    """A machine in which modules are names in a set."""

    def __init__(self, name: str = "server") -> None:
        self.name, self.alive = name, True
        self.ran: list[str] = []
        self.there: set[str] = set()
        self.folders: dict[str, list[str]] = {}
        self.rdma = IDLE
        self.log: list[tuple[int, str]] = []

    def run(self, command: str, _timeout: float = 0) -> str:
        """Knows how to load and to unload."""
        self.ran.append(command)
        if command == "mods -r":
            self.there.clear()
        if command.startswith("mods ours"):
            self.there.add("rnbd_server" if "server" in command else "rnbd_client")
        return ""

    def examine(self, _after: int = -1, _folders: tuple[str, ...] = ()) -> Examination:
        """Shows what is left."""
        return Examination(self.log, self.rdma, ["rdma_rxe", *self.there], self.folders)

    def exists(self, path: str) -> bool:
        """Whether a module is loaded."""
        return path.split("/")[3] in self.there


class ModulesTest(unittest.TestCase):
    """Words of a test that load modules, and when they need not."""

    def setUp(self) -> None:
        """A lab that shares its modules."""
        self.fake = FakeMachine()
        self.machine = cast(Machine, self.fake)
        self.modules = loaded.Modules()
        self.modules.shared = True

    def loads(self) -> list[str]:
        """The loads and unloads that were done."""
        return [line for line in self.fake.ran if line.startswith("mods")]

    def test_what_is_loaded_in_the_same_way_is_used_again(self) -> None:
        """The second test finds it there."""
        for _ in range(2):
            self.modules.load(self.machine, "server", "mods ours rtrs-server")
        self.assertEqual(self.loads(), ["mods ours rtrs-server"])

    def test_other_parameters_unload_first(self) -> None:
        """Nothing stays of what was loaded otherwise."""
        self.modules.load(self.machine, "server", "mods ours rtrs-server")
        self.modules.load(self.machine, "server", "mods ours rtrs-server always_invalidate=N")
        self.assertEqual(self.loads(), ["mods ours rtrs-server", "mods -r",
                                        "mods ours rtrs-server always_invalidate=N"])

    def test_what_a_test_has_unloaded_by_hand_is_loaded_again(self) -> None:
        """The machine knows better than the words."""
        self.modules.load(self.machine, "server", "mods ours rtrs-server")
        self.fake.there.clear()
        self.modules.load(self.machine, "server", "mods ours rtrs-server")
        # What the test has loaded beside it is not unloaded.
        self.assertEqual(self.loads(), ["mods ours rtrs-server"] * 2)

    def test_objects_are_not_counted_for_a_part_that_is_gone(self) -> None:
        """A test has unloaded both by hand: the client is loaded first, and the server's objects are not there yet."""
        self.modules.load(self.machine, "server", "mods ours rtrs-server")
        self.modules.load(self.machine, "client", "mods ours rnbd-client")
        self.modules._idle.clear()
        self.fake.there.clear()
        self.modules.load(self.machine, "client", "mods ours rnbd-client")
        self.assertEqual(self.modules.witnesses(self.machine), ["rnbd_client"])

    def test_without_sharing_every_load_loads(self) -> None:
        """A test that loads for itself means it."""
        self.modules.shared = False
        for _ in range(2):
            self.modules.load(self.machine, "server", "mods ours rtrs-server")
        self.assertEqual(len(self.loads()), 2)

    def test_objects_are_counted_when_modules_have_just_been_loaded(self) -> None:
        """And not again later, when a session may be there."""
        self.modules.load(self.machine, "server", "mods ours rtrs-server")
        self.fake.rdma = [{"ifname": "rxe0", "pd": 9}]
        self.modules.unload(self.machine)
        self.assertIsNone(self.modules.idle(self.machine))
        self.modules.load(self.machine, "server", "mods ours rtrs-server")
        self.assertEqual(self.modules.idle(self.machine), {"rxe0": {"pd": 1, "qp": 1, "cm_id": 2}})


class FindingsTest(unittest.TestCase):
    """Findings of the oracle in a machine after a test."""

    IDLE: ClassVar[oracle.Resources] = {"rxe0": {"pd": 1, "qp": 1, "cm_id": 2}}

    def setUp(self) -> None:
        """A machine whose server stays loaded."""
        self.fake = FakeMachine()
        self.fake.there = {"rnbd_server"}
        self.baseline = oracle.Baseline(cast(Machine, self.fake), self.IDLE, False, frozenset({"rnbd_server"}))

    def examine(self, idle: oracle.Resources | None) -> oracle.Findings:
        """Examines without the time to settle."""
        with mock.patch.object(oracle, "SETTLE_SECONDS", 0):
            return oracle.examine(self.baseline, 0, idle, ["rnbd_server"])

    def test_nothing(self) -> None:
        """A folder for the control files is no session."""
        self.fake.folders = {"/sys/class/rtrs-client": ["ctl"]}
        self.assertEqual(self.examine(self.IDLE), oracle.Findings([], True))

    def test_a_session_and_an_object_and_a_complaint(self) -> None:
        """All are named."""
        self.fake.folders, self.fake.rdma = {"/sys/class/rtrs-client": ["s1"]}, [{**IDLE[0], "pd": 2}]
        self.fake.log = [(1, "BUG: fake"), (2, "an ordinary line")]
        found = self.examine(self.IDLE).wrong
        self.assertEqual(len(found), 3)
        self.assertIn("/sys/class/rtrs-client/s1", found[0])
        self.assertIn("'pd': 2", found[1])
        self.assertIn("BUG: fake", found[2])

    def test_what_settles_is_not_left_behind(self) -> None:
        """Objects are freed a moment after the test."""
        self.fake.rdma = [{**IDLE[0], "pd": 2}]
        with mock.patch("time.sleep", lambda _seconds: setattr(self.fake, "rdma", IDLE)):
            found = oracle.examine(self.baseline, 0, self.IDLE, ["rnbd_server"])
        self.assertEqual(found, oracle.Findings([], True))

    def test_modules_that_nothing_has_loaded_for_the_next_test(self) -> None:
        """Whatever the test has loaded by itself is to be unloaded, and so is what has lost a part."""
        self.assertFalse(self.examine(None).at_rest)
        self.fake.there = set()
        self.assertTrue(self.examine(None).at_rest)
        self.assertTrue(self.examine(self.IDLE).at_rest)
        self.fake.rdma = [{**IDLE[0], "pd": 2}]
        self.assertFalse(self.examine(None).at_rest)


class TimesTest(unittest.TestCase):
    """Phases, tiers, and the file in the cache."""

    def test_an_inner_phase_is_not_counted_twice(self) -> None:
        """Each moment belongs to one phase."""
        # The clock is read when it is made, at each begin and end of a phase, and at the end.
        with mock.patch("vmlab.phases.time.monotonic", side_effect=[0.0, 1.0, 2.0, 5.0, 9.0, 20.0, 21.0]):
            clock = Clock()
            with clock.phase("body"), clock.phase("map"):
                pass
            self.assertEqual(clock.take(), {"body": 5.0, "map": 3.0})
            self.assertEqual(clock.take(), {})

    def test_a_phase_ends_with_an_exception(self) -> None:
        """The next one is not inside it."""
        clock = Clock()
        with self.assertRaises(KeyError), clock.phase("load"):
            raise KeyError
        clock.take()
        self.assertEqual(clock.take(), {})

    def test_what_is_kept_is_found_again(self) -> None:
        """The plan of the next run begins with the longest groups."""
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(durations, "cache_dir", lambda: Path(folder)):
            times = durations.Durations()
            times.add(name="io.x", file="io", tier="core", seconds=4.0, cpu=3.0, phases={"body": 3.5, "map": 0.5})
            times.add(name="load.y", file="load", tier="core", seconds=9.0, cpu=8.0, phases={"body": 9.0})
            kept: dict[str, Any] = json.loads(times.keep().read_text(encoding="utf-8"))
            self.assertEqual(list(kept["files"]), ["load", "io"])
            self.assertEqual(durations.latest(), {"io.x": 4.0, "load.y": 9.0})
            self.assertIn("    9.0 s  (8 s of processors)  load (1)", times.table().splitlines())

    def test_runs_of_all_tests_are_kept_apart(self) -> None:
        """Many runs of a few tests do not push them out."""
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(durations, "cache_dir", lambda: Path(folder)):
            times = durations.Durations()
            for number in range(durations.COMPLETE):
                times.add(name=f"io.{number}", file="io", tier="core", seconds=4.0, cpu=3.0, phases={})
            kept = times.keep()
            self.assertTrue(kept.exists() and kept.name.startswith("run-all-2"))
            self.assertEqual(len(durations.latest()), durations.COMPLETE)

    def test_tiers(self) -> None:
        """A length is the long one in a long run only."""
        with mock.patch.dict(os.environ):
            os.environ.pop(tier.VARIABLE, None)
            self.assertEqual(tier.of(1, 2), 1)
            os.environ[tier.VARIABLE] = "1"
            self.assertEqual(tier.of(1, 2), 2)


class SharedTest(unittest.TestCase):
    """The question whether modules stay loaded."""

    def test_a_machine_knows_its_lab(self) -> None:
        """A machine of no lab shares nothing."""
        class FakeLab:
            def __init__(self) -> None:
                self.machines = [FakeMachine()]
        lab = FakeLab()
        machine = cast(Machine, lab.machines[0])
        self.assertFalse(loaded.shared_in(machine))
        loaded.of(cast(Lab, lab)).shared = True
        self.assertTrue(loaded.shared_in(machine))
