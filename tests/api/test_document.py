"""What the OpenAPI document lets a job ask for, value by value, beside what the server takes."""

import re
import urllib.parse

import pytest

LONG = "/" + "x" * 4095
# A field of a job's request, values that are well-formed, and values that are not.
VALUES = [
    ("spec.command", [["x"] * 3000], [["x"] * 4097]),
    ("spec.labels", [{"a": "x" * 253}, {"a": ""}], [{"a": "x" * 254}, {"a": "b\nc"}]),
    ("spec.submitter", ["ada"], ["a\tb"]),
    ("spec.stdout_path", ["", "/tmp/%j_%a.%t", "/%%", LONG], ["tmp", "/%q", "/%", LONG + "x"]),
    ("spec.container_workdir_mount", ["", "/data:x"], ["data", "/a\nb", LONG + "x"]),
    ("spec.registry_credential", ["", "-of.us/x"], ["x" * 254]),
    ("spec.container_arguments", [["x" * 4096]], [["x" * 4097], ["x"] * 65]),
    ("spec.mounts", [[{"source": "/a", "target": "/b"}], []],
     [[{"source": "/a"}], [{"target": "/b"}], [{"source": None, "target": "/b"}], [{"source": "/a:b", "target": "/b"}]]),
    ("spec.preempt_signal", ["", "USR1", "SIGTERM", "sigusr1", "10"], ["KILL", "5", "SIG"]),
    ("spec.preempt_webhook", [""], ["ftp://x", "http://", "http://a:0/", "http://a:65536/", "http://a/#b", "http://a b/"]),
    ("resources.gpu_model", ["H100,A100"], ["A100\n", "H100,A\t"]),
    ("resources.node_labels", [["zone=eu"], ["zone"], ["a="]], [["=eu"], [""], ["a\n"], ["x" * 254]]),
    ("resources.gpu_ids", [["0", "063"], ["GPU-8a5c"], ["0a"]], [["64"], [""], ["99999999999"]]),
    ("resources.gpu_bandwidth_gbs", [0, 1_000_000], [-1, 1_000_001]),
    ("retry.on", [["exit_code:0", "exit_code:255"], ["timeout"]], [["exit_code:256"], ["exit_code:-0"], ["signal:1"]]),
    ("array", ["", "1-100", "0-20:5", "1,3,7-9%2", "4000000"], ["1-", "a", "4000001", "1%0", "1-2:0", "1,"]),
    ("dependencies", [[]], [["after_ok"], ["after_ok:job-0"], ["after_ok:#1000"], ["after_all:job-1"], ["after_ok:job-1[4000001]"]]),
    ("reservation", ["none"], ["a\nb"]),
    ("parts", [[], [{}], [{"resources": {"gpu_count": 64}, "members": 2}]],
     [[{"members": -1}], [{"members": 16_385}], [{"members_max": 16_385}], [{"resources": {"gpu_count": 65}}], [{"resources": {"nodes": 2}}],
      [{"resources": {"gpu_milli": 1}}], [{"resources": {"mig_profile": "1g.10gb"}}]]),
]


def resolved(document, schema):
    """The schema behind references, of one type, and whether it may be null, too."""
    nullable = False
    while "$ref" in schema or "anyOf" in schema:
        if "anyOf" in schema:
            nullable = {"type": "null"} in schema["anyOf"]
            schema = schema["anyOf"][0]
            continue
        schema, keys = document, schema["$ref"].removeprefix("#/").split("/")
        for key in keys:
            schema = schema[key]
    if isinstance(schema.get("type"), list):
        return {**schema, "type": schema["type"][0], "nullable": "null" in schema["type"]}
    return {**schema, "nullable": nullable}


def fits(pattern, text):
    """As ECMA 262 has it, where "$" is the very end."""
    return re.search(re.sub(r"\$$", r"\\Z", pattern), text) is not None


def allows(document, schema, value):
    """Whether a value fits a schema, by the rules that the document uses."""
    schema = resolved(document, schema)
    if value is None:
        return schema.get("nullable", False)
    if schema["type"] == "string":
        return (isinstance(value, str) and schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
                and fits(schema.get("pattern", ""), value))
    if schema["type"] == "integer":
        return schema.get("minimum", value) <= value <= schema.get("maximum", value)
    if schema["type"] == "array":
        return len(value) <= schema.get("maxItems", len(value)) and all(allows(document, schema["items"], item) for item in value)
    if schema["type"] == "object":
        more = schema.get("additionalProperties", True)
        inner = [(schema.get("properties", {}).get(name, more), item) for name, item in value.items()]
        return (all(name in value for name in schema.get("required", []))
                and all(one is True or (one is not False and allows(document, one, item)) for one, item in inner))
    return True


def body_with(path, value):
    body = {"spec": {"command": ["true"], "image": "x"}}
    *outer, name = path.split(".")
    place = body
    for key in outer:
        place = place.setdefault(key, {})
    place[name] = value
    if path.startswith("resources."):
        place["gpu_count"] = 2
    return body


@pytest.mark.parametrize(("path", "good", "bad"), VALUES, ids=[row[0] for row in VALUES])
def test_the_document_and_the_server_take_the_same_values(scheduler, path, good, bad):
    document = scheduler.call("GET", "/v1/openapi.json").json
    alone = {"$ref": "#/components/schemas/JobRequest.Alone"}
    for value, taken in [(value, True) for value in good] + [(value, False) for value in bad]:
        body = body_with(path, value)
        assert allows(document, alone, body) == taken, ("the document", path, value)
        for call in ("/v1/jobs:plan", "/v1/jobs"):
            answer = scheduler.call("POST", call, body, scheduler.credential())
            # Refused with 422 is what is well-formed and cannot be.
            assert answer.status in ((200, 201, 404, 422) if taken else (400,)), (call, path, value, answer.raw)


def test_a_list_of_jobs_is_filtered_by_so_many_labels(scheduler):
    document = scheduler.call("GET", "/v1/openapi.json").json
    label = next(p["schema"] for p in document["paths"]["/v1/jobs"]["get"]["parameters"] if p["name"] == "label")
    for texts, taken in [(["a"] * 32, True), (["a"] * 33, False), (["a=\n"], True), (["a\0"], False)]:
        assert allows(document, label, texts) == taken, texts
        query = "&".join("label=" + urllib.parse.quote(text) for text in texts)
        assert scheduler.call("GET", "/v1/jobs?" + query).status == (200 if taken else 400), texts


def test_edits_that_are_made_together_take_no_key(scheduler):
    document = scheduler.call("GET", "/v1/openapi.json").json
    for tenant, taken in [({"name": "a"}, True), ({"name": "a", "request_key": ""}, True), ({"name": "a", "request_key": "k"}, False), ({}, False)]:
        body = {"tenants": [tenant], "dry_run": True}
        assert allows(document, {"$ref": "#/components/schemas/EditClusterRequest"}, body) == taken, tenant
        answer = scheduler.call("POST", "/v1/cluster:edit", body, scheduler.credential())
        assert answer.status == (200 if taken else 400), (tenant, answer.raw)


def test_a_role_of_a_key_is_always_named(scheduler):
    document = scheduler.call("GET", "/v1/openapi.json").json
    create = document["paths"]["/v1/keys"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    for number, (role, taken) in enumerate(
            [({"role": "viewer"}, True), ({"role": "viewer", "tenant_id": None}, True), ({}, False), ({"role": None}, False),
             ({"role": ""}, False), ({"role": "node"}, False), ({"tenant_id": "default"}, False)]):
        body = {"name": f"role-{number}", "tenant_id": "default", "roles": [role]}
        assert allows(document, create, body) == taken, ("the document", role)
        answer = scheduler.call("POST", "/v1/keys", body, scheduler.credential())
        assert answer.status == (201 if taken else 400), (role, answer.raw)
