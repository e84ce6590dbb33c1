# SPDX-License-Identifier: GPL-2.0
"""The plan, the oracle's ear, the checks, and what is read of a console."""
from __future__ import annotations

import argparse
import fcntl
import io
import os
import tempfile
import threading
import unittest
from contextlib import nullcontext, redirect_stdout
from typing import Any, cast
from unittest import mock

from vmlab import checks, tier
from vmlab.durations import waiting
from vmlab.ktap import Report
from vmlab.lab import Spec
from vmlab.machine import Hardware, is_lost_timer, is_patching_oops
from vmlab.needs import Needs, needs, of
from vmlab.oracle import COMPLAINT
from vmlab.plan import Group, Planned, choose, groups, select
from vmlab.runner import Runner
from vmlab.ticks import Host, Reading
from vmlab.verdict import LATER, OK, TIME


class NeedsTest(unittest.TestCase):
    """Declarations of tests."""

    def test_the_decorator_keeps_shape_and_rest_apart(self) -> None:
        """Machines and processors make the lab, the rest is about the test."""
        @needs(machines=1, smp=4, disruptive=True, timeout=7)
        def test(_lab: object) -> None:
            pass
        self.assertEqual(of(test), Needs(spec=Spec(machines=1, wires=1, smp=4), timeout=7, disruptive=True))

    def test_all_pairs_are_alike(self) -> None:
        """A test that uses one wire runs in the same lab as one that uses two."""
        self.assertEqual(Needs().spec, of(needs(wires=1)(lambda _lab: None)).spec)
        self.assertEqual(Needs().spec, of(needs(wires=2)(lambda _lab: None)).spec)

    def test_processors(self) -> None:
        """One, unless the test or its file wants more; in a long run twice as many, up to those of a race."""
        scope: dict[str, Any] = {"needs": needs, "SMP": 2}
        exec("@needs(machines=1)\ndef race(lab): pass\n@needs(smp=1)\ndef one(lab): pass\ndef bare(lab): pass", scope)
        declared = [needs()(lambda _lab: None), *(scope[name] for name in ("race", "one", "bare")),
                    needs(smp=8)(lambda _lab: None)]
        self.assertEqual([of(test).spec.smp for test in declared], [1, 2, 1, 2, 8])
        with mock.patch.dict(os.environ, {tier.VARIABLE: "1"}):
            self.assertEqual([tier.processors(smp) for smp in (1, 2, 8)], [2, 4, 8])
        with mock.patch.dict(os.environ, VMLAB_DEBUG="1"):
            self.assertEqual([tier.processors(smp) for smp in (1, 2, 8)], [2, 2, 8])

    def test_tiers(self) -> None:
        """A test says its own, or its file does; a run takes those that belong to it."""
        scope: dict[str, Any] = {"needs": needs, "TIER": tier.ALL}
        exec("@needs()\ndef a(lab): pass\n@needs(tier='core')\ndef b(lab): pass", scope)
        self.assertEqual([of(scope["a"]).tier, of(scope["b"]).tier, Needs().tier], [tier.ALL, tier.CORE, tier.CORE])
        tests = [PlanTest.planned(f"x.{name}", tier=name) for name in (tier.CORE, tier.ALL, tier.LONG)]
        for run, wanted in ((tier.CORE, ["core"]), (tier.ALL, ["core", "all"]), (tier.REST, ["all"]),
                            (tier.LONG, ["core", "all", "long"])):
            self.assertEqual([test.tier for test in select(tests, [], [], tier.RUNS[run])], wanted)
        self.assertEqual(len(select(tests, ["x"], [])), 3)

    def test_who_shares_modules(self) -> None:
        """Tests that load for themselves do not, nor those that are alone in their lab."""
        self.assertTrue(Needs().shares)
        for alone in ("own_modules", "disruptive", "fresh"):
            self.assertFalse(Needs(**{alone: True}).shares)  # type: ignore[arg-type]


class PlanTest(unittest.TestCase):
    """Groups and their order."""

    @staticmethod
    def planned(name: str, spec: str = "pair", **known: bool | str | int) -> Planned:
        """A test as a worker describes it."""
        plain: dict[str, Any] = {"shares": True, "timed": False, "waits": False,
                                 "debug": False, "late": False, "preempt": "", "tier": tier.CORE,
                                 "processors": 1}
        return Planned(name=name, title="", file=name.partition(".")[0], lab=f"2 machines, {spec}", spec=spec,
                       **(plain | known))

    def test_a_group_is_a_file_and_a_lab(self) -> None:
        """Tests that share modules come first, then the unload, then the others, disruptive ones last."""
        tests = [self.planned("a.dies", late=True, shares=False), self.planned("a.one"), self.planned("b.x"),
                 self.planned("a.own", shares=False), self.planned("a.two"), self.planned("a.small", spec="single")]
        found = groups(tests)
        self.assertEqual([group.names for group in found], [
            ["a.one", "a.two", "a.unload_2_machines", "a.own", "a.dies"], ["b.x", "b.unload_2_machines"],
            ["a.small", "a.unload_2_machines"]])

    def test_timed_tests_are_groups_of_their_own(self) -> None:
        """Nothing may run beside them."""
        found = groups([self.planned("a.x"), self.planned("a.bar", timed=True)])
        self.assertEqual([(group.timed, group.names[0]) for group in found], [(False, "a.x"), (True, "a.bar")])

    def test_repeated_tests_have_numbers(self) -> None:
        """Each turn is told apart."""
        self.assertEqual([group.label("a.x") for group in groups([self.planned("a.x")], 2)], ["a.x#1", "a.x#2"])

    def test_what_is_planned_is_what_is_ordered(self) -> None:
        """Else a test could be forgotten, or be reported that was not planned."""
        (group,) = groups([self.planned("a.x"), self.planned("a.y", shares=False), self.planned("a.z")])
        told = [name for order in group.orders()
                for name in (order["names"] if order["do"] == "tests" else [order["name"]])]  # type: ignore[attr-defined]
        self.assertEqual(told, group.names)

    def test_a_lab_goes_on_with_its_own_shape_and_long_groups_come_first(self) -> None:
        """So that few machines are booted, and both labs end at about the same time."""
        left = groups([self.planned("a.x"), self.planned("b.x", spec="single"), self.planned("c.x", spec="single")])
        self.assertEqual(choose(left, "single", {"c.x": 100.0}).names[0], "c.x")
        self.assertEqual(choose(left, "pair", {"c.x": 100.0}).names[0], "a.x")
        self.assertEqual(choose(left, "", {"b.x": 100.0}).names[0], "b.x")

    def test_patterns(self) -> None:
        """A file, a path, or a shell pattern; what is left out is left out."""
        tests = [self.planned("io.read"), self.planned("io.write"), self.planned("load.x")]
        for patterns, wanted in ((["io"], 2), (["tools/vmlab/tests/io.py"], 2), (["*.read", "load.*"], 2), ([], 3)):
            self.assertEqual(len(select(tests, patterns, [])), wanted, patterns)
        self.assertEqual([test.name for test in select(tests, ["io"], ["*write"])], ["io.read"])


class RunnerTest(unittest.TestCase):
    """The fate of a test whose worker ends."""

    def test_a_worker_that_dies_fails_its_test_and_another_goes_on(self) -> None:
        """The rest of the group is not lost."""
        out = io.StringIO()
        with Report(["a.x", "a.y", "a.unload_2_machines"], out) as report:
            run = FakeRunner({"a.x": "die"})
            run.run(groups([PlanTest.planned("a.x"), PlanTest.planned("a.y")]), report)
        self.assertIn("not ok 1 a.x", out.getvalue())
        self.assertTrue(out.getvalue().endswith("2 passed, 1 failed\n"), out.getvalue())

    def test_timed_groups_run_when_all_others_have_ended(self) -> None:
        """And in one lab."""
        run = FakeRunner({})
        names = ["a.x", "a.unload_2_machines", "b.bar", "b.unload_2_machines_timed", "c.x", "c.unload_2_machines"]
        with Report(names, io.StringIO()) as report:
            planned = [PlanTest.planned("b.bar", timed=True), PlanTest.planned("a.x"), PlanTest.planned("c.x")]
            run.run(groups(planned), report)
        self.assertEqual(run.order[-2:], ["b.bar", "b.unload_2_machines_timed"])
        self.assertEqual(report.passed, 6)

    def test_what_was_too_slow_beside_others_runs_when_they_have_ended(self) -> None:
        """Alone, with the logs of its first attempt; it is counted and named, and reported once."""
        run = FakeRunner({"a.x": LATER})
        names = ["a.x", "a.unload_2_machines", "b.bar", "b.unload_2_machines_timed", "c.x", "c.unload_2_machines"]
        with Report(names, out := io.StringIO()) as report:
            planned = [PlanTest.planned("b.bar", timed=True), PlanTest.planned("a.x"), PlanTest.planned("c.x")]
            run.run(groups(planned), report)
        self.assertEqual(run.order[-1], "a.x")
        self.assertEqual(run.order.count("a.x"), 2)
        self.assertEqual(run.orders[-1], {"do": "again", "name": "a.x", "logs": "/logs"})
        self.assertEqual({order["alone"] for order in run.orders if order.get("names") in (["a.x"], ["c.x"])}, {False})
        self.assertEqual([order["alone"] for order in run.orders if order.get("names") == ["b.bar"]], [True])
        self.assertEqual((report.passed, report.failed), (6, 0))
        self.assertIn("# again: 1 (a.x)", out.getvalue())

    def test_groups_that_wait_have_a_lab_of_their_own(self) -> None:
        """One more, which takes no other; with a single lab there is none."""
        planned = [PlanTest.planned("a.slow", waits=True), PlanTest.planned("a.x"), PlanTest.planned("b.x")]
        names = ["a.slow", "a.unload_2_machines_waiting", "a.x", "a.unload_2_machines", "b.x", "b.unload_2_machines"]
        for labs, workers in ((2, 3), (1, 1)):
            run = FakeRunner({}, labs)
            with Report(names, io.StringIO()) as report:
                run.run(groups(planned), report)
            self.assertEqual(report.passed, 6)
            self.assertEqual(len(run.workers), workers)
            for worker in run.workers.values():
                did = cast(FakeWorker, worker).did
                kinds = {"slow" in name or name.endswith("_waiting") for name in did}
                self.assertTrue(labs == 1 or len(kinds) == 1, did)


    def test_a_light_lab_takes_only_machines_of_one_processor(self) -> None:
        """And is there only beside others, if there are enough such tests."""
        planned = [PlanTest.planned(f"{file}.x", processors=2 if file in "abc" else 1) for file in "abcdefg"]
        names = [name for group in groups(planned) for name in group.names]
        for labs, tests, workers in ((2, planned, 3), (1, planned, 1), (2, planned[:4], 2)):
            run = FakeRunner({}, labs, light=1)
            with Report([name for name in names if name[0] in {test.file for test in tests}], io.StringIO()) as report:
                run.run(groups(tests), report)
            self.assertEqual((report.failed, len(run.workers)), (0, workers))
            if workers == 3:
                did = {name[0] for name in cast(FakeWorker, run.workers[2]).did}
                self.assertTrue(did and not did & set("abc"), did)

    def test_while_others_use_the_processors_only_tests_that_wait_run(self) -> None:
        """The rest begins when they have let the lock go."""
        planned = [PlanTest.planned("a.slow", waits=True), PlanTest.planned("a.x"), PlanTest.planned("b.x")]
        names = ["a.slow", "a.unload_2_machines_waiting", "a.x", "a.unload_2_machines", "b.x", "b.unload_2_machines"]
        run = FakeRunner({})
        with tempfile.NamedTemporaryFile() as file, Report(names, io.StringIO()) as report:
            fcntl.flock(file, fcntl.LOCK_EX)
            run.hold(file.name)
            thread = threading.Thread(target=run.run, args=(groups(planned), report))
            thread.start()
            checks.until(lambda: "a.unload_2_machines_waiting" in run.order, 5, "what waits has run", pause=0.01)
            self.assertEqual((run.order, thread.is_alive()), (names[:2], True))
            fcntl.flock(file, fcntl.LOCK_UN)
            thread.join(5)
        self.assertEqual((report.passed, sorted(run.order)), (6, sorted(names)))

    def test_what_waits_is_known_by_measure(self) -> None:
        """A group that used little of a processor when it last ran; what has not run is as declared."""
        planned = [PlanTest.planned("a.x"), PlanTest.planned("a.y"), PlanTest.planned("b.x", waits=True),
                   PlanTest.planned("c.x", waits=True), PlanTest.planned("d.x")]
        rows = {"a.x": {"cpu": 1.0, "seconds": 4.0}, "a.y": {"cpu": 1.0, "seconds": 4.0},
                "b.x": {"cpu": 4.0, "seconds": 6.0}, "d.x": {"cpu": 0.1, "seconds": 4.0}}
        self.assertEqual([test.waits for test in waiting(planned, rows)], [True, True, False, True, False])


class FakeWorker:
    """Answers orders at once."""

    def __init__(self, number: int, runner: FakeRunner) -> None:
        self.number, self._runner = number, runner
        self.spec = ""
        self.did: list[str] = []
        self.waits = self.light = False
        self.group: Group | None = None
        self.todo: list[dict[str, object]] = []
        self.doing: dict[str, object] = {}
        self.process = self
        self.returncode = -9

    def tell(self, **order: object) -> None:
        """Every test passes but the one that kills its worker."""
        self.doing = order
        self._runner.orders.append(order)
        names = order.get("names") or [order["name"]]
        for name in names:      # type: ignore[attr-defined]
            self._runner.order.append(name)
            self.did.append(name)
            if self._runner.fates.get(name) == "die":
                self._runner.heard.put((self.number, {"gone": True}))
                return
            verdict, is_second = self._runner.fates.get(name, OK), order["do"] == "again"
            self._runner.heard.put((self.number, {"name": name, "verdict": OK if is_second else verdict, "why": "",
                                                  "said": "", "again": TIME if is_second else "", "logs": "/logs",
                                                  "seconds": 1.0, "cpu": 1.0, "phases": {}, "wakes": []}))
        self._runner.heard.put((self.number, {"idle": True}))

    def close(self) -> None:
        """Nothing to end."""


class FakeRunner(Runner):
    """A runner whose workers are not processes."""

    def __init__(self, fates: dict[str, str], labs: int = 2, light: int = 0) -> None:
        super().__init__(argparse.Namespace(keep=False, labs=labs, light=light, long=False, modules="ours", append=""))
        self.fates = fates
        self.order: list[str] = []
        self.orders: list[dict[str, object]] = []

    def start(self) -> FakeWorker:      # type: ignore[override]
        """A worker that only answers."""
        worker = FakeWorker(len(self.workers) + self.deaths, self)
        self.workers[worker.number] = worker    # type: ignore[assignment]
        return worker


class OracleTest(unittest.TestCase):
    """Lines of a kernel log that are complaints."""

    def test_complaints(self) -> None:
        """All that no test may leave behind."""
        for line in ("WARNING: CPU: 1 PID: 77 at lib/refcount.c:28", "BUG: kernel NULL pointer dereference",
                     "Oops: general protection fault", "refcount_t: underflow; use-after-free.", "Call Trace:",
                     "INFO: task fio:77 blocked for more than 60 seconds.",
                     "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks", "list_del corruption. prev->next",
                     "watchdog: BUG: soft lockup - CPU#0 stuck", "BUG: sleeping function called from invalid context",
                     "Kernel panic - not syncing: fatal"):
            self.assertRegex(line, COMPLAINT)

    def test_ordinary_lines(self) -> None:
        """Words that only look like one."""
        for line in ("RCU CPU stall warnings timeout set to 60 (rcu_cpu_stall_timeout).", "debug: warning level 3",
                     "rtrs_core: loading out-of-tree module taints kernel.", "rnbd_client: rnbd0 mapped",
                     "Command line: rcupdate.rcu_cpu_stall_timeout=60", "DEBUG build"):
            self.assertNotRegex(line, COMPLAINT)


class EmulationTest(unittest.TestCase):
    """Machines that the emulation has killed."""

    OOPS = ("#     [  31.2] Oops: int3: 0000 [#1] SMP NOPTI\n#     [  31.2] CPU: 1 UID: 0 PID: 77 Comm: fio\n"
            "#     [  31.2] RIP: 0010:{}\n#     [  31.2] Code: cc 0f\n")

    def test_a_change_of_the_kernels_text(self) -> None:
        """The breakpoint is in the kernel itself."""
        self.assertTrue(is_patching_oops(self.OOPS.format("__skb_get_hash_net+0x1f/0x2a0")))

    def test_a_kernel_that_complained_before(self) -> None:
        """A failure of this kind is not excused."""
        for taint, excused in (("G           OE", True), ("G        W  OE", False), ("G      D    OE", False)):
            oops = self.OOPS.format("__skb_get_hash_net+0x1f/0x2a0").replace("Comm: fio", f"Comm: fio Tainted: {taint}")
            self.assertEqual(is_patching_oops(oops), excused, taint)

    def test_a_module_that_runs_into_nothing(self) -> None:
        """Between functions the compiler puts breakpoints, too."""
        self.assertFalse(is_patching_oops(self.OOPS.format("rtrs_client_init+0x1f/0x2a0 [rtrs_client]")))
        self.assertFalse(is_patching_oops(self.OOPS.replace("int3", "general protection fault").format("x+0x1/0x2")))

    STALL = ("#     [  170.1] rcu: INFO: rcu_preempt self-detected stall on CPU\n"
             "#     [  170.1] rcu: \t(t=36888 jiffies g=2001 q=1 ncpus=2)\n"
             "#     [  170.1] CPU: 0 UID: 0 PID: {} Tainted: G OE 7.2.12 #1\n#     [  170.1] RIP: 0010:{}\n")

    def test_a_timer_that_never_came(self) -> None:
        """The processor slept all the time."""
        self.assertTrue(is_lost_timer(self.STALL.format("0 Comm: swapper/0", "pv_native_safe_halt+0xf/0x20")))

    def test_a_kernel_that_stood_still(self) -> None:
        """A processor that was busy is the kernel's, or ours."""
        busy = self.STALL.format("77 Comm: fio", "_raw_spin_lock+0x1/0x2")
        self.assertFalse(is_lost_timer(busy))
        self.assertFalse(is_lost_timer(self.STALL.format("0 Comm: swapper/0", "handle_softirqs+0xf/0x20")))
        asleep = self.STALL.format("0 Comm: swapper/0", "pv_native_safe_halt+0xf/0x20").partition("\n")[2]
        self.assertFalse(is_lost_timer(busy + asleep), "another report's")
        slept = self.STALL.format("0 Comm: swapper/0", "pv_native_safe_halt+0xf/0x20")
        self.assertTrue(is_lost_timer(slept + slept))
        self.assertFalse(is_lost_timer(slept + busy), "one of two")
        self.assertFalse(is_lost_timer(slept + "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:\n"))


class TicksTest(unittest.TestCase):
    """The clocks of guests."""

    def test_a_clock_is_wrong_only_if_that_is_certain(self) -> None:
        """The time that the reading took is allowed for, in both directions."""
        first = Reading(10.0, 100.0, 10.5)
        for seconds, expected in ((3.0, 3 / 3.5), (3.25, None), (4.875, None), (5.125, 5.125 / 4.5), (87.0, 87 / 4.5)):
            self.assertEqual(first.wrong_by(Reading(14.0, 100.0 + seconds, 14.5)), expected, seconds)

    def test_the_rate_of_the_hosts_counter(self) -> None:
        """Half of what the first processor of a PC says; others say nothing."""
        self.assertEqual(Host.mhz("processor\t: 0\nbogomips\t: 5192.30\n\nprocessor\t: 1\nbogomips\t: 1.00\n"), 2596)
        self.assertIsNone(Host.mhz("processor\t: 0\nBogoMIPS\t: 50.00\n"))

    def test_only_an_emulated_guest_is_told(self) -> None:
        """The counter has a rate of its own where instructions are counted, and under KVM the host tells it."""
        told = [f"tsc_early_khz={Host.mhz()}000" in hardware.kernel_arguments for hardware in (
            Hardware(), Hardware(accel="kvm"), Hardware(qemu_args=("-icount", "shift=3")))]
        self.assertEqual(told, [Host.mhz() is not None, False, False])
        with mock.patch.object(Host, "is_believed", False):
            self.assertNotIn("tsc_early_khz", Hardware().kernel_arguments)


class ChecksTest(unittest.TestCase):
    """Expectations say what was found."""

    def test_messages(self) -> None:
        """Both values are named."""
        with self.assertRaisesRegex(checks.Failed, "size: found 1, expected 2"):
            checks.eq(1, 2, "size")
        with self.assertRaisesRegex(checks.Failed, "at least 5"):
            checks.ge(4, 5)

    def test_limits_are_told_but_not_judged_in_the_debug_kernel(self) -> None:
        """A limit that was missed fails the test elsewhere, one that was kept nowhere."""
        for debug, said in (("", ""), ("1", "# not judged in the debug kernel: late\n")):
            with mock.patch.dict(os.environ, VMLAB_DEBUG=debug), redirect_stdout(io.StringIO()) as out:
                checks.in_time(True, "in time")
                with nullcontext() if debug else self.assertRaisesRegex(checks.TooSlow, "late"):
                    checks.in_time(False, "late")
            self.assertEqual(out.getvalue(), said)

    def test_until_returns_the_value_or_gives_up(self) -> None:
        """The first true value ends the wait."""
        values = iter([0, "", "there"])
        self.assertEqual(checks.until(lambda: next(values), 5, "it", pause=0), "there")
        with self.assertRaisesRegex(checks.Failed, "not within 0 s: never"):
            checks.until(lambda: False, 0, "never", pause=0)

    def test_until_asks_once_more_when_an_answer_came_late(self) -> None:
        """An answer to what was asked in time says nothing of the end of the time."""
        now = iter([0.0, 0.5, 2.0])     # the beginning, before the first deed, before the second one
        values = iter([False, "there"])
        with mock.patch.dict(os.environ, VMLAB_PATIENCE="1"), mock.patch("time.monotonic", lambda: next(now)):
            self.assertEqual(checks.until(lambda: next(values), 1, "it", pause=0), "there")

    def test_raises(self) -> None:
        """Another exception passes through, none is a failure."""
        self.assertIsInstance(checks.raises(KeyError, lambda: dict[str, str]()["x"]), KeyError)
        with self.assertRaises(checks.Failed):
            checks.raises(KeyError, lambda: None)
