# SPDX-License-Identifier: GPL-2.0
"""Programs for the machines: mount.gfarm, what mount(8) runs for the type gfarm; pi-sidecar, which the log of
rnbd-server tells to type; rnbd-ec, which checks and assembles arrays; rioc, which puts and gets objects; and
chunk4kfsck of a sample, which is not installed."""
import dataclasses
import os
import pathlib
import shutil
import subprocess

from . import cache, cargo, config

MANUALS = "usr/local/share/man/man8"


@dataclasses.dataclass(frozen=True)
class Program:
    """A program of tools/: its package, the name that cargo gives it, and where it is installed."""
    package: str
    built_as: str
    installed: str = ""

    def path(self) -> pathlib.Path:
        """The place where it is, or will be, once it is built."""
        return pathlib.Path(cargo.environment()["CARGO_TARGET_DIR"]) / "release" / self.built_as

    def build(self) -> pathlib.Path:
        """Builds it."""
        subprocess.run([*cargo.command(), "build", "--release", "--locked", "--quiet", "--manifest-path",
                        str(config.REPOSITORY / "tools/Cargo.toml"), "--package", self.package],
                       env=os.environ | cargo.environment(), check=True)
        return self.path()

    def manual(self) -> pathlib.Path:
        """Its manual in the repository."""
        return config.REPOSITORY / "Documentation" / f"{pathlib.Path(self.installed).name}.8"

    def install(self, root: str) -> bool:
        """Installs it below a root, "" for that of the machine, if it is built; returns whether it is."""
        if not self.path().exists():
            return False
        target = pathlib.Path(root or "/")
        for source, file, mode in ((self.path(), target / self.installed, 0o755),
                                   (self.manual(), target / MANUALS / self.manual().name, 0o644)):
            file.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, file)
            file.chmod(mode)
        return True


# mount(8) looks for its helpers in sbin only.
MOUNT_GFARM = Program("ferrofabric-mount", "mount-gfarm", "sbin/mount.gfarm")
PI_SIDECAR = Program("ferrofabric-pi-sidecar", "pi-sidecar", "usr/local/sbin/pi-sidecar")
RNBD_EC = Program("ferrofabric-rnbd-ec", "rnbd-ec", "usr/local/sbin/rnbd-ec")
RIOC = Program("ferrofabric-rioc-tool", "rioc", "usr/local/sbin/rioc")
CHUNK4KFSCK = Program("ferrofabric-chunk4kfsck", "chunk4kfsck")
INSTALLED = (MOUNT_GFARM, PI_SIDECAR, RNBD_EC, RIOC)


def install(root: str) -> None:
    """Installs below a root, "" for that of the machine, the programs that are built, and tells of each where it is, or
    how it is built."""
    for program in INSTALLED:
        name = pathlib.Path(program.installed).name
        if program.install(root):
            cache.say(f"{name} is in {pathlib.Path(root or '/') / program.installed}, its manual: man 8 {name}")
        else:
            cache.say(f"{name} is not built: make programs")
