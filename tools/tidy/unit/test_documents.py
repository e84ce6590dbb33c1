# SPDX-License-Identifier: GPL-2.0
"""Rules about documents."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from documents import links_lead_somewhere
from rules import Source


def complaints(text: str) -> list[str]:
    """What is wrong with the links of a page beside another one."""
    other = "# Two words, and `code`\n\n```\n# no heading\n```\n"
    files = {"docs/page.md": text, "docs/other.md": other, "lib/a.rs": ""}
    return links_lead_somewhere([Source(pathlib.Path(name), data.encode()) for name, data in files.items()])


class Links(unittest.TestCase):
    """Links of documents."""

    def test_a_file_a_folder_and_a_heading_are_there(self) -> None:
        """Relative to the page; what another host has is not looked at."""
        self.assertEqual(complaints("[a](other.md#two-words-and-code) [b](../lib) [c](../lib/a.rs) [d](mailto:a@b) "
                                    "[e](#here)\n# Here\n"), [])

    def test_what_is_not_there_is_told(self) -> None:
        """Files that have moved, and headings that were renamed or are lines of a command."""
        self.assertEqual(complaints("[a](../gone) [b](other.md#no-heading) [c](#nowhere)"),
                         ["docs/page.md: there is no ../gone", "docs/page.md: other.md has no heading no-heading",
                          "docs/page.md:  has no heading nowhere"])


if __name__ == "__main__":
    unittest.main()
