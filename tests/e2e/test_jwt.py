"""Tokens of a provider of identities: taken as its keys, its claims and the file of rules say, and in no other way."""

import http.client
import json
import os
import subprocess

import pytest
import tokens
from harness import IS_ROOT, PATIENCE_S, program, wait_until
from test_reload import hang_up
from test_tls import Authority
from tokens import Key, KeyServer, claims, key_set

RULES = """\
rules:
  - {claim: groups, value: ml-users, tenant: ml, role: user}
  - {claim: groups, value: ml-admins, tenant: ml, role: tenant_admin}
  - {claim: [realm_access, roles], value: gpu-ops, role: operator}
  - {claim: groups, value: watchers, role: metrics}
unix_user_claim: preferred_username
"""


class Site:
    """A world whose scheduler takes the tokens of a provider whose key set is a file."""

    def __init__(self, new_world, keys=None, **settings):
        self.world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=300)
        self.folder = self.world.folder
        self.key = Key(self.folder, "k1")
        self.keys, self.rules = self.folder / "keys.json", self.folder / "rules.yaml"
        self.write_keys(self.key)
        self.write_rules(RULES)
        self.scheduler = self.world.scheduler
        self.scheduler.settings = {
            "API_JWT_ISSUER": tokens.ISSUER, "API_JWT_AUDIENCE": tokens.AUDIENCE, "API_JWT_KEYS": keys or self.keys,
            "API_JWT_RULES_FILE": self.rules, "API_JWT_LEEWAY_SECONDS": 0, **settings}

    def write(self, path, text):
        fresh = path.with_suffix(".new")
        fresh.write_text(text)
        fresh.chmod(0o600)
        fresh.rename(path)

    def write_keys(self, *keys):
        self.write(self.keys, key_set(*keys))

    def write_rules(self, text):
        self.write(self.rules, text)

    def start(self):
        self.scheduler.start()
        users = ["--default-user", "nobody", "--allow-user", "daemon", "--allow-user", "nobody"] if IS_ROOT else []
        self.world.add_agent("n1", allow_root_jobs=False, arguments=users).start()
        return self

    def tenant(self, name):
        return self.world.cli("tenant", "create", "--name", name, expected=0).stdout.strip()

    def status(self, token, method="GET", path="/v1/jobs", body=None):
        status, answer, _ = self.scheduler.api(token=token).call(method, path, body)
        return status, answer.get("error", "")

    def token_file(self, name, token):
        path = self.folder / f"{name}.jwt"
        self.write(path, token + "\n")
        return ("--token-file", str(path))


@pytest.fixture(name="site")
def site_fixture(new_world):
    return Site(new_world).start()


def test_a_person_works_in_its_tenant_with_a_token(site):
    ml, _ = site.tenant("ml"), site.tenant("other")
    ana = site.token_file("ana", site.key.token(claims("ana", ["ml-users"])))
    bob = site.token_file("bob", site.key.token(claims("bob", ["ml-users"])))
    boss = site.token_file("boss", site.key.token(claims("boss", ["ml-admins"])))
    api = site.world.api()
    job = site.world.cli("submit", *ana, "--", "sleep", "1000", expected=0).stdout.strip()
    api.wait_for(job, "running")
    shown = site.world.cli_json("get", job, *ana)
    assert shown["tenant_id"] == ml and shown["owner"] == f"person jwt:{tokens.ISSUER}#ana"
    assert site.world.cli("exec", *ana, job, "--", "echo", "inside", expected=0).stdout == "inside\n"
    # The wall of the tenant, and that between persons in it.
    others = api.submit("true")
    assert "no such job" in site.world.cli("get", others, *ana).stderr
    for words in (["submit", "--tenant", "other", "--", "true"], ["node", "drain", "n1"], ["cancel", others]):
        assert site.world.cli(*words[:1], *ana, *words[1:]).returncode != 0, words
    assert site.world.cli("cancel", job, *bob).returncode != 0
    assert site.world.cli("exec", *bob, job, "--", "true").returncode != 0
    site.world.cli("cancel", job, *boss, expected=0)
    api.wait_for(job, "cancelled")
    # An operator by a claim inside another.
    ops = site.key.token(claims("ops", realm_access={"roles": ["gpu-ops"]}))
    assert site.status(ops, "POST", "/v1/nodes/n1/drain", {})[0] == 200
    status, sentence = site.status(site.key.token(claims("eve", ["ml-userss"])))
    assert status == 403 and "no role for this token" in sentence


def test_the_metrics_take_a_token(site):
    def read(token):
        connection = http.client.HTTPConnection("127.0.0.1", site.scheduler.ports["metrics"], timeout=PATIENCE_S)
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
        status = connection.getresponse().status
        connection.close()
        return status

    site.tenant("ml")
    assert read(site.key.token(claims("prometheus", ["watchers"]))) == 200
    assert read(site.key.token(claims("ana", ["ml-users"]))) == 403
    assert read(Key(site.folder, "k1b").token(claims("prometheus", ["watchers"]), kid="k1")) == 401


@pytest.mark.skipif(not IS_ROOT, reason="only root's agent gives jobs another user")
def test_a_job_runs_as_the_user_of_its_claim_and_never_as_root(site):
    site.tenant("ml")

    def submit(user, *words):
        who = site.token_file("ana", site.key.token(claims("ana", ["ml-users"], preferred_username=user)))
        return site.world.cli("submit", *who, *words, "--", "id", "-un")

    api = site.world.api()
    job = submit("daemon").stdout.strip()
    api.wait_for(job)
    assert api.output(job) == "daemon\n"
    for user in ("root", "0", "+0", "00", "1000", "*"):
        job = submit(user).stdout.strip()
        api.wait_for(job)
        assert api.output(job) == "nobody\n", user
        refused = submit(user, "--user", "root")
        assert refused.returncode != 0 and "may not run jobs as the Unix user root" in refused.stderr
    assert submit("daemon", "--user", "bin").returncode != 0


def attacks(site):
    """Tokens that nobody has signed, each with a name."""
    good = claims("ana", ["ml-admins"])
    right = site.key.token(good)
    head, body, signature = right.split(".")
    stranger, secret = Key(site.folder, "k1-of-others"), Key(site.folder, "k1-secret", "HS256")
    secret.secret = json.dumps(site.key.jwk()).encode()
    none = tokens.base64url(b'{"alg":"none","kid":"k1"}')
    yield "none", f"{none}.{body}."
    yield "none with a signature", f"{none}.{body}.{signature}"
    yield "no signature", f"{head}.{body}."
    yield "the public key as a secret", secret.token(good, kid="k1")
    yield "another key", stranger.token(good, kid="k1")
    yield "an unknown kid", stranger.token(good)
    for kid in ("../../../../../../dev/null", "/dev/null", "k1\x00", "k1/../k1", "", None, ["k1"]):
        yield f"the kid {kid!r}", stranger.token(good, kid=kid)
        yield f"the kid {kid!r} of the right key", site.key.token(good, kid=kid)
    yield "its own key in the header", stranger.token(good, jwk=stranger.jwk())
    yield "a URL in the header", stranger.token(good, jku="http://127.0.0.1:1/keys", kid="k1")
    yield "crit", site.key.token(good, crit=["exp"])
    yield "other claims", f"{head}.{tokens.base64url(json.dumps(good | {'sub': 'root'}).encode())}.{signature}"
    yield "cut off", right[:-1]
    yield "one dot more", right + "."
    yield "padding", right + "="
    yield "white space", right.replace(".", ". ", 1)
    yield "standard base64", right[:-8] + "+/+/+/+/"
    yield "nine kilobytes", right + "A" * 9_000


def test_what_nobody_signed_is_refused_in_one_sentence(site):
    site.tenant("ml")
    assert site.status(site.key.token(claims("ana", ["ml-admins"])))[0] == 200
    stranger = site.status("zxqv")
    assert stranger[0] == 401
    for name, token in attacks(site):
        assert site.status(token) == stranger, name
    try:
        assert site.status(site.key.token(claims("ana", ["ml-admins"])) + "A" * (1 << 20))[0] == 431
    except (OSError, http.client.HTTPException):
        pass  # Cut off while it was sent.
    # What the provider signed is told why.
    for more, why in (({"exp": 1}, "it expired"), ({"exp": None}, "exp"), ({"nbf": 1 << 33}, "not valid"),
                      ({"iat": 1 << 33}, "in the future"), ({"aud": "mail"}, "another audience"),
                      ({"iss": "https://other.example"}, "issuer"), ({"sub": ""}, "subject"), ({"aud": ["a", "b"]}, "audience")):
        status, sentence = site.status(site.key.token(claims("ana", ["ml-admins"]) | more))
        assert status == 401 and why in sentence, (more, sentence)
    said = site.scheduler.log_text() + (site.scheduler.data_dir / "audit.log").read_text()
    assert "eyJ" not in said


def test_a_token_is_nowhere_but_with_its_holder(site):
    site.tenant("ml")
    token = site.key.token(claims("ana", ["ml-users"]))
    job = site.world.cli("submit", *site.token_file("ana", token), "--", "true", expected=0).stdout.strip()
    site.world.api().wait_for(job)

    def audit():
        return (site.scheduler.data_dir / "audit.log").read_text()

    wait_until("the audit has the call", lambda: f"jwt:{tokens.ISSUER}#ana" in audit())
    journal = site.scheduler.journal("dump", str(site.scheduler.data_dir)).stdout
    assert "#ana" in journal
    for part in token.split("."):
        assert all(part not in text for text in (audit(), journal, *(daemon.log_text() for daemon in site.world.daemons)))


def test_keys_are_exchanged_without_a_restart(site):
    site.tenant("ml")
    old, new = site.key.token(claims("ana", ["ml-users"])), None
    second = Key(site.folder, "k2", "EdDSA")
    new = second.token(claims("ana", ["ml-users"]))
    assert (site.status(old)[0], site.status(new)[0]) == (200, 401)
    site.write_keys(site.key, second)
    hang_up(site.scheduler, "config_reloaded", 1)
    assert (site.status(old)[0], site.status(new)[0]) == (200, 200)
    # Without a signal it is noticed too.
    site.write_keys(second)
    wait_until("the old key is refused", lambda: site.status(old)[0] == 401)
    assert site.status(new)[0] == 200
    # What is wrong changes nothing, and is told.
    weak = Key(site.folder, "weak", "RS256", bits=1024)
    for text, why in (("{", "no JSON Web Key Set"), (key_set(weak), "1024 bits"),
                      (json.dumps({"keys": [second.jwk() | {"d": "AA"}]}), "private key")):
        site.write(site.keys, text)
        os.kill(site.scheduler.pid(), 1)
        wait_until("the log says so", lambda why=why: why in site.scheduler.log_text())
        assert site.status(new)[0] == 200
    site.scheduler.kill()
    site.write_keys(second)
    site.scheduler.start()
    assert (site.status(old)[0], site.status(new)[0]) == (401, 200)


def test_rules_and_revocations_hold_after_a_signal(site):
    ml = site.tenant("ml")
    body = {"tenant_id": ml, "spec": {"command": ["true"]}}
    ana, bob = (site.key.token(claims(name, ["ml-users"], jti=f"of-{name}")) for name in ("ana", "bob"))
    assert site.status(ana, "POST", "/v1/jobs", body)[0] == site.status(bob, "POST", "/v1/jobs", body)[0] == 201
    site.write_rules(RULES + "revoked:\n  - jti: of-bob\n")
    hang_up(site.scheduler, "config_reloaded", 1)
    status, sentence = site.status(bob)
    assert status == 401 and "revoked" in sentence
    assert site.status(ana)[0] == 200
    site.write_rules(RULES.replace("tenant: ml, role: user", "tenant: ml, role: viewer"))
    hang_up(site.scheduler, "config_reloaded", 2)
    assert site.status(ana, "POST", "/v1/jobs", body)[0] == 403
    site.write_rules(RULES.replace("role: user", "role: king"))
    details = hang_up(site.scheduler, "config_not_reloaded", 1)
    assert "there is no role king" in details["why"]
    assert site.status(ana)[0] == 200 and site.status(ana, "POST", "/v1/jobs", body)[0] == 403


def doctor(site):
    told = subprocess.run([program("gpu-scheduler"), "doctor", "--json", "--data-dir", site.scheduler.data_dir],
                          capture_output=True, text=True, check=False, timeout=PATIENCE_S,
                          env=site.world.environment(site.scheduler.environment))
    return {check["check"]: check for check in json.loads(told.stdout)["checks"]}


def test_doctor_and_the_start_check_the_files(new_world):
    site = Site(new_world)
    site.start()
    assert doctor(site)["tokens"]["verdict"] == "ok"
    site.rules.chmod(0o666)
    found = doctor(site)["tokens"]
    assert found["verdict"] == "fail" and "jwt_rules_file" in found["detail"]
    site.scheduler.stop()
    started = subprocess.run(site.scheduler.command(), capture_output=True, text=True, check=False, timeout=PATIENCE_S,
                             env=site.world.environment(site.scheduler.environment))
    assert started.returncode == 1 and "jwt_rules_file" in started.stderr


@pytest.fixture(name="key_server")
def key_server_fixture(new_world):
    site = Site(new_world, keys="unset")
    authority = Authority(site.folder / "ca")
    certificate = site.folder / "provider.pem"
    key = authority.sign(certificate)
    with KeyServer(certificate, key, key_set(site.key)) as server:
        site.server = server
        site.scheduler.settings |= {"API_JWT_KEYS": server.url, "API_JWT_CA_FILE": authority.file,
                                    "API_JWT_PRIVATE_HOSTS": "localhost"}
        yield site


def test_keys_come_from_a_url(key_server):
    site = key_server
    site.start()
    site.tenant("ml")
    old = site.key.token(claims("ana", ["ml-users"]))
    wait_until("the keys are there", lambda: site.status(old)[0] == 200)
    # A key that is not known yet is asked for, once.
    second = Key(site.folder, "k2", "RS256")
    new = second.token(claims("ana", ["ml-users"]))
    site.server.body = key_set(site.key, second)
    wait_until("the new key is known", lambda: site.status(new)[0] == 200)
    asked = site.server.asked
    for number in range(20):
        assert site.status(second.token(claims("ana", ["ml-users"]), kid=f"x{number}"))[0] == 401
    assert site.server.asked == asked
    # A provider that fails, or leads elsewhere, changes nothing.
    for status, headers, body in ((500, {}, ""), (302, {"Location": "http://127.0.0.1:1/"}, ""), (200, {}, "x" * 100_000)):
        site.server.status, site.server.headers, site.server.body = status, headers, body
        asked = site.server.asked
        os.kill(site.scheduler.pid(), 1)
        wait_until("it was asked", lambda asked=asked: site.server.asked > asked)
        assert site.status(new)[0] == 200
    wait_until("the log says why", lambda: all(
        why in site.scheduler.log_text() for why in ("status 500", "leads elsewhere", "larger than 64 KiB")))


def test_a_private_address_is_not_asked_unless_it_is_named(key_server):
    site = key_server
    site.scheduler.settings["API_JWT_PRIVATE_HOSTS"] = "127.0.0.1,other"
    site.start()
    site.tenant("ml")
    wait_until("the log says why", lambda: "not of the public Internet" in site.scheduler.log_text())
    status, sentence = site.status(site.key.token(claims("ana", ["ml-users"])))
    assert status == 503 and "no keys of the provider" in sentence
    assert site.server.asked == 0
    # Nor is a server that the authorities do not vouch for.
    site.scheduler.settings |= {"API_JWT_PRIVATE_HOSTS": "localhost", "API_JWT_CA_FILE": ""}
    site.scheduler.restart()
    wait_until("the log says why", lambda: "not signed by an authority" in site.scheduler.log_text())
    assert site.server.asked == 0
