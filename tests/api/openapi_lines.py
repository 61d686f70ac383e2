"""An OpenAPI document as lines to read and compare: one an operation, one a schema, or of a large one each field.

Sentences are left out: what a client's code depends on is here.

  python3 tests/api/openapi_lines.py FILE     prints the lines of a document in FILE
"""

import json
import sys

# A text without a NUL and one of printable characters: most texts are one of them.
FIELDS_IN_LINE_MAX = 6
TEXTS = {r"^[^\x00]*$": "text", r"^[^\x00-\x1f\x7f]*$": "line"}


def bounds(schema, low, high):
    """`(1..8)` where there are limits."""
    found = [str(schema[name]) if name in schema else "" for name in (low, high)]
    return f"({'..'.join(found)})" if any(found) else ""


def kind(schema):
    """One word for what a value may be; `?` behind it: or null."""
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    for words in ("anyOf", "oneOf", "allOf"):
        if words in schema:
            some = [one for one in schema[words] if one.get("type") != "null"]
            null = "?" if len(some) < len(schema[words]) else ""
            return {"anyOf": "|", "oneOf": "^", "allOf": "&"}[words].join(kind(one) for one in some) + null
    if "enum" in schema:
        return "one of " + ", ".join(json.dumps(value, ensure_ascii=False) for value in schema["enum"])
    types = schema.get("type", "anything")
    types = [types] if isinstance(types, str) else types
    return "|".join(kind_of(name, schema) for name in types if name != "null") + ("?" if "null" in types else "")


def kind_of(name, schema):
    if name == "array":
        return f"[{kind(schema.get('items', {}))}]" + bounds(schema, "minItems", "maxItems")
    if name == "object":
        values = schema.get("additionalProperties", True)
        inside = fields_inside(schema) if schema.get("properties") else ""
        more = f"{{{kind(values)}}}" if isinstance(values, dict) else "" if values else "{closed}"
        return ("object" if not inside or more else "") + inside + more + bounds(schema, "minProperties", "maxProperties")
    if name == "string":
        pattern = schema.get("pattern")
        shown = TEXTS.get(pattern, f"string /{pattern}/") if pattern else "string"
        return " ".join(filter(None, [shown, schema.get("format")])) + bounds(schema, "minLength", "maxLength")
    return schema.get("format", name) + bounds(schema, "minimum", "maximum")


def fields_inside(schema):
    return "{" + ", ".join(field for field in fields(schema)) + "}"


def fields(schema):
    """`name! type`: the mark is for what must be given, `-` for what is only shown."""
    required = schema.get("required", [])
    for name, inner in sorted(schema.get("properties", {}).items()):
        mark = "!" if name in required else ""
        yield f"{name}{mark} {kind(inner)}" + (" -" if inner.get("readOnly") else "")


def content(part):
    """What a body is: its schema where it is JSON, else its type before it."""
    found = []
    for media, said in sorted(part.get("content", {}).items()):
        found.append(("" if media == "application/json" else f"{media} ") + kind(said.get("schema", {})))
    return " or ".join(found) or "nothing"


def operation(path, method, said):
    """METHOD path id (parameters) < body > what it answers with, the usual errors by their codes."""
    parts = [f"{method.upper()} {path} {said.get('operationId', '-')}"]
    for one in sorted(said.get("parameters", []), key=lambda one: (one["in"], one["name"])):
        mark = "!" if one.get("required") else ""
        parts.append(f"{one['in']} {one['name']}{mark} {kind(one.get('schema', {}))};")
    if "requestBody" in said:
        parts.append(f"< {content(said['requestBody'])}" + ("" if said["requestBody"].get("required") else " or none"))
    answers = {}
    for code, answer in sorted(said.get("responses", {}).items()):
        shown = answer["$ref"].rpartition("/")[2] if "$ref" in answer else content(answer)
        answers.setdefault(shown, []).append(code)
    parts += [f"> {' '.join(codes)} {shown}" for shown, codes in answers.items()]
    if "security" in said:
        parts.append("with " + json.dumps(said["security"]))
    return " ".join([*parts, *(f"#{tag}" for tag in said.get("tags", []))])


def schema_lines(name, schema):
    if len(schema.get("properties", {})) <= FIELDS_IN_LINE_MAX:
        yield f"{name} = {kind(schema)}"
        return
    bare = {key: value for key, value in schema.items() if key != "properties"}
    yield f"{name} = {kind(bare)}"
    yield from (f"{name}.{field}" for field in fields(schema))


def lines(document):
    """The whole document; each line names what it is about, so that it can be compared by itself."""
    found = [f"openapi {document['openapi']}", "callers " + json.dumps(document.get("security"))]
    for path, methods in sorted(document["paths"].items()):
        found += [operation(path, method, said) for method, said in sorted(methods.items())]
    components = document["components"]
    found += [f"security scheme {name} {json.dumps(said, sort_keys=True)}"
              for name, said in sorted(components.get("securitySchemes", {}).items())]
    found += [f"answer {name} {content(said)}" for name, said in sorted(components.get("responses", {}).items())]
    for name, schema in sorted(components["schemas"].items()):
        found += schema_lines(name, schema)
    return found


def subject(line):
    """What a line is about, by which one that changed is found: an operation, or a schema's field."""
    words = line.split(" ")
    if words[0] == "security":
        return " ".join(words[:3])
    return " ".join(words[:2]) if words[0].isupper() or words[0] == "answer" else words[0].rstrip("!")


def differences(wanted, found):
    """Sentences on what was added, removed and changed from the lines `wanted` to `found`."""
    old, new = {subject(line): line for line in wanted}, {subject(line): line for line in found}
    told = [f"removed: {line}" for name, line in old.items() if name not in new]
    told += [f"added: {line}" for name, line in new.items() if name not in old]
    told += [f"changed: {line}\n     to: {new[name]}" for name, line in old.items() if new.get(name, line) != line]
    return told


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        print("\n".join(lines(json.load(file))))
