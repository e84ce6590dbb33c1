# SPDX-License-Identifier: GPL-2.0
"""Attributes the instructions of a module to functions of the sources, also where the compiler has inlined them."""
from __future__ import annotations

import pathlib
import re
import subprocess
from collections import Counter
from collections.abc import Mapping

from counting import Symbols

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
# Arguments of a type or function; an implementation of a trait, and one of a type alone.
GENERIC = re.compile(r"(?<=\w)(?:::)?<[^<>]*>|<[^<>]* as ([^<>]*)>|<([^<>]*)>")


def plain(function: str) -> str:
    """A function's name without generic arguments: `<rdma::qp::Qp<T>>::post` becomes `rdma::qp::Qp::post`, and `<A as
    B<T>>::f` becomes `B::f`."""
    function = function.replace("->", "")
    while (shorter := GENERIC.sub(lambda match: match[1] or match[2] or "", function)) != function:
        function = shorter
    return function


def own_function(chain: list[tuple[str, str]]) -> str:
    """The innermost function of this tree in a chain of inlined functions with their places, innermost first."""
    own = [function for function, place in chain if place.startswith(f"{REPOSITORY}/")]
    return plain((own or [chain[-1][0] if chain else "?"])[0])


def chains(printed: str) -> dict[int, list[tuple[str, str]]]:
    """Parses the output of `addr2line -a -f -i`, by address."""
    found = {}
    for block in re.split(r"^0x", printed, flags=re.MULTILINE)[1:]:
        at, *lines = block.splitlines()
        found[int(at, 16)] = list(zip(lines[::2], lines[1::2], strict=False))
    return found


def _offset(file: pathlib.Path, places: Mapping[str, int]) -> int | None:
    """Returns the distance from 0 at which the guest has loaded a module's text: by most of its functions, as those of
    other sections are elsewhere."""
    votes: Counter[int] = Counter()
    for line in subprocess.run(["nm", file], capture_output=True, text=True, check=True).stdout.splitlines():
        fields = line.split()
        if len(fields) == 3 and fields[1] in "tT" and fields[2] in places:
            votes[places[fields[2]] - int(fields[0], 16)] += 1
    return votes.most_common(1)[0][0] if votes else None


def by_source(counts: Mapping[str, Mapping[int, float]], symbols: Symbols, modules: pathlib.Path) -> dict[str, float]:
    """Instructions by function of the sources, of counts by module and address; `modules` is the files' folder."""
    totals: dict[str, float] = {}
    for module, executed in counts.items():
        file = next(path for name in (module, module.replace("_", "-")) if (path := modules / f"{name}.ko").exists())
        offset = _offset(file, symbols.bounds(module))
        if offset is None:
            continue
        asked = "".join(f"{at - offset:#x}\n" for at in executed)
        answer = subprocess.run(["addr2line", "-e", file, "-j", ".text", "-a", "-f", "-i", "-C"], input=asked,
                                capture_output=True, text=True, check=True).stdout
        found = chains(answer)
        for at, times in executed.items():
            function = own_function(found.get(at - offset, []))
            totals[function] = totals.get(function, 0.0) + times
    return totals
