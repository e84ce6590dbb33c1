# SPDX-License-Identifier: GPL-2.0
"""A process that runs tests in a lab of its own: pytest, told by `runner.py` what to run next.

pytest finds the tests, makes parameters and fixtures of them and carries them out; this plugin answers for the lab.
Orders come as JSON lines on one pipe, results go as JSON lines on another:

    {"do": "tests", "names": ["io.x", ...], "alone": true}      -> {"name": "io.x", "verdict": "ok", ...} for each
    {"do": "again", "name": "io.x", "logs": "/tmp/..."}         -> the same, of a test whose first verdict was "later"
    {"do": "unload", "name": "io.unload...", "tests": [...]}  -> {"name": "io.unload...", ...}
    {"do": "drop"}                              the lab is not needed for a while
                                                -> {"idle": true} after each order
The first line of all is the plan: {"plan": [...]}.

A test that failed runs a second time only if the failure itself was one of time or of chance, which the type of its
exception says, or the emulation broke, and the lab has found nothing wrong (`Result.again`).
"""
from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest

from vmlab import needs as declared
from vmlab import shell, tier
from vmlab.checks import ByChance, NotInTime, Skip, TooSlow, WrongData
from vmlab.keeper import Deadline, Keeper, reason
from vmlab.kernel_log import are_consequences
from vmlab.lab import Lab
from vmlab.patience import BUSY_SHARE, HostLoad, is_debug_kernel, wait_until_quiet
from vmlab.phases import BODY, CLOCK, phase
from vmlab.verdict import AGAIN, CHANCE, EMULATION, LATER, NOT_OK, OK, SKIP, TIME

TESTS = Path(__file__).resolve().parent / "tests"
WITHOUT = ("terminal", "cacheprovider", "unittest", "doctest", "junitxml", "faulthandler")
ARGUMENTS = [*(word for name in WITHOUT for word in ("-p", f"no:{name}")), "-c", os.devnull,
             "--rootdir", str(TESTS.parents[1]), "--capture=fd", "--import-mode=prepend",
             "-o", "markers=tier", "-o", "python_files=*.py", "-o", "python_functions=test_*", "-o", "python_classes="]
KEEPER = pytest.StashKey[Keeper]()
QUIET_SECONDS = 120.0   # for which a test that was too slow on a busy host waits, before it runs again


def name_of(item: pytest.Item) -> str:
    """`file.function` without its test_; a case of a table is called `file.case`."""
    case = getattr(item, "callspec", None)
    function = item.name.partition("[")[0].removeprefix("test_")
    return f"{item.path.stem}.{case.id if case else function}"


def title_of(item: pytest.Function) -> str:
    """The first line of the test's documentation; a table's case may bring its own as the parameter `title`."""
    case = getattr(item, "callspec", None)
    title = case.params.get("title") if case else None
    return str(title or item.function.__doc__ or "").strip().partition("\n")[0]


def tier_of(item: pytest.Function) -> str:
    """The test's tier; a case of a table may have its own: `marks=pytest.mark.tier(tier.ALL)`."""
    mark = item.get_closest_marker("tier")
    chosen: str = mark.args[0] if mark else declared.of(item.function).tier
    return chosen


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The lab that the test declares with `@needs`, judged when the test has ended."""
    keeper = request.config.stash[KEEPER]
    wanted = declared.of(request.function)
    result: Result = request.node.stash[RESULT]
    yield keeper.prepare(wanted)
    judgement = keeper.finish(wanted, bool(result.wrong))
    result.found += judgement.wrong
    result.evidence += judgement.evidence


@pytest.fixture
def pair(lab: Lab) -> Lab:
    """The same, in a test with two machines."""
    return lab


@pytest.fixture
def vm(lab: Lab) -> Lab:
    """The same, in a test with one machine."""
    return lab


class Result:
    """The results of a test: collected over its set-up, its body and what follows."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper, self._cpu = keeper, keeper.cpu_seconds
        self.failed: list[str] = []     # in the set-up or in the body
        self.found: list[str] = []      # by the lab
        self.evidence: list[str] = []   # what the machines say about it
        self.skipped = ""
        self.said = ""
        self.excuse = ""                # of the failure: TIME, CHANCE, EMULATION, or none
        self.logs = ""                  # where the machines' logs are
        self.first = ""                 # the excuse of the first attempt, in the second one
        self.began = time.monotonic()
        self._load = HostLoad()

    @property
    def wrong(self) -> list[str]:
        """All of it, in words; nothing if the test has passed."""
        return [*self.failed, *self.found]

    @property
    def again(self) -> str:
        """The reason why the test may run once more; "" if its failure is final, as it is whenever the lab has found
        something that does not come of the emulation that broke."""
        is_excused = are_consequences(self.found) if self.excuse == EMULATION else not self.found
        return self.excuse if self.wrong and is_excused else ""

    @property
    def busy_share(self) -> float:
        """The share of the host's processors that others have used meanwhile, other labs as well."""
        return self._load.share(self._keeper.cpu_seconds - self._cpu)

    def line(self, name: str, verdict: str = "") -> dict[str, Any]:
        """The line for the runner."""
        verdict = verdict or (NOT_OK if self.wrong else SKIP if self.skipped else OK)
        return {"name": name, "verdict": verdict, "why": "\n".join([*self.wrong, *self.evidence]) or self.skipped,
                "said": self.said, "again": self.first, "logs": self.logs,
                "seconds": round(time.monotonic() - self.began, 3),
                "cpu": round(max(0.0, self._keeper.cpu_seconds - self._cpu), 2), "phases": CLOCK.take(),
                "wakes": self._keeper.take_wakes()}


RESULT = pytest.StashKey[Result]()


class Plugin:
    """The hooks of pytest."""

    def __init__(self, options: dict[str, Any], orders: TextIO, results: TextIO) -> None:
        self._options, self._orders, self._results = options, orders, results
        self._items: dict[str, pytest.Item] = {}
        self._broken: dict[str, str] = {}
        self._file = ""     # of the latest test
        self.keeper = Keeper(options["modules"], options["accel"], options["append"])

    def _say(self, **line: Any) -> None:
        print(json.dumps(line), file=self._results, flush=True)

    # -- which tests there are -----------------------------------------------------------------------------

    def pytest_configure(self, config: pytest.Config) -> None:
        """The fixtures find the keeper there."""
        config.stash[KEEPER] = self.keeper

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be read is a test that fails."""
        if report.failed:
            self._broken[f"{Path(report.nodeid).stem or 'tests'}.import"] = report.longreprtext

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Sends the plan."""
        plan = []
        for item in session.items:
            assert isinstance(item, pytest.Function)
            name, wanted = name_of(item), declared.of(item.function)
            if name in self._items:
                self._broken[name] = "there are two tests of this name"
            if not title_of(item):
                self._broken[name] = "its documentation does not say what it shows"
            if tier_of(item) not in tier.RUNS[tier.LONG]:
                self._broken[name] = f"there is no tier {tier_of(item)}"
            self._items[name] = item
            plan.append({"name": name, "title": title_of(item), "file": item.path.stem, "lab": wanted.spec.title,
                         "spec": repr(wanted.spec), "shares": wanted.shares, "timed": wanted.timed,
                         "waits": wanted.waits, "debug": wanted.debug or (wanted.unproven and not tier.is_long()),
                         "late": wanted.disruptive or wanted.fresh, "preempt": wanted.preempt,
                         "tier": tier_of(item), "processors": wanted.spec.smp})
        self._say(plan=plan, broken=self._broken)

    # -- running them --------------------------------------------------------------------------------------

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Obeys orders until there are no more."""
        for line in self._orders:
            order = json.loads(line)
            if order["do"] == "tests":
                for name in order["names"]:
                    self._run(self._items[name], order.get("alone", True))
            elif order["do"] == "again":
                self._run_later(self._items[order["name"]], order["logs"])
            elif order["do"] == "unload":
                self._unload(order["name"], order["tests"])
            else:
                self.keeper.drop()
            self._say(idle=True)
        return True

    def _run(self, item: pytest.Item, alone: bool) -> None:
        """Runs a test, and once more if it may; later if it was too slow beside other labs."""
        result, name = self._attempt(item), name_of(item)
        if result.again == TIME and not alone:
            result.said += f"# {result.again}, again when the other labs have ended: {result.wrong[0]}\n"
            self._say(**result.line(name, LATER))
            return
        if result.again == TIME:
            busy = result.busy_share
            if busy <= self._options.get("busy_share", BUSY_SHARE):
                result.excuse = ""
            else:
                result.said += f"# others used {busy:.0%} of the processors\n"
        if result.again:
            result = self._second(item, result)
        self._say(**result.line(name))

    def _second(self, item: pytest.Item, first: Result) -> Result:
        """The second attempt, whose verdict counts; what the first one has said and found is told."""
        if first.again == TIME:
            self._await_quiet()
        second = self._attempt(item, Path(first.logs) / AGAIN if first.logs else None)
        second.first = first.again
        second.said = (f"{first.said}# {first.again}, again: {'; '.join(first.wrong)}\n{second.said}"
                       f"# logs of both attempts: {first.logs}, {first.logs}/{AGAIN}\n")
        return second

    def _run_later(self, item: pytest.Item, logs: str) -> None:
        """The second attempt of a test that was too slow beside other labs, which have ended; and an unload."""
        self._await_quiet()
        result = self._attempt(item, Path(logs) / AGAIN if logs else None)
        result.first = TIME
        result.found += self.keeper.end_sharing()
        if result.found:
            self.keeper.drop(keep_logs=True)
        result.said += f"# logs of both attempts: {logs}, {logs}/{AGAIN}\n"
        self._say(**result.line(name_of(item)))

    def _await_quiet(self) -> None:
        seconds = self._options.get("quiet_seconds", QUIET_SECONDS)
        if not wait_until_quiet(seconds):
            print(f"# the host was not quiet within {seconds:g} s", flush=True)

    def _attempt(self, item: pytest.Item, logs_to: Path | None = None) -> Result:
        # The tests of one file know what they do to their wires; those of the next expect sound ones.
        if item.path.stem != self._file and self.keeper.was_unplugged:
            self.keeper.drop()
        self._file = item.path.stem
        result = item.stash[RESULT] = Result(self.keeper)
        CLOCK.take()
        del item._report_sections[:]    # pytest adds to them when a test is repeated
        self.keeper.logs_to = logs_to
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        self.keeper.logs_to = None
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        """No lab is made for a test that cannot be made here."""
        if declared.of(getattr(item, "function", None)).unproven and not tier.is_long():
            raise Skip("not proven yet, in make test-long: python3 tools/vmlab run --long ...")
        if declared.of(getattr(item, "function", None)).debug and not is_debug_kernel():
            raise Skip("needs the debug kernel: python3 tools/kdir debug python3 tools/vmlab run ...")
        with phase("prepare"):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        """The body has a time limit."""
        with phase(BODY), Deadline(declared.of(getattr(item, "function", None)).timeout):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        """A lab that something was wrong in, or that was left unfit, is powered off."""
        result = item.stash[RESULT]
        try:
            return (yield)
        except Exception as why:
            result.found.append(reason(why, self._options["verbose"]))
            raise
        finally:
            if result.found and not result.failed and self.keeper.emulation_broke():
                result.excuse = EMULATION
            if result.wrong and self.keeper.lab is not None:
                result.logs = str(self.keeper.lab.folder)
            if result.wrong and self._options["keep"] and self.keeper.lab is not None:
                self._converse(item.config, self.keeper.lab, result)
            if result.wrong or declared.of(getattr(item, "function", None)).disruptive:
                self.keeper.drop(keep_logs=bool(result.wrong))

    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """Collects the verdicts of the set-up and of the body; the teardown has told its own."""
        if call.excinfo is not None and call.when != "teardown":
            if isinstance(call.excinfo.value, Skip):
                item.stash[RESULT].skipped = str(call.excinfo.value)
            else:
                result = item.stash[RESULT]
                result.failed.append(reason(call.excinfo.value, self._options["verbose"]))
                result.excuse = self._excuse(call.excinfo.value, declared.of(getattr(item, "function", None)))

    def _excuse(self, why: BaseException, needs: declared.Needs) -> str:
        """Returns what excuses this failure of a test, as far as its type says; "" if nothing does. A machine of the
        emulation that broke excuses all but wrong data; rxe only a wait, in a test that declares it."""
        if isinstance(why, WrongData):
            return ""
        if self.keeper.emulation_broke():
            return EMULATION
        if isinstance(why, TooSlow):
            return TIME
        if isinstance(why, ByChance):
            return CHANCE
        if needs.rxe_may_die and isinstance(why, NotInTime):
            return CHANCE if self.keeper.rxe_is_dead() else TIME if self.keeper.rxe_gave_up() else ""
        return ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The teardown's report is the last one, and has all that was printed."""
        if report.when == "teardown":
            item = next(item for item in self._items.values() if item.nodeid == report.nodeid)
            item.stash[RESULT].said = report.capstdout

    def _converse(self, config: pytest.Config, kept: Lab, result: Result) -> None:
        """--keep: a prompt in the machines as the test has left them."""
        capture: Any = config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            print("\n".join(f"#   {line}" for text in result.wrong for line in text.splitlines()), flush=True)
            shell.converse(kept)

    # -- the end of a group --------------------------------------------------------------------------------

    def _unload(self, name: str, tests: list[str]) -> None:
        """Unloads what the group has used; if that shows a leak, finds the tests that make it."""
        result = Result(self.keeper)
        CLOCK.take()
        result.found = self.keeper.end_sharing()
        if result.found:
            self.keeper.drop(keep_logs=True)
            result.found.append(self._bisect(tests))
        self._say(**result.line(name))

    def _bisect(self, tests: list[str]) -> str:
        """Each test of the group alone, in machines of its own, with an unload after it."""
        guilty = []
        for name in tests:
            self._attempt(self._items[name])
            if wrong := self.keeper.end_sharing():
                guilty.append(f"after {name} alone:\n" + "\n".join(wrong))
            self.keeper.drop()
        return "\n".join(guilty) or "after no test of the group alone"


def main(arguments: list[str]) -> int:
    """Collects, says what there is, and obeys; started by `runner.py` in the environment of tools/pytools. The option
    `tests` is another folder of tests: the harness tests itself with one."""
    options = json.loads(arguments[0])
    if options["long"]:
        os.environ[tier.VARIABLE] = "1"
    folder = options.get("tests", str(TESTS))
    with open(int(arguments[1]), encoding="utf-8") as orders, open(int(arguments[2]), "w", encoding="utf-8") as results:
        plugin = Plugin(options, orders, results)
        try:
            return int(pytest.main([*ARGUMENTS, folder], plugins=[plugin, sys.modules[__name__]]))
        finally:
            plugin.keeper.drop()
