"""GpuExecutor against a real scheduler: results, exceptions, cancellation, attempts that are lost."""

import concurrent.futures
import subprocess
import sys
import threading
import time

import pytest
from conftest import PACKAGE, need, wait_until

need("httpx", "cloudpickle")

import gpu_scheduler  # noqa: E402
from gpu_scheduler import Client, GpuExecutor  # noqa: E402


@pytest.fixture(name="client")
def client_fixture(dev):
    with Client(dev.url, token=dev.token) as client:
        yield client


@pytest.fixture(name="executor")
def executor_fixture(client, python):
    with GpuExecutor(client, python=python, gpus=1, max_workers=4) as executor:
        yield executor


def test_a_call_runs_on_the_gpus_of_its_job_and_returns_its_result(executor, client):
    offset = 5

    def count(words, *, extra):
        import os

        print("printed")
        return len(os.environ["CUDA_VISIBLE_DEVICES"].split(",")) + len(words) + offset + extra

    future = executor.submit(count, ["a", "b"], extra=10)
    assert future.result(60) == 1 + 2 + 5 + 10
    job = client.get(future.job_id)
    assert (job.name, job.state, client.logs(job)) == ("count", "completed", "printed\n")
    assert "extra" not in str(job["spec"])  # The function is in its files, and not in what is shown of it.


def test_map_and_as_completed_are_those_of_executors(executor):
    assert list(executor.map(lambda one, two: one * two, [1, 2, 3], [4, 5, 6], timeout=60)) == [4, 10, 18]
    futures = [executor.submit(abs, -number) for number in range(3)]
    assert sorted(future.result() for future in concurrent.futures.as_completed(futures, 60)) == [0, 1, 2]


def test_an_exception_is_the_functions_own(executor, client):
    class Odd(Exception):
        pass

    def fails():
        raise Odd("on purpose")

    future = executor.submit(fails)
    with pytest.raises(Exception, match="on purpose") as caught:
        future.result(60)
    assert type(caught.value).__name__ == "Odd"
    job = client.get(future.job_id)
    assert (job.state, job.exit_code) == ("failed", 1)
    assert "Odd: on purpose" in client.logs(job, stream="stderr")


def test_large_arguments_and_results_travel(executor):
    data = bytes(range(256)) * 20_000  # 5 MB, more than a specification may have.
    assert executor.submit(lambda given: given[::-1], data).result(60) == data[::-1]


def test_a_job_that_ends_without_a_result_says_what_it_wrote(executor, client):
    def dies():
        import os
        import sys

        sys.stderr.write("last words\n")
        sys.stderr.flush()
        os._exit(7)

    with pytest.raises(gpu_scheduler.JobFailedError, match="last words") as caught:
        executor.submit(dies).result(60)
    assert caught.value.job.exit_code == 7
    with pytest.raises(TypeError, match="the result cannot be sent back"):
        executor.submit(lambda: __import__("threading").Lock()).result(60)


def test_a_cancelled_job_ends_its_future(executor, client):
    future = executor.submit(time.sleep, 1000)
    wait_until("it runs", lambda: future.job_id and client.get(future.job_id).state == "running")
    client.cancel(future.job_id)
    with pytest.raises(gpu_scheduler.JobFailedError, match="cancelled"):
        future.result(60)


def test_an_attempt_that_is_put_back_in_line_is_called_again(executor, client, tmp_path):
    tmp_path.chmod(0o777)
    marks = str(tmp_path)

    def waits():
        import os
        import time

        first = not os.path.exists(marks + "/first")
        open(marks + "/first", "w").close()
        while first:
            time.sleep(0.05)
        return "again"

    for folder in list(tmp_path.parents)[:2]:
        folder.chmod(folder.stat().st_mode | 0o011)  # The job runs as another user.
    future = executor.submit(waits)
    wait_until("it was called", (tmp_path / "first").exists)
    client.requeue(future.job_id)
    assert future.result(60) == "again"
    assert client.get(future.job_id).attempts == 2


def test_what_cannot_be_pickled_is_refused_at_once(executor):
    with pytest.raises(TypeError):
        executor.submit(print, threading.Lock())


def test_another_python_says_so(client, python, monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 99) + tuple(sys.version_info[2:]))
    with GpuExecutor(client, python=python) as executor:
        with pytest.raises(gpu_scheduler.JobFailedError, match="the function is of Python 3.99.*give python="):
            executor.submit(abs, -1).result(60)


def test_a_shutdown_cancels_what_has_no_job_yet(client, python):
    executor = GpuExecutor(client, python=python, max_workers=1)
    first = executor.submit(time.sleep, 1)
    second = executor.submit(abs, -1)
    wait_until("the first has its job", lambda: first.job_id)
    executor.shutdown(wait=True, cancel_futures=True)
    assert first.result() is None and second.cancelled()
    with pytest.raises(RuntimeError, match="was shut down"):
        executor.submit(abs, -1)


def test_without_cloudpickle_a_sentence_says_what_to_install():
    script = ("import sys; sys.modules['cloudpickle'] = None\n"
              "import gpu_scheduler\n"
              "try: gpu_scheduler.GpuExecutor(None)\n"
              "except ImportError as error: print(error)")
    done = subprocess.run([sys.executable, "-c", script], env={"PYTHONPATH": str(PACKAGE)}, stdout=subprocess.PIPE,
                          universal_newlines=True, check=True)
    assert "pip install 'gpu-scheduler-client[functions]'" in done.stdout
