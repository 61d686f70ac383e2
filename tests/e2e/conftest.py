"""Fixtures of the end-to-end tests: worlds that are always cleaned up, and their logs beside a failure."""

import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

import harness
import pytest
from session_terminal import Screen
from shared_world import SharedWorld

LOG_LINES_MAX = 120


@pytest.fixture(scope="session", name="session_folder")
def session_folder_fixture():
    """Where all worlds are. A helper ends what is left of it even when this process is killed."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gpusched-e2e-"))
    folder.chmod(0o755)
    reaper = subprocess.Popen([sys.executable, "-B", harness.__file__, str(folder)], stdin=subprocess.PIPE,
                              start_new_session=True)
    yield folder
    reaper.stdin.close()
    reaper.wait()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def default_signals():
    """A runner behind `&` or nohup ignores signals, and so would all that it starts, Ctrl-C included."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)}
    for number, handler in before.items():
        if handler == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session", autouse=True)
def end_by_term():
    """A runner that loses its patience sends SIGTERM: fixtures shall still clean up."""

    def interrupt(*_):
        raise KeyboardInterrupt("SIGTERM")

    before = signal.signal(signal.SIGTERM, interrupt)
    yield
    signal.signal(signal.SIGTERM, before)


def provide_worlds(request, session_folder):
    worlds = []

    def make(**settings):
        world = harness.World(settings, session_folder)
        worlds.append(world)
        return world

    request.node.stash.setdefault(WORLDS, []).append(worlds)
    yield make
    try:
        for world in worlds:
            world.end()
    finally:
        # The logs are read by the report, which comes after us: kept until then.
        for world in worlds:
            ENDED.append(world)


WORLDS = pytest.StashKey()
FAILED = pytest.StashKey()
ENDED = []


@pytest.fixture(name="new_world")
def new_world_fixture(request, session_folder):
    """Makes worlds: new_world(JOURNAL_SEGMENT_MB=16) and the like. Each is ended and looked after."""
    yield from provide_worlds(request, session_folder)


@pytest.fixture(scope="module", name="new_module_world")
def new_module_world_fixture(request, session_folder):
    yield from provide_worlds(request, session_folder)


@pytest.fixture(scope="session", name="agent_contract")
def agent_contract_fixture(session_folder):
    """What clients of the tasks of agents have generated."""
    client = pytest.importorskip("agent_client", reason="python3-grpcio or python3-protobuf is not installed")
    return client.contract_in(session_folder / "agent-tasks")


@pytest.fixture(name="connect")
def connect_fixture(agent_contract):
    """Makes clients of the tasks of agents."""
    from agent_client import Client  # pylint: disable=import-outside-toplevel

    clients = []

    def connect(world, secret=None, port=None):
        clients.append(Client(agent_contract, port or world.scheduler.ports["grpc"], secret or world.scheduler.token()))
        return clients[-1]

    yield connect
    for client in clients:
        client.channel.close()


@pytest.fixture(scope="module", name="start_world")
def start_world_fixture():
    """How the tests of a module start a world. One that needs another has its own fixture of this name."""

    def start(new_world):
        """A scheduler and one agent with four GPUs, n1, both up."""
        world = new_world()
        world.scheduler.start()
        world.add_agent("n1").start()
        return world

    return start


@pytest.fixture(scope="module", name="shared_world")
def shared_world_fixture(new_module_world, start_world):
    return SharedWorld(lambda: start_world(new_module_world))


@pytest.fixture(name="world")
def world_fixture(request, start_world):
    """A world of the test's own. Where the module is marked shared_world, all tests but those marked own_world share
    one, and each leaves it at rest."""
    if is_marked(request, "own_world") or not is_marked(request, "shared_world"):
        yield start_world(request.getfixturevalue("new_world"))
        return
    shared = request.getfixturevalue("shared_world")
    yield shared.lend()
    shared.take_back(request.node.stash.get(FAILED, False))


def is_marked(request, name):
    return request.node.get_closest_marker(name) is not None


def pytest_configure(config):
    config.addinivalue_line("markers", "shared_world: the tests of this module have one world, one after the other")
    config.addinivalue_line("markers", "own_world: this test changes what the next would find: it has a world of its own")


def worlds_of(item):
    for node in (item, item.getparent(pytest.Module)):
        for worlds in node.stash.get(WORLDS, []) if node is not None else []:
            yield from worlds


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        item.stash[FAILED] = True
        for world in worlds_of(item):
            for daemon in world.daemons:
                lines = daemon.log_text().splitlines()[-LOG_LINES_MAX:]
                report.sections.append((f"the end of {daemon.log}", "\n".join(lines)))
    if call.when == "teardown":
        while ENDED:
            ENDED.pop().remove()


@pytest.fixture(name="screen")
def screen_fixture(world):
    screens = []

    def start(*words, **options):
        screens.append(Screen(world, *words, **options))
        return screens[-1]

    yield start
    for screen in screens:
        screen.close()
