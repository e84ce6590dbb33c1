# SPDX-License-Identifier: GPL-2.0
"""A host that already is what the root would be: the supported Debian with the kernel's toolchain.

There nothing needs a root; commands run directly. Anywhere else, and where a package is missing,
the root is used.
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


@functools.cache
def missing() -> tuple[str, ...]:
    """The build packages that this host lacks."""
    answer = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n",
                             *config.BUILD_PACKAGES], capture_output=True, text=True, check=False)
    present = {line.split()[0] for line in answer.stdout.splitlines() if line.endswith(" installed")}
    return tuple(package for package in config.BUILD_PACKAGES if package not in present)


def usable() -> bool:
    """Whether commands run on the host itself instead of in a root."""
    return is_release() and not missing()


def hint() -> None:
    """On the right Debian, names the line that would make the root unnecessary."""
    if is_release() and missing():
        cache.say("building in a Debian root, since this host lacks some packages; to build without one:")
        cache.say(f"    apt-get install {' '.join(missing())}")
