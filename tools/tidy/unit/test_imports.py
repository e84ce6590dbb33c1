# SPDX-License-Identifier: GPL-2.0
"""The rule for imports finds what it is for."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import imports
import layers
from rules import Source

UPWARDS = b"""
use crate::client::{
    io::table::RequestTable,
    path::{
        error::PathError, // a comment
        Path, //
    },
    sysfs::{self, session::SessionFiles}, //
};
"""


class Imports(unittest.TestCase):
    """A file imports from its own layer and those below."""

    def upward(self, path: str, text: bytes = UPWARDS, folder: str = "rtrs/client") -> set[str]:
        """Imports from above in the file at `path`."""
        return imports.upward(Source(pathlib.Path(path), text), folder)

    def test_upward(self) -> None:
        """The same imports are upward or not by where the file is."""
        above = {"sysfs", "sysfs::session::SessionFiles"}
        self.assertEqual(self.upward("rtrs/client/io/send.rs"), above | {"path::error::PathError", "path::Path"})
        self.assertEqual(self.upward("rtrs/client/path.rs"), above)
        self.assertEqual(self.upward("rtrs/client/module.rs"), set())

    def test_the_other_side(self) -> None:
        """The other driver's names mean nothing."""
        self.assertEqual(self.upward("rtrs/server/io/request.rs", folder="rtrs/server"), set())

    def test_relative_paths_are_followed(self) -> None:
        """Paths count from the file, in imports and in code; a comment, a string and another crate name no file of the
        driver."""
        for path, text in (("rnbd/server/io.rs", b"use super::session::Session;"),
                           ("rnbd/server/store.rs", b"pub(crate) use super::{io::{self}, session::Session, //\n};"),
                           ("rnbd/server/store/client_queue.rs", b"use super::super::session::Session;"),
                           ("rnbd/server/store/client_queue.rs", b"fn f() { super::super::session::Session }"),
                           ("rnbd/server/store/client_queue.rs", b"fn f() { crate::server::session::Session }")):
            above = self.upward(path, text, "rnbd/server") - {"io"}
            self.assertEqual(above, {"session::Session"}, text)
        for text in (b"// super::session::Session", b'f("super::session::Session")',
                     b"use rtrs_server::session::Session;", b"use super::identity::Boot;"):
            self.assertEqual(self.upward("rnbd/server/io.rs", text, "rnbd/server"), set(), text)

    def test_complaints(self) -> None:
        """An import that is not listed is named, and so is one that is listed without need."""
        complaints = imports.imports_run_one_way([Source(pathlib.Path("rtrs/client/session/paths.rs"), UPWARDS)])
        self.assertIn("rtrs/client/session/paths.rs: imports sysfs", complaints)
        self.assertIn("rtrs/client/path.rs: session::Session is listed and not imported", complaints)

    def test_each_file_has_a_layer(self) -> None:
        """A new file is placed, and a place whose file is gone is given up."""
        complaints = imports.files_have_layers([Source(pathlib.Path("rnbd/client/new.rs"), b"")])
        self.assertIn("rnbd/client: new has no layer", complaints)
        self.assertIn("rnbd/client: there is no sysfs", complaints)

    def test_a_circle_is_small(self) -> None:
        """Files of a folder that all reach each other are counted; one that is only reached is not among them."""
        def circle(count: int) -> list[Source]:
            """As many files that each import the next one, of which the last imports the first, and one more."""
            names = [f"f{n}" for n in range(count)]
            text = "use super::{}::A;\nuse super::g::B;"
            files = [Source(pathlib.Path(f"rtrs/client/{name}.rs"), text.format(after).encode())
                     for name, after in zip(names, names[1:] + names[:1], strict=True)]
            return files + [Source(pathlib.Path("rtrs/client/g.rs"), b"")]

        def of_client(count: int) -> list[str]:
            return [line for line in imports.circles_are_small(circle(count)) if line.startswith("rtrs/client:")]
        self.assertEqual(of_client(layers.CIRCLE_MAX), [])
        self.assertEqual(of_client(7), ["rtrs/client: a circle of 7: f0, f1, f2, f3, f4, f5, f6"])
        self.assertIn("lib/seglog: its largest circle has 0 files: lower the 9 of CIRCLES",
                      imports.circles_are_small([]))
