# SPDX-License-Identifier: GPL-2.0
"""Archives, ELF files and module order."""
from __future__ import annotations

import io
import lzma
import os
import shutil
import stat
import subprocess
import tempfile
import unittest
from pathlib import Path

from vmlab import elf, kmods, programs
from vmlab.assets import AssetError
from vmlab.cpio import Archive


def member(data: bytes, at: int) -> tuple[str, dict[str, int], bytes, int]:
    """Reads one member by the description of the format: name, numbers, content, next offset."""
    keys = ("inode", "mode", "uid", "gid", "links", "mtime", "size", "dev_major", "dev_minor", "rdev_major",
            "rdev_minor", "name_size", "check")
    assert data[at:at + 6] == b"070701"
    numbers = {key: int(data[at + 6 + 8 * i:at + 14 + 8 * i], 16) for i, key in enumerate(keys)}
    start = at + 110
    name = data[start:start + numbers["name_size"] - 1].decode()
    body = (start + numbers["name_size"] + 3) & ~3
    return name, numbers, data[body:body + numbers["size"]], (body + numbers["size"] + 3) & ~3


class CpioTest(unittest.TestCase):
    """The archive that the kernel unpacks."""

    def setUp(self) -> None:
        """One archive for all."""
        out = io.BytesIO()
        archive = Archive(out)
        archive.file("/a/b/c", b"12345", 0o755, 77)
        archive.link("a/link", "b/c")
        archive.file("a/b/d", b"")
        archive.close()
        self.data = out.getvalue()

    def test_members_are_in_order_and_parents_come_once(self) -> None:
        """Folders before what is in them."""
        at, names = 0, []
        while at < len(self.data):
            name, numbers, _, at = member(self.data, at)
            names.append((name, stat.S_IFMT(numbers["mode"])))
        self.assertEqual(names, [("a", stat.S_IFDIR), ("a/b", stat.S_IFDIR), ("a/b/c", stat.S_IFREG),
                                 ("a/link", stat.S_IFLNK), ("a/b/d", stat.S_IFREG), ("TRAILER!!!", 0)])

    def test_content_mode_and_time_are_kept(self) -> None:
        """Python trusts a compiled file only with its source's time."""
        at = 0
        for _ in range(2):
            at = member(self.data, at)[3]
        _, numbers, content, _ = member(self.data, at)
        self.assertEqual((content, numbers["mode"] & 0o7777, numbers["mtime"], numbers["uid"]),
                         (b"12345", 0o755, 77, 0))

    @unittest.skipUnless(shutil.which("cpio"), "no cpio here")
    def test_cpio_can_read_it(self) -> None:
        """The reference tool agrees."""
        listed = subprocess.run(["cpio", "-it", "--quiet"], input=self.data, capture_output=True, check=True)
        self.assertEqual(listed.stdout.decode().split(), ["a", "a/b", "a/b/c", "a/link", "a/b/d"])


class ElfTest(unittest.TestCase):
    """Questions to a real program: this Python, or what it is a link to."""

    def test_libraries_and_loader(self) -> None:
        """A dynamic program names its loader and the C library."""
        found = elf.dynamic(Path(os.path.realpath("/bin/sh")).read_bytes())
        self.assertTrue(found.interpreter and "ld-linux" in found.interpreter)
        self.assertIn("libc.so.6", found.needed)

    def test_something_else_is_refused(self) -> None:
        """A text file is no ELF file."""
        with self.assertRaises(elf.ElfError):
            elf.sections(Path(__file__).read_bytes())
        self.assertFalse(elf.is_elf(b"#!"))


class OrderTest(unittest.TestCase):
    """Load order of modules."""

    class Fake(kmods.Module):
        """A module of which only the dependencies matter."""

        def __init__(self, name: str, *depends: str) -> None:
            super().__init__(Path(f"{name}.ko"), b"")
            self._depends = list(depends)

        @property
        def depends(self) -> list[str]:
            """What the module needs."""
            return self._depends

    def order(self, *modules: Fake) -> list[str]:
        """The order in which all these would load, built-in ones left out."""
        table = {module.name: module for module in modules}
        return [module.name for module in kmods.in_order([modules[0].name], table.get)]

    def test_dependencies_come_first_and_once(self) -> None:
        """A diamond loads four modules."""
        self.assertEqual(self.order(self.Fake("top", "left", "right"), self.Fake("left", "base"),
                                    self.Fake("right", "base"), self.Fake("base", "in_the_kernel")),
                         ["base", "left", "right", "top"])

    def test_a_circle_is_named(self) -> None:
        """It can not load, and the error says which."""
        with self.assertRaisesRegex(AssetError, "a -> b -> a"):
            self.order(self.Fake("a", "b"), self.Fake("b", "a"))

    def test_names_are_spelled_as_the_kernel_does(self) -> None:
        """Dashes are underscores."""
        self.assertEqual(kmods.Module(Path("/x/rtrs-client.ko.xz"), b"").name, "rtrs_client")

    def test_packed_modules_are_unpacked(self) -> None:
        """The distribution packs them with xz."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "m.ko.xz"
            path.write_bytes(lzma.compress(b"content"))
            self.assertEqual(kmods.read(path), b"content")


class RootTest(unittest.TestCase):
    """Links of a foreign root stay in it."""

    def test_absolute_links_are_followed_inside(self) -> None:
        """As /etc/alternatives has them."""
        with tempfile.TemporaryDirectory() as folder:
            top = Path(folder)
            (top / "usr/bin").mkdir(parents=True)
            (top / "etc").mkdir()
            (top / "usr/bin/real").write_text("x")
            (top / "etc/alternative").symlink_to("/usr/bin/real")
            (top / "usr/bin/name").symlink_to("/etc/alternative")
            (top / "usr/bin/loop").symlink_to("loop")
            (top / "usr/bin/gone").symlink_to("/nowhere")
            root = programs.Root(top)
            self.assertEqual(root.program("name"), ("usr/bin/name", (top / "usr/bin/real").resolve()))
            self.assertIsNone(root.resolve("usr/bin/loop"))
            self.assertIsNone(root.resolve("usr/bin/gone"))
            with self.assertRaisesRegex(AssetError, "lacks the program absent"):
                root.program("absent")


if __name__ == "__main__":
    unittest.main()
