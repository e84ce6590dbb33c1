# SPDX-License-Identifier: GPL-2.0
"""The stages of `make check`, `make test`, `make test-long` and `make mutants`. A stage runs programs and counts."""
import dataclasses
import itertools
import json
import os
import pathlib
import re
import secrets
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable

import examples
import hold
import mutants
import native
import objects
import rules
import units

from kdir import cargo, checkouts, config
from vmlab import telling

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PYTHON = [sys.executable, "-B"]
KDIR = [*PYTHON, "tools/kdir"]
PYTOOLS = [*PYTHON, "tools/pytools"]
# What runs for hours leaves the machine to others.
IDLE = ["nice", "-n", "19"]
CLOSING = re.compile(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?")
AGAIN = re.compile(r"# again: [1-9]\d* \((.*)\)")
MACHINES, BUILD, GUESTS, DRIVERS = "virtual machines", "build", "guests", "rules of the drivers"
# REST is what ALL has beyond TEST.
CHECK, TEST, ALL, REST, LONG, MUTANTS, RULES = "check", "test", "all", "rest", "long", "mutants", "rules"
# The tests in virtual machines of each (vmlab/tier.py).
TIERS = {TEST: "core", ALL: "all", REST: "rest"}
# A second of one core is about 700 seeds.
SEEDS = {CHECK: 5_000, TEST: 8_000, ALL: 8_000, LONG: 400_000}
# Beside these, seeds that are new in each run: none where a rare find would stop other work.
FRESH = {CHECK: 0, TEST: 0, ALL: 0, LONG: 100_000}
# Lives of arrays with members that fail, of each kind (tools/ec): 3.5 seconds of one core each.
ARRAYS = {CHECK: "0..16", TEST: "0..16", REST: "16..40", ALL: "0..40", LONG: "0..40"}
REPEATS = {LONG: 3}
# Inputs of each property in the long run, 256 in others.
CASES = 300_000
# Lives of an array in the long run; a second of one core is about 700.
LIVES = 2_000_000
# Nodes of the cache that find each other in the long run: two minutes of one core.
MEMBERS = 1_000
# From this memory of the host on there is one lab more.
LIGHT_MEMORY_MIB = 7_000
# What the debug kernel is slow for, but not too slow.
DEBUG_TESTS = ("faults.*", "lifecycle.*", "hostile.*", "io.*")
# Programs of tools/ are packages, or folders of scripts that import each other; mypy is told where each looks.
MYPY = {"tools": ("tools:tools/test:tools/vmlab/peer",
                  "-p vmlab -p kdir -p pytools -m stages -m hold -m schedule -m waiting -m mutants -m native "
                  "-m objects -m examples -m rules -m units".split()),
        "bench": ("tools:tools/bench", ["tools/bench"]),
        "coverage": ("tools:tools/coverage", ["tools/coverage"]), "tidy": ("tools/tidy", ["tools/tidy"])}
# Scripts of the tree that say that they are shell by their first line only are found by it.
SHELL = re.compile(rb"#!/(?:usr/bin/env |bin/)(?:ba)?sh\b")


@dataclasses.dataclass
class Counts:
    """The results of some tests; prints as the closing line."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    again: tuple[str, ...] = ()     # tests whose verdict is that of a second attempt

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped,
                      (*self.again, *other.again))

    def __str__(self) -> str:
        tail = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {self.failed} failed{tail}"


class Output:
    """The lines of a stage. Stages that run side by side show theirs when they have ended, each in one piece."""

    _turn = threading.Lock()

    def __init__(self, at_once: bool = True) -> None:
        self._held: list[str] | None = None if at_once else []
        self._latest: tuple[list[str], list[str]] = [], []     # a command, and its lines
        self._failures: list[tuple[str, str, str]] = []

    def say(self, line: str) -> None:
        """One line."""
        if self._held is None:
            with self._turn:
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
        self._latest = command, lines
        return status, lines

    def one(self, name: str, status: int) -> Counts:
        """Counts a program that is one test."""
        self.say(f"{'not ok' if status else 'ok'} {name}")
        if status:
            self.failed(name)
        return Counts(failed=1) if status else Counts(passed=1)

    def failed(self, name: str) -> None:
        """The latest program was a test that failed: for the end of the run."""
        command, lines = self._latest
        repeat = shlex.join(["python3" if word == sys.executable else word for word in command])
        self._failures.append((name, "\n".join(lines), repeat))

    def failures(self, stage: str) -> list[str]:
        """Names the failures, in words: what is a test of its own, or the stage. The tests in virtual machines have
        said so by themselves."""
        head, lines = f"# {telling.WHAT_FAILED}", self._latest[1]
        if head in lines:
            own = itertools.takewhile(lambda line: line.startswith("#   "), lines[lines.index(head) + 1:])
            return [line.removeprefix("# ") for line in own]
        if not self._failures:
            self.failed(stage)
        return telling.block(self._failures)[1:]

    def closing(self, status: int, lines: list[str]) -> Counts:
        """Reads the closing line of one of our own programs; none, or a bad status, is a failure."""
        match = CLOSING.fullmatch(lines[-1]) if lines else None
        if not match:
            self.say(f"not ok: no closing line (exit status {status})")
            return Counts(failed=1)
        again = next((tuple(m[1].split(", ")) for line in lines if (m := AGAIN.fullmatch(line))), ())
        counts = Counts(int(match[1]), int(match[2]), int(match[3] or 0), again)
        if status and not counts.failed:
            self.say(f"not ok: exit status {status} although nothing failed")
            counts.failed += 1
        return counts


@dataclasses.dataclass
class Stage:
    """A name and the function that runs it, the names of the stages that must have ended before it, and whether it
    runs `beside` the two lanes of the others; then how long it took and what came of it."""

    name: str
    work: Callable[[Output], Counts]
    after: tuple[str, ...] = ()
    beside: bool = False
    seconds: float = 0.0
    counts: Counts = dataclasses.field(default_factory=Counts)
    failures: list[str] = dataclasses.field(default_factory=list)

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
            self.failures = telling.block([(self.name, f"{type(why).__name__}: {why}", "")])[1:]
        if self.counts.failed and not self.failures:
            self.failures = out.failures(self.name)
        self.seconds = time.monotonic() - began
        out.say(f"## {self.name}: {self.counts} in {self.seconds:.0f} s")
        out.show()


# -- without virtual machines --------------------------------------------------------------------------------

def _tidy(out: Output) -> Counts:
    return out.closing(*out.stream([*PYTHON, "tools/tidy"]))


def _python_units(out: Output) -> Counts:
    """Unit tests of the tools themselves."""
    return sum((_units(out, folder) for folder in sorted(REPOSITORY.glob("tools/*/unit"))), Counts())


def _units(out: Output, folder: pathlib.Path) -> Counts:
    """The unit tests of one folder."""
    with tempfile.TemporaryDirectory() as scratch:
        counts = Counts(*units.counts(*out.stream(units.command(PYTHON, folder), {"TMPDIR": scratch})))
        for name in (left := sorted(os.listdir(scratch))):
            out.say(f"# left behind: {name}")
    return counts + out.one(f"units.{folder.parent.name}-leave-nothing-behind", len(left))


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


def _cargo_tests(tier: str) -> Callable[[Output], Counts]:
    """The pure protocol code on the host: golden vectors, exhaustive, property and fuzz tests; and that the simulation
    finds what it is for. Always the same inputs: whoever runs this judges a change, and not luck (`_properties`)."""
    return lambda out: _cargo(out, [], seeds(1) | {"SEEDS": ARRAYS[tier]})


def _arrays(out: Output) -> Counts:
    """The lives of arrays that `make test` leaves out: of the same tests, which have been counted there."""
    command = [*cargo.command(), "test", "--locked", "--quiet", "--manifest-path", "tools/Cargo.toml"]
    status, _ = out.stream([*command, "--package", "ferrofabric-ec", "--test", "simulation"],
                           cargo.environment() | {"SEEDS": ARRAYS[REST]})
    return out.one(f"simulation.lives-{ARRAYS[REST]}-of-arrays", status)


def _properties(out: Output) -> Counts:
    """The same tests of the protocol code with new inputs, and many of them: finds what is wrong once in a million."""
    environment = seeds(secrets.randbits(48)) | {"PROPTEST_CASES": str(CASES)}
    out.say(f"# {' '.join(f'{name}={value}' for name, value in environment.items())}: this run's inputs again")
    return _cargo(out, ["--release", "--package", "ferrofabric-proto", "--no-fail-fast"], environment)


def seeds(seed: int) -> dict[str, str]:
    """The variables that the tests of the host draw their inputs from."""
    return {"PROTO_SEED": str(seed), "PROPTEST_RNG_SEED": str(seed)}


def _cargo(out: Output, arguments: list[str], environment: dict[str, str]) -> Counts:
    """Runs tests of the host."""
    command = [*cargo.command(), "test", "--locked", "--manifest-path", "tools/Cargo.toml", *arguments]
    status, lines = out.stream(command, cargo.environment() | environment)
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


def _long_tests(name: str, words: str, environment: dict[str, str]) -> Callable[[Output], Counts]:
    """Tests on the host that take long, as one."""
    def run(out: Output) -> Counts:
        status, _ = out.stream([*IDLE, *cargo.command(), "test", "--locked", "--quiet", "--manifest-path",
                                "tools/Cargo.toml", "--package", *words.split()], cargo.environment() | environment)
        return out.one(name, status)
    return run


def _lives() -> list[Stage]:
    """Lives of arrays, by many seeds; all small worlds of their superblocks; nodes of the cache find each other."""
    return [Stage("crash model of the log", _long_tests(
                f"seglog.{LIVES}-lives", "ferrofabric-seglog --test crash long_lives", {"SEGLOG_LIVES": str(LIVES)})),
            Stage("small worlds of the log", _long_tests(
                "seglog.small-worlds", "ferrofabric-seglog --test slots -- --include-ignored",
                {"SEGLOG_WORLDS": "all"})),
            Stage("members of the cache", _long_tests(
                f"sim-cache.{MEMBERS}-members", "ferrofabric-sim-cache --test cache many_members",
                {"SIM_CACHE_MEMBERS": str(MEMBERS)}))]


def _fuzz_targets(out: Output) -> Counts:
    """The targets of long fuzzing compile. Their linking needs libFuzzer, which is not made for that."""
    check = [*cargo.command(), "check", "--locked", "--manifest-path", "tools/fuzz/Cargo.toml"]
    environment = cargo.environment() | {"CUSTOM_LIBFUZZER_PATH": os.devnull}
    return out.one("fuzz.every-target-compiles", out.stream(check, environment)[0])


def _mutants(only: list[str]) -> Callable[[Output], Counts]:
    """Every mutant of the protocol code fails a test, or has a reason not to."""
    def run(out: Output) -> Counts:
        cache = config.cache_dir()
        program, arguments = mutants.install(cache)
        if not program.exists() and out.stream([*IDLE, *cargo.command(), *arguments])[0]:
            return out.one("mutants.installed", 1)
        workspace = cache / f"mutants-{checkouts.name()}"
        mutants.copy(REPOSITORY, workspace)
        status, _ = out.stream([*IDLE, *cargo.command()[:-1], *mutants.command(program, workspace, only)])
        tested, wrong = mutants.results(workspace, status)
        for line in wrong:
            out.say(f"#   {line}")
        out.say(f"# {tested} mutants")
        return out.one("mutants.are-found", len(wrong))
    return run


def _rules(only: list[str]) -> Callable[[Output], Counts]:
    """A test fails without each rule of a driver."""
    def run(out: Output) -> Counts:
        gone = [word for word in only if not rules.select(rules.load(), [word]) and not (REPOSITORY / word).exists()]
        total = out.one(f"rules.selected{': there is no ' if gone else ''}{', '.join(gone)}", len(gone))
        found = rules.run(REPOSITORY, config.cache_dir() / f"rules-{checkouts.name()}", only, out.say)
        return total + Counts(found.seen, found.missed, found.unseen)
    return run


def _host_lint(out: Output) -> Counts:
    """rustfmt and clippy over what runs on the host; every warning is an error."""
    clippy = [*cargo.command(), "clippy", "--locked", "--all-targets", "--manifest-path", "tools/Cargo.toml", "--",
              "-D", "warnings"]
    total = out.one("lint.clippy-host", out.stream(clippy, cargo.environment())[0])
    format_check = [*cargo.command(), "fmt", "--all", "--check", "--manifest-path", "tools/Cargo.toml"]
    return total + out.one("lint.rustfmt-host", out.stream(format_check)[0])


# Clippy is done before code is made. At the level of the build that takes three times as long, and no one uses it.
LINT_FLAGS = "KRUSTFLAGS=-Dwarnings -Copt-level=0 -Cdebuginfo=0"


def _crates() -> list[str]:
    """The objects of all crates, which no module is linked of."""
    return [f"{root}.o" for root in re.findall(r"call rust_crate,\w+,([\w/]+),", (REPOSITORY / "Kbuild").read_text())]


def _kernel_lint(out: Output) -> Counts:
    """rustfmt and clippy over the modules with the kernel's settings."""
    roots = sorted(str(p.relative_to(REPOSITORY)) for folder in objects.SOURCES
                   for p in (REPOSITORY / folder).glob("*.rs"))
    tree = _output(*KDIR, "tree").strip()
    status, _ = out.stream([*KDIR, "run", "rustfmt", "--check", "--edition", "2021", "--config-path",
                            f"{tree}/.rustfmt.toml", *roots])
    total = out.one("lint.rustfmt-kernel", status)
    crates = _crates()
    status, _ = out.stream([*KDIR, "build", "CLIPPY=1", LINT_FLAGS, *crates],
                           {"KDIR_OUTPUT": f"{_paths()['modules']}-clippy"})
    return total + out.one("lint.clippy-kernel", status or not crates)


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


def _guests(tier: str) -> Callable[[Output], Counts]:
    """The guests' image, and the saved machines that nearly all tests wake from."""
    command = [*PYTHON, "tools/vmlab", "prepare", *(["--long"] if tier == LONG else [])]
    return lambda out: out.one("guests.prepared", out.stream(command)[0])


def _objects(out: Output) -> Counts:
    total = Counts()
    for name, complaints in [*objects.check(REPOSITORY, KDIR), *examples.check(REPOSITORY, KDIR)]:
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
    labs = min(2, os.cpu_count() or 1)
    # Of machines with one processor each, three labs load two processors less than two labs of two each.
    memory_mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    light = int(labs > 1 and memory_mib >= LIGHT_MEMORY_MIB)
    command = [*before, *PYTHON, "tools/vmlab", "run", "--labs", str(labs), "--light", str(light), *words]
    return lambda out: out.closing(*out.stream(command))


def _speed(out: Output) -> Counts:
    """Compares the cost of an IO with tools/bench/limits.toml: counts of events, which no load of the host changes."""
    return out.closing(*out.stream([*PYTHON, "tools/bench", "--limits"]))


def _debug_kernel(out: Output) -> Counts:
    """The tests that fit into it, and every allocation that fails."""
    status, lines = out.stream([*KDIR, "debug", *PYTHON, "tools/vmlab", "run", *DEBUG_TESTS],
                               {"VMLAB_FAULT_STEP": "1"})
    return out.closing(status, lines)


@dataclasses.dataclass
class Plan:
    """The stages of a tier (schedule.py); `held` is what keeps virtual machines from using all processors until the
    other stages have ended."""

    stages: tuple[Stage, ...]
    held: hold.Hold | None = None


def _more() -> list[Stage]:
    """Stages that ALL has beyond TEST and that need no virtual machine."""
    return [Stage("documentation", _documentation, (BUILD,)), Stage("fuzz targets", _fuzz_targets)]


def _host(tier: str) -> list[Stage]:
    """Stages without virtual machines; first those that others wait for. A fresh machine's root and kernel tree are
    made by the build, beside the stages that need neither."""
    build = [] if tier == CHECK else [Stage(BUILD, _build)]
    built = [] if tier == CHECK else [Stage("objects", _objects, (BUILD,)), Stage("native", _native, (BUILD,))]
    more = _more() if tier in (ALL, LONG) else []
    guests = [] if tier == CHECK else [Stage(GUESTS, _guests(tier))]
    lives = [*_lives(), Stage("properties", _properties)] if tier == LONG else []
    # Counts of events, which what runs beside it does not change.
    speed = [Stage("speed", _speed, (BUILD, GUESTS))] if tier != CHECK else []
    return [*build, Stage("tidy", _tidy), Stage("unit tests of the tools", _python_units),
            Stage("lint of the tools", _python_lint), *guests, Stage("protocol code on the host", _cargo_tests(tier)),
            *speed, Stage("lint of the modules", _kernel_lint, (BUILD,)), Stage("simulation", _simulation(tier)),
            Stage("lint of the host's Rust", _host_lint), *built, *more, *lives]


def plan(tier: str, patterns: list[str], host_only: bool = False) -> Plan:
    """The stages of a tier; with patterns only those tests in virtual machines and what they need."""
    if tier == MUTANTS:
        return Plan((Stage("mutants", _mutants(patterns)),))
    if tier == RULES:
        return Plan((Stage(DRIVERS, _rules(patterns)),))
    ready = (BUILD, GUESTS)
    if patterns:
        return Plan((Stage(BUILD, _build), Stage(MACHINES, _machines(*patterns), (BUILD,), beside=True)))
    if tier == REST:
        return Plan((Stage(BUILD, _build), Stage(GUESTS, _guests(tier)), *_more(), Stage("lives of arrays", _arrays),
                     Stage(MACHINES, _machines("--tier", tier), ready, beside=True)))
    host = _host(tier)
    if tier == CHECK or host_only:
        return Plan(tuple(stage for stage in host if stage.name not in (GUESTS, "speed")))
    if tier == LONG:
        after = tuple(stage.name for stage in host)
        return Plan((*host, Stage(MACHINES, _machines("--long", "--repeat", str(REPEATS[LONG])), after, beside=True),
                     Stage(DRIVERS, _rules([]), (*after, MACHINES), beside=True),
                     Stage("virtual machines, debug kernel", _debug_kernel, (*after, MACHINES, DRIVERS), beside=True)))
    held = hold.Hold()
    machines = _machines("--tier", TIERS[tier], "--hold", held.name)
    return Plan((*host, Stage(MACHINES, machines, ready, beside=True)), held)
