"""One world for the tests of a module, one after the other: each finds it as after its start."""

import shutil

from harness import wait_until


class SharedWorld:
    """Made when the first test asks for it. A test that fails, or leaves it otherwise than it was, leaves the next one
    a new one."""

    def __init__(self, make):
        self.make, self.world, self.files = make, None, set()

    def lend(self):
        if self.world is None:
            self.world = self.make()
            self.files = {path.name for path in self.world.folder.iterdir()}
        return self.world

    def take_back(self, failed):
        """Ends what the test has left running, and waits until all is as before."""
        is_as_before = False
        try:
            if not failed:
                come_to_rest(self.world)
                remove_files(self.world.folder, self.files)
                is_as_before = True
        finally:
            if not is_as_before:
                self.world.strict = False
                self.world.end()
                self.world = None


def come_to_rest(world):
    for daemon in world.daemons:
        assert daemon.alive(), f"{daemon.name} is not running"
    world.cancel_everything()
    world.wait_nothing_runs()
    api = world.api()
    for agent in world.agents():
        api.wait_node(agent.node)
    wait_until("all GPUs are free and well", lambda: [
        gpu for agent in world.agents() for gpu in api.node(agent.node)["gpus"]
        if (gpu["state"], gpu["condition"]) != ("free", "ok")] == [])


def remove_files(folder, kept):
    """What tests put beside the folders of the programs: gates, scripts, keys."""
    for path in folder.iterdir():
        if path.name not in kept:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
