# SPDX-License-Identifier: GPL-2.0
"""Summaries for people: the lines of a failure that tell most, and the command that repeats it."""
from __future__ import annotations

import argparse
import os
import re
import shlex

LINES_MAX = 10
WIDTH_MAX = 200
WHAT_FAILED = "what failed:"
# From the most telling kind to the least one: what a kernel or the judge says, failed expectations, what a compiler
# or a test program says and the calls that led a kernel to its death, lines of a log about something that went wrong.
# Lines of no kind come last.
KINDS = tuple(map(re.compile, (
    r"\b(kernel|replay): |left behind|machine died|WARNING|\bBUG\b|Oops|KASAN|panicked|Kernel panic|"
    r"general protection|RIP: 0010:",
    r"^(not ok|FAIL|ERROR|FAILED|error|warning)\b|^at \S+:\d+|Error\b|expected|assert|: error|"
    r"\w\+0x[0-9a-f]+/0x",
    r"\b(fail\w*|refus\w*|reject\w*|time[- ]?out|lost|clos(ed|ing)|cannot|E(?!FLAGS)[A-Z]{3,})\b")))
COLUMN = re.compile(r"^#? *")


def _rank(number: int, line: str, count: int) -> tuple[int, int]:
    """The order of lines: the first one of all, its kind, then its place: of a log, the end tells more."""
    kind = next((kind for kind, pattern in enumerate(KINDS) if pattern.search(line)), len(KINDS))
    if number == 0:
        return -1, 0
    return kind, number if kind < 2 else count - number


def lines(text: str) -> list[str]:
    """The lines that tell most, ten at most, in their order."""
    told = [COLUMN.sub("", line).rstrip()[:WIDTH_MAX] for line in text.splitlines()]
    told = list(dict.fromkeys(line for line in told if line))
    best = sorted(range(len(told)), key=lambda number: _rank(number, told[number], len(told)))
    return [told[number] for number in sorted(best[:LINES_MAX])]


def command(name: str, options: argparse.Namespace, said: str = "") -> str:
    """The command that repeats a test in virtual machines, as it was run; `said` is what it printed, its seed among it.
    The unload at the end of a group belongs to all tests of its file."""
    file, _, test = name.partition("#")[0].partition(".")
    wanted = f"{file}.*" if test.startswith("unload_") else f"{file}.{test}"
    words = ["python3", "tools/vmlab", "run", wanted]
    words += ["--long"] if options.long else []
    words += ["--modules", options.modules] if options.modules != "ours" else []
    words += ["--append", options.append] if options.append else []
    if os.environ.get("VMLAB_DEBUG"):
        words[:0] = ["python3", "tools/kdir", "debug"]
    seed = re.search(r"VMLAB_SEED=\d+", said)
    return f"{seed[0] + ' ' if seed else ''}{shlex.join(words)}"


def block(failures: list[tuple[str, str, str]]) -> list[str]:
    """Lines for the end of a run, of each failure (its name, its report and its command)."""
    told = [WHAT_FAILED] if failures else []
    for name, why, repeat in failures:
        told += [f"  {name}", *(f"      {line}" for line in lines(why)), *([f"    repeat: {repeat}"] if repeat else [])]
    return told
