"""Every file is finished, licensed and belongs to no one machine; every link in the documents leads somewhere."""

import pathlib
import re
import urllib.parse

from conftest import ROOT, project_files

CODE = (".cc", ".h", ".py", ".cmake", ".proto", ".sh")
TEXT = CODE + (".md", ".txt", ".json", ".yaml", ".yml", ".scn", "")
# Written in halves, so that this file does not find itself.
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX|HA" + r"CK)\b")
# Somebody's home folder; the names that examples use are fine.
HOME = re.compile(r"(?:/home|/Users)/(?!(?:ada|alice|bob|carol|user|you|me|NAME)\b)[a-z][\w.-]*")


def texts(suffixes):
    for name in project_files():
        path = ROOT / name
        if path.suffix in suffixes and path.name != "LICENSE":
            try:
                yield name, path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                assert "tests/" in name, f"{name} is not UTF-8"


def test_nothing_is_marked_unfinished():
    found = [f"{name}: {match[0]}" for name, text in texts(TEXT) for match in UNFINISHED.finditer(text)]
    assert not found


def test_no_file_names_a_folder_of_one_machine():
    here = [re.escape(str(path)) for path in (ROOT, ROOT.parent) if len(path.parts) > 2]
    own = re.compile("(" + "|".join(here) + r")(?=[/\s\"'`]|$)") if here else None
    found = []
    for name, text in texts(TEXT):
        found += [f"{name}: {match[0]}" for match in HOME.finditer(text)]
        if own:
            found += [f"{name}: {match[0]}" for match in own.finditer(text)]
    assert not found


def test_every_source_file_ends_its_last_line():
    assert not [name for name, text in texts(CODE) if text and not text.endswith("\n")]


def test_headers_have_an_include_guard():
    assert not [name for name, text in texts((".h",)) if "#pragma once" not in text]


def test_the_licence_is_there():
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "Version 2.0" in text


def anchors(path):
    """The fragment names that a Markdown file's headings get."""
    found = set()
    for heading in re.findall(r"^#{1,6}\s+(.*?)\s*#*$", path.read_text(), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.add(re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", plain)))
    return found


def test_every_relative_link_in_the_documents_leads_somewhere():
    broken = []
    for name in project_files():
        if not name.endswith(".md"):
            continue
        path = ROOT / name
        text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
        text = re.sub(r"`[^`\n]*`", "", text)
        links = re.findall(r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)", text)
        links += re.findall(r"<(?:img|a)\b[^>]*?(?:src|href)=\"([^\"]+)\"", text)
        for link in links:
            if re.match(r"[a-z][a-z0-9+.-]*:|//", link):
                continue
            place, _, fragment = urllib.parse.unquote(link).partition("#")
            target = path if not place else (path.parent / place)
            if not target.exists():
                broken.append(f"{name}: {link}")
            elif fragment and pathlib.Path(target).suffix == ".md" and fragment not in anchors(target):
                broken.append(f"{name}: {link} (no such heading)")
    assert not broken
