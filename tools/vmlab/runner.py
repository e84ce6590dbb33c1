# SPDX-License-Identifier: GPL-2.0
"""Runs tests: labs shared as long as they are clean, a time limit for each, the oracle after each."""
from __future__ import annotations

import argparse
import os
import signal
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import FrameType

from vmlab import oracle, shell
from vmlab.channel import MachineGone
from vmlab.checks import Failed, Skip
from vmlab.ktap import Report
from vmlab.lab import Lab, Spec
from vmlab.machine import CommandFailed
from vmlab.needs import Case, discover, grouped
from vmlab.patience import scaled

LOG_LINES = 40
CLEANUP_SECONDS = 120.0


class TimedOut(Exception):
    """A test took longer than it may."""


class Deadline:
    """A time limit for whatever runs in the main thread."""

    def __init__(self, seconds: float) -> None:
        self._seconds = scaled(seconds)

    def __enter__(self) -> None:
        signal.signal(signal.SIGALRM, self._expired)
        signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def __exit__(self, *_why: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _expired(self, _number: int, _frame: FrameType | None) -> None:
        raise TimedOut(f"not done after {self._seconds:g} s")


def reason(why: BaseException, verbose: bool = False) -> str:
    """An exception in words; with its place in the test's file, unless it is a plain expectation."""
    text = str(why) if isinstance(why, Failed) else f"{type(why).__name__}: {why}"
    places = [frame for frame in traceback.extract_tb(why.__traceback__) if "/tests/" in frame.filename]
    if places:
        text += f"\nat {places[-1].filename.rpartition('/')[2]}:{places[-1].lineno}: {places[-1].line}"
    if verbose or not isinstance(why, (Failed, CommandFailed, MachineGone, TimedOut, OSError)):
        text += "\n" + "".join(traceback.format_exception(why))
    return text


class Runner:
    """Keeps at most one lab, the one that the latest test used."""

    def __init__(self, options: argparse.Namespace, report: Report) -> None:
        self._options, self._report = options, report
        self._lab: Lab | None = None
        self._spec: Spec | None = None
        self._baselines: list[oracle.Baseline] = []

    def run(self, name: str, case: Case) -> None:
        """One test from its boot (if one is due) to its last question."""
        if case.needs.debug and not os.environ.get("VMLAB_DEBUG"):
            self._report.skip(name, "needs the debug kernel: python3 tools/kdir debug python3 tools/vmlab run ...")
            return
        began = time.monotonic()
        try:
            lab = self._lab_for(case)
        except Exception as why:    # no lab, no test: that is a failure of the test
            self._report.not_ok(name, time.monotonic() - began, reason(why, True))
            self.drop()
            return
        began = time.monotonic()
        marks = [machine.log_mark() for machine in lab.machines]
        wrong: list[str] = []
        skipped = ""
        try:
            with Deadline(case.needs.timeout):
                case.function(lab)
        except Skip as why:
            skipped = str(why)
        except Exception as why:    # whatever a test raises is its verdict
            wrong.append(reason(why, self._options.verbose))
        wrong += self._clean_up(lab)
        wrong += self._examine(case, marks)
        seconds = time.monotonic() - began
        if wrong:
            self._report.not_ok(name, seconds, "\n".join(wrong + self._evidence(lab, marks)))
        elif skipped:
            self._report.skip(name, skipped)
        else:
            self._report.ok(name, seconds)
        if wrong and self._options.keep:
            raise KeepLab
        if wrong or case.needs.disruptive:
            self.drop(keep_logs=bool(wrong))

    def _lab_for(self, case: Case) -> Lab:
        """The lab that is up, if it will do; otherwise a fresh one."""
        spec = replace(case.needs.spec, accel=self._options.accel)
        if self._lab and (case.needs.fresh or self._spec != spec or not all(m.alive for m in self._lab.machines)):
            self.drop()
        if self._lab is None:
            self._spec = spec
            self._lab = Lab(spec)
            self._lab.modules = self._options.modules
            seconds = self._lab.boot()
            self._baselines = [oracle.Baseline.take(machine) for machine in self._lab.machines]
            self._report.note(f"booted {spec.title} ({self._lab.accel}) in {seconds:.1f} s")
        return self._lab

    def _clean_up(self, lab: Lab) -> list[str]:
        """Runs what the test deferred, all of it, whatever fails."""
        wrong = []
        for deed, arguments in lab.take_cleanups():
            try:
                with Deadline(CLEANUP_SECONDS):
                    deed(*arguments)
            except Exception as why:    # the next clean-up must run
                wrong.append(f"clean-up failed: {reason(why)}")
        return wrong

    def _examine(self, case: Case, marks: list[int]) -> list[str]:
        """The oracle's questions to every machine that lives, to all at once."""
        pool = ThreadPoolExecutor(len(marks))
        asked = [pool.submit(self._examine_one, case, baseline, mark)
                 for baseline, mark in zip(self._baselines, marks, strict=True)]
        pool.shutdown(wait=False)
        wrong = []
        for baseline, answer in zip(self._baselines, asked, strict=True):
            try:
                with Deadline(CLEANUP_SECONDS):
                    wrong += answer.result()
            except Exception as why:    # a machine that can not be asked is not clean
                wrong.append(f"{baseline.machine.name}: {reason(why)}")
        return wrong

    @staticmethod
    def _examine_one(case: Case, baseline: oracle.Baseline, mark: int) -> list[str]:
        machine = baseline.machine
        if not machine.alive:
            return [] if case.needs.disruptive else [f"{machine.name}: the machine died"]
        if machine.reboots:
            mark = -1       # booted again by the test: its whole log is the test's
        return oracle.examine(baseline, 2**62 if case.needs.complaints else mark, case.needs.unloads)

    def _evidence(self, lab: Lab, marks: list[int]) -> list[str]:
        """What the machines have to say about a failure."""
        lines = [f"logs: {lab.folder}"]
        for machine, mark in zip(lab.machines, marks, strict=True):
            try:
                log = [text for _sequence, text in machine.kernel_log(mark)]
                lines += [f"kernel log of {machine.name}:", *(f"  {text}" for text in log[-LOG_LINES:])]
            except Exception:   # no agent: the console is what is left
                lines += [f"console of {machine.name}:", machine.console_tail(LOG_LINES)]
        return lines

    def drop(self, keep_logs: bool = False) -> None:
        """Powers the lab off; the next test gets a fresh one."""
        if self._lab is not None:
            self._lab.close()
            if not keep_logs:
                self._lab.forget()
            self._lab = None

    @property
    def lab(self) -> Lab | None:
        """The lab that is up."""
        return self._lab


class KeepLab(Exception):
    """A test failed and the machines are to stay as it left them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `run`."""
    parser.add_argument("tests", nargs="*", metavar="TEST", help="a file of tests, or a pattern such as 'io.*'")
    parser.add_argument("--only", action="append", default=[], metavar="GLOB", help="the same; repeatable")
    parser.add_argument("--without", action="append", default=[], metavar="GLOB", help="leave these out; repeatable")
    parser.add_argument("-l", "--list", action="store_true", help="print the names and what they show, run nothing")
    parser.add_argument("--modules", choices=("ours", "c"), default="ours",
                        help="which modules the tests of the product run against (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="run each test N times")
    parser.add_argument("--keep", action="store_true", help="stop at the first failure and give a prompt there")
    parser.add_argument("--verbose", action="store_true", help="with stack traces")
    parser.add_argument("--accel", help="kvm or tcg; default: what works")


def _selected(options: argparse.Namespace) -> list[Case]:
    left_out = {case.name for case in discover(options.without)} if options.without else set()
    return [case for case in discover([*options.tests, *options.only]) if case.name not in left_out]


def _rates(results: dict[str, list[bool]], repeat: int) -> str:
    """With --repeat: how often each test passed."""
    return "\n".join(f"{sum(passed):4d}/{repeat} {name}" for name, passed in results.items())


def run(options: argparse.Namespace) -> int:
    """Runs the selected tests; 0 only if every planned test ran and none failed."""
    cases = grouped(_selected(options))
    if options.list:
        for case in cases:
            print(f"{case.name:60} {case.title}")
        return 0
    rounds = [(f"{case.name}{f'#{turn}' if options.repeat > 1 else ''}", case)
              for case in cases for turn in range(1, options.repeat + 1)]
    signal.signal(signal.SIGTERM, _terminated)
    began = time.monotonic()
    with Report([name for name, _ in rounds]) as report:
        runner = Runner(options, report)
        results: dict[str, list[bool]] = {}
        try:
            for name, case in rounds:
                before = report.failed
                runner.run(name, case)
                results.setdefault(case.name, []).append(report.failed == before)
        except KeepLab:
            assert runner.lab is not None
            shell.converse(runner.lab)
        except KeyboardInterrupt:
            report.note("interrupted")
        finally:
            runner.drop(keep_logs=report.failed > 0)
            if options.repeat > 1:
                report.note(_rates(results, options.repeat))
            report.note(f"{time.monotonic() - began:.0f} s")
    return report.close()


def _terminated(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
