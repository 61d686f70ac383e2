"""Batch scripts of slurm_scripts.txt: each is accepted with what it asks for, or refused with what to write."""

import json
import pathlib
import re

import pytest

CORPUS = pathlib.Path(__file__).with_name("slurm_scripts.txt")
BYTES = {"{CR}": b"\r", "{BOM}": b"\xef\xbb\xbf", "{E9}": b"\xe9", "{NUL}": b"\0", "{BIG}": (b"#" * 99 + b"\n") * 1400}


def corpus():
    """(name, expectations, text) of each script."""
    for section in re.split(r"^== ", CORPUS.read_text(), flags=re.M)[1:]:
        name, *lines = section.split("\n")
        told = [line[2:].split(" ", 1) for line in lines if line.startswith("> ")]
        text = "\n".join(lines[len(told):]).rstrip("\n") + "\n"
        data = text.encode()
        for mark, value in BYTES.items():
            data = data.replace(mark.encode(), value)
        yield name, told, data


SCRIPTS = list(corpus())


@pytest.fixture(name="world", scope="module")
def world_fixture(new_module_world):
    world = new_module_world()
    world.scheduler.start()
    return world


def test_there_are_as_many_scripts_as_the_file_is_for():
    assert len(SCRIPTS) >= 60 and len({name for name, _, _ in SCRIPTS}) == len(SCRIPTS)


@pytest.mark.parametrize("name, told, data", SCRIPTS, ids=[name for name, _, _ in SCRIPTS])
def test_a_script_is_taken_as_listed(world, name, told, data):
    script = world.folder / f"{name}.sh"
    script.write_bytes(data)
    done = world.cli("submit", "--hold", str(script))
    refused = [text for kind, text in told if kind == "refused"]
    warned = [text for kind, text in told if kind == "warned"]
    assert done.returncode == (2 if refused else 0), (done.returncode, done.stderr)
    lines = [line for line in done.stderr.splitlines() if "can ever run this job" not in line and "no node" not in line]
    expected = refused or warned
    assert len(lines) == len(expected), lines
    for text in expected:
        assert any(text in line for line in lines), (text, lines)
    if refused:
        return
    record = world.api().job(done.stdout.strip())
    for field, value in told:
        if field == "warned":
            continue
        try:
            wanted = json.loads(value)
        except ValueError:
            wanted = value
        assert record.get(field, 0) == wanted, (field, record)
