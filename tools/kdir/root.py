# SPDX-License-Identifier: GPL-2.0
"""The Debian root with the kernel's own toolchain, and how a command runs inside it.

The root is a plain folder. A command gets private mounts (the checkout and the cache at their own
paths, /proc, /dev) in a mount namespace of its own, so nothing stays mounted afterwards.
"""
import getpass
import hashlib
import os
import pathlib
import re
import shlex
import subprocess
import sys
from typing import Any

from . import cache, config, native

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


# A root that was interrupted is thrown away, so nothing in it has to reach the disk at once. Manuals are left out.
DPKG_OPTIONS = ["--dpkgopt=force-unsafe-io",
                *(f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in ("doc", "man", "locale"))]


def mirror() -> str:
    """The archive that the host's apt uses for Debian; FERROFABRIC_MIRROR overrides it."""
    named = os.environ.get("FERROFABRIC_MIRROR")
    if named:
        return named
    lines = subprocess.run(["apt-get", "indextargets", "--format", "$(SITE) $(COMPONENT) $(REPO_URI)"],
                           capture_output=True, text=True, check=True).stdout.splitlines()
    for line in lines:
        uri = line.split()[-1].rstrip("/")
        if re.search(r"/debian$", uri):
            return uri
    raise SystemExit("kdir: no Debian archive in this host's apt sources; set FERROFABRIC_MIRROR=<archive>")


def key() -> str:
    """Names the root by what is in it, so that a changed package list makes a new one."""
    conf = config.load_kernel_conf()
    text = " ".join([conf["SUITE"], conf["BACKPORTS"], *config.BUILD_PACKAGES, *config.GUEST_PACKAGES,
                     *config.LAB_PACKAGES])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def path() -> pathlib.Path:
    """The place where the root is, or will be; `/` where the host itself will do."""
    if native.usable():
        return pathlib.Path("/")
    return config.cache_dir() / f"root-{key()}"


def guests_path() -> pathlib.Path:
    """The root that the guests' programs come from: the same one, or on a host that builds without one, a smaller
    one."""
    if path() != pathlib.Path("/"):
        return path()
    if native.guests_usable():
        return pathlib.Path("/")
    return config.cache_dir() / f"guests-{key()}"


def namespaces_refused() -> str:
    """The reason why this ordinary user cannot make and enter a root, and the cure; "" if nothing is in the way."""
    if os.geteuid() == 0:
        return ""
    # Without --map-auto: where namespaces are forbidden, that option makes util-linux 2.38 wait for ever.
    done = subprocess.run(["unshare", "--mount", "--map-root-user", "true"], capture_output=True, text=True,
                          check=False)
    if done.returncode:
        return ("this machine does not let ordinary users make namespaces, which a Debian root needs; type this once:  "
                "sudo sysctl user.max_user_namespaces=10000 kernel.unprivileged_userns_clone=1  (where a name is "
                f"unknown, leave it out), or run make as root. unshare says: {done.stderr.strip()}")
    user = getpass.getuser()
    ranges = "".join(file.read_text() for file in map(pathlib.Path, ("/etc/subuid", "/etc/subgid")) if file.exists())
    if len(re.findall(rf"^(?:{re.escape(user)}|{os.geteuid()}):", ranges, re.M)) < 2:
        first = max([100000, *(int(start) + int(count) for start, count in re.findall(r":(\d+):(\d+)$", ranges, re.M))])
        free = f"{first}-{first + 65535}"       # of no other user
        return ("an ordinary user needs subordinate ids to make a Debian root; type this once:  "
                f"sudo usermod --add-subuids {free} --add-subgids {free} {user}")
    return ""


def _make(part: pathlib.Path, packages: tuple[str, ...]) -> None:
    conf, site = config.load_kernel_conf(), mirror()
    part.parent.mkdir(parents=True, exist_ok=True)
    sources = [f"deb [signed-by={KEYRING}] {site} {suite} main" for suite in (conf["SUITE"], conf["BACKPORTS"])]
    include = ",".join([*packages, "debian-archive-keyring"])
    # For an ordinary user the root's files belong to that user's subordinate ids: everything but device nodes works,
    # and /dev is mounted anyway. `root` mode keeps real owners.
    mode = "root" if os.geteuid() == 0 else "unshare"
    if (why := namespaces_refused()):
        raise SystemExit(f"kdir: {why}")
    done = subprocess.run(["mmdebstrap", f"--mode={mode}", "--variant=apt", f"--include={include}",
                           "--skip=cleanup/apt/lists", "--skip=output/dev", "--format=directory", *DPKG_OPTIONS,
                           conf["SUITE"], str(part), *sources], check=False, stdout=sys.stderr)
    if done.returncode:
        raise SystemExit(f"kdir: mmdebstrap failed (its words are above); the archive was {site}, "
                         "FERROFABRIC_MIRROR names another")


def ensure() -> pathlib.Path:
    """Makes the root if it is not there; returns its path."""
    return cache.made_once(path(), f"making a Debian {config.load_kernel_conf()['SUITE']} root (1 to 3 min)",
                           lambda part: _make(part, (*config.BUILD_PACKAGES, *config.GUEST_PACKAGES,
                                                     *config.LAB_PACKAGES)))


def ensure_for_guests() -> pathlib.Path:
    """Makes the root that the guests' programs come from if it is not there; returns its path."""
    if guests_path() == path():
        return ensure()
    return cache.made_once(guests_path(), "making a Debian root of the guests' programs (a minute)",
                           lambda part: _make(part, (*config.GUEST_PACKAGES, *config.LAB_PACKAGES)))


def _namespace_script(root: pathlib.Path, binds: list[pathlib.Path], workdir: pathlib.Path,
                      command: list[str]) -> str:
    lines = ["set -e", "mount --make-rprivate / 2>/dev/null || true"]
    for bind in binds:
        place = shlex.quote(f"{root}{bind}")
        lines += [f"mkdir -p {place}", f"mount --rbind {shlex.quote(str(bind))} {place}"]
    lines += [f"mkdir -p {root}/proc {root}/dev {root}/tmp", f"mount --rbind /proc {root}/proc",
              f"mount --rbind /dev {root}/dev",
              # Where names are resolved is the host's business.
              f": >> {root}/etc/resolv.conf", f"mount --bind /etc/resolv.conf {root}/etc/resolv.conf"]
    inner = f"cd {shlex.quote(str(workdir))} && exec \"$@\""
    lines.append(f"exec chroot {shlex.quote(str(root))} /bin/sh -c {shlex.quote(inner)} sh {shlex.join(command)}")
    return "\n".join(lines)


def _environment() -> dict[str, str]:
    """A clean one: what the caller's make or shell exported must not reach Kbuild."""
    return {"PATH": "/usr/lib/llvm-19/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8",
            "HOME": "/tmp", "TMPDIR": "/tmp"}


def run(command: list[str], workdir: pathlib.Path | None = None, check: bool = True,
        extra_binds: tuple[pathlib.Path, ...] = (), root: pathlib.Path | None = None,
        **options: Any) -> subprocess.CompletedProcess[Any]:
    """Runs `command` inside the root with the checkout and the cache visible at their own paths. `root` names another
    one than that of the toolchain."""
    root = root or ensure()
    environment = _environment()
    if root == pathlib.Path("/"):
        environment["HOME"] = str(config.cache_dir())       # cargo keeps files there; /tmp is shared
        done = subprocess.run(command, cwd=workdir or config.REPOSITORY, check=False, env=environment, **options)
    else:
        binds = list(dict.fromkeys([config.REPOSITORY, config.cache_dir(), *extra_binds]))
        script = _namespace_script(root, binds, workdir or config.REPOSITORY, command)
        done = subprocess.run([*cache.namespace(), "sh", "-c", script], check=False, env=environment, **options)
    if check and done.returncode:
        raise SystemExit(f"kdir: `{shlex.join(command)[:300]}` ended with status {done.returncode} "
                         f"{'in ' + str(root) if root.name else 'on this host'}. {done.stderr or ''}".rstrip())
    return done
