# SPDX-License-Identifier: GPL-2.0
"""`run`: hands groups of tests to workers (`worker.py`), each with a lab of its own, and reports what comes back.

What was planned and never reported has failed: a worker that dies costs its test, never the verdict.
"""
from __future__ import annotations

import argparse
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
from vmlab import durations, plan, replay, tier
from vmlab.ktap import Report

DEATHS_MAX = 5
# Lines of workers, each with its number.
Heard = queue.SimpleQueue[tuple[int, dict[str, Any]]]


class Worker:
    """The runner's end of a worker process."""

    def __init__(self, number: int, options: dict[str, Any], heard: Heard) -> None:
        self.number = number
        self.spec = ""
        self.waits = False      # it runs the groups that wait, and no other
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
        self._report: Report | None = None
        self.times = durations.Durations()
        self.rates: dict[str, list[bool]] = {}

    def start(self) -> Worker:
        """One more worker."""
        told = {key: getattr(self._options, key) for key in ("modules", "accel", "append", "verbose", "keep", "long")}
        number = len(self.workers) + self.deaths
        worker = self.workers[number] = Worker(number, told, self.heard)
        return worker

    def collect(self) -> tuple[list[plan.Planned], dict[str, str]]:
        """What the first worker finds: the tests, and what of them cannot be run."""
        self.start()
        _number, line = self.heard.get()
        if "plan" not in line:
            return [], {"tests.collection": "the worker ended before it had a plan"}
        return [plan.Planned(**test) for test in line["plan"]], line["broken"]

    def run(self, groups: list[plan.Group], report: Report) -> None:
        """Runs all groups: first those that may have others beside them, then the timed ones."""
        self._report = report
        for timed in (False, True):
            self._left = [group for group in groups if group.timed == timed]
            wanted = min(len(self._left), 1 if timed or self._options.keep else self._options.labs)
            if timed and self._left:
                report.note("timed tests, one lab")
                self._thin_out()
            for worker in self.workers.values():
                worker.waits = False
            if wanted > 1 and len({group.waits for group in self._left}) > 1:
                self.start().waits = True
                wanted += 1
            while len(self.workers) < wanted:
                self.start()
            for worker in list(self.workers.values()):
                self._feed(worker)
            while any(worker.doing for worker in self.workers.values()):
                number, line = self.heard.get()
                if number in self.workers:
                    self._hear(self.workers[number], line)

    def _thin_out(self) -> None:
        """Leaves one worker, the one whose lab the timed tests want if there is one."""
        specs = {group.spec for group in self._left}
        for worker in sorted(self.workers.values(), key=lambda worker: worker.spec in specs)[:-1]:
            del self.workers[worker.number]
            worker.close()

    def _feed(self, worker: Worker) -> None:
        """The next order of its group, or the next group."""
        worker.doing = {}
        fit = self._fit(worker)
        if not worker.todo and fit:
            worker.group = plan.choose(fit, worker.spec, self.times.before)
            self._left.remove(worker.group)
            worker.spec, worker.todo = worker.group.spec, worker.group.orders()
        if worker.todo:
            worker.tell(**worker.todo.pop(0))

    def _fit(self, worker: Worker) -> list[plan.Group]:
        """The groups that a worker may begin: for the others those that wait come last."""
        waiting = [group for group in self._left if group.waits]
        return waiting if worker.waits else [group for group in self._left if not group.waits] or waiting

    def _hear(self, worker: Worker, line: dict[str, Any]) -> None:
        if "name" in line and worker.group:
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
        if line["verdict"] == "ok":
            self._report.ok(label, line["seconds"])
        elif line["verdict"] == "skip":
            self._report.skip(label, line["why"])
        else:
            self._report.not_ok(label, line["seconds"], line["why"])
        self.rates.setdefault(line["name"], []).append(line["verdict"] == "ok")
        self.times.add(line["name"], group.key[0], line["seconds"], line["cpu"], line["phases"])

    def _bury(self, worker: Worker) -> None:
        """A worker that died takes its test with it; another goes on with the rest."""
        assert self._report is not None
        del self.workers[worker.number]
        worker.close()
        self.deaths += 1
        if not worker.doing:
            return
        names = worker.doing.get("names") or [worker.doing.get("name")]
        assert worker.group is not None and isinstance(names, list)
        for name in names:
            self._report.not_ok(worker.group.label(str(name)), 0.0, f"the worker ended, {worker.process.returncode}")
        if self.deaths <= DEATHS_MAX:
            heir = self.start()
            heir.group, heir.todo, heir.spec, heir.waits = worker.group, worker.todo, worker.spec, worker.waits
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
        lines.append(f"{test.name:62} {test.lab.partition(',')[0]}, {how}{own}\n    {test.title}")
    return "\n".join(lines)


def _rates(results: dict[str, list[bool]], repeat: int) -> str:
    """With --repeat: how often each test passed."""
    return "\n".join(f"{sum(passed):4d}/{repeat} {name}" for name, passed in results.items())


def run(options: argparse.Namespace) -> int:
    """Runs the selected tests; 0 only if every planned test ran and none failed."""
    options.long = options.long or tier.is_long()
    runner = Runner(options)
    try:
        tests, broken = runner.collect()
        chosen = plan.select(tests, [*options.tests, *options.only], options.without)
        if options.list:
            print(_listed(chosen))
            return 1 if broken else 0
        # The workers ask for it in the examination after a test, whose time is limited.
        replay.program()
        return _run(runner, options, plan.groups(chosen, options.repeat), broken)
    finally:
        runner.close()


def _run(runner: Runner, options: argparse.Namespace, groups: list[plan.Group], broken: dict[str, str]) -> int:
    signal.signal(signal.SIGTERM, _terminated)
    began = time.monotonic()
    with Report([*broken, *(group.label(name) for group in groups for name in group.names)]) as report:
        for name, why in broken.items():
            report.not_ok(name, 0.0, why)
        try:
            runner.run(groups, report)
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


def _terminated(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
