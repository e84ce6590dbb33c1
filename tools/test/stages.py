# SPDX-License-Identifier: GPL-2.0
"""The stages of `make check`, `make test`, `make test-long` and `make mutants`. A stage runs programs and counts."""
import dataclasses
import json
import os
import pathlib
import re
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import mutants
import native
import objects

from kdir import cargo, config

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PYTHON = [sys.executable, "-B"]
KDIR = [*PYTHON, "tools/kdir"]
PYTOOLS = [*PYTHON, "tools/pytools"]
# What runs for hours leaves the machine to others.
IDLE = ["nice", "-n", "19"]
CLOSING = re.compile(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?")
# Where crates of the kernel have their roots.
KERNEL_FOLDERS = ("chunk4k", "common", "kernel_ext", "block", "rdma", "rtrs", "rnbd", "samples", "selftest",
                  "verbs_provider", "test_device")
MACHINES = "virtual machines"
CHECK, TEST, LONG, MUTANTS = "check", "test", "long", "mutants"
# A second of one core is about 700 seeds.
SEEDS = {CHECK: 5_000, TEST: 20_000, LONG: 400_000}
# Beside these, seeds that are new in each run: few where a rare find would stop other work.
FRESH = {CHECK: 50, TEST: 100, LONG: 100_000}
REPEATS = {TEST: 1, LONG: 3}
# What the debug kernel is slow for, but not too slow.
DEBUG_TESTS = ("faults.*", "lifecycle.*", "hostile.*", "io.*")
# Programs of tools/ are packages, or folders of scripts that import each other; mypy is told where each looks.
MYPY = {"tools": ("tools:tools/test:tools/vmlab/peer",
                  "-p vmlab -p kdir -p pytools -m stages -m mutants -m native -m objects".split()),
        "bench": ("tools:tools/bench", ["tools/bench"]),
        "coverage": ("tools:tools/coverage", ["tools/coverage"]), "tidy": ("tools/tidy", ["tools/tidy"])}
# Scripts of the tree that say that they are shell by their first line only are found by it.
SHELL = re.compile(rb"#!/(?:usr/bin/env |bin/)(?:ba)?sh\b")


@dataclasses.dataclass
class Counts:
    """What came of some tests; prints as the closing line."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)

    def __str__(self) -> str:
        tail = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {self.failed} failed{tail}"


class Output:
    """Where a stage's lines go. Stages that run side by side show theirs when they have ended, each in one piece."""

    _turn = threading.Lock()

    def __init__(self, at_once: bool = True) -> None:
        self._held: list[str] | None = None if at_once else []

    def say(self, line: str) -> None:
        """One line."""
        if self._held is None:
            print(line, flush=True)
        else:
            self._held.append(line)

    def show(self) -> None:
        """Prints what was held back."""
        with self._turn:
            for line in self._held or ():
                print(line)
            sys.stdout.flush()

    def stream(self, command: list[str], environment: dict[str, str] | None = None) -> tuple[int, list[str]]:
        """Runs a program, shows its output as it comes, returns its status and its lines."""
        lines = []
        with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              stdin=subprocess.DEVNULL, text=True, errors="replace",
                              env=os.environ | (environment or {})) as process:
            for line in process.stdout or ():
                lines.append(line.rstrip("\n"))
                # A stage's own closing line must not be taken for that of the whole.
                if not CLOSING.fullmatch(lines[-1]):
                    self.say(lines[-1])
            status = process.wait()
        return status, lines

    def one(self, name: str, status: int) -> Counts:
        """Counts a program that is one test."""
        self.say(f"{'not ok' if status else 'ok'} {name}")
        return Counts(failed=1) if status else Counts(passed=1)

    def closing(self, status: int, lines: list[str]) -> Counts:
        """Reads the closing line of one of our own programs; none, or a bad status, is a failure."""
        match = CLOSING.fullmatch(lines[-1]) if lines else None
        if not match:
            self.say(f"not ok: no closing line (exit status {status})")
            return Counts(failed=1)
        counts = Counts(int(match[1]), int(match[2]), int(match[3] or 0))
        if status and not counts.failed:
            self.say(f"not ok: exit status {status} although nothing failed")
            counts.failed += 1
        return counts


@dataclasses.dataclass
class Stage:
    """A name and the function that runs it; then how long it took and what came of it."""

    name: str
    work: Callable[[Output], Counts]
    seconds: float = 0.0
    counts: Counts = dataclasses.field(default_factory=Counts)

    def run(self, at_once: bool) -> None:
        """Runs it, and shows its lines between two of its own; an error of ours is a failure of the stage."""
        out = Output(at_once)
        began = time.monotonic()
        out.say(f"## {self.name}")
        try:
            self.counts = self.work(out)
        except Exception as why:    # the other stages and the closing line must follow every error
            out.say(f"not ok: {type(why).__name__}: {why}")
            self.counts = Counts(failed=1)
        self.seconds = time.monotonic() - began
        out.say(f"## {self.name}: {self.counts} in {self.seconds:.0f} s")
        out.show()


# -- without virtual machines --------------------------------------------------------------------------------

def _tidy(out: Output) -> Counts:
    return out.closing(*out.stream([*PYTHON, "tools/tidy"]))


def _python_units(out: Output) -> Counts:
    """Unit tests of the tools themselves."""
    total = Counts()
    for folder in sorted(REPOSITORY.glob("tools/*/unit")):
        status, lines = out.stream([*PYTHON, "-m", "unittest", "discover", "-s", str(folder), "-p", "*.py",
                                    "-t", str(folder.parent.parent)])
        ran = next((int(m[1]) for line in lines if (m := re.match(r"Ran (\d+) test", line))), 0)
        bad = sum(int(n) for line in lines[-1:] for n in re.findall(r"(?:failures|errors)=(\d+)", line))
        if (status and not bad) or not ran:
            bad = max(bad, 1)
        total += Counts(max(ran - bad, 0), bad)
    return total


def _python_lint(out: Output) -> Counts:
    """ruff and mypy over the Python of the tools, shellcheck over the scripts."""
    ruff = [*PYTOOLS, "ruff", "check", "--no-cache", "--quiet", "--output-format", "concise", "tools"]
    total = out.one("lint.ruff", out.stream(ruff)[0])
    mypy = [*PYTOOLS, "mypy", "--config-file", "tools/pyproject.toml", "--cache-dir", f"{_cache()}/mypy"]
    for name, (path, words) in MYPY.items():
        total += out.one(f"lint.mypy-{name}", out.stream([*mypy, *words], {"MYPYPATH": path})[0])
    tracked = _output("git", "ls-files", "--cached", "--others", "--exclude-standard").split()
    scripts = [name for name in tracked if (REPOSITORY / name).is_file()
               and (name.endswith(".sh") or SHELL.match((REPOSITORY / name).read_bytes()[:40]))]
    return total + out.one("lint.shellcheck", out.stream([*PYTOOLS, "shellcheck", *scripts])[0])


def _cargo_tests(out: Output) -> Counts:
    """The pure protocol code on the host: golden vectors, exhaustive, property and fuzz tests; and that the simulation
    finds what it is for."""
    seed = str(secrets.randbits(48))
    out.say(f"# PROTO_SEED={seed} cargo test -p ferrofabric-proto: this run's inputs again")
    status, lines = out.stream([*cargo.command(), "test", "--locked", "--manifest-path", "tools/Cargo.toml"],
                               cargo.environment() | {"PROTO_SEED": seed})
    total = Counts()
    for line in lines:
        if match := re.match(r"test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", line):
            total += Counts(int(match[1]), int(match[2]), int(match[3]))
    if (status and not total.failed) or not total.passed:
        total.failed += 1
    return total


def _simulation(tier: str) -> Callable[[Output], Counts]:
    """Client and server with several paths and faults: many seeds of the simulation."""
    fresh = FRESH[tier]

    def run(out: Output) -> Counts:
        status, _ = out.stream([*cargo.command(), "run", "--release", "--locked", "--quiet", "--manifest-path",
                                "tools/Cargo.toml", "--package", "ferrofabric-sim", "--", "--seeds", str(SEEDS[tier]),
                                "--fresh", str(fresh)], cargo.environment())
        # A seed is not a test: the closing line counts what was written as a test.
        return out.one(f"simulation.{SEEDS[tier]}-seeds-and-{fresh}-fresh", status)
    return run


def _mutants(only: list[str]) -> Callable[[Output], Counts]:
    """Every mutant of the protocol code fails a test, or has a reason not to."""
    def run(out: Output) -> Counts:
        cache = config.cache_dir()
        program, arguments = mutants.install(cache)
        if not program.exists() and out.stream([*IDLE, *cargo.command(), *arguments])[0]:
            return out.one("mutants.installed", 1)
        workspace = cache / f"mutants-{cargo.place()}"
        mutants.copy(REPOSITORY, workspace)
        status, _ = out.stream([*IDLE, *cargo.command()[:-1], *mutants.command(program, workspace, only)])
        tested, wrong = mutants.results(workspace, status)
        for line in wrong:
            out.say(f"#   {line}")
        out.say(f"# {tested} mutants")
        return out.one("mutants.are-found", len(wrong))
    return run


def _host_lint(out: Output) -> Counts:
    """rustfmt and clippy over what runs on the host; every warning is an error."""
    clippy = [*cargo.command(), "clippy", "--locked", "--all-targets", "--manifest-path", "tools/Cargo.toml", "--",
              "-D", "warnings"]
    total = out.one("lint.clippy-host", out.stream(clippy, cargo.environment())[0])
    format_check = [*cargo.command(), "fmt", "--all", "--check", "--manifest-path", "tools/Cargo.toml"]
    return total + out.one("lint.rustfmt-host", out.stream(format_check)[0])


def _kernel_lint(out: Output) -> Counts:
    """rustfmt and clippy over the modules with the kernel's settings."""
    roots = sorted(str(p.relative_to(REPOSITORY)) for folder in objects.SOURCES
                   for p in (REPOSITORY / folder).glob("*.rs"))
    tree = _output(*KDIR, "tree").strip()
    status, _ = out.stream([*KDIR, "run", "rustfmt", "--check", "--edition", "2021", "--config-path",
                            f"{tree}/.rustfmt.toml", *roots])
    total = out.one("lint.rustfmt-kernel", status)
    status, _ = out.stream([*KDIR, "build", "CLIPPY=1", "KRUSTFLAGS=-Dwarnings"],
                           {"KDIR_OUTPUT": f"{_paths()['modules']}-clippy"})
    return total + out.one("lint.clippy-kernel", status)


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout


def _cache() -> str:
    return str(config.cache_dir())


def _paths() -> dict[str, str]:
    answer: dict[str, str] = json.loads(_output(*KDIR, "paths", "--json"))
    return answer


def _build(out: Output) -> Counts:
    total = out.one("build.modules", out.stream([*KDIR, "build"])[0])
    return total + out.one("build.reference-modules", out.stream([*KDIR, "cmodules"])[0])


def _guests(out: Output) -> Counts:
    """The guests' image, and the saved machines that nearly all tests wake from."""
    return out.one("guests.prepared", out.stream([*PYTHON, "tools/vmlab", "prepare"])[0])


def _objects(out: Output) -> Counts:
    total = Counts()
    for name, complaints in objects.check(REPOSITORY, KDIR):
        for complaint in complaints:
            out.say(f"#   {complaint}")
        total += out.one(f"objects.{name}", len(complaints))
    return total


def _documentation(out: Output) -> Counts:
    """`make doc`: the pages of the library crates can be made."""
    return out.one("documentation.rustdoc", out.stream([*KDIR, "doc"])[0])


def _native(out: Output) -> Counts:
    """The build as a Debian of the kernel's own release does it."""
    if _paths()["root"] == "/":
        out.say("# this host builds without a root: the stages before have shown it")
        return Counts(skipped=1)
    enter = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user", "--map-auto"]
    status, lines = native.check(REPOSITORY, KDIR, enter)
    for line in lines:
        if not CLOSING.fullmatch(line):
            out.say(line)
    return out.closing(status, lines)


# -- with virtual machines -----------------------------------------------------------------------------------

def _machines(*words: str, before: tuple[str, ...] = ()) -> Callable[[Output], Counts]:
    labs = str(min(2, os.cpu_count() or 1))
    command = [*before, *PYTHON, "tools/vmlab", "run", "--labs", labs, *words]
    return lambda out: out.closing(*out.stream(command))


def _debug_kernel(out: Output) -> Counts:
    """The tests that fit into it, and every allocation that fails."""
    status, lines = out.stream([*KDIR, "debug", *PYTHON, "tools/vmlab", "run", *DEBUG_TESTS],
                               {"VMLAB_FAULT_STEP": "1"})
    return out.closing(status, lines)


@dataclasses.dataclass
class Plan:
    """What a tier does: stages in lanes that run side by side, then stages that need the machine for themselves."""

    lanes: tuple[tuple[Stage, ...], ...]
    alone: tuple[Stage, ...] = ()

    @property
    def stages(self) -> list[Stage]:
        """All of them."""
        return [*(stage for lane in self.lanes for stage in lane), *self.alone]


def plan(tier: str, patterns: list[str], host_only: bool = False) -> Plan:
    """The stages of a tier; with patterns only those tests in virtual machines and what they need."""
    if tier == MUTANTS:
        return Plan(((Stage("mutants", _mutants(patterns)),),))
    if patterns:
        return Plan(((Stage("build", _build),),), (Stage(MACHINES, _machines(*patterns)),))
    kernel = [Stage("lint of the modules", _kernel_lint)]
    if tier != CHECK:
        kernel = [Stage("build", _build), Stage("objects", _objects), *kernel, Stage("native", _native)]
    if tier == LONG:
        kernel.append(Stage("documentation", _documentation))
    tools = [Stage("tidy", _tidy), Stage("unit tests of the tools", _python_units),
             Stage("lint of the tools", _python_lint), Stage("protocol code on the host", _cargo_tests),
             Stage("simulation", _simulation(tier)), Stage("lint of the host's Rust", _host_lint)]
    if tier != CHECK and not host_only:
        tools.append(Stage("guests", _guests))
    alone = []
    if tier == TEST and not host_only:
        alone = [Stage(MACHINES, _machines())]
    if tier == LONG and not host_only:
        alone = [Stage(MACHINES, _machines("--long", "--repeat", str(REPEATS[LONG]))),
                 Stage("virtual machines, debug kernel", _debug_kernel)]
    return Plan((tuple(tools), tuple(kernel)), tuple(alone))
