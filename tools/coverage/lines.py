# SPDX-License-Identifier: GPL-2.0
"""Finds the lines of the sources that were reached, and the functions that were not.

A line is reached if one of the instructions that the compiler has made of it was executed, wherever it was inlined.
Functions that were not compiled (of generics: for no type) are in no list.
"""
from __future__ import annotations

import collections
import itertools
import os
import pathlib
import re
import subprocess

from blocks import Module

# {file: {line: whether it was reached}}
Reached = dict[str, dict[int, bool]]

_ROW = re.compile(r"\S+\s+(\d+|-)\s+0x([0-9a-f]+)")
_FUNCTION = re.compile(r"^(\s*)(?:pub(?:\([^)]*\))? )?(?:const |async |unsafe |extern \"C\" )*fn (\w+)")


def table(module: Module, repository: pathlib.Path) -> list[tuple[int, int, str, int]]:
    """(from, to, file, line) of the instructions of a module that come from the sources of the repository."""
    text = subprocess.run(["objdump", "--dwarf=decodedline", str(module.path)], capture_output=True, text=True,
                          check=True).stdout
    rows: list[tuple[int, int, str, int]] = []
    sequence: list[tuple[int, str, int]] = []
    file = ""
    for line in text.splitlines():
        if line.endswith(":") and not line.startswith("CU:"):
            file = line[:-1].removeprefix(f"{repository}/").removeprefix("./")
        elif match := _ROW.match(line):
            sequence.append((int(match[2], 16), file, 0 if match[1] == "-" else int(match[1])))
            if match[1] == "-":
                if sequence[-1][0] not in module.other_sizes:
                    rows += [(here[0], after[0], here[1], here[2])
                             for here, after in itertools.pairwise(sequence)]
                sequence = []
    return [row for row in rows if row[3] and not row[2].startswith("/")]


def reached(modules: list[Module], repository: pathlib.Path) -> Reached:
    """The lines of all modules."""
    found: Reached = collections.defaultdict(dict)
    for module in modules:
        for start, end, file, line in table(module, repository):
            if (repository / file).is_file():
                found[file][line] = found[file].get(line, False) or any(module.executed[start:max(end, start + 1)])
    return found


def lcov(text: str, repository: pathlib.Path) -> Reached:
    """The lines of a report in lcov's format."""
    found: Reached = collections.defaultdict(dict)
    file = ""
    for line in text.splitlines():
        if line.startswith("SF:"):
            file = os.path.normpath(line[3:]).removeprefix(f"{repository}/")
        elif line.startswith("DA:") and not file.startswith("/"):
            number, count = line[3:].split(",")[:2]
            found[file][int(number)] = found[file].get(int(number), False) or int(count) > 0
    return found


def merged(one: Reached, other: Reached) -> Reached:
    """Lines that either has reached."""
    found: Reached = collections.defaultdict(dict)
    for part in (one, other):
        for file, rows in part.items():
            for line, hit in rows.items():
                found[file][line] = found[file].get(line, False) or hit
    return found


def functions(source: str) -> list[tuple[str, int, int]]:
    """(name, first line, last line) of each function, as rustfmt has laid them out."""
    rows = source.splitlines()
    found = []
    for number, row in enumerate(rows):
        if not (match := _FUNCTION.match(row)):
            continue
        ends = (end for end in range(number, len(rows))
                if rows[end] == f"{match[1]}}}" or (end == number and row.endswith("}")))
        stops = next((end for end in range(number, len(rows)) if rows[end].endswith((";", "{", "}"))), number)
        if not rows[stops].endswith(";"):
            found.append((match[2], number + 1, next(ends, number) + 1))
    return found


def unreached(file: str, rows: dict[int, bool], repository: pathlib.Path) -> list[str]:
    """The functions of a file that have code, of which nothing was reached."""
    found = []
    for name, first, last in functions((repository / file).read_text(encoding="utf-8")):
        hits = [hit for line, hit in rows.items() if first <= line <= last]
        if hits and not any(hits):
            found.append(f"{file}:{first} {name}")
    return found
