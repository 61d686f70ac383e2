"""What OpenAPI 3.0 cannot say of a request of the native API, and a check that knows which contradictions it cannot."""

import re

import schemathesis

# Names in maps: of environment variables and labels.
MAPS = ("environment", "labels", "set")
INSTANT = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:")
# Fields that contradict each other, each well-formed by itself.
CONTRADICTIONS = re.compile(r"is given twice|users are a tenant's|given as a time and as a span|both parts and resources|"
                            r"is given; (a part has members|of several parts)|given without GPUs|differ; send one of them|"
                            r"more than a year ahead|instant after 1970|command and args together")


def said(value):
    """The value with names that a map may have, instants that can be meant, and a first word of a command."""
    if isinstance(value, list):
        return [said(item) for item in value]
    if not isinstance(value, dict):
        return value
    out = {}
    for name, item in value.items():
        if name in MAPS and isinstance(item, dict):
            item = {"".join(c for c in key if c.isascii() and c.isalnum())[:40] or "k": inner for key, inner in item.items()}
        if name == "command" and isinstance(item, list) and item[:1] == [""]:
            item = ["true", *item[1:]]
        if isinstance(item, str) and INSTANT.match(item) and not item.startswith("20"):
            item = "2030-01-01T00:00:00Z"
        out[name] = said(item)
    return out


@schemathesis.hook
def map_body(context, body):
    del context
    return said(body)


@schemathesis.check
def allowed_is_not_malformed(ctx, response, case):
    """A request that the document allows is not answered with 400, contradictions aside."""
    del ctx
    if response.status_code != 400 or case.meta is None or not case.meta.generation.mode.is_positive:
        return
    if case.operation.path in ("/v1/jobs", "/v1/jobs:plan"):
        return  # A job's request has rules about several fields that the document does not tell yet.
    sentence = response.json()["error"]
    assert CONTRADICTIONS.search(sentence), f"the document allows what is refused: {sentence}"
