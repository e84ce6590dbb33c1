# SPDX-License-Identifier: GPL-2.0
"""Words that comments of kernel code and documents do without, anywhere (they hide who acts, or are pictures) or as the
first one."""
import pathlib
import re
from collections.abc import Iterator

from rules import Source
from rust import KERNEL_FOLDERS

# What hides the thread, context or lock that acts; then pictures in place of the field's terms.
WORDS = re.compile(r"\b(nobody|somebody|anybody|everybody|whoever|whatever|in vain|hears? of|further ado"
                   r"|deeds?|orphans?|heirs?|ghosts?|pulses?|patien(?:ce|t)|farewells?|bury|buried|graves?)\b", re.I)
# Questions, pronouns without their noun, and fragments: a reader cannot tell what the item is or does. A verb in the
# third person and a noun do ("Whether", of a condition, counts as one).
_NO_FIRST_WORD = re.compile(
    r"(What|Which|Who|Whom|Whose|Where|When|Why|How|It|They|This|That|These|Those|There|Something|Anything|Everything"
    r"|As|At|By|For|From|In|Of|On|To|With|Without|If|While|Until|Because|So|Not|Being|Must|Can|Could|May)(?![-\w])",
    re.I)
_DOCUMENTATION = re.compile(r" *(///(?!/)|//!)")
DOCUMENTS = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Documentation")
_QUOTED = re.compile(r"`[^`]*`")
_STRING = re.compile(r'"(\\.|[^"\\])*"')


def _rust_comments(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Comments of a Rust file by line, without examples and names of code."""
    fenced = False
    for number, line in enumerate(lines, 1):
        comment = _STRING.sub('""', line).partition("//")[2].lstrip("/! ")
        if comment.startswith("```"):
            fenced = not fenced
        elif comment and not fenced:
            yield number, _QUOTED.sub("", comment)


def _c_comments(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Comments of a C file by line."""
    inside = False
    for number, line in enumerate(lines, 1):
        start = 0 if inside else line.find("/*")
        if start >= 0:
            end = line.find("*/", start)
            inside = end < 0
            yield number, line[start:] if inside else line[start:end]


def _prose(source: Source) -> Iterator[tuple[int, str]]:
    """The text of a file for its readers, by line."""
    if source.path.suffix == ".rs":
        yield from _rust_comments(source.lines)
    elif source.path.suffix in {".c", ".h"}:
        yield from _c_comments(source.lines)
    elif source.path.parts[0] in DOCUMENTS:
        yield from ((number, _QUOTED.sub("", line)) for number, line in enumerate(source.lines, 1))


def _is_checked(path: pathlib.Path) -> bool:
    """Whether the rule holds for a file: kernel code, and documents."""
    return path.parts[0] in (*KERNEL_FOLDERS, *DOCUMENTS)


def plain_words(sources: list[Source]) -> list[str]:
    """Comments name who acts (a thread, a context, a lock's holder), with the field's terms."""
    return [f"{source.path}:{number}: '{word[0]}'" for source in sources if _is_checked(source.path)
            for number, text in _prose(source) for word in WORDS.finditer(text)]


def _first_lines(lines: list[str]) -> Iterator[tuple[int, str]]:
    """The first line of each documentation comment of a Rust file, by line."""
    before = None
    for number, line in enumerate(lines, 1):
        match = _DOCUMENTATION.match(line)
        marker = match[1] if match else None
        if match and marker != before:
            yield number, line[match.end():].strip()
        before = marker


def first_word(sources: list[Source]) -> list[str]:
    """A documentation comment begins with what the item does or is: a verb in the third person, or a noun. A help text
    is one, which its program prints."""
    return [f"{source.path}:{number}: '{word[0]}'" for source in sources if source.path.suffix == ".rs"
            for number, text in _first_lines(source.lines) if (word := _NO_FIRST_WORD.match(text))]


RULES = [plain_words, first_word]
