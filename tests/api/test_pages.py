"""Pages in somebody's browser: they reach loopback as everybody does, and may do nothing there."""

import pytest


def status(scheduler, path="/api/v1/jobs", method="GET", body=b"", **headers):
    head = [f"{method} {path} HTTP/1.1", "Connection: close", f"Content-Length: {len(body)}"]
    for name, values in headers.items():
        for value in values if isinstance(values, list) else [values]:
            head.append(f"{name.replace('_', '-')}: {value}")
    return scheduler.raw("\r\n".join(head).encode() + b"\r\n\r\n" + body).status


def token_of(scheduler):
    return scheduler.credential()["Authorization"]


def test_a_name_that_is_not_loopbacks_is_not_answered_without_the_token(scheduler):
    # A page of evil.example, which changed its address to 127.0.0.1, is its own site here.
    assert status(scheduler, Host="evil.example:8080") == 403
    assert status(scheduler, Host="evil.example:8080", Origin="http://evil.example:8080") == 403
    assert status(scheduler, Host="localhost.evil.example") == 403
    assert status(scheduler, Host=["localhost", "evil.example"]) in (400, 403)
    assert status(scheduler, Host="evil.example", Authorization=token_of(scheduler)) == 200
    assert scheduler.call("GET", "/health", headers={}).status == 200
    assert status(scheduler, "/health", Host="evil.example") == 403


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "LOCALHOST", "127.0.0.1:1", "127.1.2.3", "[::1]:80"])
def test_names_of_loopback_are_answered(scheduler, host):
    assert status(scheduler, Host=host) == 200


def test_a_request_without_a_host_is_no_pages(scheduler):
    assert scheduler.raw(b"GET /api/v1/jobs HTTP/1.0\r\n\r\n").status == 200


def test_further_names_are_configured(start):
    scheduler = start(GPU_SCHEDULER_API_HOST_NAMES="lab.example")
    assert status(scheduler, Host="lab.example:8080") == 200
    assert status(scheduler, Host="evil.example:8080") == 403


@pytest.mark.parametrize("site, expected", [("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)])
def test_reads_of_other_sites_pages_are_refused(scheduler, site, expected):
    assert status(scheduler, Host="localhost", Sec_Fetch_Site=site) == expected


def test_writes_of_other_sites_pages_are_refused(scheduler):
    body = b'{"script":"true"}'
    assert status(scheduler, method="POST", body=body, Host="localhost:8080", Origin="http://evil.example") == 403
    assert status(scheduler, method="POST", body=body, Host="localhost:8080", Origin="null") == 403
    assert status(scheduler, method="POST", body=body, Host="localhost:8080", Origin="http://localhost:8080") == 201


def test_any_origin_means_those_with_the_token_and_of_this_machine(start):
    scheduler = start(GPU_SCHEDULER_API_CORS_ENABLED="true", GPU_SCHEDULER_API_CORS_ORIGINS="*,https://lab.example")
    for origin, expected in (("http://evil.example", 403), ("http://localhost:3000", 200), ("https://lab.example", 200)):
        assert status(scheduler, Host="localhost", Origin=origin) == expected
    assert status(scheduler, Host="localhost", Origin="http://evil.example", Authorization=token_of(scheduler)) == 200


def test_any_origin_on_an_open_address_is_refused(start):
    with pytest.raises(AssertionError, match="cors_origins"):
        start(GPU_SCHEDULER_API_CORS_ENABLED="true", GPU_SCHEDULER_API_CORS_ORIGINS="*", GPU_SCHEDULER_API_ADDRESS="0.0.0.0")
