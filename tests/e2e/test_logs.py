"""A job's output: bounded, kept for a time, chosen on the node, and true offsets all along."""

import base64
import datetime
import json
import os
import subprocess
import tempfile

import pytest
from harness import FINAL, program, read_bytes, url_quoted, wait_until

MB = 1 << 20


@pytest.fixture(scope="module", name="cluster")
def cluster_fixture(new_module_world):
    world = new_module_world()
    world.scheduler.start()
    world.add_agent("n1", cpus=16, arguments=["--log-limit-mb", "1"]).start()
    return world


@pytest.fixture(name="api")
def api_fixture(cluster):
    yield cluster.api()
    cluster.cancel_everything()
    cluster.wait_nothing_runs()


def pieces(api, job_id, **query):
    words = "&".join(f"{name}={url_quoted(str(value))}" for name, value in query.items())
    status, text, _ = api.call("GET", f"/api/v1/jobs/{job_id}/logs?format=json&{words}")
    assert status == 200, text
    return [json.loads(line) for line in text.split(b"\n") if line]


def raw(api, job_id, **query):
    words = "&".join(f"{name}={url_quoted(str(value))}" for name, value in query.items())
    status, text, _ = api.call("GET", f"/api/v1/jobs/{job_id}/logs?{words}")
    assert status == 200, text
    return text


def folder_of(agent, job_id, attempt=1):
    return agent.data_dir / "attempts" / f"{job_id.removeprefix('job-')}-{attempt}-0"


def holes_are_possible(folder):
    """Whether the file system gives bytes back from inside a file."""
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        file.write(b"x" * 65_536)
        file.flush()
        done = subprocess.run(["fallocate", "--punch-hole", "--offset", "0", "--length", "4096", file.name],
                              capture_output=True, check=False)
        return done.returncode == 0


def test_a_job_that_writes_more_than_is_kept_never_waits_and_never_fails(cluster, api):
    if not holes_are_possible(cluster.folder):
        pytest.skip("this file system has no holes")
    job_id = api.submit("head -c 60000000 /dev/zero | tr '\\0' 'x' | fold -w 99; echo; echo the end")
    job = api.wait_for(job_id)
    assert (job["state"], job["exit_code"]) == ("completed", 0)
    output = folder_of(cluster.agents()[0], job_id) / "stdout"
    facts = output.stat()
    assert facts.st_size > 60_000_000
    assert facts.st_blocks * 512 < 2 * MB
    kept = pieces(api, job_id)
    # The first piece says what is missing, and begins where the kept part does.
    assert kept[0]["skipped"] == kept[0]["offset"] > 58_000_000
    assert "skipped" not in kept[-1] or len(kept) == 1
    assert kept[-1]["next_offset"] == facts.st_size
    assert kept[-1]["text"].endswith("the end\n")
    for one, next_one in zip(kept, kept[1:]):
        assert one["next_offset"] == next_one["offset"]
    done = cluster.cli("logs", job_id)
    assert done.stdout.endswith("the end\n")
    assert f"{kept[0]['skipped']} bytes of the output are no longer kept" in done.stderr


def test_an_offset_names_the_same_byte_before_and_after_older_ones_went(cluster, api):
    if not holes_are_possible(cluster.folder):
        pytest.skip("this file system has no holes")
    gate = cluster.folder / "gate-offset"
    job_id = api.submit(f"seq 1 200000; while [ ! -e {gate} ]; do sleep 0.05; done; seq 200001 500000")
    size = len("".join(f"{n}\n" for n in range(1, 200_001)))
    wait_until("the first part is there", lambda: (folder_of(cluster.agents()[0], job_id) / "stdout").stat().st_size == size)
    assert raw(api, job_id, offset=size - 7).startswith(b"200000\n")
    gate.touch()
    api.wait_for(job_id)
    # What is read from there on goes on at the oldest kept byte, whose number in the output is told.
    first = pieces(api, job_id, offset=size - 7)[0]
    assert first["skipped"] == first["offset"] - (size - 7) > 0
    line = first["text"].splitlines()[1]
    before = sum(len(str(n)) + 1 for n in range(1, int(line)))
    assert before == first["offset"] + len(first["text"].splitlines()[0]) + 1


def test_tail_since_and_grep_choose_on_the_node(cluster, api):
    gate = cluster.folder / "gate-choose"
    job_id = api.submit(f"echo loss 1; echo step; echo loss 2; while [ ! -e {gate} ]; do sleep 0.05; done; "
                        "echo loss 3; echo done")
    wait_until("its times are noted", lambda: (folder_of(cluster.agents()[0], job_id) / "log-times").exists())
    middle = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=1)
    # What was written before this moment is told apart from what comes after by a second or two.
    wait_until("time goes on", lambda: datetime.datetime.now(datetime.timezone.utc) > middle)
    gate.touch()
    api.wait_for(job_id)
    assert cluster.cli("logs", job_id, "--tail", "2", expected=0).stdout == "loss 3\ndone\n"
    assert cluster.cli("logs", job_id, "--grep", "loss", expected=0).stdout == "loss 1\nloss 2\nloss 3\n"
    assert cluster.cli("logs", job_id, "--grep", "no such", expected=0).stdout == ""
    assert cluster.cli("logs", job_id, "--tail", "2", "--grep", "loss", expected=0).stdout == "loss 3\n"
    since = middle.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert cluster.cli("logs", job_id, "--since", since, expected=0).stdout == "loss 3\ndone\n"
    assert cluster.cli("logs", job_id, "--since", "10m", expected=0).stdout.startswith("loss 1\n")
    refused = cluster.cli("logs", job_id, "--since", "soon")
    assert refused.returncode != 0
    assert "is not a time; write 2h" in refused.stderr


def test_each_line_may_begin_with_its_time(cluster, api):
    begin = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
    gate = cluster.folder / "timestamps-gate"
    job_id = api.submit(f"echo first; echo; while [ ! -e {gate} ]; do sleep 0.05; done; echo second; printf last")
    api.wait_for(job_id, "running")
    times = folder_of(cluster.agents()[0], job_id) / "log-times"
    wait_until("its shim has noted the time", lambda: times.exists() and times.stat().st_size > 0)
    noted = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
    next_second = noted + datetime.timedelta(seconds=1)
    wait_until("another second begins", lambda: datetime.datetime.now(datetime.timezone.utc) >= next_second)
    gate.touch()
    api.wait_for(job_id)
    end = datetime.datetime.now(datetime.timezone.utc)
    shown = [line.split(" ", 1) for line in raw(api, job_id, timestamps="true").decode().split("\n")]
    assert [text for _, text in shown] == ["first", "", "second", "last"]
    first, empty, second, last = [datetime.datetime.strptime(time, "%Y-%m-%dT%H:%M:%S%z") for time, _ in shown]
    assert begin <= first <= noted and first == empty
    assert noted < second <= last <= end
    assert cluster.cli("logs", "-f", "--timestamps", "--grep", "sec", job_id, expected=0).stdout == f"{shown[2][0]} second\n"


def test_a_followed_search_shows_lines_as_they_come(cluster, api):
    gate = cluster.folder / "gate-grep"
    job_id = api.submit(f"echo step; echo loss 1; while [ ! -e {gate} ]; do sleep 0.05; done; echo step; echo loss 2")
    follower = cluster.cli_start("logs", "-f", "--grep", "loss", job_id)
    assert follower.stdout.readline() == b"loss 1\n"
    gate.touch()
    out, err = follower.communicate(timeout=60)
    assert out == b"loss 2\n", err


def test_any_bytes_come_through_every_door(cluster, api):
    everything = bytes(range(256)) * 3
    data = cluster.folder / "bytes"
    data.write_bytes(everything)
    job_id = api.submit(f"cat {data}; cat {data} >&2")
    api.wait_for(job_id)
    assert raw(api, job_id) == everything
    assert b"".join(base64.b64decode(piece["base64"]) for piece in pieces(api, job_id)) == everything
    for words in ([], ["-f"]):
        done = subprocess.run([program("gpu-cli"), "logs", *words, "--both", job_id], capture_output=True,
                              env=cluster.cli_environment(), timeout=60, check=False)
        assert (done.stdout, done.stderr) == (everything, everything)


def test_text_is_text_though_pieces_cut_its_characters(cluster, api):
    text = "grüße, 世界, 🙂\n" * 20_000
    data = cluster.folder / "text"
    data.write_text(text, encoding="utf-8")
    job_id = api.submit(f"cat {data}")
    api.wait_for(job_id)
    got = pieces(api, job_id)
    assert len(got) > 3
    # A comparison that fails would have pytest look for the difference for minutes.
    same = "".join(piece.get("text", "?") for piece in got) == text
    joined = "".join(piece.get("text", "?") for piece in got)
    at = next((i for i, (a, b) in enumerate(zip(joined, text)) if a != b), -1)
    assert same, (at, joined[at - 5:at + 5], text[at - 5:at + 5], len(joined), len(text), [p["next_offset"] - p["offset"] for p in got])
    assert same, [{**piece, "text": piece.get("text", "")[-10:]} for piece in got]


def test_output_is_read_after_a_restart_of_the_agent_and_followed_on(new_world):
    world = new_world()
    world.scheduler.start()
    agent = world.add_agent("n1").start()
    gate = world.folder / "gate"
    done_id = world.api().submit("echo finished")
    job_id = world.api().submit(f"echo one; while [ ! -e {gate} ]; do sleep 0.05; done; echo two")
    world.api().wait_for(done_id)
    follower = world.cli_start("logs", "-f", job_id)
    assert follower.stdout.readline() == b"one\n"
    agent.restart()
    assert world.api().output(done_id) == "finished\n"
    gate.touch()
    out, err = follower.communicate(timeout=60)
    assert out == b"two\n", err


def test_output_removed_by_the_quota_is_told_with_time_and_reason(new_world):
    world = new_world()
    world.scheduler.start()
    world.add_agent("n1", arguments=["--log-quota-mb", "3"]).start()
    api = world.api()
    gate = world.folder / "gate"
    running = api.submit(f"head -c 2000000 /dev/zero; while [ ! -e {gate} ]; do sleep 0.05; done")
    wait_until("it has written", lambda: len(read_bytes(folder_of(world.agents()[0], running) / "stdout")) == 2_000_000)
    first = api.submit("head -c 800000 /dev/zero")
    api.wait_for(first)
    second = api.submit("head -c 800000 /dev/zero")
    api.wait_for(second)

    def removed():
        # Its last byte: an answer of many pieces would break off when the rest is removed meanwhile.
        status, answer, _ = api.call("GET", f"/api/v1/jobs/{first}/logs?offset=799999")
        return answer if status == 410 else None

    answer = wait_until("the older one's output is removed", removed)
    assert answer["code"] == "log_removed"
    today = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-")
    assert f"was removed by retention on {today}" in answer["error"]
    assert "this node keeps at most 3 MB of output" in answer["error"]
    shown = world.cli("logs", first)
    assert shown.returncode != 0
    assert "removed by retention on" in shown.stderr
    # The newest stays, and what runs always does.
    assert len(raw(api, second)) == 800_000
    assert len(raw(api, running)) == 2_000_000
    gate.touch()
    api.wait_for(running)


def test_what_a_job_puts_in_its_outputs_place_is_not_read(cluster, api):
    secret = cluster.folder / "secret"
    secret.write_text("secret\n")
    tricks = {
        "link": f"ln -s {secret} stdout",
        "pipe": "mkfifo stdout",
        "folder": "mkdir stdout",
        "device": "mknod stdout c 1 5 || ln -s /dev/zero stdout",
    }
    for name, trick in tricks.items():
        # Where its output is, if it may go there at all.
        job_id = api.submit(f"cd $(dirname $(readlink /proc/$$/fd/1)) && rm -f stdout && {trick}")
        played = api.wait_for(job_id)["state"] == "completed"
        status, answer, _ = api.call("GET", f"/api/v1/jobs/{job_id}/logs")
        text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        assert b"secret\n" not in text, name
        if not played:
            assert (status, text) == (200, b""), name
            continue
        assert status in (404, 409), (name, status, answer)
        assert answer["code"] in ("log_not_found", "log_elsewhere"), (name, answer)
    for path in ("../../../etc/passwd", "job-1%2f..%2f..", "job-1/../../x", "%00"):
        status, answer, _ = api.call("GET", f"/api/v1/jobs/{path}/logs")
        assert status in (400, 404), (path, status, answer)
    job_id = api.submit("echo x")
    api.wait_for(job_id)
    for query in ("stream=../outcome", "stream=outcome", "attempt=-1", "attempt=99999999999", "offset=-1",
                  "offset=x", "grep=%0a", "tail_lines=-1", "since=yesterday", "format=xml"):
        status, answer, _ = api.call("GET", f"/api/v1/jobs/{job_id}/logs?{query}")
        assert status == 400, (query, status, answer)
        assert answer["field"] == query.split("=")[0]


def test_offsets_far_beyond_the_end_are_the_end(cluster, api):
    job_id = api.submit("echo short")
    assert api.wait_for(job_id)["state"] in FINAL
    assert raw(api, job_id, offset=6) == b""
    assert raw(api, job_id, offset=1 << 40) == b""
    assert os.path.exists(folder_of(cluster.agents()[0], job_id))
