"""The tasks door over REST, by plain HTTP as its contract has it: online and batch tasks, GPUs, the quota."""

import re

import pytest
from harness import wait_until

pytestmark = pytest.mark.shared_world
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
TASK_FIELDS = {"task_id", "id", "priority", "gpu_count", "gpu_model", "command", "env", "status", "assigned_gpus",
               "created_at", "started_at", "finished_at", "error", "reason", "message"}
GPU_FIELDS = {"id", "node_id", "device_index", "model", "memory", "status", "current_task", "updated_at"}


class Door:
    def __init__(self, world):
        self.api = world.api()

    def ask(self, method, path, body=None, expected=200, headers=None):
        status, answer, _ = self.api.call(method, f"/api/v1{path}", body, headers)
        assert status == expected, (method, path, status, answer)
        return answer

    def submit(self, command, priority="low", gpu_count=1, headers=None, **more):
        return self.ask("POST", "/tasks", {"priority": priority, "gpu_count": gpu_count, "command": command, **more},
                        201, headers)["task_id"]

    def task(self, task):
        return self.ask("GET", f"/tasks/{task}")

    def wait_for(self, task, status):
        wait_until(f"{task} is {status}", lambda: self.task(task)["status"] == status)
        return self.task(task)


@pytest.fixture(name="door")
def door_fixture(world):
    return Door(world)


@pytest.fixture(name="pools")
def pools_fixture(new_world):
    world = new_world(SCHEDULER_POOL_ONLINE_PERCENT=75, SCHEDULER_POOL_BATCH_PERCENT=25)
    world.scheduler.start()
    world.add_agent().start()
    world.api().wait_node("n1")
    return world


def test_a_task_from_its_submission_to_its_end(world, door):
    answer = door.ask("POST", "/tasks", {"priority": "high", "gpu_count": 2, "gpu_model": "A100",
                                         "command": "sh -c 'echo \"$GREETING\" there; exit 0'",
                                         "env": {"GREETING": "good morning"}}, 201)
    assert set(answer) == {"task_id", "status", "created_at"}
    assert answer["status"] == "pending" and TIME.fullmatch(answer["created_at"])
    task = door.wait_for(answer["task_id"], "success")
    assert TASK_FIELDS <= set(task)
    assert task["id"] == task["task_id"] == answer["task_id"]
    assert (task["priority"], task["gpu_count"], task["gpu_model"]) == ("high", 2, "A100")
    assert task["command"] == "sh -c 'echo \"$GREETING\" there; exit 0'"
    assert task["env"] == {"GREETING": "good morning"}
    assert len(task["assigned_gpus"]) == 2
    assert all(re.fullmatch(r"n1-gpu-[0-3]", gpu) for gpu in task["assigned_gpus"])
    assert task["created_at"] == answer["created_at"]
    assert TIME.fullmatch(task["started_at"]) and TIME.fullmatch(task["finished_at"])
    assert task["error"] is None
    assert world.cli("logs", task["id"], expected=0).stdout == "good morning there\n"


@pytest.mark.parametrize("line", ["sleep  1000", "sh -c \"sleep 1000\"", "sleep '1000'", " sleep 1000 ", "sh -c 'sleep\t1000'"])
def test_a_command_reads_back_as_it_was_sent(world, door, line):
    task = door.submit(line)
    assert door.task(task)["command"] == line
    assert line in [one["command"] for one in door.ask("GET", "/tasks?limit=5")["tasks"]]
    world.api().wait_for(task, "running")
    door.ask("DELETE", f"/tasks/{task}")


def test_what_is_absent_is_null_and_why_it_waits_is_told(door):
    holds = door.submit("sleep 1000", gpu_count=4)
    running = door.wait_for(holds, "running")
    assert (running["reason"], running["error"], running["gpu_model"]) == (None, None, None) and "n1" in running["message"]
    waits = door.submit("sleep 1000", gpu_count=4)
    told = wait_until("the reason", lambda: (found := door.task(waits))["reason"] not in (None, "queued") and found)
    assert told["message"] and (told["error"], told["finished_at"], told["started_at"]) == (None, None, None)
    for answer in (told, running, *door.ask("GET", "/tasks")["tasks"], *door.ask("GET", "/gpus")["gpus"]):
        assert "" not in answer.values(), answer
    for task in (waits, holds):
        door.ask("DELETE", f"/tasks/{task}")
        door.wait_for(task, "cancelled")
    assert {gpu["current_task"] for gpu in door.ask("GET", "/gpus")["gpus"]} == {None}


def test_a_task_on_a_silent_node_says_so_and_is_stopped_when_it_returns(new_world, start_world):
    world = start_world(lambda: new_world(SCHEDULER_NODE_LEASE_MS=1500))
    door = Door(world)
    task = door.submit("sleep 1000")
    door.wait_for(task, "running")
    world.agents()[0].kill()
    told = wait_until("the silence", lambda: "has not reported" in (found := door.task(task))["message"] and found)
    assert told["status"] == "running"
    answer = door.ask("DELETE", f"/tasks/{task}", expected=202)
    assert answer == {"message": "Task will be stopped when its node returns"}
    assert "will be stopped when its node returns" in door.task(task)["message"]
    world.agents()[0].start()
    door.wait_for(task, "cancelled")
    world.wait_nothing_runs()


def test_a_failed_task_says_why(door):
    task = door.wait_for(door.submit("sh -c 'exit 3'"), "failed")
    assert "3" in task["error"] and task["exit_code"] == 3


def test_a_running_task_is_really_stopped(world, door):
    task = door.submit("sleep 1000", gpu_count=4)
    assert door.wait_for(task, "running")["finished_at"] is None
    assert door.ask("DELETE", f"/tasks/{task}") == {"message": "Task cancelled"}
    door.wait_for(task, "cancelled")
    world.wait_nothing_runs()
    gpus = door.ask("GET", "/gpus")
    assert (gpus["total"], gpus["idle"], gpus["busy"], gpus["offline"]) == (4, 4, 0, 0)
    door.ask("DELETE", f"/tasks/{task}", expected=409)


def test_tasks_are_jobs_of_every_door(world, door):
    task = door.submit("sleep 1000")
    door.wait_for(task, "running")
    assert world.api().job(task)["state"] == "running"
    world.cli("cancel", task, expected=0)
    door.wait_for(task, "cancelled")
    job = world.api().submit("sleep 1000", gpu_count=1)
    assert door.wait_for(job, "running")["command"] == "sleep 1000"
    door.ask("DELETE", f"/tasks/{job}")
    world.api().wait_for(job, "cancelled")


@pytest.mark.own_world
def test_a_list_is_filtered_and_counts_all_that_match(door):
    done = [door.submit("true", "high"), door.submit("true", "low"), door.submit("true", "low")]
    for task in done:
        door.wait_for(task, "success")
    running = door.submit("sleep 1000", "high", gpu_count=4)
    door.wait_for(running, "running")
    waiting = [door.submit("true", "low"), door.submit("true", "low")]

    def listed(query):
        answer = door.ask("GET", f"/tasks{query}")
        return [task["id"] for task in answer["tasks"]], answer["total"]

    newest_first = [*reversed(waiting), running, *reversed(done)]
    assert listed("") == (newest_first, 6)
    assert listed("?limit=2") == (newest_first[:2], 6)
    assert listed("?status=success") == (list(reversed(done)), 3)
    assert listed("?status=running") == ([running], 1)
    assert listed("?status=pending") == (list(reversed(waiting)), 2)
    assert listed("?priority=high") == ([running, done[0]], 2)
    assert listed("?priority=low&limit=1") == ([waiting[1]], 4)
    assert listed("?priority=low&status=pending&limit=1") == ([waiting[1]], 2)
    assert listed("?priority=high&status=failed") == ([], 0)
    door.ask("GET", "/tasks?status=sleeping", expected=400)
    door.ask("GET", "/tasks?priority=middle", expected=400)


@pytest.mark.parametrize("body, field", [
    ({"gpu_count": 1, "command": "true"}, "priority"),
    ({"priority": "urgent", "gpu_count": 1, "command": "true"}, "priority"),
    ({"priority": "low", "command": "true"}, "gpu_count"),
    ({"priority": "low", "gpu_count": 0, "command": "true"}, "gpu_count"),
    ({"priority": "low", "gpu_count": -1, "command": "true"}, "gpu_count"),
    ({"priority": "low", "gpu_count": 1}, "command"),
    ({"priority": "low", "gpu_count": 1, "command": "  "}, "command"),
    ({"priority": "low", "gpu_count": 1, "command": "echo 'open"}, "command"),
    ({"priority": "low", "gpu_count": 1, "command": ["true"]}, "command"),
])
def test_what_is_no_task_is_refused_and_named(door, body, field):
    answer = door.ask("POST", "/tasks", body, 400)
    assert answer["field"] == field and answer["error"]


def test_unknown_tasks_and_wrong_methods(door):
    door.ask("GET", "/tasks/job-424242", expected=404)
    door.ask("GET", "/tasks/nonsense", expected=404)
    door.ask("DELETE", "/tasks/job-424242", expected=404)
    door.ask("PATCH", "/tasks", {}, expected=405)
    door.ask("GET", "/tasks/job-1/output", expected=404)


def test_a_repeated_submission_is_one_task(door):
    headers = {"Idempotency-Key": "the-first-of-today"}
    before = door.ask("GET", "/tasks")["total"]
    assert door.submit("true", headers=headers) == door.submit("true", headers=headers)
    assert door.ask("GET", "/tasks")["total"] == before + 1


def test_gpus_are_idle_busy_and_offline(new_world, start_world):
    world = start_world(lambda: new_world(SCHEDULER_NODE_LEASE_MS=1500))
    door = Door(world)
    task = door.submit("sleep 1000")
    door.wait_for(task, "running")
    answer = door.ask("GET", "/gpus")
    assert (answer["total"], answer["idle"], answer["busy"], answer["offline"]) == (4, 3, 1, 0)
    (busy,) = [gpu for gpu in answer["gpus"] if gpu["status"] == "busy"]
    assert set(busy) == GPU_FIELDS
    assert busy["current_task"] == task and busy["node_id"] == "n1"
    assert busy["id"] == f"n1-gpu-{busy['device_index']}"
    assert busy["memory"] == 81_920 and "A100" in busy["model"] and TIME.fullmatch(busy["updated_at"])
    world.agents()[0].kill()
    wait_until("the GPUs are offline", lambda: door.ask("GET", "/gpus")["offline"] == 4)
    world.agents()[0].start()
    wait_until("the GPUs are back", lambda: door.ask("GET", "/gpus")["offline"] == 0)


def test_without_pools_each_may_use_all(door):
    quota = door.ask("GET", "/quota")
    assert quota == {"total_gpus": 4, "online": {"quota": 4, "used": 0, "available": 4},
                     "batch": {"quota": 4, "used": 0, "available": 4}}


def test_a_quota_holds_and_changes_while_tasks_run(pools):
    door = Door(pools)
    assert door.ask("GET", "/quota") == {"total_gpus": 4, "online": {"quota": 3, "used": 0, "available": 3},
                                         "batch": {"quota": 1, "used": 0, "available": 1}}
    first, second = door.submit("sleep 1000"), door.submit("sleep 1000")
    door.wait_for(first, "running")
    assert door.task(second)["status"] == "pending"
    assert "pool" in pools.api().job(second)["message"]
    assert door.ask("PUT", "/quota", {"online_percent": 0.5}) == {"message": "Quota updated"}
    door.wait_for(second, "running")
    assert door.ask("GET", "/quota")["batch"] == {"quota": 2, "used": 2, "available": 0}
    refused = door.ask("PUT", "/quota", {"online_percent": 0.75}, 409)
    assert "hold 2" in refused["error"], refused
    for body in ({}, {"online_percent": 1.5}, {"online_percent": -0.1}, {"online_percent": "half"}):
        assert door.ask("PUT", "/quota", body, 400)["field"] == "online_percent"


def test_a_quota_that_was_set_outlives_restarts_and_the_file(pools):
    door = Door(pools)
    door.ask("PUT", "/quota", {"online_percent": 0.25})
    pools.scheduler.wait_log('"quota_updated"')
    pools.scheduler.kill()
    pools.scheduler.start()
    wait_until("the agent is back", lambda: Door(pools).ask("GET", "/quota")["total_gpus"] == 4)
    assert door.ask("GET", "/quota")["online"]["quota"] == 1
    pools.scheduler.wait_log("pools_differ_from_configuration")


def test_only_operators_divide_the_cluster(pools):
    status, answer, _ = pools.scheduler.api(anonymous=True).call("PUT", "/api/v1/quota", {"online_percent": 0.5})
    assert status == 403 and answer["code"] == "permission_denied"
