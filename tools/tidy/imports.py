# SPDX-License-Identifier: GPL-2.0
"""Rule for the imports inside the drivers: from the module down to the requests, and upwards only by name."""
import pathlib
import re
from collections.abc import Iterator

from layers import CIRCLE_MAX, CIRCLES, DRIVERS, REPORTS, Layers
from rules import Source, crate

_USE = re.compile(r"^ *(?:pub(?:\([a-z ]*\))? )?use ([^;]+);", re.M)
_PATH = re.compile(r"(?<![\w:$])((?:crate|self|super)(?:::\w+)+)")


def _items(tree: str) -> Iterator[str]:
    """The paths of a use tree without white space."""
    head, brace, rest = tree.partition("{")
    if not brace:
        yield tree
        return
    depth, item = 0, ""
    for letter in rest[:-1] + ",":
        if letter == "," and depth == 0:
            if item:
                yield from (head + path for path in _items(item))
            item = ""
            continue
        depth += {"{": 1, "}": -1}.get(letter, 0)
        item += letter


def _absolute(path: str, module: list[str]) -> list[str]:
    """The parts of a path as seen from the crate's root, of one that a file with the module `module` writes."""
    parts, base = path.split("::"), module
    if parts[0] == "crate":
        return parts[1:]
    if parts[0] == "self":
        parts = parts[1:]
    while parts and parts[0] == "super":
        parts, base = parts[1:], base[:-1]
    return base + parts


def _named(source: Source, module: list[str]) -> Iterator[list[str]]:
    """The items of the crate that a file names: in its imports, and by paths in its code."""
    code = re.sub(r'//.*|"(?:\\.|[^"\\])*"', "", source.text)
    for match in _USE.finditer(code):
        for item in _items(re.sub(r"\s+", "", match.group(1))):
            if re.match(r"(crate|self|super)::", item):
                yield _absolute(item.removesuffix("::self"), module)
    for path in _PATH.findall(_USE.sub("", code)):
        yield _absolute(path, module)


def _module(path: pathlib.Path) -> list[str]:
    """The module that a file is, from the root of its crate."""
    return list(path.with_suffix("").parts[crate(path).count("/") + 1:])


def _layer(name: str, layers: Layers) -> int | None:
    return next((number for number, names in enumerate(layers) if name in names.split()), None)


def upward(source: Source, folder: str) -> set[str]:
    """Names of a higher layer of the driver in a file below its folder, from the driver on."""
    above, module, layers = set(), _module(source.path), DRIVERS[folder]
    driver = _module(pathlib.Path(folder))
    own = _layer(module[len(driver)], layers)
    for item in _named(source, module):
        if item[:len(driver)] == driver and len(item) > len(driver) and own is not None:
            layer = _layer(item[len(driver)], layers)
            if layer is not None and layer > own:
                above.add("::".join(item[len(driver):]))
    return above


def imports_run_one_way(sources: list[Source]) -> list[str]:
    """A lower layer knows a higher one only by the reports listed; none of them is there without need."""
    complaints, listed = [], {(path, item) for path, items in REPORTS.items() for item in items}
    for folder in DRIVERS:
        for source in sources:
            if source.path.suffix == ".rs" and str(source.path).startswith(f"{folder}/"):
                for item in sorted(upward(source, folder)):
                    if item not in REPORTS.get(str(source.path), set()):
                        complaints.append(f"{source.path}: imports {item}")
                    listed.discard((str(source.path), item))
    return complaints + [f"{path}: {item} is listed and not imported" for path, item in sorted(listed)]


def files_have_layers(sources: list[Source]) -> list[str]:
    """Each file and folder of a driver is in its table of layers, and the table names no other."""
    complaints = []
    for folder, layers in DRIVERS.items():
        depth = folder.count("/") + 1
        there = {s.path.with_suffix("").parts[depth] for s in sources
                 if s.path.suffix == ".rs" and str(s.path).startswith(f"{folder}/")}
        named = {name for names in layers for name in names.split()}
        complaints += [f"{folder}: {name} has no layer" for name in sorted(there - named)]
        complaints += [f"{folder}: there is no {name}" for name in sorted(named - there)]
    return complaints


def _within(sources: list[Source], folder: str) -> dict[str, set[str]]:
    """What each file or folder of a driver's folder names of the others there."""
    driver = _module(pathlib.Path(folder))
    names: dict[str, set[str]] = {}
    for source in sources:
        if source.path.suffix == ".rs" and str(source.path).startswith(f"{folder}/"):
            module = _module(source.path)
            named = names.setdefault(module[len(driver)], set())
            named |= {item[len(driver)] for item in _named(source, module)
                      if item[:len(driver)] == driver and len(item) > len(driver)}
    return {name: {other for other in others if other in names} - {name} for name, others in names.items()}


def _reached(names: dict[str, set[str]], start: str) -> set[str]:
    reached, todo = set[str](), [start]
    while todo:
        new = names[todo.pop()] - reached
        reached |= new
        todo += new
    return reached


def circles_are_small(sources: list[Source]) -> list[str]:
    """The files of a folder that cannot be understood one without the other are few; larger circles do not grow."""
    complaints = []
    for folder in DRIVERS:
        names = _within(sources, folder)
        reached = {name: _reached(names, name) for name in names}
        circles = [sorted(other for other in reached[name] if name in reached[other]) for name in names]
        circle = max(circles, key=len, default=[])
        largest = len(circle)
        allowed = CIRCLES.get(folder, CIRCLE_MAX)
        if largest > allowed:
            complaints.append(f"{folder}: a circle of {largest}: {', '.join(circle)}")
        elif folder in CIRCLES and largest < allowed:
            complaints.append(f"{folder}: its largest circle has {largest} files: lower the {allowed} of CIRCLES")
    return complaints


RULES = [imports_run_one_way, files_have_layers, circles_are_small]
