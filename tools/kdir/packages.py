# SPDX-License-Identifier: GPL-2.0
"""The kernel's packages: which point release is complete, and its files unpacked side by side."""
import os
import pathlib
import platform
import re
import subprocess

from . import cache, config, root


def _names(release: str, flavour: str) -> list[str]:
    """The packages of one point release; `release` is like 7.2.12+deb13."""
    full = f"{release}-{flavour}"
    return [f"linux-base-{full}", f"linux-binary-unsigned-{full}", f"linux-modules-{full}",
            f"linux-headers-{full}", f"linux-headers-{release}-common", f"linux-kbuild-{release}"]


def _apt(*arguments: str) -> str:
    return str(root.run(["apt-cache", *arguments], capture_output=True, text=True).stdout)


def _refresh() -> None:
    cache.say("asking the archive for its package lists")
    if root.path() == pathlib.Path("/") and os.geteuid() != 0:
        raise SystemExit("kdir: this host's package lists are old; type this once:  sudo apt-get update")
    root.run(["apt-get", "-q", "update"], stdout=subprocess.DEVNULL)


def _source_versions(series: str) -> set[str]:
    found = re.findall(r"^Version: (\S+)$", _apt("show", "--all-versions", f"linux-source-{series}"), re.M)
    return {re.split(r"[^0-9.]", version)[0] for version in found}


def _can_be_fetched(release: str, flavour: str) -> bool:
    """Whether the archive still has them: apt also knows packages that are only installed."""
    return root.run(["apt-get", "-q", "download", "--print-uris", *_names(release, flavour)], check=False,
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def release_of(version: str, series: str, flavour: str) -> str:
    """7.2.12+deb13 of 7.2.12+deb13-amd64, "" if that is another series or another flavour."""
    match = re.fullmatch(rf"({re.escape(series)}\.\d+\+\w+)-{re.escape(flavour)}", version)
    return match[1] if match else ""


def _running() -> str:
    """The release that this machine runs, "" if it is none of the series."""
    conf = config.load_kernel_conf()
    return release_of(platform.release(), conf["SERIES"], conf["FLAVOUR"])


def in_order(releases: list[str], running: str) -> list[str]:
    """The running one first, for modules fit one release only; then the newest."""
    newest = sorted(releases, key=lambda r: [int(n) for n in re.findall(r"\d+", r)], reverse=True)
    return sorted(newest, key=lambda r: r != running)


def resolve() -> str:
    """The release of the series (like 7.2.12+deb13) to build for: one of which the archive has every package."""
    conf = config.load_kernel_conf()
    series, flavour = conf["SERIES"], conf["FLAVOUR"]
    for attempt in range(2):
        listed = set(_apt("pkgnames", "linux-").split())
        releases = {release for name in listed if name.startswith("linux-modules-")
                    and (release := release_of(name.removeprefix("linux-modules-"), series, flavour))}
        sources = _source_versions(series) if releases else set()
        complete = [r for r in releases
                    if r.split("+")[0] in sources and all(name in listed for name in _names(r, flavour))]
        for release in in_order(complete, _running()):
            if _can_be_fetched(release, flavour):
                if _running() not in ("", release):
                    cache.say(f"this machine runs {_running()}, which the archive has no longer; "
                              f"building for {release}")
                return release
        if attempt == 0:
            _refresh()
    raise SystemExit(f"kdir: the archive has no complete kernel {series} ({flavour}): image, modules, headers and "
                     "source of one version are needed. If the series has moved on, change tools/kernel.conf.")


def pinned() -> pathlib.Path:
    """The file that notes the resolved release; a machine that runs the series has one for each kernel it has run."""
    running = _running()
    return config.cache_dir() / f"release-{config.load_kernel_conf()['SERIES']}{f'-for-{running}' if running else ''}"


def current() -> str:
    """The release in use: the one resolved before, as long as its tree is there; else a new look."""
    note = pinned()
    if note.exists():
        return note.read_text().strip()
    release = resolve()
    config.cache_dir().mkdir(parents=True, exist_ok=True)
    note.write_text(release + "\n")
    return release


def forget() -> None:
    """Makes the next run look for a newer point release."""
    pinned().unlink(missing_ok=True)
    _refresh()


def full_version() -> str:
    """The full version, as `uname -r` says it: 7.2.12+deb13-amd64."""
    return f"{current()}-{config.load_kernel_conf()['FLAVOUR']}"


def folder() -> pathlib.Path:
    """The folder of everything that belongs to this kernel version."""
    return config.cache_dir() / "kernel" / full_version()


def _unpack(part: pathlib.Path) -> None:
    conf, release = config.load_kernel_conf(), current()
    part.mkdir(parents=True)
    debs = part / "debs"
    debs.mkdir()
    source = f"linux-source-{conf['SERIES']}"
    wanted = release.split("+")[0]
    versions = re.findall(r"^Version: (\S+)$", _apt("show", "--all-versions", source), re.M)
    version = next(v for v in versions if v.startswith(f"{wanted}-"))
    root.run(["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download",
              *_names(release, conf["FLAVOUR"]), f"{source}={version}"],
             workdir=debs, stdout=subprocess.DEVNULL)
    for deb in sorted(debs.glob("*.deb")):
        root.run(["dpkg", "-x", str(deb), str(part)])
        deb.unlink()
    debs.rmdir()


def ensure() -> pathlib.Path:
    """The unpacked packages (usr/lib/modules/..., usr/src/...)."""
    root.ensure()
    return cache.made_once(folder() / "pkgs", f"fetching the packages of kernel {full_version()}", _unpack)
