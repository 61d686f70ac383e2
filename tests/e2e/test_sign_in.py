"""People sign in with a browser: at a provider of identities, by the code flow, and with a cookie from then on."""

import contextlib
import http.client
import json
import os
import re
import socket
import subprocess
import threading
import urllib.parse

import pytest
from harness import IS_ROOT, PATIENCE_S, wait_until
from identity_provider import Answer, CLIENT, Provider
from test_reload import hang_up

RULES = """\
rules:
  - {{claim: groups, value: ml-users, tenant: ml, role: user}}
revoked: []
login:
  client_id: {client}
  scopes: [openid, groups, offline_access]
  browser:
    redirect_url: {origin}/login/callback
{more}"""


class Page:
    def __init__(self, url, answer, body):
        self.url, self.status, self.headers, self.text = url, answer.status, answer.headers, body

    def cookie(self, name):
        return next((one for one in self.headers.get_all("Set-Cookie", []) if one.startswith(f"{name}=")), None)


class Browser:
    """A plain client that keeps cookies by host, follows redirections, and says of each request which page asks."""

    def __init__(self):
        self.jar, self.seen = {}, []

    def send(self, method, url, headers=None, follow=True, site="none"):
        place = urllib.parse.urlsplit(url)
        cookies = self.jar.setdefault(place.netloc, {})
        connection = http.client.HTTPConnection(place.netloc, timeout=30)
        told = {"Sec-Fetch-Site": site} | ({"Cookie": "; ".join(f"{k}={v}" for k, v in cookies.items())} if cookies else {})
        connection.request(method, urllib.parse.urlunsplit(("", "", *place[2:4], "")) or "/", headers=told | (headers or {}))
        answer = connection.getresponse()
        page = Page(url, answer, answer.read().decode())
        connection.close()
        for line in answer.headers.get_all("Set-Cookie", []):
            name, value = re.match(r"([^=]+)=([^;]*)", line).groups()
            if "Max-Age=0" in line:
                cookies.pop(name, None)
            else:
                cookies[name] = value
        self.seen.append(page)
        if follow and answer.status in (302, 303):
            return self.send("GET", urllib.parse.urljoin(url, answer.headers["Location"]), site="cross-site")
        return page


class Site:
    """A scheduler where people sign in with a browser."""

    def __init__(self, new_world, provider, more=""):
        self.world, self.provider = new_world(), provider
        self.scheduler = self.world.scheduler
        self.origin = f"http://127.0.0.1:{self.scheduler.ports['http']}"
        self.keys, self.rules = self.world.folder / "keys.json", self.world.folder / "rules.yaml"
        self.keys.write_text(provider.keys())
        self.keys.chmod(0o600)
        self.write_rules(more)
        self.scheduler.settings = {
            "API_JWT_ISSUER": provider.issuer, "API_JWT_AUDIENCE": "gpus", "API_JWT_KEYS": self.keys, "API_JWT_RULES_FILE": self.rules,
            "API_JWT_LEEWAY_SECONDS": 0, "API_JWT_PRIVATE_HOSTS": "127.0.0.1", "API_TOKEN_REQUIRED": "true"}
        self.scheduler.start()
        self.world.cli("tenant", "create", "--name", "ml", expected=0)

    def write_rules(self, more="", change=lambda text: text):
        fresh = self.rules.with_suffix(".new")
        fresh.write_text(change(RULES.format(client=CLIENT, origin=self.origin, more=more)))
        fresh.chmod(0o600)
        fresh.rename(self.rules)

    def sign_in(self):
        browser = Browser()
        page = browser.send("GET", f"{self.origin}/login")
        assert page.status == 200 and "You are signed in" in page.text, page.text
        return browser

    def whoami(self, browser):
        return browser.send("GET", f"{self.origin}/v1/whoami", site="same-origin")

    def post(self, browser, path, body=None):
        place = urllib.parse.urlsplit(self.origin)
        cookies = "; ".join(f"{k}={v}" for k, v in browser.jar[place.netloc].items())
        connection = http.client.HTTPConnection(place.netloc, timeout=30)
        connection.request("POST", path, body=json.dumps(body) if body is not None else None,
                           headers={"Cookie": cookies, "Origin": self.origin, "Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    def expect_nothing_said(self, *browsers):
        """No token, code or cookie is in the log or in the audit."""
        everywhere = self.scheduler.log_text() + (self.scheduler.data_dir / "audit.log").read_text()
        secrets = ["eyJ", *self.provider.given]
        secrets += [value for browser in browsers for jar in browser.jar.values() for value in jar.values()]
        assert [one for one in secrets if one in everywhere] == []


@pytest.fixture(name="provider")
def provider_fixture(tmp_path):
    with Provider(tmp_path) as provider:
        yield provider


@pytest.fixture(name="site")
def site_fixture(new_world, provider):
    return Site(new_world, provider)


def lines(site, action):
    """What the audit has of it: outcomes and callers."""
    text = (site.scheduler.data_dir / "audit.log").read_text()
    return [(line["outcome"], line["caller"]) for line in map(json.loads, text.splitlines()) if line.get("action") == action]


def test_a_person_signs_in_works_and_signs_out(site):
    browser = site.sign_in()
    name = f"jwt:{site.provider.issuer}#ana"
    # On the way: the scheduler, the provider, and back, where the page itself leads on.
    first, asked, last = browser.seen
    query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(asked.url).query))
    assert query["code_challenge_method"] == "S256" and query["scope"] == "openid groups" and len(query["nonce"]) == 43
    assert query["redirect_uri"] == f"{site.origin}/login/callback"
    assert "HttpOnly; SameSite=Lax" in first.cookie("gpu-sign-in")
    assert "HttpOnly; SameSite=Strict" in last.cookie("gpu-session") and last.headers["Refresh"] == "0; url=/me"
    assert "gpu-sign-in" not in browser.jar[urllib.parse.urlsplit(site.origin).netloc]
    assert json.loads(site.whoami(browser).text)["name"] == name
    # A browser of somebody else, and what it could try with this one's cookie.
    assert site.whoami(Browser()).status == 401
    assert browser.send("GET", f"{site.origin}/v1/whoami", site="cross-site").status == 403
    assert browser.send("POST", f"{site.origin}/logout", {"Origin": "https://evil.example"}, site="cross-site").status == 403
    status, text = site.post(browser, "/api/v1/jobs", {"script": "true", "name": "<script>alert(1)</script>"})
    assert status == 201, text
    job = json.loads(text)["job_id"]
    page = wait_until("the page has the job", lambda: (p := browser.send("GET", f"{site.origin}/me", site="same-origin")) and job in p.text and p)
    assert name in page.text and "<script" not in page.text and "&lt;script&gt;alert(1)" in page.text
    assert "<td>user</td><td>ml</td>" in page.text and "no node" in page.text.lower(), page.text
    assert f"Signed in as <a href=\"/me\">{name}" in browser.send("GET", f"{site.origin}/docs", site="same-origin").text
    # A stream ends with the session.
    place = urllib.parse.urlsplit(site.origin).netloc
    stream = http.client.HTTPConnection(place, timeout=30)
    stream.request("GET", "/v1/watch", headers={"Cookie": f"gpu-session={browser.jar[place]['gpu-session']}"})
    answer = stream.getresponse()
    assert answer.status == 200
    status, text = site.post(browser, "/logout")
    assert status == 200 and "signed out" in text
    assert "session has ended" in answer.read().decode()
    assert site.whoami(browser).status == 401
    wait_until("the audit has it", lambda: ("applied", name) in lines(site, "sign_out"))
    assert ("applied", name) in lines(site, "sign_in")
    site.expect_nothing_said(browser)


def test_answers_that_are_not_to_this_sign_in_are_refused(site):
    for wrong, sentence in (({"answer": {"state": "A" * 43}}, "not the answer to a sign-in"),
                            ({"answer": {"iss": "http://127.0.0.1:1"}}, "another provider"),
                            ({"answer": {"error": "access_denied"}}, "was denied"), ({"claims": {"nonce": "B" * 43}}, "its nonce is not the one"),
                            ({"claims": {"iss": "http://127.0.0.1:1"}}, "its issuer (iss) is not"), ({"claims": {"aud": "mail"}}, "audience"),
                            ({"claims": {"groups": ["others"]}}, "no role"), ({"claims": {"exp": 1}}, "expired")):
        site.provider.wrong = wrong
        browser = Browser()
        page = browser.send("GET", f"{site.origin}/login")
        assert page.status in (401, 403) and sentence.lower() in page.text.lower(), page.text
        assert page.cookie("gpu-session") is None and site.whoami(browser).status == 401
    site.provider.wrong = {}
    # The same answer again, and in another browser.
    browser = site.sign_in()
    asked = len(site.provider.asked)
    assert browser.send("GET", browser.seen[-1].url, site="cross-site").status == 401
    assert Browser().send("GET", browser.seen[-1].url, site="cross-site").status == 401
    assert len(site.provider.asked) == asked
    assert ("unauthenticated", "") in lines(site, "sign_in") or wait_until(
        "the audit has it", lambda: ("unauthenticated", "") in lines(site, "sign_in"))
    site.expect_nothing_said(browser)


def test_a_hostile_provider_is_not_followed(site):
    browser = Browser()
    first = browser.send("GET", f"{site.origin}/login", follow=False)
    back = browser.send("GET", first.headers["Location"], follow=False, site="cross-site").headers["Location"]
    site.provider.failing = Answer(302, place=f"{site.provider.issuer}/token")
    page = browser.send("GET", back, site="cross-site")
    assert page.status == 503 and "leads elsewhere" in page.text, page.text
    for answer, sentence in ((Answer(200, b"x" * 100_000), "64 KiB"), (Answer(500), "no usable answer"),
                             (Answer(400, {"error": "<script>", "error_description": "<b>"}), "&lt;script&gt;")):
        site.provider.failing = None
        first = browser.send("GET", f"{site.origin}/login", follow=False)
        back = browser.send("GET", first.headers["Location"], follow=False, site="cross-site").headers["Location"]
        site.provider.failing = answer
        page = browser.send("GET", back, site="cross-site")
        assert page.status == 503 and sentence in page.text and "<script" not in page.text, page.text
    site.provider.failing = None
    assert site.sign_in()


def test_a_provider_on_a_private_address_is_asked_only_if_it_is_named(site):
    site.scheduler.settings["API_JWT_PRIVATE_HOSTS"] = "login.example"
    site.scheduler.restart()
    page = Browser().send("GET", f"{site.origin}/login")
    assert page.status == 503 and "api.jwt_private_hosts" in page.text, page.text
    assert site.provider.asked == []


def test_a_session_ends_with_its_rules_and_with_the_scheduler(site):
    browser = site.sign_in()
    assert site.whoami(browser).status == 200
    # Another rule that changes nothing for her ends nothing.
    site.write_rules(change=lambda text: text.replace("login:", "unix_user_claim: preferred_username\nlogin:"))
    hang_up(site.scheduler, "config_reloaded", 1)
    assert site.whoami(browser).status == 200
    site.write_rules(change=lambda text: text.replace("revoked: []", "revoked: [{sub: ana}]"))
    hang_up(site.scheduler, "config_reloaded", 2)
    assert site.whoami(browser).status == 401
    site.write_rules()
    hang_up(site.scheduler, "config_reloaded", 3)
    assert site.whoami(browser).status == 401
    browser = site.sign_in()
    site.scheduler.restart()
    assert site.whoami(browser).status == 401
    # The provider still knows her.
    assert "You are signed in" in browser.send("GET", f"{site.origin}/login").text
    site.provider.lives_s = 3
    short = site.sign_in()
    wait_until("it ended with its token", lambda: site.whoami(short).status == 401)
    assert site.whoami(browser).status == 200
    site.write_rules(change=lambda text: re.sub(r"  browser:\n.*\n", "", text))
    hang_up(site.scheduler, "config_reloaded", 1)  # Since it started again.
    assert site.whoami(browser).status == 401
    assert Browser().send("GET", f"{site.origin}/login").status == 404


@pytest.mark.skipif(not IS_ROOT, reason="needs root: has a name server of its own")
def test_the_scheduler_stops_while_a_name_server_does_not_answer(site):
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as silent:
        try:
            silent.settimeout(PATIENCE_S)
            silent.bind(("127.0.0.77", 53))
            subprocess.run(["unshare", "-m", "true"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no name server or mounts of its own: {error}")
        # A look-up of a name takes minutes.
        names = site.world.folder / "resolv.conf"
        names.write_text("nameserver 127.0.0.77\noptions timeout:30 attempts:5\n")
        site.scheduler.prefix = ["unshare", "-m", "sh", "-c", f'mount --bind {names} /etc/resolv.conf && exec "$@"', "sh"]
        site.scheduler.settings["API_JWT_ISSUER"] = "https://login.example"
        site.scheduler.restart()
        told = []
        asking = threading.Thread(target=lambda: told.append(Browser().send("GET", f"{site.origin}/login")))
        asking.start()
        assert b"login" in silent.recv(512), "the name is looked up"
        site.scheduler.process.terminate()
        site.scheduler.ended()
        asking.join()
        # Who waits is told so before nobody answers any more.
        assert told[0].status == 503, told[0].text


def test_a_client_with_a_secret(new_world, provider, tmp_path):
    secret = tmp_path / "client-secret"
    secret.write_text("s:e cret\n")
    secret.chmod(0o600)
    provider.secret = "s:e cret"
    site = Site(new_world, provider, more=f"    client_secret_file: {secret}\n")
    assert site.whoami(site.sign_in()).status == 200
    provider.secret = "another"
    page = Browser().send("GET", f"{site.origin}/login")
    assert page.status == 503 and "invalid_client" in page.text, page.text
    assert "s:e cret" not in site.scheduler.log_text()
    secret.chmod(0o644)
    said = hang_up(site.scheduler, "config_not_reloaded", 1)
    assert "can be read by other users" in json.dumps(said), said
    os.remove(secret)
