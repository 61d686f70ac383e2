"""Killed, stopped, upgraded: scheduler, agent, shims and the machine; no job and no exit code is lost by it."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess

import pytest
from harness import A100X4, IS_ROOT, is_alive, program, wait_until

HOWS = ("kill", "stop")


def gated(world, name, then="exit 0"):
    """A job's script that says where it runs and goes on when `world.folder/NAME` is there."""
    gate = world.folder / name
    return f"echo $$ $GPU_SCHEDULER_ATTEMPT; while [ ! -e {gate} ]; do sleep 0.05; done; {then}"


def open_gate(world, name):
    (world.folder / name).touch()


def end_daemon(daemon, how):
    if how == "kill":
        daemon.kill()
    else:
        assert daemon.stop() == 0


def running_pid(api, job_id):
    """The pid that the job printed, once it did."""
    api.wait_for(job_id, "running")
    text = wait_until("the job printed its pid", lambda: api.output(job_id).split())
    return int(text[0])


@pytest.mark.parametrize("how", HOWS)
def test_a_restarted_agent_finds_its_jobs_running_and_their_exit_codes(world, how):
    api, agent = world.api(), world.agents()[0]
    goes_on = api.submit(gated(world, "later", "exit 11"), gpu_count=1)
    ends_meanwhile = api.submit(gated(world, "meanwhile", "echo done; exit 22"), gpu_count=2)
    pids = [running_pid(api, job_id) for job_id in (goes_on, ends_meanwhile)]

    end_daemon(agent, how)
    assert all(is_alive(pid) for pid in pids)
    open_gate(world, "meanwhile")
    wait_until("one ends while no agent looks", lambda: not is_alive(pids[1]))
    assert api.job(ends_meanwhile)["state"] == "running"
    agent.start()
    job = api.wait_for(ends_meanwhile)
    assert (job["exit_code"], job["attempts"]) == (22, 1)
    assert api.output(ends_meanwhile).endswith("done\n")
    assert is_alive(pids[0])
    assert api.job(goes_on)["state"] == "running"
    open_gate(world, "later")
    job = api.wait_for(goes_on)
    assert (job["exit_code"], job["attempts"]) == (11, 1)
    wait_until("all GPUs are free", lambda: api.get("/cluster/status")["available_gpus"] == 4)


@pytest.mark.parametrize("how", HOWS)
def test_a_restarted_scheduler_goes_on_with_running_and_waiting_jobs(world, how):
    api = world.api()
    goes_on = api.submit(gated(world, "later", "exit 11"), gpu_count=1)
    ends_meanwhile = api.submit(gated(world, "meanwhile", "exit 22"), gpu_count=2)
    waits = api.submit("exit 33", gpu_count=4)
    pids = [running_pid(api, job_id) for job_id in (goes_on, ends_meanwhile)]
    before = api.job(goes_on)

    end_daemon(world.scheduler, how)
    assert all(is_alive(pid) for pid in pids)
    open_gate(world, "meanwhile")
    wait_until("one ends while no scheduler looks", lambda: not is_alive(pids[1]))
    world.scheduler.start()
    assert api.job(goes_on) == before
    job = api.wait_for(ends_meanwhile)
    assert (job["exit_code"], job["attempts"]) == (22, 1)
    assert is_alive(pids[0])
    open_gate(world, "later")
    assert api.wait_for(goes_on)["exit_code"] == 11
    assert api.wait_for(waits)["exit_code"] == 33
    assert [api.job(job_id)["attempts"] for job_id in (goes_on, ends_meanwhile, waits)] == [1, 1, 1]


def test_both_may_be_gone_at_once(world):
    api, agent = world.api(), world.agents()[0]
    job_id = api.submit(gated(world, "gate", "exit 44"), gpu_count=1)
    pid = running_pid(api, job_id)
    world.scheduler.kill()
    agent.kill()
    open_gate(world, "gate")
    wait_until("the job ends alone", lambda: not is_alive(pid))
    world.scheduler.start()
    agent.start()
    job = api.wait_for(job_id)
    assert (job["exit_code"], job["attempts"]) == (44, 1)


def test_a_wait_on_the_command_line_survives_a_restart_of_the_scheduler(world):
    api = world.api()
    waiter = world.cli_start("submit", "--wait", "--", "sh", "-c", gated(world, "gate", "exit 6"))
    job_id = wait_until("the job is there", lambda: [job["id"] for job in api.jobs()])[0]
    api.wait_for(job_id, "running")
    world.scheduler.restart()
    open_gate(world, "gate")
    out, err = waiter.communicate(timeout=120)
    assert waiter.returncode == 6, (out, err)


@pytest.mark.parametrize("how", HOWS)
def test_logs_are_followed_across_a_restart_of_the_agent(world, how):
    api, agent = world.api(), world.agents()[0]
    job_id = api.submit("echo one; " + gated(world, "gate", "echo two; exit 3").replace("echo $$ $GPU_SCHEDULER_ATTEMPT; ", ""))
    follower = world.cli_start("logs", "-f", job_id)
    assert follower.stdout.readline() == b"one\n"
    end_daemon(agent, how)
    agent.start()
    open_gate(world, "gate")
    out, err = follower.communicate(timeout=120)
    assert (out, follower.returncode) == (b"two\n", 0), err
    assert api.wait_for(job_id)["exit_code"] == 3


def test_an_agent_is_upgraded_under_its_running_jobs(world):
    api, agent = world.api(), world.agents()[0]
    job_id = api.submit(gated(world, "gate", "exit 5"), gpu_count=1)
    pid = running_pid(api, job_id)
    newer = world.folder / "newer"
    newer.mkdir()
    for name in ("gpu-agent", "gpu-shim"):
        shutil.copy(program(name), newer / name)
    assert agent.stop() == 0
    agent.arguments = ["--shim", str(newer / "gpu-shim")]
    agent.prefix = ["sh", "-c", f'shift; exec {newer}/gpu-agent "$@"', "sh"]
    agent.start()
    assert os.readlink(f"/proc/{agent.pid()}/exe") == str(newer / "gpu-agent")
    assert is_alive(pid)
    other = api.submit("exit 8")
    assert api.wait_for(other)["exit_code"] == 8
    open_gate(world, "gate")
    job = api.wait_for(job_id)
    assert (job["exit_code"], job["attempts"]) == (5, 1)


def test_the_server_of_shims_may_be_killed(world):
    api, agent = world.api(), world.agents()[0]
    job_id = api.submit(gated(world, "gate", "exit 5"), gpu_count=1)
    pid = running_pid(api, job_id)
    servers = agent.children()
    assert len(servers) == 1
    os.kill(servers[0], signal.SIGKILL)
    assert api.wait_for(api.submit("exit 8"))["exit_code"] == 8
    assert is_alive(pid)
    open_gate(world, "gate")
    job = api.wait_for(job_id)
    assert (job["exit_code"], job["attempts"]) == (5, 1)


# Daemons in every shape that a job can make without leaving its machine's user: in a new session, orphaned twice,
# and one that forgot its environment.
DAEMONS = """
echo $$ >> {pids}
(setsid sh -c 'echo $$ >> {pids}; exec sleep 600' &)
(setsid sh -c '(setsid sh -c "echo \\$\\$ >> {pids}; trap \\"\\" TERM HUP; while :; do sleep 1; done" &)' &)
(env -i setsid /bin/sh -c 'echo $$ >> {pids}.bare; exec /bin/sleep 600' &)
while :; do sleep 0.1; done
"""


def submit_daemons(world, api, name, **fields):
    pids = world.folder / name
    job_id = api.submit(DAEMONS.format(pids=pids), **fields)
    bare = world.folder / f"{name}.bare"
    wait_until("all daemons run", lambda: len(pids_in(pids)) == 3 and len(pids_in(bare)) == 1)
    return job_id, pids_in(pids), pids_in(bare)[0]


def pids_in(path):
    return [int(pid) for pid in path.read_text().split()] if path.exists() else []


def wait_lost(api, job_id):
    def look():
        job = api.job(job_id)
        return job if job["cause"] == "shim_lost" else None

    return wait_until("the attempt is shim_lost", look)


@pytest.mark.parametrize("restart", [False, True], ids=["fresh", "adopted"])
def test_a_killed_shim_ends_its_attempt_with_all_its_daemons_and_the_job_is_retried(world, restart):
    api, agent = world.api(), world.agents()[0]
    job_id, pids, bare = submit_daemons(world, api, "pids", gpu_count=1)
    if restart:
        agent.restart()
    shim = agent.shim_of(job_id)
    assert shim and all(is_alive(pid) for pid in [*pids, bare])
    os.kill(shim, signal.SIGKILL)
    job = wait_lost(api, job_id)
    assert not [pid for pid in pids if is_alive(pid)], "the attempt ended before its processes did"
    if restart:
        # A shim that was found again has no parent that collects its orphans: one that forgot even its environment
        # is found only by a cgroup, which this version does not use.
        with contextlib.suppress(ProcessLookupError):
            os.kill(bare, signal.SIGKILL)
    else:
        assert not is_alive(bare)
    assert job["state"] in ("pending", "scheduled", "running")

    def look():
        again = api.job(job_id)
        return again if (again["attempts"], again["state"]) == (2, "running") else None

    wait_until("it runs again", look)
    files = [world.folder / "pids", world.folder / "pids.bare"]
    wait_until("the daemons of the second attempt run", lambda: [len(pids_in(file)) for file in files] == [6, 2])
    api.cancel(job_id)
    assert api.wait_for(job_id)["state"] == "cancelled"
    assert not [pid for file in files for pid in pids_in(file) if is_alive(pid)]


def test_a_shim_killed_while_the_agent_is_away_is_noticed_at_its_return(world):
    api, agent = world.api(), world.agents()[0]
    pids = world.folder / "pids"
    job_id = api.submit(f"(setsid sh -c 'echo $$ >> {pids}; exec sleep 600' &); echo $$ >> {pids}; sleep 600", gpu_count=1)
    wait_until("both run", lambda: pids.exists() and len(pids.read_text().split()) == 2)
    api.wait_for(job_id, "running")
    shim = agent.shim_of(job_id)
    agent.kill()
    os.kill(shim, signal.SIGKILL)
    first = [int(pid) for pid in pids.read_text().split()]
    agent.start()
    wait_lost(api, job_id)
    assert not [pid for pid in first if is_alive(pid)]
    api.cancel(job_id)
    api.wait_for(job_id)


@pytest.mark.skipif(not IS_ROOT, reason="needs root: gives the agent another boot id by a mount of its own")
def test_a_rebooted_machine_ends_what_ran_there_and_retries_it(new_world):
    boot = "/proc/sys/kernel/random/boot_id"
    if subprocess.run(["unshare", "-m", "mount", "--bind", "/etc/hostname", boot], capture_output=True, check=False).returncode:
        pytest.skip("mounting in a namespace of its own is not permitted here")
    world = new_world()
    world.scheduler.start()
    fake = world.folder / "boot_id"
    booting = ["unshare", "-m", "sh", "-c", f'mount --bind {fake} {boot} && exec "$@"', "sh"]
    agent = world.add_agent("n1", prefix=booting)
    fake.write_text("11111111-1111-4111-8111-111111111111\n")
    agent.start()
    api = world.api()
    pids = world.folder / "pids"
    job_id = api.submit(f"echo $$ >> {pids}; exec sleep 600", gpu_count=4)
    exits = api.submit(gated(world, "gate", "exit 3"))
    api.wait_for(job_id, "running")
    running_pid(api, exits)

    # The machine goes down: everything at once, without a word.
    agent.kill()
    for _ in range(100):
        for pid in world.attempts_left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not world.attempts_left():
            break
    open_gate(world, "gate")
    fake.write_text("22222222-2222-4222-8222-222222222222\n")
    agent.start()
    for lost in (job_id, exits):
        job = wait_until("it runs a second time", lambda i=lost: next((j for j in [api.job(i)] if j["attempts"] == 2), None))
        assert job["cause"] in ("node_lost", "exited"), job
    assert api.wait_for(exits)["exit_code"] == 3
    api.wait_for(job_id, "running")
    wait_until("two runs", lambda: len(pids.read_text().split()) == 2)
    assert {gpu["held_by"] for gpu in api.node("n1")["gpus"]} == {job_id}


def test_a_scheduler_that_forgot_a_running_job_does_not_give_its_gpus_away(world):
    """It has an older copy of its folder, which knows nothing of the job; the agent says so when it registers."""
    agent = world.agents()[0]
    assert world.scheduler.stop() == 0
    older = world.folder / "older"
    shutil.copytree(world.scheduler.data_dir, older)
    world.scheduler.start()
    api, pid_file = world.api(), world.folder / "pid"
    # It ignores SIGTERM, so that it lives on for a while when it is stopped as unknown.
    forgotten = api.submit(f"trap '' TERM; echo $$ > {pid_file}; while :; do sleep 0.1; done", gpu_count=4)
    wait_until("it runs", lambda: pid_file.exists() and pid_file.read_text().strip())
    pid = int(pid_file.read_text())
    world.scheduler.kill()
    shutil.rmtree(world.scheduler.data_dir)
    older.rename(world.scheduler.data_dir)
    before = agent.log_text().count('"registered"')
    world.scheduler.start()
    wait_until("the agent is back", lambda: agent.log_text().count('"registered"') > before)
    assert {gpu["state"] for gpu in api.node("n1")["gpus"]} == {"draining"}
    # Numbers of jobs begin again; these keep the next one from having the forgotten one's.
    for _ in range(20):
        api.cancel(api.submit(["true"], gpu_count=64))
    after = api.submit(f"! kill -0 {pid}", gpu_count=4)
    assert int(after.removeprefix("job-")) > int(forgotten.removeprefix("job-"))
    job = api.wait_for(after)
    assert (job["state"], job["attempts"]) == ("completed", 1), "it had GPUs on which the forgotten job still ran"
    assert not is_alive(pid)


def test_an_operator_confirms_a_dead_node_and_its_jobs_go_on_elsewhere(new_world):
    world = new_world(SCHEDULER_NODE_LEASE_MS=1000)
    world.scheduler.start()
    first = world.add_agent("n1")
    first.start()
    api = world.api()
    job_id = api.submit(gated(world, "gate", "exit 7"), gpu_count=1)
    pid = running_pid(api, job_id)
    refused = api.call("POST", "/api/v1/nodes/n1/confirm-dead")
    assert (refused[0], refused[1]["code"]) == (409, "node_alive")

    first.kill()
    api.wait_node("n1", "unreachable")
    world.add_agent("n2").start()
    assert api.job(job_id)["state"] == "running"  # Unreachable is not dead.
    assert is_alive(pid)
    done = world.cli("cluster", expected=0).stdout
    assert "1" in done
    # The operator makes sure of it, and says so.
    for left in world.attempts_left():
        if left not in (world.agents()[1].pid(), world.scheduler.pid(), *world.agents()[1].children()):
            with contextlib.suppress(ProcessLookupError):  # A child of one that was killed before.
                os.kill(left, signal.SIGKILL)
    world.cli("node", "confirm-dead", "n1", expected=0)
    open_gate(world, "gate")
    job = api.wait_for(job_id)
    assert (job["exit_code"], job["node_name"], job["attempts"]) == (7, "n2", 2)
    # It comes back empty.
    first.start()
    node = api.wait_node("n1")
    assert {gpu["state"] for gpu in node["gpus"]} <= {"free", "draining"}


def test_a_second_scheduler_on_the_same_folder_is_refused_and_named_the_first(world):
    second = world.add_scheduler(name="second", data_dir=world.scheduler.data_dir)
    second.launch()
    assert second.ended() == 1
    assert str(world.scheduler.pid()) in second.log_text()
    assert world.scheduler.served_ports()["pid"] == world.scheduler.pid()
    assert world.api().wait_for(world.api().submit(["true"]))["state"] == "completed"


def test_a_second_agent_on_the_same_folder_is_refused_and_named_the_first(world):
    agent = world.agents()[0]
    second = world.add_agent("n2", name="second", data_dir=agent.data_dir)
    second.launch()
    assert second.ended() == 1
    assert str(agent.pid()) in second.log_text()
    assert world.api().wait_for(world.api().submit(["true"]))["state"] == "completed"


def test_a_second_agent_of_the_same_name_is_refused_with_a_sentence(world):
    api = world.api()
    job_id = api.submit(gated(world, "gate", "exit 2"), gpu_count=4)
    running_pid(api, job_id)
    second = world.add_agent("n1", name="second", sim_gpus=A100X4)
    second.launch()
    wait_until("the second is refused", lambda: "node_name_taken" in second.log_text())
    assert "another data folder" in second.log_text()
    assert '"registered"' not in second.log_text()
    assert api.node("n1")["state"] == "ready"
    open_gate(world, "gate")
    job = api.wait_for(job_id)
    assert (job["exit_code"], job["attempts"]) == (2, 1)


def test_ports_may_be_chosen_freely_and_are_written_down(new_world):
    world = new_world()
    world.scheduler.ports = {"http": 0, "grpc": 0, "metrics": 0}
    world.scheduler.start()
    ports = world.scheduler.ports
    assert len(set(ports.values())) == 3 and 0 not in ports.values()
    assert world.api().call("GET", "/health")[0] == 200
    world.add_agent("n1").start()
    metrics = world.api().__class__(ports["metrics"])
    assert b"gpu_scheduler_jobs_total" in metrics.call("GET", "/metrics")[1]
    assert world.scheduler.stop() == 0
    assert not (pathlib.Path(world.scheduler.data_dir) / "ports.json").exists()
