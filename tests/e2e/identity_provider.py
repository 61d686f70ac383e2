"""A provider of identities (OpenID Connect) in a test: it logs people in, signs tokens, exchanges and revokes them."""

import base64
import hashlib
import http.server
import json
import secrets
import threading
import time
import urllib.parse

from tokens import Key, base64url, key_set

CLIENT = "gpu-cli"


class Answer(Exception):
    """Ends a request: a status with JSON, or with a place to go to."""

    def __init__(self, status, body=None, place=None):
        super().__init__(status)
        self.status, self.body, self.place = status, body, place


def refuse(code, description=""):
    raise Answer(400, {"error": code, "error_description": description})


class Provider:
    """Listens on loopback. What it does wrong is set from outside."""

    def __init__(self, folder, tls=None):
        self.key = Key(folder, "provider")
        self.lives_s, self.interval, self.code_lives_s, self.slow_downs = 600, 1, 600, 0
        self.asked, self.refresh_tokens, self.revoked, self.codes = [], set(), [], {}
        self.devices, self.refreshed, self.failing, self.page = {}, 0, None, "/activate"
        self.secret = None  # Of the client, if it is no public one.
        self.given = []  # Codes, for whoever looks whether one is told anywhere.
        self.wrong = {}  # Members of answers that are replaced.
        self.lock = threading.Lock()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.answer({})

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
                assert self.headers["Content-Type"] == "application/x-www-form-urlencoded"
                self.answer(dict(urllib.parse.parse_qsl(body)))

            def answer(self, form):
                path, _, query = self.path.partition("?")
                try:
                    with outer.lock:
                        outer.asked.append((path, form))
                        outer.authorization = self.headers.get("Authorization", "")
                        outer.serve(path, form or dict(urllib.parse.parse_qsl(query)))
                except Answer as answer:
                    data = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body or {}).encode()
                    self.send_response(answer.status)
                    if answer.place:
                        self.send_header("Location", answer.place)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        host = "localhost" if tls is not None else "127.0.0.1"
        self.issuer = f"{'https' if tls is not None else 'http'}://{host}:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def keys(self):
        return key_set(self.key)

    def decide(self, user_code, subject):
        """A person enters the code and says yes, or no (None)."""
        with self.lock:
            self.devices[user_code]["subject"] = subject or "denied"

    def serve(self, path, form):
        if self.failing is not None:
            raise self.failing
        if path == "/.well-known/openid-configuration":
            raise Answer(200, {"issuer": self.issuer, "authorization_endpoint": f"{self.issuer}/authorize",
                               "device_authorization_endpoint": f"{self.issuer}/device", "token_endpoint": f"{self.issuer}/token",
                               "revocation_endpoint": f"{self.issuer}/revoke"} | self.wrong.get("document", {}))
        {"/device": self.begin, "/authorize": self.authorize, "/token": self.token, "/revoke": self.revoke}[path](form)

    def begin(self, form):
        assert form["client_id"] == CLIENT and "openid" in form["scope"].split()
        code = f"{secrets.token_hex(2)}-{secrets.token_hex(2)}".upper()
        self.devices[code] = {"device_code": secrets.token_urlsafe(24), "subject": None, "ends": time.time() + self.code_lives_s}
        raise Answer(200, {"device_code": self.devices[code]["device_code"], "user_code": code, "interval": self.interval,
                           "verification_uri": self.issuer + self.page, "expires_in": self.code_lives_s} | self.wrong.get("device", {}))

    def authorize(self, form):
        assert form["response_type"] == "code" and form["client_id"] == CLIENT and form["code_challenge_method"] == "S256"
        assert form["redirect_uri"].startswith("http://127.0.0.1:") and len(form["state"]) == 43
        code = secrets.token_urlsafe(24)
        self.codes[code] = form
        self.given.append(code)
        answer = {"code": code, "state": form["state"], "iss": self.issuer} | self.wrong.get("answer", {})
        raise Answer(302, place=form["redirect_uri"] + "?" + urllib.parse.urlencode(answer))

    def token(self, form):
        assert form["client_id"] == CLIENT
        if self.secret is not None:
            words = urllib.parse.quote_plus(CLIENT) + ":" + urllib.parse.quote(self.secret, safe="")
            if self.authorization != "Basic " + base64.b64encode(words.encode()).decode():
                raise Answer(401, {"error": "invalid_client"})
        {"urn:ietf:params:oauth:grant-type:device_code": self.by_device, "authorization_code": self.by_code,
         "refresh_token": self.by_refresh}[form["grant_type"]](form)

    def by_device(self, form):
        device = next(one for one in self.devices.values() if one["device_code"] == form["device_code"])
        if self.slow_downs > 0:
            self.slow_downs -= 1
            refuse("slow_down")
        if time.time() > device["ends"]:
            refuse("expired_token")
        if device["subject"] is None:
            refuse("authorization_pending")
        if device["subject"] == "denied":
            refuse("access_denied")
        self.give(device["subject"])

    def by_code(self, form):
        begun = self.codes.pop(form["code"])
        challenge = base64url(hashlib.sha256(form["code_verifier"].encode()).digest())
        if challenge != begun["code_challenge"] or form["redirect_uri"] != begun["redirect_uri"]:
            refuse("invalid_grant", "the verifier is wrong")
        self.give("ana", nonce=begun["nonce"])

    def by_refresh(self, form):
        if form["refresh_token"] not in self.refresh_tokens:
            refuse("invalid_grant", "the session was ended")
        self.refresh_tokens.remove(form["refresh_token"])
        self.refreshed += 1
        self.give("ana")

    def give(self, subject, **more):
        now, refresh = int(time.time()), secrets.token_urlsafe(24)
        self.refresh_tokens.add(refresh)
        claims = {"iss": self.issuer, "aud": CLIENT, "sub": subject, "iat": now, "exp": now + self.lives_s,
                  "groups": ["ml-users"], "jti": secrets.token_hex(8)} | more
        raise Answer(200, {"access_token": secrets.token_urlsafe(32), "token_type": "Bearer", "expires_in": self.lives_s,
                           "refresh_token": refresh, "id_token": self.key.token(claims | self.wrong.get("claims", {}))})

    def revoke(self, form):
        self.revoked.append(form["token"])
        self.refresh_tokens.discard(form["token"])
        raise Answer(200)
