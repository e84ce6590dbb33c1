# SPDX-License-Identifier: GPL-2.0
"""A host that already is what the root would be: the supported Debian with the kernel's toolchain.

There nothing needs a root; commands run directly. Anywhere else, and where a package is missing,
the root is used. The guests' programs are a question of their own: who builds need not have fio.
"""
import functools
import pathlib
import subprocess

from . import cache, config


@functools.cache
def is_release() -> bool:
    """Whether this host runs the Debian release that the kernel is built with."""
    try:
        text = pathlib.Path("/etc/os-release").read_text()
    except FileNotFoundError:
        return False
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return (values.get("ID") == "debian"
            and values.get("VERSION_CODENAME", "").strip('"') == config.load_kernel_conf()["SUITE"])


def absent(wanted: tuple[str, ...], listed: str) -> tuple[str, ...]:
    """The wanted packages that dpkg-query's lines do not call installed, in their order."""
    present = {line.split()[0] for line in listed.splitlines() if line.endswith(" installed")}
    return tuple(package for package in wanted if package not in present)


@functools.cache
def missing(wanted: tuple[str, ...] = tuple(config.BUILD_PACKAGES)) -> tuple[str, ...]:
    """The packages that this host lacks: of those to build with, or of others."""
    answer = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *wanted],
                            capture_output=True, text=True, check=False)
    return absent(wanted, answer.stdout)


@functools.cache
def knows_kernel() -> bool:
    """Whether this host's apt has heard of the kernel: its sources may lack the backports."""
    name = f"linux-source-{config.load_kernel_conf()['SERIES']}"
    return bool(subprocess.run(["apt-cache", "show", name], capture_output=True, check=False).stdout)


def usable() -> bool:
    """Whether commands run on the host itself instead of in a root."""
    return is_release() and not missing() and knows_kernel()


def guests_usable() -> bool:
    """Whether the guests' programs can come from the host itself."""
    return is_release() and not missing((*config.GUEST_PACKAGES, *config.LAB_PACKAGES))


def lacks() -> list[str]:
    """Lines to type on the right Debian so that no root is needed, none where nothing is lacking."""
    if not is_release() or usable():
        return []
    lines = []
    if missing():
        lines.append(f"apt-get install {' '.join(missing())}")
    if not knows_kernel():
        lines.append(f"apt-get update      # with {config.load_kernel_conf()['BACKPORTS']} in apt's sources")
    return lines


def hint() -> None:
    """Names the lines that would make the root unnecessary, on the right Debian."""
    if lines := lacks():
        cache.say("building in a Debian root, since this host lacks some packages; to build without one:")
        for line in lines:
            cache.say(f"    {line}")
