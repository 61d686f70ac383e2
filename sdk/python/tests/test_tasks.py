"""GPUClient against a real scheduler: the documented example, refusals, events."""

import subprocess
import sys
import threading

import pytest
from conftest import PACKAGE, ROOT, bin_folder, need

need("httpx", "grpc", "google.protobuf")

import gpu_scheduler  # noqa: E402
from gpu_scheduler import GPUClient  # noqa: E402


@pytest.fixture(name="client")
def client_fixture(dev):
    with GPUClient(host=dev.grpc, token=dev.token) as client:
        yield client


def test_the_documented_example(client):
    task_id = client.submit_task(task_id="task-1", user_id="user-123", task_type="llm", gpu_memory_mb=8192,
                                 payload={"prompt": "Hello, world!"})
    assert task_id == "task-1"
    status = client.get_status(task_id)
    assert status["status"] in ("PENDING", "RUNNING", "COMPLETED")
    result = client.wait(task_id, timeout=60)
    assert (result["status"], result["status_code"]) == ("COMPLETED", 2)
    assert 0 < result["created_at"] <= result["started_at"] <= result["completed_at"]


def test_the_payload_is_what_the_worker_reads(client, dev):
    client.submit_task("json-1", "u", "llm", payload={"n": 1})
    client.submit_task("bytes-1", "u", "llm", payload=b"\x00\xff")
    gpu_cli, printed = str(bin_folder() / "gpu-cli"), []
    for task in ("json-1", "bytes-1"):
        message = client.wait(task, 60)["message"]
        printed.append(subprocess.run([gpu_cli, "--api-url", dev.url, "logs", message.split(":")[0]],
                                      stdout=subprocess.PIPE, check=True, env=dev.environment()).stdout)
    assert printed == [b'{"n": 1}', b"\x00\xff"]


def test_a_failed_task_says_so_and_a_cancelled_one_too(client):
    client.submit_task("fails", "u", "other", payload=b"exit 3")
    assert client.wait("fails", 60)["status"] == "FAILED"
    client.submit_task("long", "u", "other", payload=b"sleep 1000")
    with pytest.raises(gpu_scheduler.WaitTimeoutError, match="task long is still") as caught:
        client.wait("long", timeout=0.2)
    assert isinstance(caught.value, TimeoutError)
    assert client.cancel("long") is True
    assert client.wait("long", 60)["status"] == "CANCELLED"
    assert client.cancel_task("nosuch") is False


def test_the_same_task_again_is_the_same_one(client):
    for _ in range(2):
        client.submit_task("twice", "u", "llm", payload=b"a")
    first = client.wait("twice", 60)
    client.submit_task("twice", "u", "llm", payload=b"a")
    assert client.get_status("twice") == first


def test_refusals_are_the_schedulers_sentences(client):
    for number in range(200):
        try:
            client.submit_task("spends-{}".format(number), "spender", "llm", payload=b"")
        except gpu_scheduler.TaskRejectedError as refused:
            assert str(refused) == "insufficient token" and isinstance(refused, RuntimeError)
            break
    else:
        raise AssertionError("nobody was refused")
    with pytest.raises(ValueError, match="task_type is one of"):
        client.submit_task("x", "u", "cooking")


def test_an_unknown_task_reads_as_failed_and_is_not_waited_for(client):
    status = client.get_status("nosuch")
    assert (status["status"], status["message"]) == ("FAILED", "Task not found")
    with pytest.raises(gpu_scheduler.NotFoundError, match="there is no task nosuch"):
        client.wait("nosuch")


def test_gpu_status_has_every_gpu(client):
    gpus = client.gpu_status()
    assert len({gpu["gpu_id"] for gpu in gpus}) == 4
    assert len(gpus) == 4 and all("A100" in gpu["name"] for gpu in gpus)
    assert all(gpu["memory_total"] == gpu["memory_used"] + gpu["memory_free"] for gpu in gpus)
    assert client.get_gpu_status()[0]["gpu_id"] == gpus[0]["gpu_id"]


def test_events_tell_every_change(client):
    events = client.events()
    client.submit_task("told", "u", "llm", payload=b"")
    seen = []
    for event in events:
        if event["task_id"] == "told":
            seen.append(event["status"])
            if event["status"] == "COMPLETED":
                break
    events.close()
    assert seen == ["PENDING", "RUNNING", "COMPLETED"]


def test_closing_the_client_ends_a_listener(dev):
    client = GPUClient(host=dev.grpc, token=dev.token)
    events = client.events()
    ended = []

    def listen():
        try:
            list(events)
        except gpu_scheduler.GpuSchedulerError as error:
            ended.append(error)

    listener = threading.Thread(target=listen)
    listener.start()
    client.close()
    listener.join(60)
    assert ended and not listener.is_alive()


def test_a_wrong_credential_and_a_wrong_address_are_errors(dev):
    with GPUClient(host=dev.grpc, token="wrong-token-wrong-token") as stranger:
        with pytest.raises(gpu_scheduler.AuthenticationError) as caught:
            stranger.gpu_status()
        assert caught.value.code == "unauthenticated"
    with GPUClient(host="127.0.0.1:1") as nobody:
        with pytest.raises(gpu_scheduler.UnreachableError, match="no scheduler answers at 127.0.0.1:1"):
            nobody.gpu_status()


def test_the_token_comes_from_the_environment_and_from_a_file(dev, monkeypatch, tmp_path):
    monkeypatch.setenv("GPU_SCHEDULER_TOKEN_FILE", str(tmp_path / "key"))
    (tmp_path / "key").write_text("no-such-key-no-such-key\n")
    with GPUClient(host=dev.grpc) as stranger, pytest.raises(gpu_scheduler.AuthenticationError):
        stranger.gpu_status()
    (tmp_path / "key").write_text(dev.token + "\n")
    with GPUClient(host=dev.grpc) as client:
        assert len(client.gpu_status()) == 4


def test_the_descriptor_set_is_that_of_the_contract(tmp_path):
    made = tmp_path / "made.binpb"
    subprocess.run(["protoc", "--proto_path=" + str(ROOT / "proto" / "algogpu"), "--descriptor_set_out=" + str(made),
                    "algogpu.proto"], check=True)
    from google.protobuf import descriptor_pb2

    read = descriptor_pb2.FileDescriptorSet.FromString
    assert read(made.read_bytes()) == read((PACKAGE / "gpu_scheduler" / "algogpu.binpb").read_bytes())


def test_generated_modules_of_the_same_contract_can_be_loaded_beside_it(tmp_path):
    subprocess.run(["protoc", "--proto_path=" + str(ROOT / "proto"), "--python_out=" + str(tmp_path),
                    "algogpu/algogpu.proto"], check=True)
    script = ("import gpu_scheduler; gpu_scheduler.GPUClient(); from algogpu import algogpu_pb2; "
              "print(algogpu_pb2.TaskRequest(task_id='x').task_id)")
    done = subprocess.run([sys.executable, "-c", script], cwd=str(tmp_path), env={"PYTHONPATH": str(PACKAGE)},
                          stdout=subprocess.PIPE, universal_newlines=True, check=True)
    assert done.stdout == "x\n"


def test_without_grpcio_a_sentence_says_what_to_install():
    script = ("import sys; sys.modules['grpc'] = None\n"
              "import gpu_scheduler\n"
              "try: gpu_scheduler.GPUClient()\n"
              "except ImportError as error: print(error)")
    done = subprocess.run([sys.executable, "-c", script], env={"PYTHONPATH": str(PACKAGE)}, stdout=subprocess.PIPE,
                          universal_newlines=True, check=True)
    assert "grpcio is not installed" in done.stdout
    assert "pip install 'gpu-scheduler-client[grpc]'" in done.stdout
