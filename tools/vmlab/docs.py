# SPDX-License-Identifier: GPL-2.0
"""The documents as tests see them: blocks of commands, figures and transcripts.

An indented block is a figure, something printed, or commands for the host or for machines. Commands of the host are
known by their first word; every other block is told apart by a comment above it, which no reader sees:

    <!-- on: server -->     commands for the server; also client, both
    <!-- figure -->         nothing to run
    <!-- printed -->        what the commands above print

A block that is none of these is an error, so no command is added that no test runs (tests/documentation.py runs those
of the machines, unit/test_docs.py looks at those of the host).
"""
from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
MACHINES = ("server", "client", "both")
PLACES = ("host", *MACHINES, "figure", "printed")
HINT = re.compile(r"<!-- (?:on: (\w+)|(figure|printed)) -->")
HOST = re.compile(r"(sudo )?make |python3 tools/|cargo |cd tools/")
# Names that the kernel gives to states of work requests.
KERNEL_WORDS = ("transport retry counter exceeded",)
REMARK = re.compile(r"\s{2,}\S.*$| +# .*$")


@dataclass(frozen=True)
class Block:
    """One block: where it stands and what it says. `place` is one of PLACES, "" when no rule covers it."""

    file: str
    line: int
    place: str
    lines: tuple[str, ...]

    @property
    def where(self) -> str:
        """The place, for messages."""
        return f"{self.file}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """The lines without the remarks beside them."""
        return [command for line in self.lines if (command := REMARK.sub("", line).strip())]


def documents() -> list[str]:
    """Documents that users read, as paths of the repository."""
    pages = sorted(path.relative_to(REPOSITORY) for path in (REPOSITORY / "Documentation").rglob("*.md"))
    return ["README.md", *map(str, pages)]


def _place(hint: str, lines: list[str]) -> str:
    """A hint decides; without one only commands of the host explain themselves."""
    if hint:
        return hint if hint in PLACES else ""
    return "host" if lines and all(HOST.match(line) for line in lines if line) else ""


def parse(file: str, text: str) -> Iterator[Block]:
    """The blocks of a document, indented or fenced, in their order."""
    hint, began, fence = "", 0, False
    held: list[str] = []
    for number, line in enumerate([*text.splitlines(), "end"], 1):
        if line.startswith("```") or (not fence and held and line.strip() and not line.startswith("    ")):
            while held and not held[-1]:
                held.pop()
            if held:
                yield Block(file, began, _place(hint, held), tuple(held))
                hint, held = "", []
            fence = line.startswith("```") and not fence
        if line.startswith("```"):
            continue
        if match := HINT.fullmatch(line):
            hint = match[1] or match[2]
        elif fence or line.startswith("    ") or (held and not line):
            began = began if held else number
            held.append(line if fence else line[4:])
        elif line:
            hint = ""


def blocks(file: str) -> list[Block]:
    """The blocks of one document of the repository."""
    return list(parse(file, (REPOSITORY / file).read_text(encoding="utf-8")))


def sysfs_paths(text: str) -> set[str]:
    """Files of /sys that a document names, as shell patterns: <session>, the N of rnbdN and a server's device stand for
    any. In the ABI's documents `...` stands for the beginning of the folder that was named before."""
    found, folder = set(), ""
    text = re.sub(r"rnbd\*?N\b", "rnbd*", re.sub(r"<[^<>\n]*>|(?<=/ctl/devices/)\w+", "*", text))
    for path in re.findall(r"(?:/sys/(?:class|block|devices|module)|(?<=What:\t\t)\.\.\.)/[\w/*.@-]*[\w*]/?", text):
        same = path.removeprefix("...").split("/")[1]
        whole = path.replace("...", folder.partition(f"/{same}/")[0], 1) if path.startswith("...") else path
        folder = whole.rstrip("/") if path.endswith("/") else folder
        found.add(whole.rstrip("/"))
    return found


def messages(text: str) -> list[str]:
    """The messages in the first columns of a document's tables, without those of other programs."""
    cells = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `")]
    spans = [span for cell in cells for span in re.findall(r"`([^`]*)`", cell)]
    return [span for span in spans if not span.startswith(("insmod: ", "rmmod: "))]


def unsaid(message: str, sources: str) -> list[str]:
    """Pieces of a message, between what varies in it, that no source says."""
    pieces = re.split(r"\.\.\.|<[^>]*>|\bN\b|\bE[A-Z]{3,}\b|[^ ]*=?\d+|[,:] ?|[()]", message)
    words = [piece.strip(" .") for piece in pieces]
    return [piece for piece in words if " " in piece and piece not in KERNEL_WORDS and not _is_said(piece, sources)]


def _is_said(piece: str, sources: str) -> bool:
    """Tells whether a source says it as one literal or as two, of at least two words each: one that says what, one that
    says what of it."""
    words = piece.split()
    return piece in sources or any(" ".join(words[:cut]) in sources and " ".join(words[cut:]) in sources
                                   for cut in range(2, len(words) - 1))


def sources() -> str:
    """All that our programs and modules may say, as one text without the line breaks of long literals."""
    files = [path for folder in ("lib", "rioc", "rnbd", "rnbd_ec", "rtrs", "tools/libioc/src",
                                 "tools/rioc-tool/src")
             for path in (REPOSITORY / folder).rglob("*.rs")]
    files += [*(REPOSITORY / "tools/kdir").glob("*.py"), REPOSITORY / "tools/setup"]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(files))
    return re.sub(r"\s+", " ", re.sub(r"\\\n\s*|\"\s*\n\s*f?\"", "", text))


# -- commands of the host ------------------------------------------------------------------------------------

@cache
def _help(program: str, command: str) -> str | None:
    """The help of a program of tools/, or of one of its commands; None if it does not know it."""
    asked = subprocess.run([sys.executable, "-B", program, *([command] if command else []), "--help"], cwd=REPOSITORY,
                           capture_output=True, text=True, check=False)
    return asked.stdout if asked.returncode == 0 else None


def _python(words: list[str]) -> str:
    program, *rest = words
    if not (REPOSITORY / program).exists():
        return f"there is no {program}"
    rest = [word.strip("[]") for word in rest]
    command = rest[0] if rest and not rest[0].startswith("-") else ""
    known = _help(program, command)
    if known is None:
        return f"{program} does not know {command!r}"
    unknown = [word for word in rest if word.startswith("-") and not re.search(rf"(?<![\w-]){word}(?![\w-])", known)]
    return f"{program} {command} does not know {' '.join(unknown)}" if unknown else ""


def _make(words: list[str]) -> str:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    for word in words:
        name, is_setting, _value = word.partition("=")
        pattern = rf"^{re.escape(name)} *[?:]?=" if is_setting else rf"^{re.escape(name)}:"
        if not re.search(pattern, makefile, re.M):
            return f"the Makefile has no {name}"
    return ""


def _cargo(words: list[str]) -> str:
    names = {path.name for path in (REPOSITORY / "tools").iterdir()}
    if words[0] == "fuzz":      # needs a nightly toolchain, which no test machine has
        return "" if list((REPOSITORY / "tools/fuzz/targets").glob("*.rs")) else "there are no fuzz targets"
    package = words[words.index("-p") + 1]
    return "" if package.removeprefix("ferrofabric-") in names else f"there is no package {package}"


def complaint(command: str) -> str:
    """The fault of a command of the host, "" if it exists with all its options."""
    for part in command.split(" && "):
        words = shlex.split(part.removeprefix("sudo "))
        while "=" in words[0]:
            words.pop(0)
        match words:
            case ["cd", folder]:
                wrong = "" if (REPOSITORY / folder).is_dir() else f"there is no {folder}"
            case ["make", *rest]:
                wrong = _make(rest)
            case ["python3", *rest]:
                wrong = _python(rest)
            case ["cargo", *rest]:
                wrong = _cargo(rest)
            case _:
                wrong = "no rule covers it"
        if wrong:
            return wrong
    return ""


def chosen_tests(command: str) -> list[str]:
    """The patterns by which a command chooses tests."""
    words = shlex.split(command)
    if words[:2] in (["make", "mutants"], ["make", "rules"]):
        return []       # its ONLY names files
    only = next((word.removeprefix("ONLY=").split() for word in words if word.startswith("ONLY=")), [])
    return only + [word for before, word in pairwise(words) if before == "--only"] + [
        word for word in words[1:] if re.fullmatch(r"\w+\.\S*\*", word)]


# -- transcripts ---------------------------------------------------------------------------------------------

def _without_figures(text: str) -> str:
    """Numbers, the kind of emulation and line breaks differ from run to run; the words do not."""
    text = re.sub(r"\((tcg|kvm)\)", "(accel)", text)
    return " ".join(re.sub(r"\d+(\.\d+)*", "#", text).split())


def transcript_errors(shown: str, printed: str) -> list[str]:
    """Pieces of a transcript, between its `...`, that `printed` does not have in this order."""
    missing, rest = [], _without_figures(printed)
    pieces = re.split(r"^\s*\.\.\.$", shown, flags=re.M)
    for piece in map(_without_figures, pieces):
        _before, found, after = rest.partition(piece)
        if piece and not found:
            missing.append(piece)
        elif piece:
            rest = after
    return missing
