# SPDX-License-Identifier: GPL-2.0
"""Rules for hosts: the packages that are missing, the kernel that is built for, and when modules can be installed."""
import io
import os
import pathlib
import subprocess
import tempfile
import time
import unittest
from contextlib import redirect_stderr
from unittest import mock

from kdir import cache, cargo, checkouts, config, debug, install, native, packages, programs, root

VERSION = "7.2.12+deb13-amd64"


class DebugKernelTest(unittest.TestCase):
    """The configuration of the debug kernel."""

    def test_it_has_what_the_tests_ask_machines_for(self) -> None:
        """Else a test that passes in the stock kernel fails there, and says nothing of what it is for."""
        wanted = {"swapon": "SWAP", "mkfs.ext4": "EXT4_FS", "mkfs.xfs": "XFS_FS", "null_blk": "BLK_DEV_NULL_BLK",
                  "losetup": "BLK_DEV_LOOP", "dm_delay": "DM_DELAY", "scsi_debug": "SCSI_DEBUG"}
        tests = "".join(file.read_text() for file in config.REPOSITORY.glob("tools/vmlab/**/*.py"))
        have = debug._settings(debug.FRAGMENT.read_text())
        asked = {name for word, name in wanted.items() if word in tests}
        self.assertIn("SWAP", asked)
        self.assertEqual([name for name in sorted(asked) if have.get(f"CONFIG_{name}", "n") == "n"], [])

    def test_what_kconfig_has_dropped_is_named(self) -> None:
        """Built in will do for a module; a missing option, another value and one that is on all the same will not."""
        wanted = "# bugs\nCONFIG_A=y\nCONFIG_B=m\nCONFIG_C=n\nCONFIG_D=y\nCONFIG_E=4\n"
        self.assertEqual(debug.lost(wanted, "CONFIG_A=y\nCONFIG_B=y\nCONFIG_D=y\nCONFIG_E=4\n"), [])
        self.assertEqual(debug.lost(wanted, "CONFIG_A=m\nCONFIG_B=m\nCONFIG_C=y\nCONFIG_E=5\n"),
                         ["CONFIG_A=y", "CONFIG_C=n", "CONFIG_D=y", "CONFIG_E=4"])


class MissingPackagesTest(unittest.TestCase):
    """The apt line of a Debian that could build without a root."""

    LISTED = "make installed\nbindgen config-files\nrustc installed\n"

    def test_absent_are_the_unknown_and_the_removed(self) -> None:
        """The order is that of the wanted ones; one that was removed and left its settings is not installed."""
        self.assertEqual(native.absent(("rustc", "bindgen", "make", "pahole"), self.LISTED), ("bindgen", "pahole"))

    def said(self, release: bool, missing: tuple[str, ...], knows: bool) -> str:
        """The hint on such a host."""
        with (mock.patch.object(native, "is_release", lambda: release),
              mock.patch.object(native, "missing", lambda *_wanted: missing),
              mock.patch.object(native, "knows_kernel", lambda: knows), redirect_stderr(io.StringIO()) as said):
            native.hint()
        return said.getvalue()

    def test_the_hint_names_the_line(self) -> None:
        """The hint comes on the kernel's Debian only, and only if something is lacking."""
        self.assertIn("    apt-get install bindgen pahole\n", self.said(True, ("bindgen", "pahole"), True))
        self.assertIn("trixie-backports", self.said(True, (), False))
        self.assertEqual(self.said(True, (), True), "")
        self.assertEqual(self.said(False, ("bindgen",), True), "")


class OrdinaryUserTest(unittest.TestCase):
    """A root needs namespaces and subordinate ids; who lacks them is told which, and the cure."""

    def refused(self, status: int, ranges: str) -> str:
        """The text that such a user reads, where unshare ends with this status."""
        done = subprocess.CompletedProcess([], status, "", "unshare: nope")
        with (mock.patch("subprocess.run", return_value=done), mock.patch("getpass.getuser", lambda: "ann"),
              mock.patch("os.geteuid", lambda: 1000),
              mock.patch.object(pathlib.Path, "exists", lambda _path: True),
              mock.patch.object(pathlib.Path, "read_text", lambda _path: ranges)):
            return root.namespaces_refused()

    def test_each_obstacle_has_its_cure(self) -> None:
        """Subordinate ids of another user are ignored."""
        self.assertEqual(self.refused(0, "ann:100000:65536\n"), "")
        self.assertIn("usermod --add-subuids 165536-231071 --add-subgids 165536-231071 ann",
                      self.refused(0, "bob:100000:65536\n"))
        self.assertIn("--add-subuids 100000-165535", self.refused(0, ""))
        self.assertIn("sysctl", self.refused(1, "ann:100000:65536\n"))
        self.assertIn("unshare: nope", self.refused(1, ""))

    def test_a_folder_that_cannot_be_removed_is_removed_in_a_namespace(self) -> None:
        """Its files belong to subordinate ids."""
        with (tempfile.TemporaryDirectory() as folder, mock.patch("shutil.rmtree", side_effect=PermissionError),
              mock.patch("subprocess.run") as run, mock.patch("os.geteuid", lambda: 1000)):
            cache.remove(pathlib.Path(folder))
        self.assertEqual(run.call_args.args[0],
                         ["unshare", "--mount", "--map-root-user", "--map-auto", "rm", "-rf", "--one-file-system",
                          folder])


class CheckoutsTest(unittest.TestCase):
    """Each checkout fills folders of the cache, 2 GiB and more, that no one else uses."""

    def test_what_a_checkout_has_built_goes_when_it_has_gone(self) -> None:
        """One that is not seen may be in a container: it has gone when nothing was built in it for two days, either."""
        with tempfile.TemporaryDirectory() as folder, redirect_stderr(io.StringIO()) as said:
            cached, here = pathlib.Path(folder) / "cache", pathlib.Path(folder)
            gone, kept = here / "gone", here / "kept"
            kept.mkdir()
            for path in (gone, kept):
                (cached / f"cargo-{checkouts.name(path)}").mkdir(parents=True)
                (cached / f"rules-{checkouts.name(path)}.log").touch()
                (cached / "checkouts").mkdir(exist_ok=True)
                (cached / "checkouts" / checkouts.name(path)).write_text(f"{path}\n", encoding="utf-8")
            (cached / "checkouts/damaged").write_text(f"{gone}\n", encoding="utf-8")
            (cached / "cargo-damaged").mkdir()
            with mock.patch.object(config, "cache_dir", lambda: cached):
                checkouts.use([cached])
                self.assertTrue((cached / f"cargo-{checkouts.name(gone)}").exists())
                checkouts.use([cached], time.time() + 1.01 * checkouts.KEPT_SECONDS)
            left = sorted(path.name for path in cached.iterdir())
            self.assertEqual(left, sorted(["cargo-damaged", f"cargo-{checkouts.name(kept)}", "checkouts",
                                           f"rules-{checkouts.name(kept)}.log"]))
            self.assertIn(f"its checkout {gone} is gone", said.getvalue())
            self.assertIn(checkouts.name(), [path.name for path in (cached / "checkouts").iterdir()])


class ReleaseTest(unittest.TestCase):
    """Modules fit one point release."""

    def test_release_of_a_version(self) -> None:
        """Another series, another flavour or another system's kernel is none."""
        for version, release in ((VERSION, "7.2.12+deb13"), ("7.20.1+deb13-amd64", ""),
                                 ("7.2.12+deb13-cloud-amd64", ""),
                                 ("7.2.12+deb13-arm64", ""), ("6.1.0-40-amd64", ""), ("7.2.12", "")):
            self.assertEqual(packages.release_of(version, "7.2", "amd64"), release, version)

    def test_the_running_release_comes_first_then_the_newest(self) -> None:
        """Numbers count, not letters; a release that runs and is not in the archive does not."""
        releases = ["7.2.9+deb13", "7.2.12+deb13", "7.2.10+deb13"]
        self.assertEqual(packages.in_order(releases, ""), ["7.2.12+deb13", "7.2.10+deb13", "7.2.9+deb13"])
        self.assertEqual(packages.in_order(releases, "7.2.9+deb13")[0], "7.2.9+deb13")
        self.assertEqual(packages.in_order(releases, "7.2.8+deb13")[0], "7.2.12+deb13")

    def test_a_machine_that_runs_the_series_has_a_note_of_its_own(self) -> None:
        """So that a new kernel that was booted is looked for, and other machines keep theirs."""
        for running, name in ((VERSION, "release-7.2-for-7.2.12+deb13"), ("6.1.0-40-amd64", "release-7.2")):
            with mock.patch("platform.release", lambda running=running: running):
                self.assertEqual(packages.pinned().name, name)


class InstallTest(unittest.TestCase):
    """Refusals of modules_install, and what they say."""

    def test_another_running_kernel(self) -> None:
        """Both are named."""
        said = install.obstacle("7.2.11+deb13-amd64", VERSION, "", True)
        self.assertIn("runs 7.2.11+deb13-amd64", said)
        self.assertIn(f"linux-image-{VERSION}", said)

    def test_an_ordinary_user(self) -> None:
        """Is told to use sudo."""
        self.assertIn("sudo make modules_install", install.obstacle(VERSION, VERSION, "", False))

    def test_below_another_root(self) -> None:
        """Neither counts there, but the kernel's own modules must be there, for depmod to find what ours need."""
        with tempfile.TemporaryDirectory() as root:
            self.assertIn("must be there first", install.obstacle("6.1.0", VERSION, root, False))
            place = pathlib.Path(root) / "lib/modules" / VERSION
            place.mkdir(parents=True)
            (place / "modules.builtin").touch()
            self.assertEqual(install.obstacle("6.1.0", VERSION, root, False), "")

    def test_programs_come_along_once_they_are_built(self) -> None:
        """Executable where mount(8) and the administrator's shell look for them, with their manuals; before one is
        built the command that builds it is told."""
        with tempfile.TemporaryDirectory() as root:
            target = pathlib.Path(root) / "target"
            environment = {"CARGO_TARGET_DIR": root}
            said: list[str] = []
            with mock.patch.object(cargo, "environment", lambda: environment), \
                    mock.patch.object(cache, "say", said.append):
                programs.install(str(target))
                self.assertFalse(target.exists())
                self.assertEqual([line for line in said if "make programs" not in line], [])
                (pathlib.Path(root) / "release").mkdir()
                for name in ("mount-gfarm", "pi-sidecar", "rnbd-ec", "rioc", "libioc_client.so"):
                    (pathlib.Path(root) / "release" / name).write_text(name)
                programs.install(str(target))
            for name, place in (("mount-gfarm", "sbin/mount.gfarm"), ("pi-sidecar", "usr/local/sbin/pi-sidecar"),
                                ("rnbd-ec", "usr/local/sbin/rnbd-ec"), ("rioc", "usr/local/sbin/rioc")):
                file = target / place
                self.assertEqual((file.read_text(), file.stat().st_mode & 0o777), (name, 0o755))
                manual = target / "usr/local/share/man/man8" / f"{file.name}.8"
                self.assertIn(file.name.upper(), manual.read_text())
            # The loader looks for this name, the compiler for the header.
            library = target / "usr/local/lib/libioc-client.so"
            self.assertEqual((library.read_text(), library.stat().st_mode & 0o777), ("libioc_client.so", 0o755))
            self.assertIn("ioc_client_init", (target / "usr/local/include/ioc-client.h").read_text())
            self.assertIn("LIBIOC", (target / "usr/local/share/man/man3/libioc.3").read_text())

    def test_tests_stay_here(self) -> None:
        """A module of tests is no part of the product."""
        self.assertTrue(install.is_test(pathlib.Path("kernel_ext_test.ko")))
        self.assertFalse(install.is_test(pathlib.Path("kernel_ext.ko")))

    def test_sudo_finds_what_the_user_has_built(self) -> None:
        """The cache is the user's, unless it is named."""
        for given, wanted in (({"SUDO_USER": "root"}, f"{os.path.expanduser('~root')}/.cache/ferrofabric"),
                              ({"SUDO_USER": "root", "FERROFABRIC_CACHE": "/x"}, "/x"), ({}, None)):
            with mock.patch.dict(os.environ, given, clear=True), mock.patch("os.geteuid", lambda: 0):
                config.use_cache_of_invoker()
                self.assertEqual(os.environ.get("FERROFABRIC_CACHE"), wanted)


if __name__ == "__main__":
    unittest.main()
