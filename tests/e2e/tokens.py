"""A provider of identities in a test: keys and tokens made with openssl, and its key set over https."""

import base64
import hashlib
import hmac
import http.server
import json
import pathlib
import secrets
import ssl
import subprocess
import threading
import time

from harness import PATIENCE_S

ISSUER = "https://login.example"
AUDIENCE = "gpus"


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def openssl(*words, text_in=None):
    return subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, input=text_in,
                          timeout=PATIENCE_S).stdout


def raw_signature(der):
    """r and s of 32 bytes each, out of their ASN.1."""
    at, numbers = 2, []
    for _ in range(2):
        size = der[at + 1]
        numbers.append(int.from_bytes(der[at + 2:at + 2 + size], "big").to_bytes(32, "big"))
        at += 2 + size
    return b"".join(numbers)


class Key:
    """A key pair in a folder, or of HS256 a secret."""

    def __init__(self, folder, kid, algorithm="ES256", bits=2048):
        self.kid, self.algorithm = kid, algorithm
        self.file = pathlib.Path(folder) / f"{base64url(kid.encode())}.pem"
        self.secret = secrets.token_bytes(32)
        kinds = {"ES256": ["EC", "-pkeyopt", "ec_paramgen_curve:P-256"], "EdDSA": ["ED25519"],
                 "RS256": ["RSA", "-pkeyopt", f"rsa_keygen_bits:{bits}"]}
        if algorithm in kinds:
            openssl("genpkey", "-out", self.file, "-algorithm", *kinds[algorithm])

    def jwk(self):
        public = {"kid": self.kid, "alg": self.algorithm, "use": "sig"}
        if self.algorithm == "HS256":
            return public | {"kty": "oct", "k": base64url(self.secret)}
        der = openssl("pkey", "-in", self.file, "-pubout", "-outform", "DER")
        if self.algorithm == "ES256":
            return public | {"kty": "EC", "crv": "P-256", "x": base64url(der[-64:-32]), "y": base64url(der[-32:])}
        if self.algorithm == "EdDSA":
            return public | {"kty": "OKP", "crv": "Ed25519", "x": base64url(der[-32:])}
        modulus = openssl("rsa", "-pubin", "-inform", "DER", "-noout", "-modulus", text_in=der).decode()
        return public | {"kty": "RSA", "n": base64url(bytes.fromhex(modulus.strip().partition("=")[2])), "e": "AQAB"}

    def sign(self, text):
        if self.algorithm == "HS256":
            return hmac.digest(self.secret, text, hashlib.sha256)
        if self.algorithm == "EdDSA":
            message = self.file.with_suffix(".message")
            message.write_bytes(text)
            return openssl("pkeyutl", "-sign", "-rawin", "-inkey", self.file, "-in", message)
        signature = openssl("dgst", "-sha256", "-sign", self.file, text_in=text)
        return raw_signature(signature) if self.algorithm == "ES256" else signature

    def token(self, claims, **header):
        parts = ({"typ": "JWT", "alg": self.algorithm, "kid": self.kid} | header, claims)
        text = ".".join(base64url(json.dumps(part).encode()) for part in parts)
        return f"{text}.{base64url(self.sign(text.encode()))}"


def claims(subject, groups=(), lives_s=600, **more):
    now = int(time.time())
    return {"iss": ISSUER, "aud": AUDIENCE, "sub": subject, "exp": now + lives_s, "iat": now, "groups": list(groups)} | more


def key_set(*keys):
    return json.dumps({"keys": [key.jwk() for key in keys]})


class KeyServer:
    """Answers every path with the `body`, over https on loopback."""

    def __init__(self, certificate, key, body):
        self.body, self.status, self.headers, self.asked = body, 200, {}, 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked += 1
                data = outer.body.encode()
                self.send_response(outer.status)
                for name, value in (outer.headers | {"Content-Length": str(len(data))}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"https://localhost:{self.server.server_address[1]}/keys"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
