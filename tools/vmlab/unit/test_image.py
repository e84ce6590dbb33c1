# SPDX-License-Identifier: GPL-2.0
"""The parts of the guest image, the archive of modules, and what is kept of them."""
from __future__ import annotations

import lzma
import os
import tarfile
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from kdir import debug
from vmlab import image, modsets, snapshot, store
from vmlab.assets import AssetError
from vmlab.machine import Hardware, Machine

VERSION = "7.2.0-x"
# What makes a stock module part of the debug kernel, where its name in capitals does not.
SYMBOLS = {
    "rdma_cm": "INFINIBAND_ADDR_TRANS", "rdma_ucm": "INFINIBAND_USER_ACCESS", "ib_uverbs": "INFINIBAND_USER_ACCESS",
    "brd": "BLK_DEV_RAM", "loop": "BLK_DEV_LOOP", "null_blk": "BLK_DEV_NULL_BLK", "ext4": "EXT4_FS", "xfs": "XFS_FS",
    "sd_mod": "BLK_DEV_SD", "dm_mod": "BLK_DEV_DM", "configfs": "CONFIGFS_FS", "netfs": "9P_FS", "xor": "DM_RAID",
    "lz4_compress": "CRYPTO_LZ4", "lz4_decompress": "CRYPTO_LZ4", "btrfs": "BTRFS_FS",
}


class StockModulesTest(unittest.TestCase):
    """Modules that come along, and their order."""

    def setUp(self) -> None:
        """A kernel without modules, and one that is built in."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = Path(folder.name)
        (self.tree / "modules.builtin").write_text("kernel/lib/in-the-kernel.ko\n", encoding="ascii")
        (self.tree / "kernel/drivers").mkdir(parents=True)

    def closure(self, modules: dict[str, list[str]], *names: str) -> list[str]:
        """The files that loading `names` takes, where each of `modules` needs these others."""
        for name in modules:
            (self.tree / f"kernel/drivers/{name}.ko.xz").touch()
        with mock.patch.object(image, "depends", lambda path: modules[path.name.partition(".")[0]]):
            return [path.name for path in image.StockModules(self.tree).closure(names, frozenset({"may-lack"}))]

    def test_what_is_needed_comes_first_and_once(self) -> None:
        """A diamond is four modules; what is built in is none."""
        self.assertEqual(self.closure({"top": ["left", "right"], "left": ["base"], "right": ["base"],
                                       "base": ["in_the_kernel"]}, "top"),
                         ["base.ko.xz", "left.ko.xz", "right.ko.xz", "top.ko.xz"])

    def test_names_are_spelled_as_the_kernel_does(self) -> None:
        """Dashes and underscores are the same."""
        self.assertEqual(self.closure({"a-b": []}, "a_b"), ["a-b.ko.xz"])

    def test_a_module_that_is_not_there_is_named(self) -> None:
        """Unless it may lack, also where another needs it."""
        self.assertEqual(self.closure({"top": []}, "may-lack", "top"), ["top.ko.xz"])
        with self.assertRaisesRegex(AssetError, "no module gone"):
            self.closure({"top": ["gone"]}, "top")

    def test_the_debug_kernel_has_what_a_machine_must_have(self) -> None:
        """A module that is added to the image alone would end every test in the debug kernel."""
        lines = set(debug.FRAGMENT.read_text(encoding="ascii").splitlines())
        needed = set(image.STOCK_MODULES) - image.OPTIONAL_MODULES
        symbols = {name: SYMBOLS.get(name, name.upper()) for name in needed}
        self.assertEqual({name: symbol for name, symbol in symbols.items()
                          if not {f"CONFIG_{symbol}=m", f"CONFIG_{symbol}=y"} & lines}, {})

    def test_packed_modules_are_unpacked(self) -> None:
        """The distribution packs them with xz; a kernel of one's own may not."""
        (self.tree / "m.ko.xz").write_bytes(lzma.compress(b"content"))
        (self.tree / "n.ko").write_bytes(b"plain")
        image.unpack(self.tree / "m.ko.xz", self.tree / "new/m.ko")
        image.unpack(self.tree / "n.ko", self.tree / "new/n.ko")
        self.assertEqual([(self.tree / f"new/{name}.ko").read_bytes() for name in "mn"], [b"content", b"plain"])


class ModuleArchiveTest(unittest.TestCase):
    """The disk with the modules under test."""

    def made(self, size: int) -> Path:
        """An archive of one file of this size, which belongs to some user of the host."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        target = Path(folder.name) / "archive"

        def stage(_assets: object, _image: object, _sets: object, base: Path) -> None:
            place = base / "lib/modules" / VERSION / "ours"
            place.mkdir(parents=True)
            (place / "m.ko").write_bytes(bytes(size))
        with mock.patch.object(modsets, "_stage", stage):
            modsets._make(mock.Mock(), mock.Mock(), ("ours",), target)
        return target

    def test_every_archive_is_a_disk_of_one_size(self) -> None:
        """A saved machine knows that size; tar stops where the archive ends. Everything in it is root's."""
        target = self.made(5)
        self.assertEqual(target.stat().st_size, modsets.DISK_BYTES)
        with tarfile.open(target) as archive:
            member = archive.getmember(f"usr/lib/modules/{VERSION}/ours/m.ko")
            self.assertEqual({(m.uid, m.gid) for m in archive.getmembers()}, {(0, 0)})
        self.assertEqual(member.size, 5)

    def test_what_does_not_fit_is_refused(self) -> None:
        """Instead of being cut off."""
        with (mock.patch.object(modsets, "DISK_BYTES", 20 << 10),
              self.assertRaisesRegex(AssetError, "more than the disk")):
            self.made(30 << 10)


class StoreTest(unittest.TestCase):
    """Things that are made once."""

    def setUp(self) -> None:
        """An empty cache."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        patch = mock.patch.dict(os.environ, {"FERROFABRIC_CACHE": folder.name})
        patch.start()
        self.addCleanup(patch.stop)

    def test_the_ones_used_last_are_kept(self) -> None:
        """Files and folders alike, and nothing of another kind."""
        for number, name in enumerate(("x-old", "x-used", "x-new", "y-old")):
            (store.store() / name).mkdir()
            (store.store() / name / "file").touch()
            os.utime(store.store() / name, (number, number))
        store.use(store.store() / "x-used")
        store.prune("x-*", 2)
        self.assertEqual(sorted(path.name for path in store.store().iterdir()), ["x-new", "x-used", "y-old"])

    def test_use_does_not_look_like_a_new_making(self) -> None:
        """A saved machine must not meet another image than it was saved with, and goes on with one that is used."""
        path = store.store() / "x"
        path.write_bytes(b"1")
        os.utime(path, (5, 5))
        before = store.stamp(path)
        store.use(path)
        self.assertEqual(store.stamp(path), before)
        os.utime(path, (6, 6))
        self.assertNotEqual(store.stamp(path), before)

    def test_parts_of_a_name_do_not_run_into_each_other(self) -> None:
        """ab + c is not a + bc."""
        self.assertNotEqual(store.digest("ab", "c"), store.digest("a", "bc"))


class SavedStateTest(unittest.TestCase):
    """States from which machines may go on."""

    def name(self, folder: str = "a", root: bytes = b"1", set_up: str = "true", **hardware: object) -> str:
        """The name of the state of such a machine."""
        top = tempfile.TemporaryDirectory()
        self.addCleanup(top.cleanup)
        for file, content in (("kernel", b"k"), ("initrd", b"i"), ("root", root)):
            (Path(top.name) / file).write_bytes(content)
            os.utime(Path(top.name) / file, (1, 1))
        files = image.Image(Path(top.name) / "kernel", Path("/initrd"), Path(top.name) / "root", Path(top.name))
        machine = Machine("client", Path(top.name) / folder, files, Hardware(**hardware), [])     # type: ignore[arg-type]
        kernel = files.kernel
        with (mock.patch.object(snapshot, "_qemu_version", lambda: "1"),
              mock.patch.object(Machine, "arguments", lambda self, plain=Machine.arguments: [
                  word if word != str(kernel) else "kernel" for word in plain(self)])):
            return snapshot._path(machine, set_up).name

    def test_the_folder_of_a_run_does_not_matter(self) -> None:
        """The same machine in another lab wakes from it."""
        self.assertEqual(self.name("a"), self.name("b"))

    def test_everything_that_shapes_the_machine_does(self) -> None:
        """Its hardware, its set-up, its root image."""
        names = {self.name(), self.name(smp=4), self.name(memory_mib=640), self.name(append="preempt=full"),
                 self.name(set_up="false"), self.name(root=b"22"), self.name(qemu_args=("-device", "edu"))}
        self.assertEqual(len(names), 7)

    def test_not_everything_is_saved(self) -> None:
        """Neither under KVM nor where instructions are counted."""
        for hardware, wanted in ((Hardware(), True), (Hardware(accel="kvm"), False),
                                 (Hardware(qemu_args=("-icount", "shift=2")), False)):
            machine = mock.Mock(hardware=hardware)
            with mock.patch.dict(os.environ):
                os.environ.pop("VMLAB_COLD", None)
                self.assertEqual(snapshot.usable(machine), wanted)
                os.environ["VMLAB_COLD"] = "1"
                self.assertFalse(snapshot.usable(machine))


if __name__ == "__main__":
    unittest.main()
