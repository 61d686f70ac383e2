"""gpu-cli login: people get a token at a provider of identities, keep it, exchange it and give it back."""

import concurrent.futures
import io
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import tarfile

import pytest
from harness import IS_ROOT, PATIENCE_S, program, wait_until
from identity_provider import Answer, CLIENT, Provider
from test_tls import Authority

RULES = """\
rules:
  - {{claim: groups, value: ml-users, tenant: ml, role: user}}
login:
  client_id: {client}
"""


class Site:
    """A scheduler that takes the provider's tokens, and a person with an empty home."""

    def __init__(self, new_world, provider):
        self.world, self.provider = new_world(), provider
        self.scheduler, self.home = self.world.scheduler, self.world.folder / "home"
        self.home.mkdir()
        keys, rules = self.world.folder / "keys.json", self.world.folder / "rules.yaml"
        keys.write_text(provider.keys())
        rules.write_text(RULES.format(client=CLIENT))
        rules.chmod(0o600)
        keys.chmod(0o600)
        self.scheduler.settings = {"API_JWT_ISSUER": provider.issuer, "API_JWT_AUDIENCE": CLIENT, "API_JWT_KEYS": keys,
                                   "API_JWT_RULES_FILE": rules, "API_JWT_LEEWAY_SECONDS": 0}
        self.scheduler.start()
        self.world.cli("tenant", "create", "--name", "ml", expected=0)
        self.said = ""

    def environment(self):
        return self.world.cli_environment() | {"XDG_CONFIG_HOME": str(self.home), "PATH": f"{self.home}:{os.environ['PATH']}"}

    def start(self, *words):
        return subprocess.Popen([program("gpu-cli"), *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, env=self.environment(), cwd=self.world.folder)

    def finish(self, client):
        out, err = client.communicate(timeout=PATIENCE_S)
        self.said += out + err
        return client.returncode, out, err

    def cli(self, *words):
        return self.finish(self.start(*words))

    def begin(self, *words):
        """A login that waits for its code to be entered, and the code."""
        client = self.start("login", *words)
        code = wait_until("the provider gave a code", lambda: list(self.provider.devices))[-1]
        return client, code

    def log_in(self):
        client, code = self.begin()
        self.provider.decide(code, "ana")
        done = self.finish(client)
        assert done[0] == 0, done
        self.provider.devices.clear()
        return done

    def files(self):
        return list((self.home / "gpu-scheduler" / "logins").glob("*.json*"))

    def kept(self):
        return json.loads(self.files()[0].read_text())

    def change_kept(self, **members):
        file = self.files()[0]
        file.write_text(json.dumps(self.kept() | members))

    def browser(self):
        """What xdg-open is in this home: a browser that follows wherever it is led."""
        script = self.home / "xdg-open"
        script.write_text(f"#!{sys.executable}\nimport sys, urllib.request\n"
                          f"urllib.request.build_opener(urllib.request.ProxyHandler({{}})).open(sys.argv[1], timeout=30).read()\n")
        script.chmod(0o755)

    def expect_nothing_said(self):
        """No token was printed, or is in a log."""
        everywhere = self.said + self.scheduler.log_text() + (self.scheduler.data_dir / "audit.log").read_text()
        assert "eyJ" not in everywhere
        kept = self.kept() if self.files() else {}
        assert all(kept[name] not in everywhere for name in ("refresh_token", "access_token") if kept.get(name))


@pytest.fixture(name="provider")
def provider_fixture(tmp_path):
    with Provider(tmp_path) as provider:
        yield provider


@pytest.fixture(name="site")
def site_fixture(new_world, provider):
    return Site(new_world, provider)


def test_a_person_logs_in_with_a_code_and_out(site):
    client, code = site.begin()
    site.provider.decide(code, "ana")
    returned, out, err = site.finish(client)
    assert returned == 0 and f"as jwt:{site.provider.issuer}#ana" in out, (out, err)
    assert code in err and f"{site.provider.issuer}/activate" in err
    assert [(file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) for file in site.files()] == [(0o600, 0o700)]
    returned, out, _ = site.cli("whoami")
    assert returned == 0 and f"person jwt:{site.provider.issuer}#ana" in out and "user in ml" in out, out
    assert f"at {site.provider.issuer}" in out
    job = site.cli("submit", "--", "true")[1].strip()
    assert json.loads(site.cli("--json", "get", job)[1])["owner"] == f"person jwt:{site.provider.issuer}#ana"
    # A file that is given goes before the login; it is for this scheduler's URL alone.
    token = site.scheduler.data_dir / "token"
    assert site.cli("whoami", "--token-file", str(token))[1].startswith("operator")
    assert "jwt:" not in site.cli("whoami", "--api-url", f"http://localhost:{site.scheduler.ports['http']}")[1]
    site.expect_nothing_said()
    refresh = site.kept()["refresh_token"]
    assert site.cli("logout")[0] == 0
    assert site.files() == [] and site.provider.revoked == [refresh]
    assert "jwt:" not in site.cli("whoami")[1]
    assert "nobody is logged in" in site.cli("logout")[1]
    # Whoever has such a file is told that it stays in use.
    site.provider.devices.clear()
    client, code = site.begin("--token-file", str(token))
    site.provider.decide(code, "ana")
    returned, _, err = site.finish(client)
    assert returned == 0 and f"still send what is in {token}" in err


def test_a_person_logs_in_with_a_browser(site):
    site.browser()
    returned, out, err = site.cli("login", "--browser")
    assert returned == 0 and "#ana" in out, (out, err)
    assert site.cli("whoami")[1].startswith(f"person jwt:{site.provider.issuer}#ana")
    site.expect_nothing_said()


@pytest.mark.parametrize("wrong, sentence", [
    ({"answer": {"state": "A" * 43}}, "its state is not the one"), ({"answer": {"iss": "http://127.0.0.1:1"}}, "another provider's answer"),
    ({"answer": {"error": "access_denied"}}, "was denied"), ({"claims": {"nonce": "B" * 43}}, "its nonce is not the one"),
    ({"claims": {"iss": "http://127.0.0.1:1"}}, "another issuer's"), ({"claims": {"aud": "mail"}}, "for another client"),
    ({"document": {"issuer": "http://127.0.0.1:1"}}, "calls itself"),
    ({"document": {"token_endpoint": "http://login.example/token"}}, "no https URL"),
    ({"document": {"authorization_endpoint": ""}}, "no authorization_endpoint")])
def test_an_answer_that_is_not_to_this_login_is_refused(site, wrong, sentence):
    site.browser()
    site.provider.wrong = wrong
    returned, out, err = site.cli("login", "--browser")
    assert returned in (2, 4) and sentence in err and out == "", err
    assert site.files() == []


def test_a_code_is_denied_or_expires_or_is_asked_for_less_often(site):
    client, code = site.begin()
    site.provider.decide(code, None)
    returned, _, err = site.finish(client)
    assert returned == 4 and "denied" in err
    site.provider.devices.clear()
    site.provider.code_lives_s = 2
    client, _ = site.begin()
    returned, _, err = site.finish(client)
    assert returned == 6 and "expired" in err
    site.provider.devices.clear()
    site.provider.code_lives_s, site.provider.slow_downs = 600, 1
    client, code = site.begin()
    wait_until("it was slowed down", lambda: site.provider.slow_downs == 0)
    asked = len(site.provider.asked)
    site.provider.decide(code, "ana")
    assert site.finish(client)[0] == 0 and len(site.provider.asked) == asked + 1


def test_a_login_that_is_interrupted_keeps_nothing(site):
    client, _ = site.begin()
    client.send_signal(signal.SIGINT)
    returned, _, err = site.finish(client)
    assert returned == 130 and "nothing is kept" in err
    assert site.files() == []


def test_one_of_many_processes_exchanges_the_token(site):
    site.log_in()
    before = site.kept()
    site.change_kept(expires_at=1, renew_at=1)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        done = [one.result() for one in [pool.submit(site.cli, "whoami") for _ in range(8)]]
    assert [one[0] for one in done] == [0] * 8, done
    assert site.provider.refreshed == 1
    after = site.kept()
    assert all(before[name] != after[name] for name in ("id_token", "access_token", "refresh_token"))
    site.expect_nothing_said()


def test_a_login_that_the_provider_ended_says_to_log_in_again(site):
    site.log_in()
    site.provider.refresh_tokens.clear()
    # The token is still good: nobody is told anything.
    site.change_kept(renew_at=1)
    assert site.cli("whoami")[0] == 0
    site.change_kept(expires_at=1)
    for _ in range(2):
        returned, out, err = site.cli("list")
        assert returned == 4 and out == "" and "log in again with gpu-cli login" in err, err
    assert [path for path, form in site.provider.asked if form.get("grant_type") == "refresh_token"] == ["/token"]
    assert site.cli("logout")[0] == 0
    # A provider that does not answer ends nothing.
    site.log_in()
    site.provider.failing = Answer(500)
    site.change_kept(renew_at=1)
    assert site.cli("whoami")[0] == 0
    site.change_kept(expires_at=1)
    returned, _, err = site.cli("whoami")
    assert returned == 3 and site.provider.issuer in err
    site.provider.failing = None
    assert site.cli("whoami")[0] == 0
    # Nor does another person's token take the place of this one's.
    site.change_kept(expires_at=1, renew_at=1)
    site.provider.wrong = {"claims": {"sub": "eve"}}
    returned, _, err = site.cli("whoami")
    assert returned == 4 and "another person's" in err


def test_a_command_outlives_its_token(site):
    users = ["--default-user", "nobody", "--allow-user", "nobody"] if IS_ROOT else []
    site.world.add_agent("n1", allow_root_jobs=False, arguments=users).start()
    site.provider.lives_s = 4
    site.log_in()
    returned, out, err = site.cli("submit", "--wait", "--logs", "--", "sh", "-c", "echo begun; sleep 10; echo at the end")
    assert returned == 0 and "begun" in out and "at the end" in out, (out, err)
    assert site.provider.refreshed >= 2
    site.expect_nothing_said()


def test_who_has_no_role_here_keeps_nothing(site):
    site.provider.wrong = {"claims": {"groups": ["others"]}}
    client, code = site.begin()
    site.provider.decide(code, "eve")
    returned, _, err = site.finish(client)
    assert returned == 4 and "no role for this token" in err and site.files() == []


def test_a_hostile_provider_is_not_followed(site):
    for answer, sentence in ((Answer(302, place="http://127.0.0.1:1/"), "leads elsewhere"), (Answer(200, b"x" * 100_000), "64 KiB"),
                             (Answer(200, b"[" * 1_000), "without the JSON"), (Answer(500), "HTTP status 500")):
        site.provider.failing = answer
        returned, _, err = site.cli("login")
        assert returned == 3 and sentence in err, err
    site.provider.failing = None
    for wrong in ({"verification_uri": "https://x/\x1b[2J"}, {"verification_uri": "file:///etc/passwd"}, {"user_code": "A\nB"},
                  {"user_code": "A" * 1_000}, {"device_code": ""}):
        site.provider.wrong = {"device": wrong}
        returned, _, err = site.cli("login")
        assert returned == 2 and "without a usable code or page" in err and "\x1b" not in err, err
    for words, sentence in ((("--issuer", "http://login.example"), "not reached over https"), (("--issuer", "login"), "no URL"),
                            (("--issuer", f"{site.provider.issuer}?x=1"), "no URL")):
        returned, _, err = site.cli("login", *words, "--client-id", CLIENT)
        assert returned == 2 and sentence in err, err
    returned, _, err = site.cli("login", "--api-url", "http://192.0.2.1:8080", "--issuer", site.provider.issuer, "--client-id", CLIENT)
    assert returned == 2 and "without TLS" in err, err


def test_the_file_of_a_login_is_its_owners_alone(site):
    site.log_in()
    file = site.files()[0]
    file.chmod(0o644)
    returned, out, err = site.cli("whoami")
    assert returned == 2 and "can be read by others" in err and out == ""
    file.chmod(0o600)
    bundle = site.world.folder / "bundle.tar.gz"
    assert site.cli("support-bundle", "--out", str(bundle))[0] == 0
    kept = site.kept()
    with tarfile.open(fileobj=io.BytesIO(bundle.read_bytes())) as archive:
        texts = [archive.extractfile(member).read().decode(errors="replace") for member in archive if member.isfile()]
    assert texts and all(kept[name] not in text for name in ("id_token", "access_token", "refresh_token") for text in texts)


def test_the_providers_certificate_is_checked(new_world, tmp_path):
    authority = Authority(tmp_path / "ca")
    certificate = tmp_path / "provider.pem"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, authority.sign(certificate))
    with Provider(tmp_path, tls=context) as provider:
        site = Site(new_world, provider)
        returned, _, err = site.cli("login")
        assert returned == 4 and "was told nothing" in err, err
        client, code = site.begin("--issuer-ca-file", str(authority.file))
        provider.decide(code, "ana")
        assert site.finish(client)[0] == 0
        site.change_kept(expires_at=1, renew_at=1)
        assert re.match(r"person jwt:https://localhost:\d+#ana", site.cli("whoami")[1])
        assert provider.refreshed == 1
