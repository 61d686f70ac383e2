"""README.zh.md says what README.md says: the same commands, figures, links and tables, section by section."""

import re

from conftest import ROOT

BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)]+)\)")
NUMBER = re.compile(r"\d[\d,.]*\d|\d")


def commands(section):
    """Lines of the shell blocks without their comments."""
    lines = "".join(BLOCK.findall(section)).splitlines()
    return [re.sub(r"\s+# .*$", "", line) for line in lines]


def figures(section):
    """Numbers outside of shell blocks, links and addresses; a month is one number in both languages."""
    text = LINK.sub("", BLOCK.sub("", section))
    text = re.sub(r"November (\d{4})|(\d{4}) 年 11 月", lambda found: f"{found[1] or found[2]},11", text)
    return sorted(NUMBER.findall(text))


def links(section):
    return sorted(link for link in LINK.findall(section) if not link.startswith("README"))


def spans(section):
    """What is typed or looked for as it stands."""
    return sorted(re.findall(r"`([^`\n]+)`", BLOCK.sub("", section)))


def rows(section):
    return [line.count("|") for line in section.splitlines() if line.startswith("|")]


def differences(ours, theirs):
    """(what differs, the section's number, in the one, in the other)"""
    sections, others = (re.split(r"^## ", text, flags=re.MULTILINE) for text in (ours, theirs))
    if len(sections) != len(others):
        yield "sections", 0, len(sections), len(others)
    for number, (section, other) in enumerate(zip(sections, others)):
        for part in (commands, figures, links, spans, rows):
            if part(section) != part(other):
                one, two = part(section), part(other)
                yield part.__name__, number, [x for x in one if x not in two] or one, [x for x in two if x not in one] or two


def test_both_languages_say_the_same():
    texts = [re.sub(r"^<!-- .* -->\n", "", (ROOT / name).read_text(encoding="utf-8"), flags=re.MULTILINE)
             for name in ("README.md", "README.zh.md")]
    assert not list(differences(*texts))


def test_a_difference_is_seen():
    text = "a\n## b\n```sh\ngpu-cli list  # all\n```\n| 39,900 a second, 2 | [x](y.md) | `make`\n"
    assert not list(differences(text, text.replace("# all", "# 全部").replace("a second", "每秒")))
    for old, new in (("gpu-cli list", "gpu-cli top"), ("39,900", "40,000"), ("y.md", "z.md"), ("`make`", "`cmake`"),
                     ("| `", "`"), ("## b", "b")):
        assert list(differences(text, text.replace(old, new))), old
