"""Every file, folder and function that the documents name is there, and the map shows each room and folder."""

import fnmatch
import re
import subprocess
import sys

from conftest import ROOT, project_files
from measure import folders_of

# What a path begins with, where a document names one.
TOPS = ("bench", "cmake", "deploy", "docs", "proto", "sdk", "src", "tests", "tools", "web", ".ci")
PATH = re.compile(r"(?<![\w./~-])(?:\.\./)*((?:" + "|".join(re.escape(top) for top in TOPS) + r")/[\w./*+-]+)")
# A source file without its whole path: `planner.h`, `jobs/views_json.h`.
SHORT = re.compile(r"(?<![\w./*<>%$~-])((?:[\w-]+/)*[\w*-]+\.(?:h|cc|proto))(?![\w/])")
SPAN = re.compile(r"`([^`\n]+)`")
# `decide` in `src/engine/engine.h`, `f` and `g` in `x.cc`
FUNCTIONS = re.compile(r"((?:`[\w:]+`(?:, | and ))*`[\w:]+`)\s+in\s+`([\w./-]+\.(?:h|cc))`")


def documents():
    """Pages by name, fenced blocks left out."""
    for name in project_files():
        if name.endswith(".md") and not name.startswith("tests/"):
            text = (ROOT / name).read_text(encoding="utf-8")
            yield name, re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)


def tree():
    files = set(project_files())
    folders = {"/".join(file.split("/")[:depth]) for file in files for depth in range(1, file.count("/") + 1)}
    return files, folders


def paths_of(text):
    """(path, whether it is the whole path) of all that the code spans name. A span that tells how to call a new file,
    such as `src/<room>/x.cc`, names none."""
    for span in SPAN.findall(text):
        if not re.search(r"[<>{}]|NAME|NNNN", span):
            for path in PATH.findall(span):
                yield path.rstrip("./"), True
            for short in SHORT.findall(span):
                if not short.startswith(tuple(f"{top}/" for top in TOPS)):
                    yield short, False


def files_named(path, whole, files, folders):
    """The files, or folders, that a document means by a path."""
    if not whole:
        return [file for file in files if fnmatch.fnmatch("/" + file, "*/" + path)]
    if "*" in path:
        return fnmatch.filter(files, path)
    # A benchmark's program is named like its source.
    return [path] if path in files or path in folders or f"{path}.cc" in files else []


def missing_paths(name, text, files, folders):
    return [f"{name}: {path}" for path, whole in paths_of(text) if not files_named(path, whole, files, folders)]


def missing_functions(name, text, files, folders):
    for functions, path in FUNCTIONS.findall(text):
        for place, whole in paths_of(f"`{path}`"):
            sources = [(ROOT / file).read_text() for file in files_named(place, whole, files, folders)]
            for function in SPAN.findall(functions):
                word = re.compile(r"\b" + re.escape(function.rpartition("::")[2]) + r"\b")
                if not any(word.search(source) for source in sources):
                    yield f"{name}: {function} in {path}"


def test_every_path_that_the_documents_name_exists():
    files, folders = tree()
    assert not sorted({path for name, text in documents() for path in missing_paths(name, text, files, folders)})
    drawn = "\n".join(f"`{path}`" for path in re.findall(r"src/[\w./]+", (ROOT / "docs/map.md").read_text()))
    assert not missing_paths("docs/map.md, also its diagram", drawn, files, folders)


def test_every_function_is_in_the_file_that_the_documents_say():
    files, folders = tree()
    assert not sorted({found for name, text in documents() for found in missing_functions(name, text, files, folders)})


def test_what_is_missing_is_seen():
    files, folders = tree()
    text = "`src/gone/away.cc`, `away.h`, `tests/house/`, `src/base/ids.h`, `src/*/ids.h`, `src/<room>/x.cc`, `*_test.cc`"
    assert missing_paths("a.md", text, files, folders) == ["a.md: src/gone/away.cc", "a.md: away.h"]
    text = "`apply` and\n`astray` in `src/engine/engine.h`; `State::decide` in `engine.h`"
    assert list(missing_functions("a.md", text.replace("\n", " "), files, folders)) == ["a.md: astray in src/engine/engine.h"]


def missing_commands(name, text):
    """Benchmarks and targets of make that there are none of."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for experiment, benchmark in re.findall(r"`tools/bench (?:quality ([a-z_]+)|([a-z_]+))", text):
        sources = [f"{folder}/{benchmark}_bench.cc" for folder in ("bench", "bench/doors", "bench/worker")]
        if experiment:
            sources = [f"bench/quality/{experiment}_bench.cc"]
        if benchmark != "quality" and not any((ROOT / source).is_file() for source in sources):
            yield f"{name}: tools/bench {experiment or benchmark}"
    for target, option, value in re.findall(r"`make ([a-z-]+)(?: (\w+)=([\w-]+))?", text):
        folder = {"quality": "bench/quality", "bench": "bench"}.get(target)
        if target not in targets or (folder and option == "NAME" and not (ROOT / folder / f"{value}_bench.cc").is_file()):
            yield f"{name}: make {target} {value}".rstrip()


def test_every_benchmark_and_target_that_the_documents_name_exists():
    assert not [missing for name, text in documents() for missing in missing_commands(name, text)]
    assert list(missing_commands("a", "`tools/bench nosuch`, `tools/bench rest 3`, `make bench NAME=no`, `make no`")) == [
        "a: tools/bench nosuch", "a: make bench no", "a: make no"]


def rows_of_the_map():
    """[(folder below src/, what the map says of it)]"""
    return re.findall(r"^\| `src/([\w/]+)` \| (\S.*) \|$", dict(documents())["docs/map.md"], re.MULTILINE)


def test_the_map_shows_every_room():
    rooms = {path.parent.name for path in (ROOT / "src").glob("*/CMakeLists.txt")}
    assert {folder.split("/")[0] for folder, _ in rows_of_the_map()} == rooms


def test_the_map_shows_every_rooms_folders_from_the_lowest_to_the_highest():
    folders = [folder for folder, _ in rows_of_the_map()]
    expected = [place for room in dict.fromkeys(folder.split("/")[0] for folder in folders)
                for place in [room, *(f"{room}/{folder}" for folder in folders_of(room) if folder != ".")]]
    assert folders == expected


def test_names_in_a_folders_row_are_below_its_folder():
    files, _ = tree()
    wrong = []
    for folder, text in rows_of_the_map():
        for path, whole in paths_of(re.sub(r"\[[^\]]*\]\([^)]*\)", "", text)):
            if not whole and f"src/{folder}/{path}" not in files:
                wrong.append(f"{folder}: {path}")
    assert not wrong


def test_the_architecture_is_as_its_script_draws_it(tmp_path):
    drawn = tmp_path / "architecture.svg"
    subprocess.run([sys.executable, str(ROOT / "tools/draw-architecture"), str(drawn)], check=True, capture_output=True)
    assert drawn.read_text() == (ROOT / "docs/architecture.svg").read_text()
