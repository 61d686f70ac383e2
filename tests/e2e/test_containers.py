"""Jobs in containers, by a real podman with an image made here and registries of the tests' own.

test_containers_docker.py runs the same tests with Docker.
"""

import json
import os
import pwd
import signal
import stat

import containers
import harness
import pytest
import registry
from harness import noise, wait_until

pytestmark = pytest.mark.shared_world
IMAGE = "localhost/shell:1"


def working_engine(name, folder):
    """An engine with the image; the test is skipped where it does not work."""
    reason = containers.why_not(name)
    if reason:
        pytest.skip(reason)
    engine = containers.new_engine(name, folder)
    try:
        engine.import_image(IMAGE, 'ENTRYPOINT ["/bin/echo", "from the entrypoint:"]', "ENV COLOUR=blue")
        trouble = engine.works(IMAGE)
        if trouble:
            pytest.skip(f"{name} cannot run a container here: {trouble}")
        yield engine
    finally:
        engine.end()


@pytest.fixture(scope="module", name="podman")
def podman_fixture(session_folder):
    yield from working_engine("podman", session_folder / "podman")


@pytest.fixture(scope="module", name="engine")
def engine_fixture(podman):
    return podman


def add_agent(world, engine, node="n1", more=(), **options):
    agent = world.add_agent(node, arguments=[*engine.agent_arguments(), *more], **options)
    agent.environment = engine.environment
    return agent


@pytest.fixture(scope="module", name="start_world")
def start_world_fixture(engine):
    def start(new_world):
        """A scheduler and an agent that runs containers."""
        world = new_world()
        world.scheduler.start()
        world.data = world.folder / "data"
        world.data.mkdir()
        world.data.chmod(0o777)
        (world.folder / "readable").mkdir()
        (world.folder / "secret").mkdir()
        world.credentials = world.folder / "credentials"
        add_agent(world, engine, more=["--container-mount", str(world.data),
                                       "--container-mount", f"{world.folder}/readable:ro",
                                       "--container-credentials", str(world.credentials),
                                       "--container-pull-patience-ms", "30000"]).start()
        return world

    return start


@pytest.fixture(name="box")
def box_fixture(request, world, engine):
    """Afterwards no container is left, and no file of the test's."""
    yield world
    if request.node.get_closest_marker("own_world"):
        world.end()
    else:
        world.cancel_everything()
        world.wait_nothing_runs()
    assert engine.containers() == []
    for path in [*world.data.iterdir(), *(world.folder / "readable").iterdir()]:
        path.unlink()


def finished(world, job):
    api = world.api()
    found = api.wait_for(job)
    return found, api.output(job), api.output(job, "stderr")


def wait_ready(api, job):
    api.wait_for(job, "running")
    wait_until("the job is ready", lambda: api.output(job) == "ready\n")


def test_a_container_runs_the_command_and_its_exit_code_output_and_environment_are_a_process_s(box):
    job = box.api().submit('echo "$GREETING $COLOUR $MANY|"; echo oops >&2; pwd; exit 7', image=IMAGE,
                           environment={"GREETING": "hello", "MANY": "a b", "PATH": "/bin:/extra"})
    found, out, err = finished(box, job)
    assert (found["state"], found["exit_code"]) == ("failed", 7)
    assert out == "hello blue a b|\n/\n"
    assert err == "oops\n"


def test_a_line_break_in_the_environment_arrives_or_fails_the_job_at_once(box, engine):
    found, out, err = finished(box, box.api().submit('echo "$MANY"', image=IMAGE, environment={"MANY": "a\nb"}))
    if isinstance(engine, containers.Docker):
        assert (found["state"], found["exit_code"], out) == ("failed", 125, "")
        assert "'MANY' contains a line break or is too long, which docker cannot pass on" in err
    else:
        assert (found["state"], out) == ("completed", "a\nb\n")


def test_without_a_command_the_image_s_entrypoint_gets_the_arguments(box):
    found, out, _ = finished(box, box.api().submit(image=IMAGE, args=["one", "two words"]))
    assert found["state"] == "completed"
    assert out == "from the entrypoint: one two words\n"


def test_a_command_replaces_the_entrypoint(box):
    found, out, _ = finished(box, box.api().submit(["/bin/echo", "own"], image=IMAGE))
    assert (found["state"], out) == ("completed", "own\n")


def test_a_command_that_is_not_in_the_image_ends_as_in_a_shell(box, engine):
    found, _, err = finished(box, box.api().submit(["/bin/absent"], image=IMAGE))
    assert (found["state"], found["exit_code"]) == ("failed", 127)
    # Docker's own first process has its own words.
    words = "exec /bin/absent failed" if isinstance(engine, containers.Docker) else "cannot start '/bin/absent'"
    assert f"{words}: No such file or directory" in err


def test_an_end_by_signal_is_told_from_an_exit_code(box, engine):
    api = box.api()
    by_signal = api.submit("kill -SEGV $$", image=IMAGE)
    by_code = api.submit("exit 139", image=IMAGE)
    ended = api.wait_for(by_signal)
    assert (ended["cause"], ended["signal"], ended["exit_code"]) == ("signaled", signal.SIGSEGV, None)
    ended = api.wait_for(by_code)
    # Docker's first process makes an exit code of a signal, and nobody can tell which it was.
    if isinstance(engine, containers.Docker):
        assert (ended["cause"], ended["signal"]) == ("signaled", signal.SIGSEGV)
    else:
        assert (ended["cause"], ended["exit_code"]) == ("exited", 139)


def test_devices_are_named_as_for_a_process(box):
    api = box.api()
    found, out, _ = finished(box, api.submit(
        'echo "$CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES $GPU_SCHEDULER_GPU_COUNT $GPU_SCHEDULER_JOB_ID"',
        image=IMAGE, gpu_count=2, environment={"CUDA_VISIBLE_DEVICES": "all"}))
    assert found["state"] == "completed"
    uuids = out.split()[0].split(",")
    known = {gpu["uuid"] for gpu in api.node("n1")["gpus"]}
    assert len(set(uuids)) == 2 and set(uuids) <= known
    assert out.split()[1:] == [",".join(uuids), "2", found["job_id"]]


def test_a_stop_lets_the_command_say_goodbye(box):
    api = box.api()
    job = api.submit("trap 'echo goodbye; exit 0' TERM; echo ready; while :; do sleep 0.05; done", image=IMAGE)
    wait_ready(api, job)
    api.cancel(job)
    found, out, _ = finished(box, job)
    assert (found["state"], out) == ("cancelled", "ready\ngoodbye\n")


def test_a_command_that_ignores_the_stop_is_killed_after_its_grace(new_world, engine):
    world = new_world()
    world.scheduler.start()
    add_agent(world, engine).start()
    api = world.api()
    job = api.submit("trap '' TERM; echo ready; while :; do sleep 0.05; done", image=IMAGE, max_runtime_minutes=60)
    wait_ready(api, job)
    api.cancel(job)
    assert api.wait_for(job)["state"] == "cancelled"
    wait_until("its container is gone", lambda: engine.containers() == [])


def test_a_mount_from_the_allow_list_is_there_and_keeps_what_the_job_writes(box):
    (box.folder / "readable" / "input").write_text("42")
    mounts = [f"{box.data}:/results", f"{box.folder}/readable:/in:ro"]
    found, _, err = finished(box, box.api().submit("cat /in/input > /results/output; echo x > /in/input",
                                                   image=IMAGE, mounts=mounts))
    assert found["state"] == "failed" and "Read-only file system" in err, found
    assert (box.data / "output").read_text() == "42"


@pytest.mark.parametrize("source,read_only", [("{folder}/secret", True), ("{folder}/data/link", True),
                                              ("{folder}/data/../secret", True), ("{folder}/readable", False),
                                              ("/", True), ("{folder}/data-not", True)])
def test_a_mount_outside_the_allow_list_is_refused(box, source, read_only):
    link = box.data / "link"
    if not link.is_symlink():
        link.symlink_to(box.folder / "secret")
    (box.folder / "data-not").mkdir(exist_ok=True)
    mount = source.format(folder=box.folder) + ":/x" + (":ro" if read_only else "")
    found, out, err = finished(box, box.api().submit("echo it ran", image=IMAGE, mounts=[mount]))
    assert (found["state"], found["exit_code"], out) == ("failed", 125, "")
    assert "mount" in err


def test_the_working_directory_is_the_node_s_folder_where_it_may_be_mounted(box):
    api = box.api()
    found, out, _ = finished(box, api.submit("pwd; echo done > mark", image=IMAGE, working_directory=str(box.data)))
    assert (found["state"], out) == ("completed", f"{box.data}\n")
    assert (box.data / "mark").read_text() == "done\n"
    _, out, _ = finished(box, api.submit("pwd", image=IMAGE, working_directory="/work"))
    assert out == "/work\n"


def test_a_job_runs_as_its_user_and_its_files_are_that_user_s(box):
    nobody = pwd.getpwnam("nobody")
    output = box.data / "output"
    found, out, _ = finished(box, box.api().submit("id -u; id -g; echo mine > /data/own", image=IMAGE, user="nobody",
                                                   mounts=[f"{box.data}:/data"]))
    assert (found["state"], out) == ("completed", f"{nobody.pw_uid}\n{nobody.pw_gid}\n")
    assert (box.data / "own").stat().st_uid == nobody.pw_uid
    found, out, _ = finished(box, box.api().submit("echo there", image=IMAGE, user="nobody", stdout_path=str(output)))
    assert (found["state"], out, output.read_text()) == ("completed", "", "there\n")
    assert output.stat().st_uid == nobody.pw_uid


def test_processes_are_limited(new_world, engine):
    world = new_world()
    world.scheduler.start()
    add_agent(world, engine, more=["--processes-max", "20"]).start()
    found, _, err = finished(world, world.api().submit("for i in $(seq 30); do sleep 1000 & done; exit 5", image=IMAGE))
    assert found["state"] == "failed" and "fork" in err, err


def test_memory_is_limited_and_a_kill_for_it_is_reported_as_that(box):
    api = box.api()
    job = api.submit(["/bin/sh", "-c", "exec tail /dev/zero"], image=IMAGE, memory_mb=64)
    found = api.wait_for(job)
    assert (found["state"], found["cause"]) == ("failed", "out_of_memory")


@pytest.mark.own_world
def test_a_killed_agent_finds_its_containers_again(box):
    api = box.api()
    job = api.submit("echo ready; while [ ! -e go ]; do sleep 0.05; done; echo went", image=IMAGE,
                     working_directory=str(box.data))
    wait_ready(api, job)
    box.agents()[0].restart()
    assert api.job(job)["state"] == "running"
    (box.data / "go").touch()
    found, out, _ = finished(box, job)
    assert (found["state"], out) == ("completed", "ready\nwent\n")
    assert found["preempted_count"] == 0


@pytest.mark.own_world
def test_a_killed_shim_takes_its_container_with_it_and_the_job_is_tried_again(box, engine):
    api, agent = box.api(), box.agents()[0]
    job = api.submit("echo ready; [ -e again ] || { touch again; while :; do sleep 0.05; done; }", image=IMAGE,
                     working_directory=str(box.data))
    wait_until("the job is ready", lambda: (box.data / "again").exists())
    first = engine.containers()
    assert len(first) == 1
    os.kill(agent.shim_of(job), signal.SIGKILL)
    found, _, _ = finished(box, job)
    assert found["state"] == "completed"
    assert first[0] not in engine.containers()


@pytest.mark.own_world
def test_agent_and_shim_killed_together_leave_no_container(box, engine):
    api, agent = box.api(), box.agents()[0]
    job = api.submit("touch begun; while [ ! -e go ]; do sleep 0.05; done", image=IMAGE,
                     working_directory=str(box.data))
    wait_until("the job runs", lambda: (box.data / "begun").exists())
    first = engine.containers()
    shim = agent.shim_of(job)
    agent.kill()
    os.kill(shim, signal.SIGKILL)
    agent.start()
    wait_until("the first container is gone", lambda: first[0] not in engine.containers())
    (box.data / "go").touch()
    assert api.wait_for(job)["state"] == "completed"


@pytest.mark.own_world
def test_containers_of_forgotten_attempts_are_removed_when_the_agent_starts(box, engine):
    agent = box.agents()[0]
    agent.stop()
    name = f"gpu-scheduler-{agent.mark()}-999999-1-0"
    engine.call("create", "--name", name, "--label", f"gpu-scheduler.instance={agent.mark()}", IMAGE, "/bin/true")
    engine.call("create", "--name", "somebody-else", IMAGE, "/bin/true")
    agent.start()
    wait_until("the forgotten container is gone", lambda: name not in engine.containers())
    assert engine.containers() == ["somebody-else"]
    engine.call("rm", "somebody-else")


def test_secrets_of_the_environment_are_on_no_command_line_and_in_no_log(box):
    api = box.api()
    job = api.submit("echo ready; while [ ! -e go ]; do sleep 0.05; done", image=IMAGE,
                     working_directory=str(box.data), environment={"TOKEN": "s3cr3t-environment"})
    wait_ready(api, job)
    lines = [harness.read_bytes(f"/proc/{pid}/cmdline") for pid in harness.processes()]
    assert not [line for line in lines if b"s3cr3t-environment" in line]
    (box.data / "go").touch()
    api.wait_for(job)
    assert "s3cr3t-environment" not in box.agents()[0].log_text()


# Images and registries.


@pytest.fixture(name="library")
def library_fixture(engine):
    """A registry with one image of two layers."""
    made = engine.new_registry()
    made.image = registry.Image([registry.shell_layer(containers.BUSYBOX),
                                 registry.shell_layer(containers.BUSYBOX, {"noise": noise(1 << 20)})])
    made.reference = made.add("team/train", "1", made.image)
    return made


def test_two_jobs_at_once_pull_an_image_once(box, library):
    api = box.api()
    library.gate.clear()
    jobs = [api.submit("echo ran", image=library.reference) for _ in range(2)]
    wait_until("a layer is being sent", lambda: library.layer_downloads())
    assert all(api.job(job)["state"] == "scheduled" for job in jobs)
    library.gate.set()
    for job in jobs:
        found, out, _ = finished(box, job)
        assert (found["state"], out) == ("completed", "ran\n")
    assert set(library.layer_downloads().values()) == {1}


def test_a_pull_that_fails_is_tried_again_and_costs_the_job_no_retry(box, library):
    library.failures = 6
    found, out, _ = finished(box, box.api().submit("echo ran", image=library.reference))
    assert (found["state"], out) == ("completed", "ran\n")
    assert library.failures == 0


def test_an_image_that_the_registry_does_not_know_fails_the_job_at_once(box, library):
    found, _, err = finished(box, box.api().submit("echo ran", image=f"{library.host}/team/absent:1"))
    assert (found["state"], found["exit_code"]) == ("failed", 125)
    assert "manifest unknown" in err


def test_a_given_digest_runs_exactly_that_content(box, library):
    other = registry.Image([registry.shell_layer(containers.BUSYBOX, {"which": b"second"})])
    library.add("team/train", "1", other)  # The tag has moved on.
    api = box.api()
    _, out, _ = finished(box, api.submit("cat /which || echo first", image=library.reference,
                                         image_digest=library.image.digest))
    assert out == "first\n"
    _, out, _ = finished(box, api.submit("cat /which", image=f"{library.reference}@{other.digest}"))
    assert out == "second"


def test_a_retry_runs_what_the_first_attempt_pulled(box, library):
    api = box.api()
    job = api.submit("cat /which >> /data/ran || echo first >> /data/ran; [ -e /data/go ]", image=library.reference,
                     mounts=[f"{box.data}:/data"], pull="always",
                     retries=5)
    wait_until("the first attempt ran", lambda: (box.data / "ran").exists())
    library.add("team/train", "1", registry.Image([registry.shell_layer(containers.BUSYBOX, {"which": b"second"})]))
    (box.data / "go").touch()
    assert api.wait_for(job)["state"] == "completed"
    assert set((box.data / "ran").read_text().splitlines()) == {"first"}


@pytest.mark.own_world
def test_a_retry_on_another_node_runs_what_the_first_attempt_pulled(box, library, engine):
    api = box.api()
    job = api.submit("cat /which >> /data/ran || echo first >> /data/ran; [ -e /data/go ]",
                     image=library.reference, mounts=[f"{box.data}:/data"], pull="always", retries=50)
    wait_until("the first attempt ran", lambda: (box.data / "ran").exists())
    box.cli("node", "drain", "n1", "--reason", "its disk is slow", expected=0)
    library.add("team/train", "1", registry.Image([registry.shell_layer(containers.BUSYBOX, {"which": b"second\n"})]))
    box.scheduler.restart()  # What the first attempt ran is kept with the job.
    add_agent(box, engine, "n2", more=["--container-mount", str(box.data)]).start()
    wait_until("it ran there", lambda: api.job(job)["node_name"] == "n2" and api.job(job)["state"] != "scheduled")
    (box.data / "go").touch()
    assert api.wait_for(job)["state"] == "completed"
    assert api.job(job)["node_name"] == "n2"
    assert set((box.data / "ran").read_text().splitlines()) == {"first"}


def test_never_pull_waits_for_nothing(box, library):
    found, _, err = finished(box, box.api().submit("echo ran", image=library.reference, pull="never"))
    assert (found["state"], found["exit_code"]) == ("failed", 125)
    assert "is not on this node" in err and library.layer_downloads() == {}


def test_a_credential_of_the_tenant_opens_its_registry_and_no_other_tenant_s(box, engine):
    private = engine.new_registry(user="robot", password="s3cr3t-password")
    reference = private.add("team/private", "1", registry.Image([registry.shell_layer(containers.BUSYBOX)]))
    api = box.api()
    api.post("/tenants", {"name": "other", "max_gpus": 4}, 201)
    folder = box.credentials / "default"
    folder.mkdir(parents=True)
    file = folder / "robot.json"
    file.write_text(json.dumps({"auths": {private.host: {"auth": private.expected.split()[1]}}}))

    file.chmod(0o644)  # Others could read it: not used.
    _, _, err = finished(box, api.submit("echo ran", image=reference, registry_credential="robot"))
    assert "chmod 600" in err
    file.chmod(stat.S_IRUSR | stat.S_IWUSR)
    found, out, _ = finished(box, api.submit("echo ran", image=reference, registry_credential="robot"))
    assert (found["state"], out) == ("completed", "ran\n")

    # The image is on the node now, and still nobody else's.
    found, _, err = finished(box, api.submit("echo ran", image=reference))
    assert found["state"] == "failed" and ("unauthorized" in err or "no basic auth credentials" in err)
    other = [one["id"] for one in api.get("/tenants")["tenants"] if one["name"] == "other"][0]
    job = api.submit("echo ran", image=reference, registry_credential="robot", tenant_id=other)
    assert "is not on this node" in json.dumps(api.wait_for(job))
    text = box.agents()[0].log_text() + box.scheduler.log_text()
    assert "s3cr3t-password" not in text and private.expected.split()[1] not in text


@pytest.mark.own_world  # Its images are on no node yet.
def test_the_agent_says_what_a_pull_has_reached(box, library):
    api = box.api()
    library.gate.clear()
    job = api.submit("echo ran", image=library.reference)
    wait_until("the job tells of its pull", lambda: "pulling image" in json.dumps(api.job(job)))
    assert api.job(job)["state"] == "scheduled"
    library.gate.set()
    assert api.wait_for(job)["state"] == "completed"


@pytest.mark.own_world  # Its images are on no node yet.
def test_a_cancelled_pull_ends(box, library):
    api = box.api()
    library.gate.clear()
    job = api.submit("echo ran", image=library.reference)
    wait_until("a layer is being sent", lambda: library.layer_downloads())
    api.cancel(job)
    assert api.wait_for(job)["state"] == "cancelled"
    library.gate.set()


@pytest.mark.own_world
def test_an_agent_killed_during_a_pull_lets_it_finish(box, library):
    api = box.api()
    library.gate.clear()
    job = api.submit("echo ran", image=library.reference)
    wait_until("a layer is being sent", lambda: library.layer_downloads())
    box.agents()[0].restart()
    library.gate.set()
    found, out, _ = finished(box, job)
    assert (found["state"], out) == ("completed", "ran\n")
    assert set(library.layer_downloads().values()) == {1}


def test_a_node_without_a_runtime_gets_no_job_with_an_image(new_world, engine):
    world = new_world()
    world.scheduler.start()
    world.add_agent("plain", arguments=["--container-runtime", "none"]).start()
    api = world.api()
    refused = api.post("/jobs", {"script": "echo ran", "image": IMAGE, "require_feasible": True}, 422)
    assert "container" in json.dumps(refused)
    # It may wait for a node that runs containers, and says so.
    early = api.submit("echo ran", image=IMAGE)
    wait_until("it says so", lambda: "container" in api.explain(early).get("message", ""))
    boxes = add_agent(world, engine, node="boxes", sim_gpus="1xA100-SXM4-80GB").start()
    assert api.wait_for(early)["node_name"] == boxes.node
    # The only node that runs containers is full: the other one stays empty.
    first = api.submit("while :; do sleep 0.05; done", image=IMAGE, gpu_count=1)
    api.wait_for(first, "running")
    second = api.submit("echo ran", image=IMAGE, gpu_count=1)
    reason = wait_until("the second waits", lambda: api.explain(second).get("message"))
    assert api.job(second)["state"] == "pending", reason
    api.cancel(first)
    assert api.wait_for(second)["node_name"] == boxes.node


def test_options_that_the_node_does_not_allow_are_refused(new_world, engine):
    world = new_world()
    world.scheduler.start()
    add_agent(world, engine, more=["--container-job-option", "--shm-size="]).start()
    api = world.api()
    allowed = api.submit("echo ran", image=IMAGE, container_arguments=["--shm-size=32m"])
    assert api.wait_for(allowed)["state"] == "completed"
    found, _, err = finished(world, api.submit("echo ran", image=IMAGE, container_arguments=["--privileged"]))
    assert (found["state"], found["exit_code"]) == ("failed", 125) and "--privileged" in err


@pytest.mark.parametrize("user", [None, "nobody"])
def test_a_container_that_says_that_its_work_is_saved_is_ended_for_another_at_once(new_world, engine, user):
    world = new_world(SCHEDULER_PREEMPTION_PROTECTION_SECONDS=0, SCHEDULER_PREEMPTION_WAIT_SECONDS=0)
    world.scheduler.start()
    add_agent(world, engine).start()
    api = world.api()
    api.wait_node("n1")
    api.post("/tenants", {"name": "batch", "allow_preemption": True, "priority_tier": "low"}, 201)
    api.post("/tenants", {"name": "urgent", "can_preempt_others": True, "priority_tier": "critical"}, 201)
    script = ("trap 'touch \"$GPU_CHECKPOINT_FILE\" && echo told' USR1; trap 'echo terminated' TERM; echo ready; "
              "while :; do sleep 0.1; done")
    asked = {"user": user} if user else {}
    low = api.submit(script, image=IMAGE, tenant_id="batch", gpu_count=4, preempt_signal="USR1",
                     preempt_grace_seconds=300, **asked)
    wait_ready(api, low)
    high = api.submit(["sleep", "600"], tenant_id="urgent", gpu_count=4)
    api.wait_for(high, "running")
    assert api.output(low, attempt=1).split() == ["ready", "told"]
    assert api.job(low)["preempted_count"] == 1
    assert api.call("GET", f"/v1/jobs/{low}")[1]["checkpointed_at"]
    api.cancel(low)
    api.cancel(high)
    api.wait_for(high)
    world.end()
    assert engine.containers() == []
