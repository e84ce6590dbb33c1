# SPDX-License-Identifier: GPL-2.0
"""Examples that must not compile, and the errors that refuse them."""
from __future__ import annotations

import json
import sys
import unittest

from kdir.config import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "tools/test"))
import examples

SOURCE = """
/// Two lists.
///
/// ```compile_fail,E0061
/// # use rdma::Mr;
///
/// mr.map(list);
/// ```
///
/// ```
/// compiles();
/// ```
    /// ```compile_fail,E0200
    /// impl Unmapper for Promise {}
    /// ```
"""
NOTED = """savedcmd_selftest/a.o := OBJTREE=/tree rustc --edition=2021 --emit=metadata=/out/liba.rmeta \
--extern rdma=/out/librdma.rmeta -Zcrate-attr='feature(a,b)' --out-dir selftest/ --emit=obj=selftest/a.o /src/a.rs

source_selftest/a.o := /src/a.rs
"""


def _said(level: str, message: str, code: str | None) -> str:
    return json.dumps({"level": level, "message": message, "code": code and {"code": code}})


class ExamplesTest(unittest.TestCase):
    """The steps of the check."""

    def test_examples_that_must_not_compile_are_found(self) -> None:
        """Examples have their errors and lines, without what hides a line; no others are found."""
        self.assertEqual(examples.examples(SOURCE), [(4, "E0061", "use rdma::Mr;\n\nmr.map(list);\n"),
                                                     (13, "E0200", "impl Unmapper for Promise {}\n")])

    def test_the_compiler_has_the_line_of_a_module(self) -> None:
        """The flags and crates are the module's; the source and what is made of it are others."""
        self.assertEqual(examples.command(NOTED, "/made"), [
            "env", "RUSTC_BOOTSTRAP=1", "OBJTREE=/tree", "rustc", "--edition=2021", "--extern",
            "rdma=/out/librdma.rmeta", "-Zcrate-attr=feature(a,b)", "--emit=metadata", "--out-dir", "/made",
            "--error-format=json", "--crate-name=example", "-"])

    def test_each_error_counts(self) -> None:
        """Also one that has no code; warnings and the closing line do not."""
        printed = "\n".join((_said("warning", "unused", "E0001"), _said("error", "one", "E0061"), "no diagnostic",
                             _said("error", "two", None), _said("error", "aborting due to 2 previous errors", None)))
        self.assertEqual(examples.errors(printed), {"E0061", "?"})

    def test_each_folder_has_a_user(self) -> None:
        """An example of a crate that nothing here compiles would never be looked at."""
        for source in REPOSITORY.rglob("*.rs"):
            is_tool = source.is_relative_to(REPOSITORY / "tools")
            if not is_tool and examples.examples(source.read_text(encoding="utf-8")):
                self.assertTrue(any(source.is_relative_to(REPOSITORY / user) for user in examples.USERS), source)


if __name__ == "__main__":
    unittest.main()
