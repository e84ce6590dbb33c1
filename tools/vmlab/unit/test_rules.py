# SPDX-License-Identifier: GPL-2.0
"""The rules of the drivers that are deleted one at a time: their lists, and what counts as seen."""
from __future__ import annotations

import sys
import tempfile
import unittest
from dataclasses import replace
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(REPOSITORY / "tools/test"))
import rules

RULE = rules.Rule("a.flag", "the flag is set", "a/b.rs", "set(FLAG);", "", ("io.x",))


class RulesTest(unittest.TestCase):
    """The lists of the tree, and how a rule is deleted."""

    def test_each_rule_is_in_its_driver_and_has_a_test(self) -> None:
        """Code that moves takes its rule along; a test that is renamed, too."""
        self.assertEqual(rules.complaints(rules.load(), REPOSITORY, rules.known_tests(REPOSITORY)), [])

    def test_a_place_that_is_gone_or_there_twice_is_told(self) -> None:
        """The list has to follow."""
        for text, times in (("", 0), ("set(FLAG); set(FLAG);", 2)):
            self.assertIn(f"is {times} times in a/b.rs", self.complaint(RULE, text))
        self.assertEqual(self.complaint(RULE, "x; set(FLAG); y;"), "")
        self.assertEqual(RULE.without("x; set(FLAG); y;"), "x;  y;")

    def test_a_change_that_changes_nothing_is_told(self) -> None:
        """Nothing would be left out."""
        self.assertIn("1 times", self.complaint(replace(RULE, new=RULE.old), RULE.old))

    def test_a_test_that_does_not_exist_is_told(self) -> None:
        """The name of the rule is told, in virtual machines and on the host."""
        self.assertEqual(self.complaint(replace(RULE, tests=("io.y",)), RULE.old), "a.flag: there is no test io.y")
        host = replace(RULE, package="ferrofabric-proto", tests=("a::of_no_name",))
        self.assertEqual(self.complaint(host, RULE.old), "a.flag: there is no test a::of_no_name")

    def test_a_rule_without_a_test_has_a_reason(self) -> None:
        """None is skipped in silence."""
        self.assertEqual(self.complaint(replace(RULE, tests=()), RULE.old), "a.flag: no test is named")
        self.assertEqual(self.complaint(replace(RULE, tests=(), unseen="rxe has no such order"), RULE.old), "")

    def complaint(self, rule: rules.Rule, text: str) -> str:
        """Errors of a rule in a tree of one file."""
        with tempfile.TemporaryDirectory() as name:
            (Path(name) / "a").mkdir()
            (Path(name) / "a/b.rs").write_text(text)
            return "\n".join(rules.complaints([rule], Path(name), {"io.x"}))

    def test_files_folders_and_names_select_rules(self) -> None:
        """Nothing named is everything."""
        for words, found in (((), 1), (("a/b.rs",), 1), (("a",), 1), (("a/",), 1), (("a.flag",), 1), (("b",), 0)):
            self.assertEqual(len(rules.select([RULE], words)), found, words)

    def test_rules_with_tests_of_their_own_are_deleted_together(self) -> None:
        """Rules that need the same test, the same place, or honest IO are not."""
        with tempfile.TemporaryDirectory() as name:
            tree = Path(name)
            (tree / "a").mkdir()
            (tree / "a/b.rs").write_text("set(FLAG); start(); set(OTHER);")
            other = replace(RULE, name="a.other", old="set(OTHER);", tests=("io.y",))
            for second, count in ((other, 1), (replace(other, tests=RULE.tests), 2), (replace(other, alone=True), 2),
                                  (replace(other, old="FLAG); start"), 2), (replace(other, package="p"), 2)):
                self.assertEqual(len(rules.batches([RULE, second], tree)), count, second)
            self.assertEqual(rules.edits([RULE, other], tree), {"a/b.rs": " start(); "})

    def test_a_rule_is_noticed_by_a_test_that_says_so(self) -> None:
        """A failure of another test, or for another reason, shows nothing."""
        lines = ["ok 1 io.w # 1.0 s", "not ok 2 io.x # 2.0 s", "#   disk: no FLAG", "# what failed:", "#   io.x",
                 "#       disk: no FLAG", "1 passed, 1 failed"]
        found = rules.lab_reports(lines)
        self.assertEqual(found, {"io.x": "not ok 2 io.x # 2.0 s\n#   disk: no FLAG"})
        self.assertEqual(replace(RULE, says="no FLAG").noticed_by(found), "io.x")
        self.assertEqual(replace(RULE, says="never ran").noticed_by(found), "")
        self.assertEqual(replace(RULE, tests=("io.w",)).noticed_by(found), "")

    def test_what_cargo_says_is_read(self) -> None:
        """Each failed test has a part of its own; the list of names after them belongs to none."""
        lines = ["failures:", "", "---- a::x stdout ----", "left: 1", "---- a::y stdout ----", "right: 2", "",
                 "failures:", "    a::x", "test result: FAILED. 0 passed; 2 failed"]
        self.assertEqual(rules.host_reports(lines), {"a::x": "---- a::x stdout ----\nleft: 1",
                                                     "a::y": "---- a::y stdout ----\nright: 2\n"})

    def test_the_copy_follows_the_tree_and_keeps_what_has_not_changed(self) -> None:
        """make builds again what is newer only."""
        with tempfile.TemporaryDirectory() as name:
            target = Path(name)
            rules.copy(REPOSITORY, target)
            same, changed, extra = target / "Makefile", target / "README.md", target / "new.rs"
            before = same.stat().st_mtime_ns
            changed.write_text("other")
            extra.write_text("left over")
            rules.copy(REPOSITORY, target)
            self.assertEqual(same.stat().st_mtime_ns, before)
            self.assertEqual(changed.read_bytes(), (REPOSITORY / "README.md").read_bytes())
            self.assertFalse(extra.exists())


if __name__ == "__main__":
    unittest.main()
