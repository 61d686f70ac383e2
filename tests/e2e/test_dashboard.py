"""The dashboard, asked over HTTP: what its page has in it, for whom, and what it says to browsers."""

import gzip
import html.parser
import http.client
import json
import re

import pytest
from harness import wait_until
from test_keys import make_key

pytestmark = pytest.mark.shared_world

HOSTILE = "</script><script>alert(1)</script><!--"
BYTES_MAX = 150_000


class Document(html.parser.HTMLParser):
    """The page as a browser reads it: its addresses, its scripts and the text of each."""

    def __init__(self, text):
        super().__init__()
        self.addresses, self.scripts, self.inside = [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.addresses += [values[name] for name in ("src", "href") if name in values]
        if tag == "script":
            self.scripts.append([values, ""])
            self.inside = True

    def handle_data(self, data):
        if self.inside:
            self.scripts[-1][1] += data

    def handle_endtag(self, tag):
        self.inside = self.inside and tag != "script"

    def snapshot(self):
        return next(json.loads(text) for values, text in self.scripts if values.get("id") == "snapshot")


def fetch(world, path="/", token=None, **headers):
    """(status, headers, body) as bytes."""
    connection = http.client.HTTPConnection("127.0.0.1", world.scheduler.ports["http"], timeout=60)
    if token:
        headers["Authorization"] = f"Bearer {token}"
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), body


def page(world, **options):
    status, headers, body = fetch(world, **options)
    return status, headers, Document(body.decode())


def data(world, path, token=None):
    status, _, body = fetch(world, path, token or world.scheduler.token())
    assert status == 200, (path, status, body)
    return json.loads(body)


def test_the_page_has_its_first_data_in_it_for_its_caller_alone(world):
    job = world.api().submit("sleep 600", name="in the page", gpu_count=4)
    world.api().wait_for(job, "running")
    waiting = world.api().submit("true", name="waits", gpu_count=4)
    status, headers, document = page(world, token=world.scheduler.token())
    assert (status, headers["Cache-Control"]) == (200, "no-store")
    snapshot = document.snapshot()
    assert snapshot["caller"]["kind"] == "operator"
    nodes, words = snapshot["nodes"]["nodes"], snapshot["nodes"]["words"]
    assert [node[0] for node in nodes] == ["n1"]
    assert [words[device[2]] for device in nodes[0][3]] == ["held"] * 4
    assert [device[9][0][0] for device in nodes[0][3]] == [job] * 4
    assert [one["job_id"] for one in snapshot["line"]["jobs"]] == [waiting]
    assert "gpu" in snapshot["line"]["jobs"][0]["message"].lower()
    assert snapshot["problems"] == {}
    for one in (waiting, job):
        world.api().cancel(one)


def test_what_people_wrote_cannot_end_the_element_it_stands_in(world):
    job = world.api().submit("true", name=HOSTILE, held=True)
    held = world.api().submit("sleep 600", gpu_count=4)
    named = world.api().submit("true", name=HOSTILE, gpu_count=4)
    wait_until("it waits", lambda: world.api().job(named)["state"] == "pending")
    _, _, body = fetch(world, token=world.scheduler.token())
    document = Document(body.decode())
    assert [one["spec"]["name"] for one in document.snapshot()["line"]["jobs"]] == [HOSTILE]
    assert len(document.scripts) == 2
    assert b"alert(1)" in body
    assert b"</script><script>alert" not in body
    for one in (named, held, job):
        world.api().cancel(one)


def test_browsers_are_told_to_run_nothing_but_the_programs_own_files(world):
    _, headers, document = page(world, token=world.scheduler.token())
    policy = dict(part.strip().partition(" ")[::2] for part in headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert {name: policy[name] for name in ("script-src", "style-src", "connect-src")} == dict.fromkeys(
        ("script-src", "style-src", "connect-src"), "'self'")
    assert (policy["frame-ancestors"], policy["base-uri"], policy["require-trusted-types-for"]) == ("'none'", "'none'", "'script'")
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert document.addresses and all(re.fullmatch(r"/ui/assets/[0-9a-f]{16}\.(js|css|svg)", one) for one in document.addresses)


def test_its_files_are_small_and_kept_by_browsers_until_they_change(world):
    _, headers, document = page(world, token=world.scheduler.token())
    whole = 0
    for path in document.addresses:
        status, headers, body = fetch(world, path)  # Without a credential: they are no secret.
        assert (status, headers["Content-Encoding"]) == (200, "gzip")
        assert "immutable" in headers["Cache-Control"]
        assert not re.search(rb"https?://(?!www\.w3\.org/|svelte\.dev/)", gzip.decompress(body)), "it would leave the machine"
        whole += len(body)
    assert 0 < whole < BYTES_MAX
    status, headers, _ = fetch(world, "/ui/assets/0123456789abcdef.js")
    assert status == 404
    assert "immutable" not in headers.get("Cache-Control", "")


def test_the_line_is_in_the_order_in_which_jobs_are_expected_to_start(world):
    blocker = world.api().submit("sleep 600", gpu_count=4)
    world.api().wait_for(blocker, "running")
    jobs = [world.api().submit("true", name=f"j{priority}", gpu_count=4, priority=priority) for priority in (10, 300, 200, 100)]
    by_priority = [jobs[1], jobs[2], jobs[3], jobs[0]]
    line = data(world, "/ui/line")
    assert [(one["job_id"], one["queue_position"]) for one in line["jobs"]] == list(zip(by_priority, (1, 2, 3, 4)))
    assert line["total"] == 4
    assert [one["job_id"] for one in data(world, "/ui/line?offset=1&limit=2")["jobs"]] == by_priority[1:3]
    assert [one["job_id"] for one in data(world, "/ui/line?name=j*00&offset=2")["jobs"]] == [jobs[3]]
    assert [one["job_id"] for one in data(world, "/ui/line?tenant_id=default&offset=3")["jobs"]] == [jobs[0]]
    assert data(world, "/ui/line?offset=9")["jobs"] == []
    status, _, body = fetch(world, "/ui/line?state=running", world.scheduler.token())
    assert status == 400, body
    for one in [*jobs, blocker]:
        world.api().cancel(one)


@pytest.mark.own_world
def test_a_tenant_sees_its_own_and_learns_nothing_of_others(new_world):
    world = new_world(API_TOKEN_REQUIRED="true")
    world.scheduler.start()
    world.add_agent("n1").start()
    for name in ("vision", "other"):
        world.cli("tenant", "create", "--name", name, expected=0)
    blocker = world.api().submit("sleep 600", name="of others, running", gpu_count=4, tenant_id="other")
    world.api().wait_for(blocker, "running")
    world.api().submit("true", name="of others, waiting", gpu_count=4, tenant_id="other", priority=900)
    own = world.api().submit("true", name="own", gpu_count=4, tenant_id="vision")
    secret = make_key(world, "ci", "--tenant", "vision")[1]
    for read in (lambda: page(world, token=secret)[2].snapshot(), lambda: data(world, "/ui/snapshot", secret)):
        snapshot = read()
        assert "of others" not in json.dumps(snapshot)
        assert blocker not in json.dumps(snapshot)
        assert [(one["job_id"], one["queue_position"]) for one in snapshot["line"]["jobs"]] == [(own, 1)]
        assert list(snapshot["tenants"].values()) == ["vision"]
    status, _, body = fetch(world, "/ui/line?tenant_id=other", secret)
    assert status == 404, body

    status, headers, document = page(world)
    assert (status, headers["Cache-Control"]) == (401, "no-store")
    snapshot = document.snapshot()
    assert snapshot["caller"] is None
    assert set(snapshot) == {"version", "sign_in", "caller", "refused"}
    for path in ("/ui/snapshot", "/ui/nodes", "/ui/line"):
        assert fetch(world, path)[0] == 401, path
    assert page(world, token="gsk_0123456789abcdef_wrong")[0] == 401


def test_another_sites_page_gets_the_page_without_data(world):
    """Whatever leads a browser here, a caller without a credential among them: the page asks for its data by itself."""
    status, _, document = page(world, **{"Sec-Fetch-Site": "cross-site"})
    assert status == 403
    assert document.snapshot()["caller"] is None
    assert fetch(world, "/ui/snapshot", **{"Sec-Fetch-Site": "cross-site"})[0] == 403
    assert page(world, Host="evil.example")[0] == 403
    assert page(world)[0] == 200


def test_nodes_are_read_again_by_name(world):
    assert [one[0] for one in data(world, "/ui/nodes?name=n1&name=nobody")["nodes"]] == ["n1"]
    assert data(world, "/ui/nodes?name=nobody")["nodes"] == []
