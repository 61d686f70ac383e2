"""CMake itself refuses a dependency that points up or sideways: shown on tiny projects with the real rules."""

import subprocess

import pytest
from conftest import ROOT


def configure(folder, rooms):
    """Configures a project with these rooms (name -> arguments after NAME); returns (exit status, output)."""
    lines = ["cmake_minimum_required(VERSION 3.25)", "project(tiny LANGUAGES CXX)",
             "set(GPUSCHED_TESTING OFF)", "add_library(gpusched_warnings INTERFACE)",
             f"include({ROOT / 'cmake' / 'Rooms.cmake'})"]
    for name, arguments in rooms.items():
        room = folder / name
        room.mkdir()
        (room / "room.cc").write_text(f"int {name}_room = 0;\n")
        (room / "CMakeLists.txt").write_text(f"gpusched_room(NAME {name} {arguments})\n")
        lines.append(f"add_subdirectory({name})")
    lines.append("gpusched_write_manifests()")
    (folder / "CMakeLists.txt").write_text("\n".join(lines) + "\n")
    command = ["cmake", "-S", str(folder), "-B", str(folder / "build"), "-G", "Ninja",
               "-DCMAKE_CXX_COMPILER_FORCED=ON", "-DCMAKE_CXX_COMPILER=g++"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, " ".join(done.stdout.split())


def test_dependencies_that_point_down_are_configured(tmp_path):
    status, output = configure(tmp_path, {"base": "PURE", "journal": "DEPS base", "model": "PURE DEPS base",
                                          "engine": "PURE DEPS base model"})
    assert status == 0, output
    assert (tmp_path / "build" / "tests" / "rooms.json").is_file()


@pytest.mark.parametrize("rooms, sentence", [
    ({"base": "", "journal": "DEPS base", "model": "DEPS journal"}, "never sideways"),
    ({"base": "", "model": "DEPS engine"}, "never sideways"),
    ({"base": "DEPS base"}, "never sideways"),
    ({"base": "DEPS cellar"}, "is no room"),
    ({"cellar": ""}, "has no floor"),
    ({"base": "PURE LIBS m"}, "links nothing but the standard library"),
], ids=["sideways", "upward", "itself", "unknown", "without-a-floor", "pure-with-a-library"])
def test_configuring_fails_on(rooms, sentence, tmp_path):
    status, output = configure(tmp_path, rooms)
    assert status != 0
    assert sentence in output
