"""What a job used is told: peak memory, CPU time and GPU use; also by restarted agents and schedulers."""

import os
import signal

from harness import is_alive, wait_until

MB = 1 << 20
# Holds 200 MB, burns one second of a core in a child, says so, and ends when the file is there. Lower bounds are all
# that can be promised of either: the interpreter takes some too.
WORK = """
import os, sys, time
memory = bytearray(200 << 20)
for at in range(0, len(memory), 4096):
    memory[at] = 1
if os.fork() == 0:
    while time.process_time() < 1:
        pass
    os._exit(0)
os.wait()
print("worked", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
"""


def submit_work(world, **fields):
    script = world.folder / "work.py"
    script.write_text(WORK)
    return world.api().submit(f"echo $$; exec python3 {script} {world.folder / 'gate'}", **fields)


def wait_worked(api, job_id):
    api.wait_for(job_id, "running")
    wait_until("the job did its work", lambda: "worked" in api.output(job_id))


def check(usage):
    assert usage["peak_memory_bytes"] >= 200 * MB
    assert usage["peak_memory_bytes"] < 2_000 * MB
    assert 1_000 <= usage["cpu_ms"] < 100_000
    # A machine whose control groups we may use counts all processes.
    assert usage["peak_memory_of"] in ("all_processes", "largest_process")
    assert "gpu_use_permille" not in usage, "nobody watched it for long enough"


def native(world, path):
    status, body, _ = world.api().call("GET", f"/v1{path}")
    assert status == 200, body
    return body


def test_a_job_is_told_with_what_it_used_on_every_way(world):
    api = world.api()
    job_id = submit_work(world, memory_mb=1024, cpu_cores=2)
    wait_worked(api, job_id)
    assert "usage" not in api.job(job_id), "it is measured at the end"
    (world.folder / "gate").touch()
    job = api.wait_for(job_id)
    check(job["usage"])
    assert native(world, f"/jobs/{job_id}")["usage"] == job["usage"] | {"members_unknown": 0}
    ended = [line for line in native(world, f"/jobs/{job_id}/history")["lines"] if line["event"] == "ended"]
    check(ended[0]["usage"])
    assert "s of CPU time" in ended[0]["message"]

    shown = world.cli("get", job_id, expected=0).stdout
    peak, cpu = (next(line for line in shown.splitlines() if line.startswith(title))
                 for title in ("Peak memory", "CPU time"))
    assert " of 1G requested" in peak
    assert " % of 2 CPUs for " in cpu
    assert "GPU use" not in shown
    table = world.cli("list", "--all", "--columns", "id,peak_memory,cpu_time,gpu_use", expected=0).stdout
    line = next(line for line in table.splitlines() if line.startswith(job_id))
    assert line.split()[1].endswith("M") and line.split()[2].endswith("s"), table


def test_a_job_that_ends_without_an_agent_is_told_with_what_it_used(world):
    api, agent = world.api(), world.agents()[0]
    job_id = submit_work(world)
    wait_worked(api, job_id)
    pid = int(api.output(job_id).split()[0])
    agent.kill()
    (world.folder / "gate").touch()
    wait_until("it ends while no agent looks", lambda: not is_alive(pid))
    agent.start()
    check(api.wait_for(job_id)["usage"])


def test_what_a_job_used_survives_the_scheduler(world):
    api = world.api()
    (world.folder / "gate").touch()
    job_id = submit_work(world)
    before = api.wait_for(job_id)
    check(before["usage"])
    world.scheduler.restart()
    assert api.job(job_id) == before


def test_a_job_whose_shim_died_is_told_without_use(world):
    api, agent = world.api(), world.agents()[0]
    job_id = submit_work(world, retries=0)
    wait_worked(api, job_id)
    os.kill(agent.shim_of(job_id), signal.SIGKILL)
    ended = lambda: [line for line in native(world, f"/jobs/{job_id}/history")["lines"] if line["event"] == "ended"]
    line = wait_until("its end is known", ended)[0]
    assert line["cause"] == "shim_lost"
    assert "usage" not in line
    api.cancel(job_id)


def test_how_busy_its_gpus_were_is_told(new_world):
    world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=200)  # As often the agent looks.
    world.scheduler.start()
    world.add_agent("n1").start()
    api, agent = world.api(), world.agents()[0]
    agent.set_gpus({index: {"utilization_percent": 75} for index in range(4)})
    job_id = api.submit("sleep 4", gpu_count=2)
    usage = api.wait_for(job_id)["usage"]
    assert 0 < usage["gpu_use_permille"] <= 750
    assert "GPU use" in world.cli("get", job_id, expected=0).stdout
