# SPDX-License-Identifier: GPL-2.0
"""Kernel modules: which others they need, and in which order they load.

The dependencies are read from the modules themselves, so neither depmod nor a chroot is needed.
"""
from __future__ import annotations

import lzma
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from vmlab import elf
from vmlab.assets import AssetError


def canonical(name: str) -> str:
    """The kernel's own spelling of a module name."""
    return name.replace("-", "_")


def read(path: Path) -> bytes:
    """A module's image, unpacked where the distribution packed it."""
    raw = path.read_bytes()
    return lzma.decompress(raw) if path.suffix == ".xz" else raw


@dataclass
class Module:
    """One module file with what its .modinfo says."""

    path: Path
    image: bytes = field(repr=False)

    @cached_property
    def _info(self) -> list[tuple[str, str]]:
        return elf.modinfo(self.image)

    @property
    def name(self) -> str:
        """The canonical name, from the file's name."""
        return canonical(self.path.name.removesuffix(".xz").removesuffix(".ko"))

    @property
    def depends(self) -> list[str]:
        """Names of the modules whose symbols it uses."""
        found = [value for key, value in self._info if key == "depends" and value]
        return [canonical(name) for value in found for name in value.split(",")]

    @property
    def aliases(self) -> list[str]:
        """The names by which the kernel may ask for it."""
        return [value for key, value in self._info if key == "alias"]


class Distribution:
    """The stock kernel's modules, unpacked only as far as they are needed."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self._paths = {canonical(p.name.partition(".ko")[0]): p
                       for p in sorted((tree / "kernel").rglob("*.ko*"))}
        self._loaded: dict[str, Module] = {}
        builtin = tree / "modules.builtin"
        self._builtin = ({canonical(Path(line).name.removesuffix(".ko"))
                          for line in builtin.read_text().split()} if builtin.exists() else set())

    def get(self, name: str) -> Module | None:
        """A module by name; None if it is part of the kernel image."""
        name = canonical(name)
        if name not in self._loaded:
            if name not in self._paths:
                if name in self._builtin:
                    return None
                raise AssetError(f"the kernel at {self.tree} has no module {name}")
            path = self._paths[name]
            self._loaded[name] = Module(path, read(path))
        return self._loaded[name]

    def has(self, name: str) -> bool:
        """Whether the distribution knows the module at all."""
        return canonical(name) in self._paths or canonical(name) in self._builtin

    def closure(self, names: Iterable[str]) -> list[Module]:
        """These modules and everything below them, each after what it needs."""
        return in_order(names, self.get)


def in_order(names: Iterable[str], get: Callable[[str], Module | None]) -> list[Module]:
    """Depth-first order: dependencies first, each once. `get` answers None for what is built in."""
    done: dict[str, Module] = {}

    def visit(name: str, trail: tuple[str, ...]) -> None:
        if name in done:
            return
        if name in trail:
            raise AssetError(f"modules need each other in a circle: {' -> '.join((*trail, name))}")
        module = get(name)
        if module is None:
            return
        for needed in module.depends:
            visit(needed, (*trail, name))
        done[name] = module

    for name in names:
        visit(canonical(name), ())
    return list(done.values())
