"""Whom an agent of root's runs jobs as: people, and of their groups those that are people's."""

import secrets
import subprocess

import pytest
from harness import wait_until
from security import NEEDS_ROOT, throw_away_users


@pytest.fixture(name="users")
def users_fixture():
    with throw_away_users() as users:
        yield users


@pytest.fixture(name="rooted")
def rooted_fixture(new_world):
    def start(*arguments):
        world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=300)
        world.scheduler.start()
        world.add_agent("n1", allow_root_jobs=False, arguments=list(arguments)).start()
        return world

    return start


def run_as(world, user, script="id -un; id -Gn"):
    job = world.api().submit(script, user=user)
    assert world.api().wait_for(job)["state"] == "completed", world.api().output(job, "stderr")
    return world.api().output(job).split()


def is_refused(world, user, text):
    job = world.api().submit("id", user=user)
    wait_until(f"the agent says: {text}", lambda: text in world.agents()[0].log_text())
    world.api().cancel(job)


@NEEDS_ROOT
def test_no_job_runs_as_a_user_of_the_systems(rooted, users):
    service, person = users.add("--system"), users.add()
    world = rooted()
    is_refused(world, service, f"does not run jobs as '{service}', a system user")
    is_refused(world, "backup", "does not run jobs as 'backup', a system user")
    assert run_as(world, person)[0] == person


@NEEDS_ROOT
def test_a_user_of_the_systems_runs_jobs_where_it_is_named(rooted, users):
    service, person = users.add("--system"), users.add()
    world = rooted("--allow-user", service)
    assert run_as(world, service)[0] == service
    is_refused(world, person, f"does not run jobs as '{person}', which is neither")


@NEEDS_ROOT
def test_members_of_a_group_alone_run_jobs_where_it_is_named(rooted, users):
    inside, outside = users.add(), users.add()
    world = rooted("--allow-group", inside)  # Each user has a group of its own.
    assert run_as(world, inside)[0] == inside
    is_refused(world, outside, "which is neither")


@NEEDS_ROOT
def test_a_jobs_user_has_no_group_that_is_as_good_as_root(rooted, users):
    service_group, project = f"gps{secrets.token_hex(4)}", f"gps{secrets.token_hex(4)}"
    subprocess.run(["groupadd", "--system", service_group], check=True)
    subprocess.run(["groupadd", project], check=True)
    try:
        person = users.add("--groups", f"{service_group},{project},video")
        world = rooted()
        assert set(run_as(world, person)[1:]) == {person, project, "video"}
        world.agents()[0].kill()
        world.agents()[0].arguments = ["--keep-group", service_group]
        world.agents()[0].start()
        assert set(run_as(world, person)[1:]) == {person, project, service_group}
    finally:
        for group in (service_group, project):
            subprocess.run(["groupdel", group], check=False)
