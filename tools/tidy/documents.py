# SPDX-License-Identifier: GPL-2.0
"""Rules about what documents promise of the code."""
import pathlib
import re

from rules import Source

DEFECTS = pathlib.Path("Documentation/defects-of-c.md")
PROBLEMS = pathlib.Path("Documentation/gfarm-spec-problems.md")
LOCKS = pathlib.Path("Documentation/states-and-locks.md")
# The folders of what locks, but for the tests.
LOCKING = ("gfarm_ra", "lib", "rioc", "rnbd", "rnbd_ec", "rtrs")
_STRUCT = re.compile(r"(?:pub(?:\(\w+\))? )?struct (\w+)")
_LOCK = re.compile(r"\s+(?:pub(?:\(\w+\))? )?(\w+): (?:Mutex|IrqLock|SpinLock)<")
_STATES = re.compile(r"^pub enum \w+State \{(.*?)^\}", re.M | re.S)
_STATE = re.compile(r"^    (\w+) = \d", re.M)
_NUMBER = re.compile(r"\bD([1-9]\d?)\b")
_NAMED = re.compile(r"\bd([1-9]\d?)_[a-z]")
_ROW = re.compile(r"^\| D(\d+) \|(.*)\|([^|]*)\|$", re.M)
_PROBLEM = re.compile(r"^\| (\d+) \|.*\|([^|]*)\|$", re.M)
_TEST = re.compile(r"`([a-z_0-9]+(?:\.[a-z_0-9]+)+)`")
# Where the numbers mean something else, or a file is written by a tool.
_FOREIGN = (".lock", "COPYING")


def _cited(source: Source) -> set[int]:
    """Numbers of defects that a file cites, in comments or in names of tests."""
    return {int(n) for pattern in (_NUMBER, _NAMED) for n in pattern.findall(source.text)}


def _functions(sources: list[Source], folder: str) -> dict[str, set[str]]:
    """Names of the functions of the files of a folder, by the stem of the file."""
    return {s.path.stem: set(re.findall(r"^\s*(?:pub )?(?:fn|def) (\w+)", s.text, re.M))
            for s in sources if str(s.path.parent) == folder}


class _Tests:
    """Every test that a document can name."""

    def __init__(self, sources: list[Source]) -> None:
        cache = "tools/proto/tests/proto/gfarm/cache"
        self.host = {"proto": _functions(sources, "tools/proto/tests/proto"),
                     "proto.cache": _functions(sources, f"{cache}/requester") | _functions(sources, cache),
                     "sim": _functions(sources, "tools/sim/tests/sim"),
                     "sim_cache": _functions(sources, "tools/sim-cache/tests")}
        self.machines = _functions(sources, "tools/vmlab/tests")
        # Cases of the scripted peer, of which some files make a test each.
        self.cases = set().union(*_functions(sources, "tools/vmlab/peer").values())
        self.made = {s.path.stem for s in sources if str(s.path.parent) == "tools/vmlab/tests"
                     and re.search(r"globals\(\)\[f\"test_\{|parametrize", s.text)}

    def has(self, name: str) -> bool:
        """Whether `file.test`, `proto.file.test` or another test of the host exists."""
        *group, file, test = name.split(".")
        if group:
            return test in self.host.get(".".join(group), {}).get(file, set())
        return (f"test_{test}" in self.machines.get(file, set())
                or (file in self.made and test.removesuffix("_with_n") in self.cases))


def defects_are_documented(sources: list[Source]) -> list[str]:
    """Each defect of the C driver that is cited stands in the page, and each test that the page names exists."""
    page = next((s for s in sources if s.path == DEFECTS), None)
    if page is None:
        return [f"{DEFECTS} is missing"]
    rows = {int(number): tests for number, _, tests in _ROW.findall(page.text)}
    tests = _Tests(sources)
    complaints = [f"{DEFECTS}: D{number} names neither a test nor 'no test'" for number, cell in rows.items()
                  if not _TEST.findall(cell) and cell.strip() != "no test"]
    complaints += [f"{DEFECTS}: D{number}: there is no test {name}" for number, cell in rows.items()
                   for name in _TEST.findall(cell) if not tests.has(name)]
    for source in sources:
        if source.path != DEFECTS and not source.path.name.endswith(_FOREIGN):
            complaints += [f"{source.path}: D{n} is not in {DEFECTS}" for n in sorted(_cited(source) - rows.keys())]
    return complaints


def problems_have_tests(sources: list[Source]) -> list[str]:
    """Each problem of Gfarm's specification names a test, and each test that the page names exists."""
    page = next((s for s in sources if s.path == PROBLEMS), None)
    if page is None:
        return [f"{PROBLEMS} is missing"]
    rows, tests = dict(_PROBLEM.findall(page.text)), _Tests(sources)
    complaints = [f"{PROBLEMS}: {n} has no row" for n in range(1, 17) if str(n) not in rows]
    complaints += [f"{PROBLEMS}: {n} names no test" for n, cell in rows.items() if not _TEST.findall(cell)]
    return complaints + [f"{PROBLEMS}: {n}: there is no test {name}" for n, cell in rows.items()
                         for name in _TEST.findall(cell) if not tests.has(name)]


def locks_are_documented(sources: list[Source]) -> list[str]:
    """The page of states and locks names each lock of the modules, and each state of a path."""
    page = next((s for s in sources if s.path == LOCKS), None)
    if page is None:
        return [f"{LOCKS} is missing"]
    complaints = []
    for source in sources:
        if source.path.suffix != ".rs" or source.path.parts[0] not in LOCKING:
            continue
        holder = ""
        for line in source.text.split("\n"):
            if found := _STRUCT.match(line):
                holder = found[1]
            elif (found := _LOCK.match(line)) and f"`{holder}::{found[1]}`" not in page.text:
                complaints.append(f"{LOCKS}: {holder}::{found[1]} of {source.path}")
        if str(source.path) == "rtrs/proto/path.rs":
            for states in _STATES.findall(source.text):
                complaints += [f"{LOCKS}: the state {state}" for state in _STATE.findall(states)
                               if not re.search(rf"\b{state}\b", page.text)]
    return complaints


RULES = [defects_are_documented, locks_are_documented, problems_have_tests]
