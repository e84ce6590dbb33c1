# SPDX-License-Identifier: GPL-2.0
"""Rules about what users see of the modules: a page says it of each name, and names nothing that is gone."""
import pathlib
import re
from collections.abc import Iterator

from rules import Source

PAGES = "Documentation"
PARAMETERS = pathlib.Path("Documentation/ABI/testing/module-parameters")
MAP_DEVICE = pathlib.Path("Documentation/ABI/testing/sysfs-class-rnbd-client")
GFARM = pathlib.Path("Documentation/gfarm.md")
# The pages of modules that are no part of the product.
SAMPLES = {"samples/crc32_umr": pathlib.Path("Documentation/crc32-umr.md"),
           "test/test_device": pathlib.Path("Documentation/testing.md")}
DRIVERS = ("rtrs", "rnbd", "rnbd_ec", "rioc")
# Whose lines of the log a page explains.
LOGGING = ("gfarm_ra", "lib", "rioc", "rnbd", "rnbd_ec", "rtrs")
# A shorter part of a line tells it from no other.
PART_MIN = 12

_PARAMETER = re.compile(r'module_param_(?:bool|int|ranged|word|string)!\(\s*(?:pub(?:\(\w+\))? )?\w+[^"]*"(\w+)"')
_PARAMETER_FILE = re.compile(r"^What:\s+/sys/module/\w+/parameters/(\w+)$", re.M)
_SYSFS = re.compile(r'(?:Attribute::\w+|setting::<[^(]*>|attribute|Link::new|Directory::new)\([^;]*?c"(\w+)"')
_PROC = re.compile(r'\bFile::(?:new|writable)\([^;]*?c"(\w+)"')
_WHAT = re.compile(r"^What:\s+(\S+)$", re.M)
_ARM = re.compile(r'^ +Self::\w+ => "(\w+)"', re.M)
_NAMED = re.compile(r'^ +b"(\w+)" =>', re.M)
_LINE = re.compile(r'\bpr_(?:err|warn)!\(\s*"((?:\\.|[^"\\])*)"', re.S)
_COMMENT = re.compile(r"^\s*//.*$", re.M)
_JOINED = re.compile(r"\\\n\s*")
_FIELD = re.compile(r"\{[^{}]*\}|`")


def _rust(sources: list[Source], folders: tuple[str, ...]) -> Iterator[tuple[Source, str]]:
    """The Rust files of folders, without comments and with strings on one line."""
    for source in sources:
        if source.path.suffix == ".rs" and str(source.path).startswith(tuple(f"{folder}/" for folder in folders)):
            yield source, _JOINED.sub("", _COMMENT.sub("", source.text))


def _text(sources: list[Source], path: pathlib.Path) -> str:
    return next((s.text for s in sources if s.path == path), "")


def parameters_are_documented(sources: list[Source]) -> list[str]:
    """Each parameter of a module has its page, and the page of the drivers' parameters names no other."""
    described, complaints = _PARAMETER_FILE.findall(_text(sources, PARAMETERS)), []
    found = set()
    for source, text in _rust(sources, DRIVERS):
        for name in _PARAMETER.findall(text):
            found.add(name)
            if name not in described:
                complaints.append(f"{PARAMETERS}: {name} of {source.path}")
    complaints += [f"{PARAMETERS}: there is no parameter {name}" for name in described if name not in found]
    for folder, page in SAMPLES.items():
        complaints += [f"{page}: the parameter {name} of {source.path}" for source, text in _rust(sources, (folder,))
                       for name in _PARAMETER.findall(text)
                       if not re.search(rf"(?<!\w){name}=|`{name}`", _text(sources, page))]
    return complaints


def sysfs_is_documented(sources: list[Source]) -> list[str]:
    """Each file of the drivers in sysfs is in Documentation/ABI, which names no other; those of /proc are in a page."""
    paths = [path.rstrip("/").split("/") for s in sources if s.path.parent == PARAMETERS.parent and s.path != PARAMETERS
             for path in _WHAT.findall(s.text) if not path.startswith("/dev/")]
    described, last = {name for path in paths for name in path}, {path[-1] for path in paths}
    found = {(name, s.path) for s, text in _rust(sources, (*DRIVERS, "lib/block")) for name in _SYSFS.findall(text)}
    names = {name for name, _path in found}
    complaints = [f"{PARAMETERS.parent}: {name} of {path}" for name, path in sorted(found) if name not in described]
    complaints += [f"{PARAMETERS.parent}: there is no file {name}" for name in sorted(last - names)
                   if not name.endswith(">")]
    return complaints + [f"{GFARM}: {name} of {s.path}" for s, text in _rust(sources, ("gfarm_ra",))
                         for name in _PROC.findall(text) if f"`{name}`" not in _text(sources, GFARM)]


def options_are_documented(sources: list[Source]) -> list[str]:
    """The page of map_device has each of its options. (Those of a mount: tools/mount/tests/mount/manual.rs.)"""
    page, complaints = _text(sources, MAP_DEVICE), []
    for file, pattern in (("rnbd/proto/map.rs", _NAMED), ("rtrs/proto/settings.rs", _ARM)):
        names = pattern.findall(_text(sources, pathlib.Path(file)))
        if not names:
            complaints.append(f"{file}: no names are found")
        complaints += [f"{MAP_DEVICE}: {name} of {file}" for name in names if f"{name}=" not in page]
    return complaints


def log_lines_are_documented(sources: list[Source]) -> list[str]:
    """Each error and warning of the modules is in a page: its longest part without figures and names."""
    pages = re.sub(r"\s+", " ", " ".join(s.text for s in sources if s.path.parts[0] == PAGES))
    complaints = []
    for source, text in _rust(sources, LOGGING):
        for line in _LINE.findall(text):
            parts = [part.strip(" ,:;()'.") for part in _FIELD.split(line.removesuffix("\\n"))]
            part = max(parts, key=len)
            if len(part) >= PART_MIN and part not in pages:
                complaints.append(f"{source.path}: '{part}' is in no page")
    return complaints


RULES = [parameters_are_documented, sysfs_is_documented, options_are_documented, log_lines_are_documented]
