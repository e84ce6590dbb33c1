# SPDX-License-Identifier: GPL-2.0
"""The kernel's packages: which point release is complete, and its files unpacked side by side."""
import pathlib
import re
import subprocess

from . import cache, config, root


def _names(release: str, flavour: str) -> list[str]:
    """The packages of one point release; `release` is like 7.2.12+deb13."""
    full = f"{release}-{flavour}"
    return [f"linux-base-{full}", f"linux-binary-unsigned-{full}", f"linux-modules-{full}",
            f"linux-headers-{full}", f"linux-headers-{release}-common", f"linux-kbuild-{release}"]


def _apt(*arguments: str) -> str:
    return root.run(["apt-cache", *arguments], capture_output=True, text=True).stdout


def _refresh() -> None:
    cache.say("asking the archive for its package lists")
    root.run(["apt-get", "-q", "update"], stdout=subprocess.DEVNULL)


def _source_versions(series: str) -> set[str]:
    found = re.findall(r"^Version: (\S+)$", _apt("show", "--all-versions", f"linux-source-{series}"), re.M)
    return {re.match(r"[0-9.]+", version)[0] for version in found}


def resolve() -> str:
    """The newest release of the series (like 7.2.12+deb13) of which the archive has every package."""
    conf = config.load_kernel_conf()
    series, flavour = conf["SERIES"], conf["FLAVOUR"]
    for attempt in range(2):
        listed = set(_apt("pkgnames", "linux-").split())
        pattern = re.compile(rf"linux-modules-({re.escape(series)}\.\d+\+\w+)-{flavour}$")
        releases = {m[1] for name in listed if (m := pattern.match(name))}
        sources = _source_versions(series) if releases else set()
        complete = [r for r in releases
                    if r.split("+")[0] in sources and all(name in listed for name in _names(r, flavour))]
        if complete:
            return max(complete, key=lambda r: [int(n) for n in re.findall(r"\d+", r)])
        if attempt == 0:
            _refresh()
    raise SystemExit(f"kdir: the archive has no complete kernel {series} ({flavour}): image, modules, headers and "
                     "source of one version are needed. If the series has moved on, change tools/kernel.conf.")


def current() -> str:
    """The release in use: the one resolved before, as long as its tree is there; else a new look."""
    pinned = config.cache_dir() / f"release-{config.load_kernel_conf()['SERIES']}"
    if pinned.exists():
        return pinned.read_text().strip()
    release = resolve()
    config.cache_dir().mkdir(parents=True, exist_ok=True)
    pinned.write_text(release + "\n")
    return release


def forget() -> None:
    """Makes the next run look for a newer point release."""
    (config.cache_dir() / f"release-{config.load_kernel_conf()['SERIES']}").unlink(missing_ok=True)
    _refresh()


def full_version() -> str:
    """What `uname -r` says, like 7.2.12+deb13-amd64."""
    return f"{current()}-{config.load_kernel_conf()['FLAVOUR']}"


def folder() -> pathlib.Path:
    """Everything that belongs to this kernel version."""
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
