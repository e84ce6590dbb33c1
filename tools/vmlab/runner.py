# SPDX-License-Identifier: GPL-2.0
"""`run`: hands groups of tests to workers (`worker.py`), each with a lab of its own, and reports what comes back.

What was planned and never reported has failed: a worker that dies costs its test, never the verdict.
"""
from __future__ import annotations

import argparse
import fcntl
import io
import json
import os
import queue
import signal
import subprocess
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import pytools
from vmlab import budgets, durations, plan, progress, replay, telling, tier
from vmlab.ktap import AGAIN_MAX, Report
from vmlab.verdict import LATER, OK, SKIP

DEATHS_MAX = 5
# Lines of workers, each with its number.
Heard = queue.SimpleQueue[tuple[int, dict[str, Any]]]


class Worker:
    """The runner's end of a worker process."""

    def __init__(self, number: int, options: dict[str, Any], heard: Heard) -> None:
        self.number = number
        self.spec = ""
        self.waits = False      # it runs the groups that wait, and no other
        self.light = False      # none whose machines have several processors
        self.todo: list[dict[str, object]] = []
        self.group: plan.Group | None = None
        self.doing: dict[str, object] = {}
        take, self._orders = os.pipe()
        results, give = os.pipe()
        program = [str(pytools.ensure()), "-B", str(Path(__file__).resolve().parent), "worker", json.dumps(options),
                   str(take), str(give)]
        self.process = subprocess.Popen(program, pass_fds=(take, give))
        os.close(take)
        os.close(give)
        self._pipe: TextIO = os.fdopen(self._orders, "w", encoding="utf-8")
        threading.Thread(target=self._listen, args=(results, heard), daemon=True).start()

    def _listen(self, results: int, heard: Heard) -> None:
        with os.fdopen(results, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                heard.put((self.number, json.loads(line)))
        heard.put((self.number, {"gone": True}))

    def tell(self, **order: object) -> None:
        """Sends an order; it is answered with `idle`."""
        self.doing = order
        try:
            print(json.dumps(order), file=self._pipe, flush=True)
        except OSError:
            pass        # it is gone, and will be heard of

    def interrupt(self) -> None:
        """Ends the test that it is at; a terminal has told it already, which does no harm."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """No more orders: it powers its lab off and ends."""
        try:
            self._pipe.close()
        except OSError:
            pass
        self.process.wait()


class Runner:
    """Gives groups to idle workers until none is left."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self.heard: Heard = queue.SimpleQueue()
        self.workers: dict[int, Worker] = {}
        self.deaths = 0
        self._left: list[plan.Group] = []
        self._wanted = self._heavy = 0      # workers, and those of them that any group may go to
        self._held = False
        self._is_alone = True       # one lab runs, and no other beside it
        self._later: list[plan.Later] = []
        self._report: Report | None = None
        self.times = durations.Durations()
        self._progress = progress.Progress([], {}, 1)
        self.rates: dict[str, list[bool]] = {}

    def start(self) -> Worker:
        """One more worker."""
        told = {key: getattr(self._options, key) for key in ("modules", "accel", "append", "verbose", "keep", "long")}
        number = len(self.workers) + self.deaths
        worker = self.workers[number] = Worker(number, told, self.heard)
        return worker

    def collect(self) -> tuple[list[plan.Planned], dict[str, str]]:
        """Takes what the first worker finds: the tests, and what of them cannot be run."""
        self.start()
        _number, line = self.heard.get()
        if "plan" not in line:
            return [], {"tests.collection": "the worker ended before it had a plan"}
        return [plan.Planned(**test) for test in line["plan"]], line["broken"]

    def run(self, groups: list[plan.Group], report: Report) -> None:
        """Runs all groups: first those that may have others beside them, then the timed ones."""
        self._report = report
        self._progress = progress.Progress(groups, self.times.before, 1 if self._options.keep else self._options.labs)
        report.note(self._progress.line())
        for timed in (False, True):
            self._left = [group for group in groups if group.timed == timed]
            wanted = min(len(self._left), 1 if timed or self._options.keep else self._options.labs)
            if timed and self._left:
                report.note("timed tests, one lab")
                self._thin_out()
            for worker in self.workers.values():
                worker.waits = worker.light = False
            waiting = [self._one()] if wanted > 1 and len({group.waits for group in self._left}) > 1 else []
            for worker in waiting:
                worker.waits = True
            self._heavy = wanted + len(waiting)
            light = min(self._options.light, sum(group.light and not group.waits for group in self._left) - 1)
            self._wanted = self._heavy + (max(light, 0) if wanted > 1 else 0)
            self._is_alone = self._wanted <= 1 and not self._held
            self._go_on(waiting if self._held else self._all())
        self._run_later(report)

    def _go_on(self, idle: list[Worker]) -> None:
        """Until nothing is left for any worker."""
        for worker in idle:
            self._feed(worker)
        while self._held or any(worker.doing for worker in self.workers.values()):
            try:
                number, line = self.heard.get(timeout=progress.TOLD_SECONDS)
            except queue.Empty:
                self._tell()
                continue
            if "released" in line:
                self._release()
            elif number in self.workers:
                self._hear(self.workers[number], line)
            self._tell()

    def _tell(self) -> None:
        """Now and then what runs, and how far the run is."""
        assert self._report is not None
        if line := self._progress.due():
            self._report.note(line)

    def _run_later(self, report: Report) -> None:
        """The second attempts of tests that were too slow beside other labs: in one lab, while nothing else runs."""
        if not self._later:
            return
        report.note("tests that were too slow beside others, in one lab")
        self._left, self._is_alone = [], True
        self._thin_out()
        for group in {id(later.group): later.group for later in self._later}.values():
            worker = self._one()
            worker.group, worker.spec = group, group.spec
            worker.todo = [later.order() for later in self._later if later.group is group]
            self._go_on([worker])

    def hold(self, file: str) -> None:
        """Until nobody has a lock on this file, only the lab of tests that wait runs: others use the processors."""
        def listen() -> None:
            with open(file, encoding="ascii") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH)
            self.heard.put((-1, {"released": True}))
        self._held = True
        threading.Thread(target=listen, daemon=True).start()

    def _release(self) -> None:
        self._held = False
        for worker in self._all():
            if not worker.doing:
                self._feed(worker)

    def _one(self) -> Worker:
        return next(iter(self.workers.values()), None) or self.start()

    def _all(self) -> list[Worker]:
        """Starts as many workers as are wanted, and returns all."""
        while len(self.workers) < self._wanted:
            worker = self.start()
            worker.light = len(self.workers) > self._heavy
        return list(self.workers.values())

    def _thin_out(self) -> None:
        """Leaves one worker, the one whose lab the timed tests want if there is one."""
        specs = {group.spec for group in self._left}
        for worker in sorted(self.workers.values(), key=lambda worker: worker.spec in specs)[:-1]:
            del self.workers[worker.number]
            worker.close()

    def _feed(self, worker: Worker) -> None:
        """The next order of its group, or the next group."""
        worker.doing = {}
        self._progress.idle(worker.number)
        fit = self._fit(worker)
        if not worker.todo and fit:
            worker.group = plan.choose(fit, worker.spec, self.times.before)
            self._left.remove(worker.group)
            worker.spec, worker.todo = worker.group.spec, worker.group.orders()
        if worker.todo:
            order = worker.todo.pop(0)
            names = order.get("names") or [order["name"]]
            assert isinstance(names, list)
            self._progress.begin(worker.number, str(names[0]))
            worker.tell(**order, **({"alone": self._is_alone} if order["do"] == "tests" else {}))

    def _fit(self, worker: Worker) -> list[plan.Group]:
        """The groups that a worker may begin: for the others those that wait come last."""
        waiting = [group for group in self._left if group.waits]
        others = [group for group in self._left if not group.waits and (group.light or not worker.light)]
        return waiting if worker.waits else others or ([] if worker.light else waiting)

    def _hear(self, worker: Worker, line: dict[str, Any]) -> None:
        if "name" in line and worker.group:
            self._progress.idle(worker.number)
            self._result(worker.group, line)
        elif "idle" in line:
            self._feed(worker)
        elif "gone" in line:
            self._bury(worker)

    def _result(self, group: plan.Group, line: dict[str, Any]) -> None:
        assert self._report is not None
        label = group.label(line["name"])
        for text in line["said"].splitlines():
            self._report.note(text.removeprefix("# "))
        if line["verdict"] != LATER:
            self._progress.done(label)
        if line["again"]:
            self._report.again(label)
        if line["verdict"] == LATER:
            self._later.append(plan.Later(group, line["name"], line["logs"]))
        elif line["verdict"] == OK:
            self._report.ok(label, line["seconds"])
        elif line["verdict"] == SKIP:
            self._report.skip(label, line["why"])
        else:
            repeat = telling.command(label, self._options, line["said"])
            self._report.not_ok(label, line["seconds"], line["why"], repeat)
        if line["verdict"] != LATER:
            self.rates.setdefault(line["name"], []).append(line["verdict"] == OK)
            self.times.add(name=line["name"], file=group.key[0], tier=group.tier(line["name"]), seconds=line["seconds"],
                           cpu=line["cpu"], phases=line["phases"])
        self.times.wakes += line["wakes"]

    def _bury(self, worker: Worker) -> None:
        """A worker that died takes its test with it; another goes on with the rest."""
        assert self._report is not None
        del self.workers[worker.number]
        self._progress.idle(worker.number)
        worker.close()
        self.deaths += 1
        if not worker.doing:
            return
        names = worker.doing.get("names") or [worker.doing.get("name")]
        assert worker.group is not None and isinstance(names, list)
        for name in names:
            label = worker.group.label(str(name))
            self._progress.done(label)
            self._report.not_ok(label, 0.0, f"the worker ended, {worker.process.returncode}",
                                telling.command(label, self._options))
        if self.deaths <= DEATHS_MAX:
            heir = self.start()
            heir.group, heir.todo, heir.spec = worker.group, worker.todo, worker.spec
            heir.waits, heir.light = worker.waits, worker.light
            self._feed(heir)

    def interrupt(self) -> None:
        """Ends the tests that run."""
        for worker in self.workers.values():
            worker.interrupt()

    def close(self) -> None:
        """Ends all workers."""
        for worker in self.workers.values():
            worker.close()
        self.workers.clear()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `run`."""
    parser.add_argument("tests", nargs="*", metavar="TEST", help="a file of tests, or a pattern such as 'io.*'")
    parser.add_argument("--only", action="append", default=[], metavar="GLOB", help="the same; repeatable")
    parser.add_argument("--without", action="append", default=[], metavar="GLOB", help="leave these out; repeatable")
    parser.add_argument("-l", "--list", action="store_true", help="print the names and what they show, run nothing")
    parser.add_argument("-j", "--labs", type=int, default=1, metavar="N",
                        help="labs side by side for tests that are not timed (default: %(default)s)")
    parser.add_argument("--light", type=int, default=0, metavar="N",
                        help="beside several labs, so many more for tests whose machines have one processor")
    parser.add_argument("--tier", choices=tuple(tier.RUNS), default=tier.LONG,
                        help="only tests of core, of core and all, or the rest of all (default: whatever is named)")
    parser.add_argument("--hold", metavar="FILE", help="until nobody has a lock on FILE, run only tests that wait")
    parser.add_argument("--long", action="store_true", help="each test as long and as often as in make test-long")
    parser.add_argument("--modules", choices=("ours", "c"), default="ours",
                        help="which modules the tests of the product run against (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="run each test N times")
    parser.add_argument("--keep", action="store_true", help="give a prompt in the machines of each test that fails")
    parser.add_argument("--durations", type=Path, metavar="FILE", help="where the times go (default: in the cache)")
    parser.add_argument("--verbose", action="store_true", help="with stack traces")
    parser.add_argument("--accel", help="kvm or tcg; default: what works")
    parser.add_argument("--append", default="", help="more kernel arguments, for the machines of all tests")


def _listed(tests: list[plan.Planned]) -> str:
    """All tests with what they show; how each runs is told in its second column."""
    lines = []
    for test in tests:
        how = "debug kernel or long run" if test.debug else "timed" if test.timed else "beside others"
        own = "" if test.shares else ", loads for itself"
        lines.append(f"{test.name:62} {test.tier}, {test.lab.partition(',')[0]}, {how}{own}\n    {test.title}")
    return "\n".join(lines)


def _rates(results: dict[str, list[bool]], repeat: int) -> str:
    """Lines that say how often each test passed, with --repeat."""
    return "\n".join(f"{sum(passed):4d}/{repeat} {name}" for name, passed in results.items())


def run(options: argparse.Namespace) -> int:
    """Runs the selected tests; 0 only if every planned test ran and none failed."""
    options.long = options.long or tier.is_long()
    runner = Runner(options)
    try:
        tests, broken = runner.collect()
        chosen = plan.select(tests, [*options.tests, *options.only], options.without, tier.RUNS[options.tier])
        if options.list:
            print(_listed(chosen))
            return 1 if broken else 0
        # The workers ask for it in the examination after a test, whose time is limited.
        replay.program()
        if options.hold:
            runner.hold(options.hold)
        chosen = durations.waiting(chosen)
        return _run(runner, options, plan.groups(chosen, options.repeat), broken)
    finally:
        runner.close()


def _run(runner: Runner, options: argparse.Namespace, groups: list[plan.Group], broken: dict[str, str]) -> int:
    signal.signal(signal.SIGTERM, _terminated)
    began = time.monotonic()
    judged = budgets.names(options)
    names = [group.label(name) for group in groups for name in group.names]
    # As many for each repetition.
    with Report([*broken, *names, *judged], again_max=AGAIN_MAX * options.repeat) as report:
        for name, why in broken.items():
            report.not_ok(name, 0.0, why)
        try:
            runner.run(groups, report)
            runner.close()
            budgets.judge(report, judged, runner.times, lambda files: _measure(report, options, groups, files))
        except KeyboardInterrupt:
            report.note("interrupted")
            runner.interrupt()
        finally:
            runner.close()
            if options.repeat > 1:
                report.note(_rates(runner.rates, options.repeat))
            report.note(runner.times.table())
            report.note(f"{time.monotonic() - began:.0f} s; all times: {runner.times.keep(options.durations)}")
    return report.close()


def _measure(report: Report, options: argparse.Namespace, groups: list[plan.Group],
             files: set[str]) -> list[dict[str, Any]]:
    """The costs of all tests of these files in one lab; their verdicts stand, so one that fails now is only told."""
    report.note(f"measured a second time, in one lab: {', '.join(sorted(files))}")
    chosen = [group for group in groups if group.key[0] in files]
    runner = Runner(argparse.Namespace(**{**vars(options), "labs": 1, "light": 0}))
    told = io.StringIO()
    try:
        with Report([group.label(name) for group in chosen for name in group.names], told) as second:
            runner.run(chosen, second)
    finally:
        runner.close()
    if second.failed:
        report.note(told.getvalue())
    for row in sorted(runner.times.rows, key=lambda row: -float(row["cpu"])):
        report.note(f"{row['cpu']:7.1f} s of processors  {row['name']}")
    return runner.times.rows


def _terminated(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
