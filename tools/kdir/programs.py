# SPDX-License-Identifier: GPL-2.0
"""Programs for the machines: mount.gfarm, what mount(8) runs for the type gfarm; pi-sidecar, which the log of
rnbd-server tells to type; rnbd-ec, which checks and assembles arrays; rioc, which puts and gets objects; libioc, by
which programs of iocatcher do so; and chunk4kfsck of a sample, which is not installed."""
import dataclasses
import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterator

from . import cache, cargo, config

MANUALS = "usr/local/share/man"


@dataclasses.dataclass(frozen=True)
class Program:
    """A program or a library of tools/: its package, the name that cargo gives it, where it is installed, its manual,
    if it has another name, and the header of a library."""
    package: str
    built_as: str
    installed: str = ""
    page: str = ""
    header: str = ""

    def path(self) -> pathlib.Path:
        """The place where it is, or will be, once it is built."""
        return pathlib.Path(cargo.environment()["CARGO_TARGET_DIR"]) / "release" / self.built_as

    def build(self) -> pathlib.Path:
        """Builds it."""
        subprocess.run([*cargo.command(), "build", "--release", "--locked", "--quiet", "--manifest-path",
                        str(config.REPOSITORY / "tools/Cargo.toml"), "--package", self.package],
                       env=os.environ | cargo.environment(), check=True)
        return self.path()

    def name(self) -> str:
        """What people call it."""
        return pathlib.Path(self.installed).name

    def manual(self) -> pathlib.Path:
        """Its manual in the repository."""
        return config.REPOSITORY / "Documentation" / (self.page or f"{self.name()}.8")

    def files(self, root: pathlib.Path) -> Iterator[tuple[pathlib.Path, pathlib.Path, int]]:
        """What is installed below a root: from where, to where, and the permissions."""
        yield self.path(), root / self.installed, 0o755
        manual = self.manual()
        yield manual, root / MANUALS / f"man{manual.suffix[1:]}" / manual.name, 0o644
        if self.header:
            header = config.REPOSITORY / self.header
            yield header, root / "usr/local/include" / header.name, 0o644

    def install(self, root: str) -> bool:
        """Installs it below a root, "" for that of the machine, if it is built; returns whether it is."""
        if not self.path().exists():
            return False
        for source, file, mode in self.files(pathlib.Path(root or "/")):
            file.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, file)
            file.chmod(mode)
        return True


# mount(8) looks for its helpers in sbin only.
MOUNT_GFARM = Program("ferrofabric-mount", "mount-gfarm", "sbin/mount.gfarm")
PI_SIDECAR = Program("ferrofabric-pi-sidecar", "pi-sidecar", "usr/local/sbin/pi-sidecar")
RNBD_EC = Program("ferrofabric-rnbd-ec", "rnbd-ec", "usr/local/sbin/rnbd-ec")
RIOC = Program("ferrofabric-rioc-tool", "rioc", "usr/local/sbin/rioc")
# A program that was built for iocatcher asks for this name.
LIBIOC = Program("ferrofabric-libioc", "libioc_client.so", "usr/local/lib/libioc-client.so", "libioc.3",
                 "tools/libioc/include/ioc-client.h")
CHUNK4KFSCK = Program("ferrofabric-chunk4kfsck", "chunk4kfsck")
INSTALLED = (MOUNT_GFARM, PI_SIDECAR, RNBD_EC, RIOC, LIBIOC)


def install(root: str) -> None:
    """Installs below a root, "" for that of the machine, the programs that are built, and tells of each where it is, or
    how it is built."""
    for program in INSTALLED:
        manual = program.manual()
        if program.install(root):
            cache.say(f"{program.name()} is in {pathlib.Path(root or '/') / program.installed}, its manual: "
                      f"man {manual.suffix[1:]} {manual.stem}")
        else:
            cache.say(f"{program.name()} is not built: make programs")
