# SPDX-License-Identifier: GPL-2.0
"""The rules for words find them where people read, and nowhere else."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import language
from rules import Source


def complaints(name: str, text: str) -> list[str]:
    """Complaints of the rule about one file."""
    return language.plain_words([Source(pathlib.Path(name), text.encode())])


class PlainWordsTest(unittest.TestCase):
    """Comments and documents."""

    def test_a_comment_that_hides_who_acts_is_found(self) -> None:
        """Line comments, documentation, comments behind code, in either case, and in C over several lines."""
        for name, text in (("lib/rdma/cq.rs", "// Nobody holds it.\n"),
                           ("lib/rdma/cq.rs", "/// Wakes whoever waits.\n"),
                           ("rtrs/proto/imm.rs", "let a = 1; // tried in vain\n"),
                           ("lib/kernel_ext/bindings/helpers.c", "/* Somebody\n * waits. */\n"),
                           ("lib/block/bindings/helpers.c", "/*\n * It hears of ports.\n */\n"),
                           ("Documentation/failover.md", "A path says farewell.\n"),
                           ("Documentation/ABI/testing/sysfs", "Whatever it is.\n"), ("README.md", "an orphan\n")):
            self.assertEqual(len(complaints(name, text)), 1, text)

    def test_names_of_code_are_not_words(self) -> None:
        """Code, strings, examples and what stands in backticks may have them."""
        for name, text in (("lib/rdma/cq.rs", "fn deeds() {}\n"), ("lib/rdma/cq.rs", 'pr_info!("// nobody\\n");\n'),
                           ("lib/rdma/cq.rs", "//! ```\n//! erased.deeds();\n//! ```\n//! Fine.\n"),
                           ("lib/rdma/cq.rs", "/// See `deeds`.\n"), ("lib/rdma/bindings/helpers.c", "int ghost;\n"),
                           ("Documentation/failover.md", "the column `heir`\n"),
                           ("lib/rdma/cq.rs", "// The body of a message, as a whole.\n")):
            self.assertEqual(complaints(name, text), [], text)

    def test_after_an_example_comments_are_read_again(self) -> None:
        """A fence that is closed hides nothing."""
        text = "//! ```\n//! a();\n//! ```\n//! nobody\n"
        self.assertEqual(complaints("lib/rdma/cq.rs", text), ["lib/rdma/cq.rs:4: 'nobody'"])

    def test_tools_are_left_out(self) -> None:
        """The rule holds for kernel code and documents, not for host programs."""
        self.assertEqual(complaints("tools/sim/src/lib.rs", "// nobody\n"), [])
        self.assertEqual(len(complaints("rnbd/client/x.rs", "// nobody\n")), 1)


class FirstWordTest(unittest.TestCase):
    """The beginnings of documentation comments."""

    def complaints(self, name: str, text: str) -> list[str]:
        """Complaints of the rule about one file."""
        return language.first_word([Source(pathlib.Path(name), text.encode())])

    def test_a_question_or_a_fragment_is_found(self) -> None:
        """The first line counts of the comment of a file, an item, a field, also behind a comment of the file."""
        for text in ("//! How a queue pair is drained.\n", "/// What's left.\n", "    /// As [`Self::end`].\n",
                     "/// That of sends.\n", "/// in each state.\n", "/// Not set.\n", "/// It is executed.\n"):
            self.assertEqual(len(self.complaints("lib/rdma/cq.rs", text)), 1, text)
        text = "//! A queue.\n/// Where it is.\n/// Why not.\nfn a() {}\n/// Of `b`.\n"
        self.assertEqual(self.complaints("rtrs/a.rs", text), ["rtrs/a.rs:2: 'Where'", "rtrs/a.rs:5: 'Of'"])

    def test_verbs_and_nouns_are_not(self) -> None:
        """A condition may begin with "Whether"; other lines and other comments begin as they like."""
        for text in ("/// Waits.\n", "/// The number.\n", "/// Whether it waits.\n", "/// Returns\n/// what is left.\n",
                     "/// Format of it.\n", "/// In-memory tables.\n", "/// `in` and `of`.\n", "/// [`What`].\n",
                     "/// # Safety\n", "// What is left.\n", "//// What is left.\n", "let a = 1; /// What\n"):
            self.assertEqual(self.complaints("lib/rdma/cq.rs", text), [], text)

    def test_it_holds_for_all_rust_code(self) -> None:
        """Kernel code, samples, host programs, whose help texts are such comments, too, and their tests."""
        for name, count in (("rnbd/a.rs", 1), ("samples/gga_halfblock/a.rs", 1), ("tools/sim/src/lib.rs", 1),
                            ("tools/seglog/tests/crash/disk.rs", 1), ("rnbd/a.py", 0)):
            self.assertEqual(len(self.complaints(name, "/// What is left.\n")), count, name)


if __name__ == "__main__":
    unittest.main()
