"""Client and AsyncClient against a real scheduler: jobs, arrays, gangs, dependencies, logs, leases, files, usage."""

import asyncio
import json
import subprocess
import sys
import threading

import pytest
from conftest import need, wait_until

need("httpx")

import gpu_scheduler  # noqa: E402
from gpu_scheduler import AsyncClient, Client, Job, job_request  # noqa: E402


@pytest.fixture(name="client")
def client_fixture(dev):
    with Client(dev.url, token=dev.token) as client:
        yield client


def running(client, job):
    wait_until("it runs", lambda: client.get(job).state == "running")
    return job


def test_an_array_is_many_jobs_and_a_gang_has_members(client):
    array = client.submit("exit $((GPU_SCHEDULER_ARRAY_INDEX % 2))", array="0-3", cpus=0.1)
    assert client.wait(array, 60).raw["array"]["count"] == 4
    counts = client.get(array)["array"]
    assert (counts["completed"], counts["failed"]) == (2, 2)
    assert client.get(array.id + "[2]").succeeded
    with pytest.raises(gpu_scheduler.InfeasibleError):
        client.submit("true", nodes=2, gpus=1, require_feasible=True)


def test_a_dependency_is_waited_for(client):
    first = client.submit("sleep 1000")
    second = client.submit("true", after=first)
    assert client.get(second)["unmet_dependencies"] == ["after_ok:" + first.id]
    client.cancel(first)
    with pytest.raises(gpu_scheduler.JobFailedError) as caught:
        client.wait(second, 60, check=True)
    assert caught.value.job.state == "cancelled"


def test_the_same_key_is_the_same_job(client):
    one, two = (client.submit("true", idempotency_key="once") for _ in range(2))
    assert one.id == two.id
    with pytest.raises(gpu_scheduler.ConflictError) as caught:
        client.submit("false", idempotency_key="once")
    assert caught.value.code == "request_key_conflict"


def test_a_list_goes_over_all_pages(client):
    ids = client.submit_many([job_request("true", cpus=0.1, labels={"set": "paged"}, held=True) for _ in range(7)])
    assert [job.id for job in client.list(labels="set=paged", page_size=3)] == ids[::-1]
    for job in ids:
        client.cancel(job)


def test_a_wait_that_is_over_leaves_the_job_alone(client):
    job = client.submit("sleep 1000")
    with pytest.raises(gpu_scheduler.WaitTimeoutError, match=job.id + " is still"):
        client.wait(job, 0.3)
    assert not client.get(job).is_final
    with pytest.raises(gpu_scheduler.ConflictError):
        client.update(running(client, job), gpu_count=2)
    requeued = client.requeue(job)
    wait_until("it runs again", lambda: client.get(job).attempts == 2)
    assert requeued.id == job.id
    client.cancel(job)
    client.wait(job, 60)
    with pytest.raises(gpu_scheduler.JobFinishedError):
        client.cancel(job)


def test_hold_release_history_and_plan(client):
    job = client.submit("true", held=True)
    assert client.hold(job)["held"] and not client.release(job)["held"]
    client.wait(job, 60)
    assert [line["event"] for line in client.history(job)][0] == "submitted"
    plan = client.plan("true", gpus=1, max_runtime_s=60)
    assert plan["gpu_seconds_reserved"] == 60
    assert client.plan("true", gpus=1, gpu_model="H100") != plan


def test_logs_and_their_parts(client):
    job = client.wait(client.submit("printf 'a\\nb\\nc\\n'; echo wrong >&2"), 60)
    assert client.logs(job) == "a\nb\nc\n"
    assert client.logs(job, stream="stderr") == "wrong\n"
    assert client.logs(job, tail_lines=1) == "c\n"
    assert client.logs(job, grep="b") == "b\n"
    with pytest.raises(gpu_scheduler.NotFoundError) as caught:
        client.logs(client.submit("true", held=True))
    assert caught.value.code == "log_not_found"


def test_a_log_is_followed_while_it_is_written(client):
    job = client.submit("echo one; until [ -e go ]; do sleep 0.05; done; printf 'two\\303\\251'")
    lines = client.follow(job)
    assert next(lines) == "one\n"
    client.write_file(job, "go", b"")
    assert list(lines) == ["two\u00e9"]


def test_files_go_into_a_job_and_come_out(client, dev):
    data = bytes(range(256)) * 3000
    with Client("unix://{}".format(dev.socket)) as over_socket:
        job = running(client, over_socket.submit("sleep 1000"))
        over_socket.write_file(job, "data", data)
        assert over_socket.read_file(job, "data") == data
    client.write_file(job, "empty", b"")
    assert client.read_file(job, "empty") == b""
    with pytest.raises(gpu_scheduler.NotFoundError):
        client.read_file(job, "nosuch")
    with pytest.raises(gpu_scheduler.InternalError, match="nosuch/x.part"):
        client.write_file(job, "nosuch/x", b"1")
    client.cancel(job)
    client.wait(job, 60)
    with pytest.raises(gpu_scheduler.ConflictError):
        client.write_file(job, "late", b"1")


def test_map_keeps_the_order_and_shows_a_bar(client, capsys):
    need("tqdm")
    jobs = list(client.map(["sleep 0.3; exit 1", ["true"]], progress=True, cpus=0.1))
    assert [job.exit_code for job in jobs] == [1, 0]
    assert "2/2" in capsys.readouterr().err
    with pytest.raises(gpu_scheduler.JobFailedError):
        list(client.map(["exit 1"], check=True))


def test_a_lease_is_given_back_also_when_its_block_fails(client):
    class Boom(Exception):
        pass

    with pytest.raises(Boom):
        with client.lease(gpus=4, minutes=5, wait_s=60, name="held") as gpus:
            assert len(gpus) == 4 and sorted(gpus)[0] == "dev-gpu-0" and gpus.node == "dev"
            assert gpus.environment["CUDA_VISIBLE_DEVICES"].split(",") == gpus.uuids
            assert client.renew_lease(gpus, 30).raw["lease_expires_at"] > gpus.raw["lease_expires_at"]
            with pytest.raises(gpu_scheduler.WaitTimeoutError):
                with client.lease(gpus=1, wait_s=0.2):
                    raise AssertionError("there is no GPU left")
            raise Boom
    client.wait(gpus.job_id, 60)
    assert client.wait(client.submit("true", gpus=4), 60).succeeded


def test_usage_is_a_table_where_pandas_is_and_else_a_list(client, monkeypatch):
    job = client.submit("true", labels={"set": "used"}, gpus=2)
    client.wait(job, 60)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "pandas", None)
        row, = client.usage(labels={"set": "used"})
        assert (row["job_id"], row["gpus"], row["state"]) == (job.id, 2, "completed")
    need("pandas")
    table = client.usage(labels={"set": "used"})
    assert table["gpus"].tolist() == [2] and table["job_id"].tolist() == [job.id]
    assert table["gpu_seconds"][0] == pytest.approx(2 * table["run_s"][0])
    assert table["cpu_s"][0] >= 0


def test_refusals_have_the_servers_sentence_and_field(client):
    with pytest.raises(gpu_scheduler.InvalidRequestError) as caught:
        client.submit("true", extra={"spec": {"umsk": 1}})
    assert (caught.value.code, caught.value.field, caught.value.status) == ("invalid_argument", "spec.umsk", 400)
    assert str(caught.value) == "there is no field spec.umsk; did you mean umask?"
    with pytest.raises(TypeError):
        client.submit("true", gpu=1)
    with pytest.raises(ValueError):
        client.submit()
    client.request("POST", "/v1/tenants", body={"name": "small", "max_gpus": 1})
    with pytest.raises(gpu_scheduler.QuotaExceededError, match="quota exceeded|may use 1 GPU"):
        client.submit("true", gpus=2, tenant_id="small")


def test_without_a_token_a_client_on_this_machine_finds_it(dev):
    with Client(dev.url) as client:
        assert client.request("GET", "/v1/whoami") == Client(dev.url, token=dev.token).request("GET", "/v1/whoami")
    with Client(dev.url, token="wrong-token-wrong-token") as stranger:
        with pytest.raises(gpu_scheduler.AuthenticationError):
            stranger.cluster()


def test_settings_are_those_of_gpu_cli(dev, monkeypatch, tmp_path):
    monkeypatch.setenv("GPU_SCHEDULER_URL", "http://127.0.0.1:1," + dev.url)
    assert Client().cluster()["total_gpus"] == 4
    monkeypatch.delenv("GPU_SCHEDULER_URL")
    config = tmp_path / "config" / "gpu-scheduler"
    config.mkdir(parents=True)
    (tmp_path / "key").write_text(dev.token)
    subprocess.run([str(dev.program("gpu-cli")), "context", "set", "lab", "--api-url",
                    "http://127.0.0.1:1," + dev.url, "--token-file", str(tmp_path / "key")], check=True, stdout=subprocess.DEVNULL,
                   env={**dev.environment(), "XDG_CONFIG_HOME": str(tmp_path / "config")})
    assert Client(context="lab").cluster()["total_gpus"] == 4
    with pytest.raises(gpu_scheduler.GpuSchedulerError, match="there is no context nosuch"):
        Client(context="nosuch")
    (config / "contexts.json").unlink()
    (tmp_path / "runtime").mkdir(mode=0o700)
    (tmp_path / "runtime" / "gpu-scheduler").mkdir(mode=0o700)
    (tmp_path / "runtime" / "gpu-scheduler" / "api.sock").symlink_to(dev.socket)
    assert Client().cluster()["total_gpus"] == 4
    with pytest.raises(gpu_scheduler.GpuSchedulerError, match="is no address"):
        Client("ftp://nowhere")
    with pytest.raises(gpu_scheduler.AuthenticationError, match="holds neither an API key nor a token"):
        (tmp_path / "key").write_text("two words")
        Client(token_file=str(tmp_path / "key"))


def test_a_restart_of_the_scheduler_is_waited_for(new_dev):
    own = new_dev()
    client = Client(own.url)
    job = client.submit("until [ -e go ]; do sleep 0.05; done; echo went")
    lines, seen = client.follow(job), []
    follower = threading.Thread(target=lambda: seen.extend(lines))
    follower.start()
    own.restart_scheduler()
    running(client, job)

    def goes():
        try:
            client.write_file(job, "go", b"")
        except gpu_scheduler.GpuSchedulerError:
            return False  # The agent is not connected yet.
        return True

    wait_until("the file is written", goes)
    assert client.wait(job, 60).succeeded
    follower.join(60)
    assert seen == ["went\n"]


def test_the_async_client_does_the_same(dev):
    async def everything():
        async with AsyncClient([dev.url], token=dev.token) as client:
            job = await client.submit("echo one; echo two", name="async", labels={"set": "async"})
            lines = [line async for line in client.follow(job)]
            done = await client.wait(job, 60, check=True)
            listed = [found.id async for found in client.list(labels={"set": "async"})]
            codes = [one.exit_code async for one in client.map(["exit 4", "exit 5"])]
            async with client.lease(gpus=1, minutes=5, wait_s=60) as gpus:
                held = list(gpus)
            with pytest.raises(gpu_scheduler.NotFoundError):
                await client.get("job-99999999")
            slow = await client.submit("sleep 1000")
            await client.cancel(slow)
            return (lines, await client.logs(job), [done.id] == listed, codes, len(held),
                    (await client.wait(slow, 60)).state, (await client.cluster())["total_gpus"])

    assert asyncio.run(everything()) == (["one\n", "two\n"], "one\ntwo\n", True, [4, 5], 1, "cancelled", 4)


def test_many_waits_share_one_event_loop(dev):
    async def many():
        async with AsyncClient(dev.url) as client:
            jobs = [await client.submit("exit {}".format(code), cpus=0.1) for code in range(8)]
            return [job.exit_code for job in await asyncio.gather(*(client.wait(job, 60) for job in jobs))]

    assert asyncio.run(many()) == list(range(8))


def test_a_job_shows_itself_in_a_notebook():
    job = Job({"job_id": "job-7", "state": "failed", "message": "<b>", "exit_code": 3, "spec": {"name": "n"}})
    text = job._repr_html_()
    assert "job-7 n" in text and "&lt;b&gt;" in text and "<td>3</td>" in text
    assert json.loads(json.dumps(job.raw)) == job.raw and job == Job(job.raw)


def test_where_nobody_is_a_sentence_says_what_to_do():
    with pytest.raises(gpu_scheduler.UnreachableError, match="no scheduler answers at http://127.0.0.1:1: .*dev"):
        Client("http://127.0.0.1:1", token="x", retry_s=0).cluster()
