# SPDX-License-Identifier: GPL-2.0
"""Rules of the drivers, deleted one at a time: a test must fail without each, and say the right thing.

    make rules                                      all of them: hours
    make rules ONLY=rtrs/client/io/completion.rs    those of some files
    make rules ONLY=rtrs_client.fua-is-sent         one, by its name
    make rules ONLY="$(git diff --name-only --diff-filter=d main)"      those of the files of a change

A driver carries out what pure code decides. That it does, and keeps the order, is seen only in a machine. rules/*.toml
lists what to change in a driver, or in pure code, so that it leaves a rule out:

    rule, file, old, new    the rule in words; the place, which is in the file once; what is there without the rule
    tests                   of these one must fail: in virtual machines, or on the host if `package` is there
    says                    what the report of that failure contains (a regular expression), if it has been seen
    package                 the package of tools/ that has the tests
    alone                   true if honest IO does not work without the rule: no other test can be judged beside it
    unseen                  why no test can fail without the rule here; such rules are counted as skipped

Rules whose tests differ are deleted together, in one build. One that nothing has noticed then is deleted again, alone.
A rule whose place is not in the source any more is an error: whoever moves the code moves the rule.
"""
from __future__ import annotations

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kdir import cargo

FOLDER = pathlib.Path(__file__).resolve().parent / "rules"
NEEDED, OPTIONAL = {"rule", "file", "old", "new", "tests"}, {"says", "package", "alone", "unseen"}
TOGETHER_MAX = 16
LINES_SHOWN, TOLD = 12, 2
# Of a build, and of the tests of a batch. Pure code without a rule may go round for ever.
HANGS_S = 3600
NOT_OK = re.compile(r"not ok \d+ (\S+)")
HOST_FAILED = re.compile(r"---- (\S+) stdout ----")
CLOSING = re.compile(r"\d+ passed, \d+ failed(?:, \d+ skipped)?")
Say = Callable[[str], None]
Reports = Mapping[str, str]     # of tests that failed, by their names


@dataclass(frozen=True)
class Rule:
    """One rule, the change that leaves it out, and the tests that look for it."""

    name: str
    rule: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    says: str = ""
    package: str = ""
    alone: bool = False
    unseen: str = ""

    def without(self, text: str) -> str | None:
        """The source without the rule; None if its place is not there once."""
        return text.replace(self.old, self.new) if text.count(self.old) == 1 and self.old != self.new else None

    def noticed_by(self, reports: Reports) -> str:
        """Returns that of its tests which has failed for the right reason, "" if none."""
        return next((test for test in self.tests if test in reports and re.search(self.says, reports[test])), "")


@dataclass
class Verdicts:
    """Numbers of rules: noticed by a test, not noticed, and those that no test can notice."""

    seen: int = 0
    missed: int = 0
    unseen: int = 0


def load(folder: pathlib.Path = FOLDER) -> list[Rule]:
    """All rules, by file of their list; the name of a rule begins with that of the list."""
    rules = []
    for file in sorted(folder.glob("*.toml")):
        for name, entry in tomllib.loads(file.read_text(encoding="utf-8")).items():
            if not NEEDED <= set(entry) <= NEEDED | OPTIONAL:
                raise ValueError(f"{file.name}: {name} has {', '.join(sorted(entry))}")
            rules.append(Rule(**entry | {"name": f"{file.stem}.{name}", "tests": tuple(entry["tests"])}))
    return rules


def select(rules: Sequence[Rule], only: Iterable[str]) -> list[Rule]:
    """The rules of the named files, folders or lists, or of these names; all if none is named."""
    wanted = [word.rstrip("/") for word in only]
    return [rule for rule in rules if not wanted or any(
        word in (rule.name, rule.name.partition(".")[0], rule.file) or rule.file.startswith(f"{word}/")
        for word in wanted)]


def known_tests(repository: pathlib.Path) -> set[str]:
    """The names of the tests in virtual machines."""
    listed = subprocess.run([sys.executable, "-B", "tools/vmlab", "run", "--list"], cwd=repository, text=True,
                            capture_output=True, check=True).stdout
    return {line.split()[0] for line in listed.splitlines() if line and not line.startswith(" ")}


def _host_tests(repository: pathlib.Path, package: str) -> str:
    """The sources that may have the tests of a package."""
    folder = repository / "tools" / package.removeprefix("ferrofabric-")
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.rs")))


def _complaint(rule: Rule, text: str, known: Container[str], host: str) -> list[str]:
    wrong = []
    if rule.without(text) is None:
        wrong = [f"its place is {text.count(rule.old)} times in {rule.file}: tools/test/rules has to follow the source"]
    if not rule.tests and not rule.unseen:
        wrong.append("no test is named")
    for test in rule.tests:
        is_there = f"fn {test.rpartition('::')[2]}(" in host if rule.package else test in known
        wrong += [] if is_there else [f"there is no test {test}"]
    return [f"{rule.name}: {why}" for why in wrong]


def complaints(rules: Sequence[Rule], repository: pathlib.Path, known: Container[str]) -> list[str]:
    """Errors of the lists themselves: places that are gone, tests that are not `known`."""
    hosts = {package: _host_tests(repository, package) for package in {rule.package for rule in rules} - {""}}
    return [line for rule in rules
            for line in _complaint(rule, _read(repository / rule.file), known, hosts.get(rule.package, ""))]


def _read(path: pathlib.Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def copy(repository: pathlib.Path, target: pathlib.Path) -> None:
    """Brings the copy of the tree up to date, and keeps the times of files that have not changed, for make."""
    names = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=repository, text=True,
                           capture_output=True, check=True).stdout.split("\n")
    wanted = {name for name in names if name and (repository / name).is_file()}
    for name in wanted:
        source, copied = repository / name, target / name
        if not copied.is_file() or copied.read_bytes() != source.read_bytes():
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copied)
        copied.chmod(source.stat().st_mode)
    for path in [path for path in target.rglob("*") if path.is_file()]:
        if "__pycache__" not in path.parts and str(path.relative_to(target)) not in wanted:
            path.unlink()


def edits(rules: Sequence[Rule], repository: pathlib.Path) -> dict[str, str] | None:
    """The sources without all these rules; None if they are in each other's way."""
    texts: dict[str, str] = {}
    for rule in rules:
        text = rule.without(texts.get(rule.file) or _read(repository / rule.file))
        if text is None:
            return None
        texts[rule.file] = text
    return texts


def batches(rules: Sequence[Rule], repository: pathlib.Path) -> list[list[Rule]]:
    """Rules that are deleted together: their tests differ, so that each can be judged."""
    found: list[list[Rule]] = []
    for rule in rules:
        fitting = next((batch for batch in found if _fits(rule, batch, repository)), None)
        if fitting is None:
            found.append([rule])
        else:
            fitting.append(rule)
    return found


def _fits(rule: Rule, batch: Sequence[Rule], repository: pathlib.Path) -> bool:
    taken = {test for other in batch for test in other.tests}
    return (not rule.alone and not batch[0].alone and rule.package == batch[0].package and len(batch) < TOGETHER_MAX
            and not taken & set(rule.tests) and edits([*batch, rule], repository) is not None)


def lab_reports(lines: Iterable[str]) -> dict[str, str]:
    """Parses the lab's report of each test that has failed: its line and those beneath it."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in lines:
        begin = NOT_OK.match(line)
        name = begin[1] if begin else name if line.startswith("#   ") else ""
        if name:
            found.setdefault(name, []).append(line)
    return {test: "\n".join(told) for test, told in found.items()}


def host_reports(lines: Iterable[str]) -> dict[str, str]:
    """Parses cargo's report of each test that has failed."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in lines:
        begin = HOST_FAILED.match(line)
        name = begin[1] if begin else "" if line == "failures:" else name
        if name:
            found.setdefault(name, []).append(line)
    return {test: "\n".join(told) for test, told in found.items()}


def _run(target: pathlib.Path, words: Sequence[str], environment: Mapping[str, str]) -> tuple[int, list[str]]:
    """Runs a program whose lines are in a file meanwhile. One that hangs is ended with all that it has started."""
    file = target.with_name(f"{target.name}.log")
    with file.open("w", encoding="utf-8") as out, subprocess.Popen(
            words, cwd=target, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            env=os.environ | environment, start_new_session=True) as process:
        try:
            status = process.wait(HANGS_S)
        except BaseException as why:
            os.killpg(process.pid, signal.SIGTERM)
            if not isinstance(why, subprocess.TimeoutExpired):
                raise
            status = process.wait()
    return status, file.read_text(encoding="utf-8", errors="replace").splitlines()


def _test(batch: Sequence[Rule], target: pathlib.Path) -> tuple[str, Reports, list[str]]:
    """Builds the copy and runs the tests of the batch: why they did not run, or what has failed; all lines."""
    tests = list(dict.fromkeys(test for rule in batch for test in rule.tests))
    python = [sys.executable, "-B"]
    if package := batch[0].package:
        _status, lines = _run(target, [*cargo.command(), "test", "--locked", "--no-fail-fast", "--manifest-path",
                                       "tools/Cargo.toml", "-p", package, "--tests", "--", "--exact", *tests],
                              {"CARGO_TARGET_DIR": f"{target}-cargo"})
        ran = any(line.startswith("test result: ") for line in lines)
        return "" if ran else "the tests do not compile without it", host_reports(lines), lines
    status, lines = _run(target, [*python, "tools/kdir", "build"], {})
    if status:
        return "the modules do not compile without it", {}, lines
    _status, lines = _run(target, [*python, "tools/vmlab", "run", *tests], {})
    ran = any(CLOSING.fullmatch(line) for line in lines)
    return "" if ran else "the tests did not run", lab_reports(lines), lines


def _judge(batch: Sequence[Rule], repository: pathlib.Path, target: pathlib.Path, say: Say) -> list[Rule]:
    """Deletes the rules of a batch in the copy; those that no test has noticed."""
    copy(repository, target)
    for file, text in (edits(batch, target) or {}).items():
        (target / file).write_text(text, encoding="utf-8")
    say(f"# without {', '.join(rule.name for rule in batch)}")
    why, found, lines = _test(batch, target)
    missed = [rule for rule in batch if not rule.noticed_by(found)]
    for rule in batch:
        if test := rule.noticed_by(found):
            say(f"ok rules.{rule.name}: {test}")
            told = [line.removeprefix("#").strip() for line in found[test].splitlines()[1:]]
            for line in [line for line in told if line][:TOLD]:
                say(f"#   {line}")
        elif len(batch) == 1:
            say(f"not ok rules.{rule.name}: {why or 'no test has failed for the right reason: ' + rule.rule}")
            for line in (report for test in rule.tests if test in found for report in found[test].splitlines()):
                say(f"#   {line}")
            for line in lines[-LINES_SHOWN:]:
                say(f"#   {line}")
    return missed


def run(repository: pathlib.Path, target: pathlib.Path, only: Sequence[str], say: Say) -> Verdicts:
    """Deletes the selected rules in a copy of the tree and runs their tests."""
    rules, verdicts = select(load(), only), Verdicts()
    wrong = complaints(rules, repository, known_tests(repository))
    for complaint in wrong:
        say(f"not ok rules.{complaint}")
    if wrong:
        return Verdicts(missed=len(wrong))
    for rule in (rule for rule in rules if rule.unseen):
        say(f"ok rules.{rule.name} # SKIP no test can notice it: {rule.unseen}")
        verdicts.unseen += 1
    judged = [rule for rule in rules if not rule.unseen]
    for batch in batches(judged, repository):
        missed = _judge(batch, repository, target, say)
        if len(batch) > 1:
            # One may have hidden another, or kept the others from being built.
            missed = [rule for single in missed for rule in _judge([single], repository, target, say)]
        verdicts.missed += len(missed)
    verdicts.seen = len(judged) - verdicts.missed
    return verdicts
