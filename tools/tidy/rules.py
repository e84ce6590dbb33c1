# SPDX-License-Identifier: GPL-2.0
"""Rules that hold for every file. A rule takes all sources and returns its complaints."""
import ast
import pathlib
import re
from collections.abc import Iterator

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
CODE = {".rs", ".py", ".c", ".h", ".mk", ".sh"}
NAMED_CODE = {"Makefile", "Kbuild"}
# Written by tools, not by people.
GENERATED = {"Cargo.lock"}


class Source:
    """One file: where it is and what it says."""

    def __init__(self, path: pathlib.Path, data: bytes) -> None:
        self.path, self.data = path, data
        self.text = data.decode("utf-8", errors="replace")
        self.lines = self.text.splitlines()

    @property
    def is_code(self) -> bool:
        """Whether the code rules apply: by its ending, its name or its interpreter line."""
        return (self.path.suffix in CODE or self.path.name in NAMED_CODE
                or (not self.path.suffix and self.text.startswith("#!")))


def crate(path: pathlib.Path) -> str:
    """The folder of the crates that a file belongs to: products are at the top, what they stand on in lib/, what tests
    them in test/."""
    return "/".join(path.parts[:2 if path.parts[0] in ("lib", "test") else 1])


def _each(sources: list[Source], code_only: bool = True) -> Iterator[Source]:
    for source in sources:
        if source.path.name not in GENERATED and (source.is_code or not code_only):
            yield source


def spdx_first(sources: list[Source]) -> list[str]:
    """The licence is the first thing a code file says (after an interpreter line)."""
    return [f"{s.path}: no SPDX line" for s in _each(sources)
            if not any("SPDX-License-Identifier: GPL-2.0" in line for line in s.lines[:2])]


def file_length(sources: list[Source]) -> list[str]:
    """A file is one noun: at most 500 lines."""
    return [f"{s.path}: {len(s.lines)} lines" for s in _each(sources) if len(s.lines) > FILE_LINES_MAX]


def python_function_length(sources: list[Source]) -> list[str]:
    """A function is read at one glance: at most 70 lines."""
    complaints = []
    for source in _each(sources):
        if source.path.suffix != ".py":
            continue
        for node in ast.walk(ast.parse(source.text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > FUNCTION_LINES_MAX:
                    complaints.append(f"{source.path}:{node.lineno}: {node.name} has {length} lines")
    return complaints


def plain_text(sources: list[Source]) -> list[str]:
    """UTF-8, no control characters, no trailing blanks, one newline at the end."""
    complaints = []
    for source in _each(sources, code_only=False):
        try:
            source.data.decode("utf-8")
        except UnicodeDecodeError:
            complaints.append(f"{source.path}: not UTF-8 text")
            continue
        if source.data and not source.data.endswith(b"\n"):
            complaints.append(f"{source.path}: no newline at the end")
        for number, line in enumerate(source.lines, 1):
            if line != line.rstrip() or re.search(r"[\x00-\x08\x0b-\x1f\x7f]", line):
                complaints.append(f"{source.path}:{number}: trailing blank or control character")
    return complaints


# Assembled from pieces, so that this file does not break its own rule.
_MACHINE_PATHS = re.compile(r"(?<![.\w$}-])/(?:" + "|".join(["work", "root", "farm", "home/\\w+"]) + r")/")
_WEB = re.compile("http" + r"s?://(?!www\.gnu\.org/|json-schema\.org/)")


def no_foreign_paths(sources: list[Source]) -> list[str]:
    """No path of one machine and no address of a host: they are true nowhere else."""
    complaints = []
    for source in _each(sources, code_only=False):
        if source.path.name == "COPYING":
            continue
        for number, line in enumerate(source.lines, 1):
            if _MACHINE_PATHS.search(line) or _WEB.search(line):
                complaints.append(f"{source.path}:{number}: {line.strip()[:80]}")
    return complaints


_FORBIDDEN = re.compile(r"\b(" + "|".join(["FIX" + "ME", "XX" + "X", "TO" + "DO(?!\\[)", "HA" + "CK"]) + r")\b")


def no_loose_ends(sources: list[Source]) -> list[str]:
    """What is left to do is an issue or a coded entry, not a remark in passing."""
    return [f"{s.path}:{n}: {line.strip()[:80]}" for s in _each(sources)
            for n, line in enumerate(s.lines, 1) if _FORBIDDEN.search(line)]


RULES = [spdx_first, file_length, python_function_length, plain_text, no_foreign_paths, no_loose_ends]
