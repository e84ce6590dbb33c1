# SPDX-License-Identifier: GPL-2.0
"""The rules about what users see find a name that no page has, and a page's name that is gone."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import users
from rules import Source


def source(name: str, text: str) -> Source:
    """A file of a tree."""
    return Source(pathlib.Path(name), text.encode())


class UsersTest(unittest.TestCase):
    """One file of code and one page each."""

    def test_a_parameter_needs_its_page(self) -> None:
        """One that is not there, one that is, and one of the page that is gone."""
        code = source("rtrs/server/module.rs", 'module_param_int!(\n    MAX: i32, "max_size",\n    1,\n    ""\n);\n')
        page = "What:\t\t/sys/module/rtrs_server/parameters/%s\n"
        for name, found in (("max_size", 0), ("old_size", 2)):
            self.assertEqual(len(users.parameters_are_documented([code, source(str(users.PARAMETERS), page % name)])),
                             found, name)

    def test_a_parameter_of_the_test_device_needs_its_page(self) -> None:
        """A page names it as `name=` or in backticks."""
        code = source("test/test_device/x.rs", 'module_param_string!(\n    NET: 16,\n    "netdev",\n    "eth0", "")\n')
        for text, found in (("with `netdev=eth0`", 0), ("its `netdev`", 0), ("a netdev", 1)):
            page = source("Documentation/testing.md", text)
            self.assertEqual(len(users.parameters_are_documented([code, page])), found, text)

    def test_a_file_of_sysfs_needs_its_page(self) -> None:
        """A page names it in its folder, with the name of the code."""
        code = source("rnbd/client/sysfs.rs", 'Attribute::ro(\n    c"state", show)\nDirectory::new(disk, c"rnbd", x)\n')
        for path, found in (("/sys/block/rnbd<N>/rnbd/state", 0), ("/sys/block/rnbd<N>/state", 1),
                            ("/sys/block/rnbd<N>/rnbd/size", 2)):
            page = source("Documentation/ABI/testing/sysfs-class-rnbd-client", f"What:\t\t{path}\n")
            self.assertEqual(len(users.sysfs_is_documented([code, page])), found, path)

    def test_a_line_of_the_log_needs_its_page(self) -> None:
        """Its longest part; in code that goes on in the next line, and not in a comment."""
        code = source("rnbd/server/x.rs", '/// pr_err!("never said by anything\\n");\n'
                                          'pr_err!(\n    "{}: the disk {disk} is \\\n     too slow for this\\n"\n);\n')
        for text, found in (("`... is too slow\nfor this`", 0), ("the disk is slow", 1)):
            page = source("Documentation/troubleshooting.md", text)
            self.assertEqual(len(users.log_lines_are_documented([code, page])), found, text)

    def test_files_without_names_are_told(self) -> None:
        """Options that the rule does not find any more do not pass for documented."""
        self.assertEqual(len(users.options_are_documented([])), 2)


if __name__ == "__main__":
    unittest.main()
