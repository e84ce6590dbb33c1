# SPDX-License-Identifier: GPL-2.0
"""The rule for imports finds what it is for."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import imports
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

    def upward(self, path: str) -> set[str]:
        """What the file at `path` would import from above."""
        return set(imports.upward(Source(pathlib.Path(path), UPWARDS)))

    def test_upward(self) -> None:
        """The same imports are upward or not by where the file is."""
        above = {"sysfs", "sysfs::session::SessionFiles"}
        self.assertEqual(self.upward("rtrs/client/io/send.rs"), above | {"path::error::PathError", "path::Path"})
        self.assertEqual(self.upward("rtrs/client/path.rs"), above)
        self.assertEqual(self.upward("rtrs/client/module.rs"), set())

    def test_the_other_side(self) -> None:
        """The other driver's names mean nothing."""
        self.assertEqual(self.upward("rtrs/server/io/request.rs"), set())

    def test_complaints(self) -> None:
        """What is not listed is named, and so is what is listed without need."""
        complaints = imports.imports_run_one_way([Source(pathlib.Path("rtrs/client/session/paths.rs"), UPWARDS)])
        self.assertIn("rtrs/client/session/paths.rs: imports sysfs", complaints)
        self.assertIn("rtrs/client/path.rs: session::Session is listed and not imported", complaints)
