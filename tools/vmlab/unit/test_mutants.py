# SPDX-License-Identifier: GPL-2.0
"""Results of cargo-mutants, as the stage of mutants judges them."""
from __future__ import annotations

import sys
import tempfile
import tomllib
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(REPOSITORY / "tools/test"))
import mutants

UNLOCK = mutants.Mutant("rnbd/proto/admin_lock.rs", "is_last", "replace LockState::unlock -> bool with true")


class Mutants(unittest.TestCase):
    """The copy of the workspace, and the judgement."""

    def test_the_copy_is_a_workspace_with_the_same_members_and_all_sources(self) -> None:
        """Its root is a folder above that of tools/."""
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "copy"
            (target / "old").mkdir(parents=True)
            mutants.copy(REPOSITORY, target)
            self.assertFalse((target / "old").exists())
            ours = tomllib.loads((REPOSITORY / "tools/Cargo.toml").read_text())["workspace"]
            copied = tomllib.loads((target / "Cargo.toml").read_text())
            self.assertEqual(copied["workspace"]["members"], [f"tools/{name}" for name in ours["members"]])
            self.assertEqual(copied["profile"], tomllib.loads((REPOSITORY / "tools/Cargo.toml").read_text())["profile"])
            for member in copied["workspace"]["members"]:
                self.assertTrue((target / member / "Cargo.toml").exists(), member)
            for source in ("rtrs/proto", "rnbd/proto", "common"):
                names = {path.name for path in (REPOSITORY / source).rglob("*.rs")}
                self.assertEqual(names, {path.name for path in (target / source).rglob("*.rs")})

    def test_a_result_names_the_file_and_the_line(self) -> None:
        """Whatever the way to the file is."""
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "rnbd/proto").mkdir(parents=True)
            (Path(folder) / "tools/src").mkdir(parents=True)
            (Path(folder) / "rnbd/proto/admin_lock.rs").write_text("fn unlock() -> bool {\n    is_last\n}\n")
            lines = "tools/src/../../rnbd/proto/admin_lock.rs:2:5: replace LockState::unlock -> bool with true\n"
            self.assertEqual(mutants.read(lines, Path(folder)), [UNLOCK])

    def test_a_survivor_needs_a_reason_and_a_reason_a_survivor(self) -> None:
        """Files that were mutated count."""
        self.assertEqual(len(mutants.judge([UNLOCK], {}, {UNLOCK.file})), 1)
        self.assertEqual(mutants.judge([UNLOCK], {UNLOCK: "why"}, {UNLOCK.file}), [])
        self.assertEqual(len(mutants.judge([], {UNLOCK: "why"}, {UNLOCK.file})), 1)
        self.assertEqual(mutants.judge([], {UNLOCK: "why"}, {"another.rs"}), [])

    def test_a_run_that_failed_or_made_nothing_is_wrong(self) -> None:
        """No result is no success."""
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(mutants.results(Path(folder), 4)[0], 0)
            self.assertTrue(mutants.results(Path(folder), 4)[1])
            (Path(folder) / "mutants.out").mkdir()
            for name in ("caught", "missed", "timeout"):
                (Path(folder) / f"mutants.out/{name}.txt").write_text("")
            self.assertTrue(mutants.results(Path(folder), 0)[1])

    def test_each_exception_is_in_the_source_and_has_a_reason(self) -> None:
        """The list that is kept is right."""
        for mutant, why in mutants.exceptions(mutants.EXCEPTIONS.read_text(encoding="utf-8")).items():
            lines = (REPOSITORY / mutant.file).read_text(encoding="utf-8").splitlines()
            self.assertIn(mutant.line, [line.strip() for line in lines])
            self.assertGreater(len(why), 20)
