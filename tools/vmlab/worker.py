# SPDX-License-Identifier: GPL-2.0
"""A process that runs tests in a lab of its own: pytest, told by `runner.py` what to run next.

pytest finds the tests, makes parameters and fixtures of them and carries them out; this plugin answers for the lab.
Orders come as JSON lines on one pipe, results go as JSON lines on another:

    {"do": "tests", "names": ["io.x", ...]}     -> {"name": "io.x", "verdict": "ok", ...} for each
    {"do": "unload", "name": "io.unload...", "tests": [...]}  -> {"name": "io.unload...", ...}
    {"do": "drop"}                              the lab is not needed for a while
                                                -> {"idle": true} after each order
The first line of all is the plan: {"plan": [...]}.
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
from vmlab.checks import ByChance, Failed, Skip, TooSlow
from vmlab.keeper import Deadline, Keeper, reason
from vmlab.lab import Lab
from vmlab.patience import BUSY_SHARE, HostLoad, is_debug_kernel, wait_until_quiet
from vmlab.phases import BODY, CLOCK, phase

TESTS = Path(__file__).resolve().parent / "tests"
WITHOUT = ("terminal", "cacheprovider", "unittest", "doctest", "junitxml", "faulthandler")
ARGUMENTS = [*(word for name in WITHOUT for word in ("-p", f"no:{name}")), "-c", os.devnull,
             "--rootdir", str(TESTS.parents[1]), "--capture=fd", "--import-mode=prepend",
             "-o", "python_files=*.py", "-o", "python_functions=test_*", "-o", "python_classes="]
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


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The lab that the test declares with `@needs`, judged when the test has ended."""
    keeper = request.config.stash[KEEPER]
    wanted = declared.of(request.function)
    result: Result = request.node.stash[RESULT]
    yield keeper.prepare(wanted)
    wrong = keeper.finish(wanted, bool(result.wrong))
    if wrong:
        raise Failed("\n".join(wrong))


@pytest.fixture
def pair(lab: Lab) -> Lab:
    """The same, in a test with two machines."""
    return lab


@pytest.fixture
def vm(lab: Lab) -> Lab:
    """The same, in a test with one machine."""
    return lab


class Result:
    """What comes of a test: collected over its set-up, its body and what follows."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper, self._cpu = keeper, keeper.cpu_seconds
        self.wrong: list[str] = []
        self.skipped = ""
        self.said = ""
        self.is_of_the_host = False
        self.is_by_chance = False
        self.began = time.monotonic()
        self._load = HostLoad()

    @property
    def busy_share(self) -> float:
        """The share of the host's processors that others have used meanwhile."""
        return self._load.share(self._keeper.cpu_seconds - self._cpu)

    def line(self, name: str) -> dict[str, Any]:
        """For the runner."""
        verdict = "not ok" if self.wrong else "skip" if self.skipped else "ok"
        return {"name": name, "verdict": verdict, "why": "\n".join(self.wrong) or self.skipped, "said": self.said,
                "seconds": round(time.monotonic() - self.began, 3),
                "cpu": round(max(0.0, self._keeper.cpu_seconds - self._cpu), 2), "phases": CLOCK.take()}


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
            self._items[name] = item
            plan.append({"name": name, "title": title_of(item), "file": item.path.stem, "lab": wanted.spec.title,
                         "spec": repr(wanted.spec), "shares": wanted.shares, "timed": wanted.timed,
                         "waits": wanted.waits, "debug": wanted.debug or (wanted.unproven and not tier.is_long()),
                         "late": wanted.disruptive or wanted.fresh, "preempt": wanted.preempt})
        self._say(plan=plan, broken=self._broken)

    # -- running them --------------------------------------------------------------------------------------

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Obeys orders until there are no more."""
        for line in self._orders:
            order = json.loads(line)
            if order["do"] == "tests":
                for name in order["names"]:
                    self._run(self._items[name])
            elif order["do"] == "unload":
                self._unload(order["name"], order["tests"])
            else:
                self.keeper.drop()
            self._say(idle=True)
        return True

    def _run(self, item: pytest.Item) -> None:
        """Runs a test, and once more if the host was busy and that may be why it failed, or by a known chance."""
        result, before = self._attempt(item), ""
        busy = result.busy_share
        if result.is_by_chance:
            before = f"{result.said}# by a chance that is documented; again: {result.wrong[0]}\n"
            result = self._attempt(item)
        elif result.is_of_the_host and busy > self._options.get("busy_share", BUSY_SHARE):
            before = (f"{result.said}# others used {busy:.0%} of the processors; again when the host is quiet: "
                      f"{result.wrong[0]}\n")
            wait_until_quiet(self._options.get("quiet_seconds", QUIET_SECONDS))
            result = self._attempt(item)
        result.said = before + result.said
        if not self._options.get("quiet"):
            self._say(**result.line(name_of(item)))

    def _attempt(self, item: pytest.Item) -> Result:
        # The tests of one file know what they do to their wires; those of the next expect sound ones.
        if item.path.stem != self._file and self.keeper.was_unplugged:
            self.keeper.drop()
        self._file = item.path.stem
        result = item.stash[RESULT] = Result(self.keeper)
        CLOCK.take()
        del item._report_sections[:]    # pytest adds to them when a test is repeated
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
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
            result.wrong.append(reason(why, self._options["verbose"]))
            raise
        finally:
            if result.wrong and self.keeper.emulation_broke():
                result.is_by_chance = True
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
                item.stash[RESULT].wrong.append(reason(call.excinfo.value, self._options["verbose"]))
                item.stash[RESULT].is_of_the_host = isinstance(call.excinfo.value, TooSlow) or self.keeper.rxe_gave_up()
                item.stash[RESULT].is_by_chance = (isinstance(call.excinfo.value, ByChance)
                                                   or self.keeper.emulation_broke() or self.keeper.rxe_is_dead())

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
        result.wrong = self.keeper.end_sharing()
        if result.wrong:
            self.keeper.drop(keep_logs=True)
            result.wrong.append(self._bisect(tests))
        self._say(**result.line(name))

    def _bisect(self, tests: list[str]) -> str:
        """Each test of the group alone, in machines of its own, with an unload after it."""
        self._options["quiet"] = True
        guilty = []
        for name in tests:
            self._run(self._items[name])
            if wrong := self.keeper.end_sharing():
                guilty.append(f"after {name} alone:\n" + "\n".join(wrong))
            self.keeper.drop()
        self._options["quiet"] = False
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
