# SPDX-License-Identifier: GPL-2.0
"""The rule for words finds them where people read, and nowhere else."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import language
from rules import Source


def complaints(name: str, text: str) -> list[str]:
    """What the rule says of one file."""
    return language.plain_words([Source(pathlib.Path(name), text.encode())])


class PlainWordsTest(unittest.TestCase):
    """Comments and documents."""

    def test_a_comment_that_hides_who_acts_is_found(self) -> None:
        """Line comments, documentation, comments behind code, in either case, and in C over several lines."""
        for name, text in (("rdma/cq.rs", "// Nobody holds it.\n"), ("rdma/cq.rs", "/// Wakes whoever waits.\n"),
                           ("rtrs/proto/imm.rs", "let a = 1; // tried in vain\n"),
                           ("kernel_ext/bindings/helpers.c", "/* Somebody\n * waits. */\n"),
                           ("block/bindings/helpers.c", "/*\n * It hears of ports.\n */\n"),
                           ("Documentation/failover.md", "A path says farewell.\n"),
                           ("Documentation/ABI/testing/sysfs", "Whatever it is.\n"), ("README.md", "an orphan\n")):
            self.assertEqual(len(complaints(name, text)), 1, text)

    def test_names_of_code_are_not_words(self) -> None:
        """Code, strings, examples and what stands in backticks may have them."""
        for name, text in (("rdma/cq.rs", "fn deeds() {}\n"), ("rdma/cq.rs", 'pr_info!("// nobody\\n");\n'),
                           ("rdma/cq.rs", "//! ```\n//! erased.deeds();\n//! ```\n//! Fine.\n"),
                           ("rdma/cq.rs", "/// See `deeds`.\n"), ("rdma/bindings/helpers.c", "int ghost;\n"),
                           ("Documentation/failover.md", "the column `heir`\n"),
                           ("rdma/cq.rs", "// The body of a message, as a whole.\n")):
            self.assertEqual(complaints(name, text), [], text)

    def test_after_an_example_comments_are_read_again(self) -> None:
        """A fence that is closed hides nothing."""
        text = "//! ```\n//! a();\n//! ```\n//! nobody\n"
        self.assertEqual(complaints("rdma/cq.rs", text), ["rdma/cq.rs:4: 'nobody'"])

    def test_tools_are_left_out(self) -> None:
        """The rule holds for kernel code and documents, not for host programs."""
        self.assertEqual(complaints("tools/sim/src/lib.rs", "// nobody\n"), [])
        self.assertEqual(len(complaints("rnbd/client/x.rs", "// nobody\n")), 1)


if __name__ == "__main__":
    unittest.main()
