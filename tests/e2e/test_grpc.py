"""The native gRPC API by a foreign client: batches. Skipped where Debian's python3-grpcio is not installed."""

import os
import signal
import subprocess
import sys
import threading

import pytest
from harness import PATIENCE_S, ROOT, is_alive, wait_until
from ports import free_port
from test_tls import Authority, Site

grpc = pytest.importorskip("grpc", reason="python3-grpcio is not installed")
pytest.importorskip("google.protobuf", reason="python3-protobuf is not installed")

pytestmark = pytest.mark.shared_world
COMPLETED = 4  # JOB_STATE_COMPLETED of types.proto


@pytest.fixture(scope="module", name="modules")
def modules_fixture(session_folder):
    """The generated modules of proto/gpusched/v1: of the scheduler, and of services."""
    out = session_folder / "proto"
    out.mkdir(exist_ok=True)  # Another module of this run may have made it.
    names = [f"gpusched/v1/{name}.proto" for name in ("types", "keys", "scheduler", "services")]
    done = subprocess.run(["protoc", f"--proto_path={ROOT / 'proto'}", f"--python_out={out}", *names],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    sys.path.insert(0, str(out))
    try:
        from gpusched.v1 import scheduler_pb2, services_pb2
    finally:
        sys.path.remove(str(out))
    return scheduler_pb2, services_pb2


@pytest.fixture(scope="module", name="messages")
def messages_fixture(modules):
    return modules[0]


@pytest.fixture(scope="module", name="services")
def services_fixture(modules):
    return modules[1]


class Client:
    def __init__(self, scheduler, messages, channel=None):
        self.channel = channel or grpc.insecure_channel(f"127.0.0.1:{scheduler.ports['grpc']}")
        self.metadata = (("authorization", f"Bearer {scheduler.token()}"),)
        self.messages = messages

    def call(self, method, request, answer, service="Scheduler"):
        rpc = self.channel.unary_unary(f"/gpusched.v1.{service}/{method}",
                                       request_serializer=type(request).SerializeToString,
                                       response_deserializer=answer.FromString)

        def attempt():
            try:
                return rpc(request, timeout=60, wait_for_ready=True, metadata=self.metadata)
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.UNAVAILABLE:
                    raise
                return None

        return wait_until(f"{method} is answered", attempt)


@pytest.fixture(name="client")
def client_fixture(world, messages):
    client = Client(world.scheduler, messages)
    yield client
    client.channel.close()


def batch_of(messages, count, key):
    request = messages.SubmitJobsRequest(request_key=key)
    for number in range(count):
        job = request.jobs.add()
        job.spec.name = f"batch {number}"
        job.spec.command.extend(["sh", "-c", f"exit {number % 3}"])
    return request


@pytest.mark.own_world
def test_a_batch_is_accepted_whole_and_repeated_safely(world, client, messages):
    request = batch_of(messages, 60, "batch-1")
    first = client.call("SubmitJobs", request, messages.SubmitJobsResponse).job_ids
    assert len(set(first)) == 60
    world.scheduler.restart()
    again = client.call("SubmitJobs", request, messages.SubmitJobsResponse).job_ids
    assert list(again) == list(first)
    api = world.api()
    for number, job_id in enumerate(first):
        job = api.wait_for(job_id)
        assert (job["name"], job["exit_code"], job["attempts"]) == (f"batch {number}", number % 3, 1)
    assert len(api.jobs()) == 60


def test_a_repetition_has_another_trace_and_the_jobs_keep_the_first(world, client, messages):
    request = batch_of(messages, 2, "traced")
    for job in request.jobs:
        job.spec.command[:] = ["sh", "-c", "echo $TRACEPARENT $GPU_SCHEDULER_REQUEST_ID"]
    own, traces = client.metadata, ("4bf92f3577b34da6a3ce929d0e0e4736", "0af7651916cd43dd8448eb211c80319c")
    answers = []
    for trace in traces:
        client.metadata = (*own, ("traceparent", f"00-{trace}-00f067aa0ba902b7-01"), ("x-request-id", f"of-{trace[:8]}"))
        answers.append(list(client.call("SubmitJobs", request, messages.SubmitJobsResponse).job_ids))
    assert answers[0] == answers[1]
    for job_id in answers[0]:
        world.api().wait_for(job_id)
        assert world.api().output(job_id).strip() == f"00-{traces[0]}-00f067aa0ba902b7-01 of-{traces[0][:8]}"


class Watch:
    """A watch of the native API, read in a thread of its own."""

    def __init__(self, client, messages, **wanted):
        rpc = client.channel.unary_stream("/gpusched.v1.Scheduler/Watch",
                                          request_serializer=messages.WatchRequest.SerializeToString,
                                          response_deserializer=messages.WatchEvent.FromString)
        self.stream = rpc(messages.WatchRequest(**wanted), metadata=client.metadata, wait_for_ready=True)
        self.events, self.error = [], None
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        try:
            for event in self.stream:
                self.events.append(event)
        except grpc.RpcError as error:
            self.error = error

    def sequence_after(self, job_id, state):
        """Waits until the job is told in that state, and everything up to there."""
        def found():
            at = next((i for i, event in enumerate(self.events) if event.job.job_id == job_id and event.job.state == state), None)
            return None if at is None else next((event.sequence for event in self.events[at:] if event.HasField("sequence")), None)

        return wait_until(f"{job_id} is told", found)

    def end(self):
        self.stream.cancel()
        self.thread.join(PATIENCE_S)
        return self.error


def test_a_watch_is_resumed_where_it_broke_off(world, client, messages):
    api = world.api()
    watch = Watch(client, messages, nodes=True)
    first = api.submit(["true"])
    api.wait_for(first)
    sequence = watch.sequence_after(first, COMPLETED)
    assert watch.events[0].HasField("begin") and watch.events[0].sequence < sequence
    assert watch.end().code() == grpc.StatusCode.CANCELLED
    missed = [api.submit(["true"]) for _ in range(20)]
    for job_id in missed:
        api.wait_for(job_id)
    again = Watch(client, messages, after_sequence=sequence)
    for job_id in missed:
        again.sequence_after(job_id, COMPLETED)
    told = [event.job.job_id for event in again.events if event.HasField("job")]
    assert sorted(told) == sorted(missed)  # Each once, and none that was told before.
    assert again.events[0].sequence == sequence
    again.end()


@pytest.mark.own_world
def test_a_watch_that_the_scheduler_knows_nothing_of_is_told_to_list_again(world, client, messages):
    watch = Watch(client, messages, after_sequence=1 << 40)
    wait_until("the watch is told", lambda: len(watch.events) >= 2)
    assert watch.events[0].HasField("begin") and watch.events[1].HasField("resync")
    world.scheduler.stop()
    watch.thread.join(PATIENCE_S)
    assert watch.error.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE), watch.error


def test_one_bad_job_refuses_the_whole_batch_and_says_which(world, client, messages):
    before = len(world.api().jobs())
    request = batch_of(messages, 5, "batch-2")
    request.jobs[3].resources.gpu_count = -1
    with pytest.raises(grpc.RpcError) as refused:
        client.call("SubmitJobs", request, messages.SubmitJobsResponse)
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    trailing = dict(refused.value.trailing_metadata())
    assert trailing["gpusched-code"] == "invalid_argument"
    assert "3" in trailing["gpusched-field"]
    assert len(world.api().jobs()) == before


def test_jobs_of_both_doors_are_the_same_jobs(world, client, messages):
    api = world.api()
    job_id = api.submit(["sleep", "600"], gpu_count=1)
    api.wait_for(job_id, "running")
    job = client.call("GetJob", messages.GetJobRequest(job_id=job_id), messages.Job)
    assert (job.node_name, list(job.allocated_gpus)) == ("n1", api.job(job_id)["allocated_gpus"])
    results = client.call("CancelJobs", messages.CancelJobsRequest(job_ids=[job_id, "job-999999"]),
                          messages.CancelJobsResponse).results
    assert [result.code for result in results] == ["", "job_not_found"]
    assert api.wait_for(job_id)["state"] == "cancelled"
    wait_until("the GPU is free", lambda: api.get("/cluster/status")["available_gpus"] == 4)


def test_a_job_that_asks_for_it_fails_with_its_lost_shim_instead_of_running_again(world, client, messages):
    request = batch_of(messages, 1, "")
    request.jobs[0].spec.command[:] = ["sh", "-c", "echo $$; exec sleep 600"]
    request.jobs[0].retry.system_retries = -1
    job_id = client.call("SubmitJobs", request, messages.SubmitJobsResponse).job_ids[0]
    api = world.api()
    api.wait_for(job_id, "running")
    pid = int(wait_until("its pid is printed", lambda: api.output(job_id).strip()))
    os.kill(world.agents()[0].shim_of(job_id), signal.SIGKILL)
    job = api.wait_for(job_id)
    assert (job["state"], job["reason"], job["cause"], job["attempts"]) == ("failed", "lost", "shim_lost", 1)
    assert not is_alive(pid)


def test_a_plan_and_the_quality_of_what_was_said(world, client, messages):
    request = messages.SubmitJobsRequest()
    job = request.jobs.add()
    job.spec.script = "true"
    job.resources.gpu_count = 64
    planned = client.call("PlanJob", request, messages.PlanResponse)
    assert not planned.starts_now and planned.estimate.stuck and planned.message
    quality = client.call("GetQuality", messages.GetQualityRequest(), messages.Quality)
    assert quality.starts[0].tenant_id == "" and quality.forecasts >= 1


def test_what_a_job_asks_for_before_it_is_ended_for_another_one(client, messages):
    request = batch_of(messages, 1, "")
    request.jobs[0].held = True
    request.jobs[0].spec.preempt_signal = "sigusr1"
    request.jobs[0].spec.preempt_grace_ms = 90_000
    job_id = client.call("SubmitJobs", request, messages.SubmitJobsResponse).job_ids[0]
    spec = client.call("GetJob", messages.GetJobRequest(job_id=job_id), messages.Job).spec
    assert (spec.preempt_signal, spec.preempt_grace_ms) == ("USR1", 90_000)
    client.call("CancelJobs", messages.CancelJobsRequest(job_ids=[job_id]), messages.CancelJobsResponse)
    for field, value in (("preempt_signal", "KILL"), ("preempt_grace_ms", -1), ("preempt_grace_ms", 301_000),
                         ("preempt_webhook", "http://127.0.0.1/")):
        wrong = batch_of(messages, 1, "")
        setattr(wrong.jobs[0].spec, field, value)
        with pytest.raises(grpc.RpcError) as refused:
            client.call("SubmitJobs", wrong, messages.SubmitJobsResponse)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT, field


def test_specifications_that_find_no_room(new_world, messages):
    world = new_world(SCHEDULER_SPECS_MB_MAX="64")
    world.scheduler.start()
    client = Client(world.scheduler, messages)
    large = messages.SubmitJobsRequest()
    large.jobs.add().spec.script = "#!/bin/sh\n" + "#" * 1_000_000
    for _ in range(33):
        client.call("SubmitJobs", large, messages.SubmitJobsResponse)
    with pytest.raises(grpc.RpcError) as refused:
        client.call("SubmitJobs", large, messages.SubmitJobsResponse)
    client.channel.close()
    assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "the 64 MB that scheduler.specs_mb_max allows" in refused.value.details()
    told = dict(refused.value.trailing_metadata())
    assert (told["gpusched-code"], told["gpusched-field"], told["grpc-retry-pushback-ms"]) == (
        "specs_full", "jobs", "5000")
    # After a restart the same is counted.
    world.scheduler.kill()
    world.scheduler.start()
    assert world.api().call("POST", "/api/v1/jobs", {"script": "#!/bin/sh\n" + "#" * 1_000_000})[0] == 429
    world.api().submit("true")


def test_a_tenants_queue(client, messages):
    made = client.call("CreateTenant", messages.Tenant(name="lab", max_waiting_jobs=0, soft_waiting_jobs=4),
                       messages.Tenant)
    assert (made.max_waiting_jobs, made.soft_waiting_jobs) == (0, 4)
    request = batch_of(messages, 1, "")
    request.tenant_id = "lab"
    with pytest.raises(grpc.RpcError) as refused:
        client.call("SubmitJobs", request, messages.SubmitJobsResponse)
    assert dict(refused.value.trailing_metadata())["gpusched-code"] == "tenant_queue_full"
    changed = client.call("UpdateTenant",
                          messages.UpdateTenantRequest(tenant=messages.Tenant(tenant_id=made.tenant_id),
                                                       unlimited=["max_waiting_jobs"]), messages.Tenant)
    assert not changed.HasField("max_waiting_jobs") and changed.soft_waiting_jobs == 4


@pytest.mark.own_world
def test_a_service_from_its_creation_to_its_end(world, client, services):
    def call(method, request, answer=services.Service):
        return client.call(method, request, answer, service="Services")

    def ready(generation, replicas):
        def found():
            seen = call("GetService", services.ServiceRequest(service="web"))
            new = [one for one in seen.jobs if one.generation == generation]
            return seen if (seen.state, len(new), len(seen.jobs)) == ("ready", replicas, replicas) else None

        return wait_until(f"web has {replicas} of generation {generation}", found)

    request = services.CreateServiceRequest(name="web", ready_after_ms=300)
    request.job.spec.command.extend(["sleep", "1000"])
    made = call("CreateService", request)
    assert (made.name, made.generation, made.replicas, made.restart) == ("web", 1, 1, "always")
    assert ready(1, 1).jobs[0].node_name == "n1"
    with pytest.raises(grpc.RpcError) as taken:
        call("CreateService", request)
    assert taken.value.code() == grpc.StatusCode.ALREADY_EXISTS
    assert dict(taken.value.trailing_metadata())["gpusched-code"] == "already_exists"
    scaled = call("ScaleService", services.ScaleServiceRequest(service=made.record_id, replicas=2))
    assert (scaled.name, scaled.replicas) == ("web", 2)
    ready(1, 2)
    change = services.RollOutServiceRequest(service="web")
    change.job.spec.command.extend(["sleep", "2000"])
    rolled = call("RollOutService", change)
    assert (rolled.generation, rolled.replicas) == (2, 2)
    world.scheduler.restart()
    two = ready(2, 2)
    listed = call("ListServices", services.ListServicesRequest(), services.ListServicesResponse).services
    assert [(one.name, one.record_id) for one in listed] == [("web", two.record_id)]
    assert world.cli_json("service", "get", "web")["generation"] == 2  # Every door has the same one.
    assert call("DeleteService", services.ServiceRequest(service="web")).state == "deleting"

    def gone():
        try:
            call("GetService", services.ServiceRequest(service="web"))
        except grpc.RpcError as error:
            return error.code() == grpc.StatusCode.NOT_FOUND
        return False

    wait_until("it is gone", gone)
    for one in two.jobs:
        assert world.api().wait_for(one.job_id)["state"] == "cancelled"


def test_a_client_submits_over_tls_and_obeys_no_stranger(new_world, messages):
    site = Site(new_world)
    site.scheduler.start()
    site.world.add_agent("n1", arguments=["--ca-file", str(site.authority.file)]).start()
    target = f"localhost:{site.port('grpc')}"
    trusted = grpc.ssl_channel_credentials(site.authority.file.read_bytes())
    client = Client(site.scheduler, messages, grpc.secure_channel(target, trusted))
    request = batch_of(messages, 3, "over-tls")
    for job_id in client.call("SubmitJobs", request, messages.SubmitJobsResponse).job_ids:
        site.world.api().wait_for(job_id)
    client.channel.close()
    stranger = Authority(site.world.folder / "stranger")
    for channel in (grpc.secure_channel(target, grpc.ssl_channel_credentials(stranger.file.read_bytes())),
                    grpc.insecure_channel(target)):
        rpc = channel.unary_unary("/gpusched.v1.Scheduler/SubmitJobs",
                                  request_serializer=messages.SubmitJobsRequest.SerializeToString)
        with channel, pytest.raises(grpc.RpcError) as refused:
            rpc(request, timeout=PATIENCE_S, metadata=client.metadata)
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE


def framed(number, text):
    """A text as a field of a message."""
    return bytes([number << 3 | 2, len(text)]) + text.encode()


def can_ask(ask):
    try:
        return b"algogpu" in list(ask(iter([framed(7, "*")]), timeout=60))[0]
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        return False


def test_probes_ask_the_standard_health_service(new_world):
    world = new_world(TASKS_GRPC_PORT=free_port(), API_TOKEN_REQUIRED="true")
    world.scheduler.start()
    for port in ("grpc", "tasks_grpc"):
        with grpc.insecure_channel(f"127.0.0.1:{world.scheduler.served_ports()[port]}") as channel:
            check = channel.unary_unary("/grpc.health.v1.Health/Check")
            for service in ("", "algogpu.GPUScheduler", "scheduler.SchedulerService", "gpusched.v1.Scheduler"):
                assert check(framed(1, service) if service else b"", timeout=60) == b"\x08\x01", service  # SERVING
            with pytest.raises(grpc.RpcError) as caught:
                check(framed(1, "nobody.Knows"), timeout=60)
            assert caught.value.code() == grpc.StatusCode.NOT_FOUND
            with pytest.raises(grpc.RpcError) as caught:  # Which clients take for "not offered".
                list(channel.unary_stream("/grpc.health.v1.Health/Watch")(b"", timeout=60))
            assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_tools_find_services_and_messages_by_reflection(new_world, version):
    world = new_world(TASKS_GRPC_PORT=free_port())
    world.scheduler.start()
    for port in ("grpc", "tasks_grpc"):
        with grpc.insecure_channel(f"127.0.0.1:{world.scheduler.served_ports()[port]}") as channel:
            ask = channel.stream_stream(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo")
            questions = [framed(7, "*"), framed(4, "algogpu.GPUScheduler"), framed(3, "scheduler/scheduler.proto"),
                         framed(4, "gpusched.v1.JobSpec"), framed(4, "nobody.Knows"), b""]
            answers = list(ask(iter(questions), timeout=60))
            assert len(answers) == len(questions)
            for service in (b"algogpu.GPUScheduler", b"scheduler.SchedulerService", b"grpc.health.v1.Health",
                            f"grpc.reflection.{version}.ServerReflection".encode()):
                assert service in answers[0]
            assert b"TaskEvents" in answers[1] and b"UpdateTenantQuota" in answers[2] and b"secret_variables" in answers[3]
            assert b"there is no symbol nobody.Knows" in answers[4] and b"there are no extensions" in answers[5]
            # More streams than are held at once are refused, and their places are given back.
            release = threading.Event()
            held = [ask((release.wait() and b"" for _ in range(1)), timeout=60) for _ in range(100)]
            refused = wait_until("one is refused", lambda: [one for one in held if one.done()])
            assert {one.code() for one in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
            release.set()
            for one in held:
                one.cancel()
            wait_until("a place is free", lambda: can_ask(ask))
