"""What OpenAPI cannot say of a request, and a check that knows which contradictions it cannot."""

import re

import schemathesis

# Names in maps: of environment variables and labels.
MAPS = ("environment", "env", "labels", "set")
DURATION = re.compile(r"\d+(ms|s|m|h|d)?")
INSTANT = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:")
# Fields that contradict each other, each well-formed by itself; of an array its ranges, of a command its first word.
CONTRADICTIONS = re.compile(r"is given twice|users requires tenant_id|given both as a time and as a duration|both parts and resources|"
                            r"differs from the one in the (path|query)|give it, or one of|must not be false with a|is given; (a part has members|of several parts)|given without GPUs|differ; send only one of them|"
                            r"is for the cluster as a whole|would have expired already|send either cluster or tenant_id|"
                            r"more than a year ahead|time after 1970|command and args have in total|"
                            r"^command: |command is empty|must not stand beside page_token|"
                            r"command\[0\] is empty|which environment does not have|array has (a range that runs backwards|ranges that overlap|more than \d+ elements)")
# What the scheduler's configuration forbids; the document is every scheduler's.
CONFIGURED = re.compile(r"scheduler\.(preempt_webhook_hosts|preempt_grace_max_seconds)\b")
# Classes of characters that no pattern of JSON Schema names.
NAMES = re.compile(r"has a character that is not seen or joins another|is not in the usual form of its characters")
BYTES = re.compile(r"longer than (\d+) bytes|of more than (\d+) bytes")


def texts(value):
    """All texts in a body."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from texts(item)


def counts_bytes(sentence, body):
    """Whether a text is refused for its bytes that has few enough characters, which is what the document counts."""
    found = BYTES.search(sentence)
    most = int(found[1] or found[2]) if found else 0
    return found and any(len(text) <= most < len(text.encode("utf-8", "surrogatepass")) for text in texts(body))


def small(array):
    """The same indexes, counts and steps below 1000: a few arrays of a million elements fill the queue."""
    return re.sub(r"\d+", lambda found: str((int(found[0]) - 1) % 1000 + 1 if int(found[0]) else 0), array)


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
        if name == "array" and isinstance(item, str):
            item = small(item)
        if isinstance(item, str) and INSTANT.match(item) and not item.startswith("20"):
            item = "2030-01-01T00:00:00Z"
        out[name] = said(item)
    return out


@schemathesis.hook
def map_body(context, body):
    del context
    return said(body)


@schemathesis.hook
def map_query(context, query):
    """A short wait instead of a long one: jobs of these tests may never end, and a request is given 10 s."""
    del context
    if isinstance(query, dict) and DURATION.fullmatch(str(query.get("wait", ""))):
        return {**query, "wait": "100ms"}
    return query


@schemathesis.check
def allowed_is_not_malformed(ctx, response, case):
    """A request that the document allows is not answered with 400, contradictions aside."""
    del ctx
    if response.status_code != 400 or case.meta is None or not case.meta.generation.mode.is_positive:
        return
    sentence = response.json()["error"]
    known = any(what.search(sentence) for what in (CONTRADICTIONS, NAMES, CONFIGURED))
    excused = known or counts_bytes(sentence, case.body)
    assert excused, f"the document allows what is refused: {sentence}"
