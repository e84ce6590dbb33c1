# SPDX-License-Identifier: GPL-2.0
"""Programs for the machines: mount.gfarm, what mount(8) runs for the type gfarm, chunk4kfsck, pi-sidecar."""
import os
import pathlib
import shutil
import subprocess

from . import cache, cargo, config

MANUAL = config.REPOSITORY / "Documentation/mount.gfarm.8"
# Where mount(8) looks for helpers, and man(1) for manuals.
HELPERS, MANUALS = "sbin", "usr/local/share/man/man8"


def program(name: str = "mount-gfarm") -> pathlib.Path:
    """Where the helper, or another program, is, or will be, once it is built."""
    return pathlib.Path(cargo.environment()["CARGO_TARGET_DIR"]) / "release" / name


def build(package: str = "ferrofabric-mount", name: str = "mount-gfarm") -> pathlib.Path:
    """Builds the helper, or another program."""
    subprocess.run([*cargo.command(), "build", "--release", "--locked", "--quiet", "--manifest-path",
                    str(config.REPOSITORY / "tools/Cargo.toml"), "--package", package],
                   env=os.environ | cargo.environment(), check=True)
    return program(name)


def chunk4kfsck() -> pathlib.Path:
    """Builds chunk4kfsck."""
    return build("ferrofabric-chunk4kfsck", "chunk4kfsck")


def pi_sidecar() -> pathlib.Path:
    """Builds pi-sidecar."""
    return build("ferrofabric-pi-sidecar", "pi-sidecar")


def install(root: str) -> None:
    """Installs the helper below a root, "" for that of the machine, if it is built."""
    if not program().exists():
        return
    target = pathlib.Path(root or "/")
    for source, folder, name, mode in ((program(), HELPERS, "mount.gfarm", 0o755),
                                       (MANUAL, MANUALS, MANUAL.name, 0o644)):
        (target / folder).mkdir(parents=True, exist_ok=True)
        file = target / folder / name
        shutil.copy(source, file)
        file.chmod(mode)
    cache.say(f"mount.gfarm is in {target / HELPERS}, its manual in {target / MANUALS}")
