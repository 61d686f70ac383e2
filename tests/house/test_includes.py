"""Includes point down the floors, only to rooms named in DEPS, and pure rooms include no other library."""

import functools
import pathlib
import re

from conftest import ROOT

SOURCES = ROOT / "src"
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.MULTILINE)
GENERATED = re.compile(r".*\.pb\.h$")
GENERATED_FROM_FLOOR = 3
PURE_LIBRARY_HEADERS = {"boost/unordered/unordered_flat_map.hpp"}
# Standard headers that a pure room has no use for; C and POSIX headers (x.h) are refused as well.
IMPURE_STANDARD = set("""barrier chrono condition_variable ctime clocale csignal filesystem fstream future iostream
    istream latch locale memory_resource mutex ostream random semaphore shared_mutex stop_token syncstream
    thread""".split())
# base/check.cc alone writes a line before it aborts, and base/text/civil_time.cc alone has the calendar of <chrono>, whose
# clocks test_purity.py finds by their symbols.
EXEMPT = {("base/check.cc", "cstdio"), ("base/text/civil_time.cc", "chrono")}


def rooms_of(floor_file):
    """Room name -> floor, as cmake/Rooms.cmake has them: also rooms this build leaves out."""
    found = re.findall(r"^set\(GPUSCHED_FLOOR_(\w+) (\d+)\)", floor_file.read_text(), re.MULTILINE)
    return {name: int(floor) for name, floor in found}


@functools.lru_cache
def declared(room):
    """(DEPS, is pure, EXCLUDE) as the room's CMakeLists.txt says."""
    text = re.sub(r"#.*", "", (SOURCES / room / "CMakeLists.txt").read_text())
    call = re.search(r"gpusched_room\((.*?)\)", text, re.DOTALL)
    assert call, f"src/{room}/CMakeLists.txt calls no gpusched_room"
    words, deps, excluded, key = call[1].split(), set(), set(), None
    for word in words:
        if word in ("NAME", "DEPS", "LIBS", "PURE", "EXCLUDE", "FOLDERS"):
            key = word
        elif key == "DEPS":
            deps.add(word)
        elif key == "EXCLUDE":
            excluded.add(word)
    return deps, "PURE" in words, excluded


def complaints_about(path, text, floors):
    """What is wrong with the includes of one file; `path` is relative to src/."""
    room, _, inside = path.partition("/")
    deps, pure, excluded = declared(room)
    is_test = path.endswith("_test.cc") or "/testing" in path
    is_program = inside in excluded  # It links what it wires, and stands above every floor.
    for bracket, name in INCLUDE.findall(text):
        target = pathlib.PurePath(name).parts[0]
        if bracket == "<":
            if pure and not is_test and (path, name) not in EXEMPT and name not in PURE_LIBRARY_HEADERS:
                if "/" in name or "." in name or name in IMPURE_STANDARD:
                    yield f"src/{path} is in a pure room and includes <{name}>"
        elif GENERATED.match(name):
            if floors[room] < GENERATED_FROM_FLOOR:
                yield f"src/{path} is below floor {GENERATED_FROM_FLOOR} and includes generated {name}"
        elif target == room:
            if not (SOURCES / name).is_file():
                yield f"src/{path} includes {name}, which is not there"
        elif target in floors and is_program:
            if not (SOURCES / name).is_file():
                yield f"src/{path} includes {name}, which is not there"
        elif target in floors:
            if floors[target] >= floors[room]:
                yield (f"src/{path} (floor {floors[room]}) includes {name} (floor {floors[target]}): "
                       "includes point down the floors, never sideways")
            elif target not in deps and not is_test:
                yield f"src/{path} includes {name}, and {target} is not in the DEPS of src/{room}/CMakeLists.txt"
        elif not (ROOT / "include" / name).is_file():
            yield f"src/{path} includes \"{name}\": write it from src/ on, with its room"


def test_every_room_has_a_floor_and_declares_itself():
    floors = rooms_of(ROOT / "cmake" / "Rooms.cmake")
    for folder in sorted(SOURCES.iterdir()):
        if any(folder.rglob("*.cc")) and (folder / "CMakeLists.txt").is_file():
            assert folder.name in floors
            declared(folder.name)


def test_includes_point_down_the_floors():
    floors, found, seen = rooms_of(ROOT / "cmake" / "Rooms.cmake"), [], 0
    for file in sorted(SOURCES.rglob("*")):
        path = file.relative_to(SOURCES)
        if file.suffix in (".cc", ".h") and (SOURCES / path.parts[0] / "CMakeLists.txt").is_file():
            found += complaints_about(str(path), file.read_text(), floors)
            seen += 1
    assert seen > 0
    assert not found, "\n".join(found)


def test_the_reader_sees_each_kind_of_wrong_include():
    floors = rooms_of(ROOT / "cmake" / "Rooms.cmake")
    wrong = ['#include "journal/journal.h"', '#include "host/host.h"', "#include <thread>", "#include <unistd.h>",
             "#include <boost/json.hpp>", '#include "gpusched/v1/node.pb.h"', '#include "state.h"',
             '  #  include "model/not_there.h"']
    for line in wrong:
        assert list(complaints_about("model/x.cc", line + "\n", floors)), line
    for line in ['#include "base/ids.h"', "#include <vector>", "#include <boost/unordered/unordered_flat_map.hpp>"]:
        assert not list(complaints_about("model/x.cc", line + "\n", floors)), line
