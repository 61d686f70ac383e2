"""The tests of test_containers.py with Debian's Docker, whose daemon is started here."""

import pytest
import test_containers
from test_containers import *  # noqa: F401,F403


@pytest.fixture(scope="module", name="engine")
def docker_fixture(session_folder):
    yield from test_containers.working_engine("docker", session_folder / "docker")
