"""Requests drawn from an OpenAPI document: every call, every parameter, every property of every body."""

import json
import urllib.parse

DEPTH_MAX = 6
# What no schema says of itself and every parser has to bear.
WRONG_TYPES = [None, True, 0, -1, 1.5, "", "x", [], {}, [[]], [{}], {"a": {}}]


class JsonDraw:
    """Values from a Draw, by JSON schemas of one document."""

    def __init__(self, draw, document):
        self.draw = draw
        self.document = document
        self.calls = [(method.upper(), path, call) for path, item in document["paths"].items()
                      for method, call in item.items() if method in ("get", "post", "put", "patch", "delete")]

    def resolved(self, schema):
        while "$ref" in schema:
            schema = self.document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
        for several in ("allOf", "anyOf", "oneOf"):
            if several in schema:  # Nothing is drawn among the wrong types.
                return self.resolved(self.draw.random.choice([one for one in schema[several] if one != {"type": "null"}]))
        return schema

    def value(self, schema, name="", depth=0):
        draw = self.draw
        schema = self.resolved(schema)
        if draw.chance(15):
            return draw.random.choice(WRONG_TYPES)
        if "enum" in schema and draw.chance(900):
            return draw.random.choice(schema["enum"])
        kind = schema.get("type", "object" if "properties" in schema else "string")
        kind = draw.random.choice([one for one in kind if one != "null"]) if isinstance(kind, list) else kind
        if kind == "boolean":
            return draw.chance(500)
        if kind == "integer":
            narrow = schema.get("format") == "int32"
            return draw.integer(-2**31, 2**31 - 1) if narrow else draw.integer(-2**63, 2**64 - 1)
        if kind == "number":
            return draw.real()
        if kind == "array":
            return [self.value(schema.get("items", {}), name, depth + 1) for _ in range(draw.count() if depth < DEPTH_MAX else 0)]
        if kind == "object":
            return self.object(schema, depth)
        if schema.get("format") == "date-time" and draw.chance(800):
            return draw.random.choice(["2030-01-01T00:00:00Z", "2116-02-20T23:53:38Z", "2116-02-20T23:53:39Z", "1969-12-31T23:59:59Z",
                                       "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "2030-13-01T00:00:00Z", "x"])
        if schema.get("format") in ("int64", "uint64") and draw.chance(800):
            return str(draw.integer(-2**63, 2**64 - 1))
        return draw.text(name)

    def object(self, schema, depth):
        draw = self.draw
        out = {}
        share = draw.random.choice([80, 250, 600])
        for name, inner in schema.get("properties", {}).items():
            if depth < DEPTH_MAX and draw.chance(share):
                out[name] = self.value(inner, name, depth + 1)
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict) and depth < DEPTH_MAX:
            for index in range(draw.count()):
                out[draw.text() + (str(index) if index > 2 else "")] = self.value(extra, "", depth + 1)
        if draw.chance(10):
            out[draw.random.choice(["nobody", "", "id", "constructor"])] = draw.random.choice(WRONG_TYPES)
        return out

    def over(self, base, schema, depth=0):
        """`base` with some of its fields, at any depth, drawn anew and others added."""
        draw = self.draw
        schema = self.resolved(schema)
        if isinstance(base, list):
            return [self.over(item, schema.get("items", {}), depth + 1) for item in base * draw.random.choice([1, 1, 1, 2, 5])]
        if not isinstance(base, dict):
            return self.value(schema, "", depth) if draw.chance(30) else base
        out = {}
        share = draw.random.choice([0, 20, 60, 120])
        for name, inner in schema.get("properties", {}).items():
            if name in base:
                out[name] = self.over(base[name], inner, depth + 1)
            elif draw.chance(share):
                out[name] = self.value(inner, name, depth + 1)
        return out

    def request(self, plausible):
        """(method, path, headers, body) of one call; mostly by a `plausible` body where there is one for the path."""
        draw = self.draw
        writes = [call for call in self.calls if call[1] in plausible and call[0] == "POST"]
        method, path, call = draw.random.choice(writes if draw.chance(400) else self.calls)
        base = plausible.get(path)
        query = []
        for parameter in call.get("parameters", []):
            name = parameter["name"]
            if parameter["in"] == "path":
                kind = next((kind for kind in draw.known if kind in path.split("{" + name)[0].rsplit("/", 2)[-2]), name)
                value = draw.text(kind)
                path = path.replace("{" + name + "}", urllib.parse.quote(value, safe="") or "x")
            elif draw.chance(250):
                value = self.value(parameter.get("schema", {}), name)
                # An open end would wait for changes for as long as we do.
                if name in ("wait", "follow", "watch", "wait_ms"):
                    value = "0"
                query.append((name, value if isinstance(value, str) else json.dumps(value)))
        if query:
            path += "?" + urllib.parse.urlencode(query)
        headers = {}
        if method != "GET" and draw.chance(200):
            headers["Idempotency-Key"] = "key-" + str(draw.random.randrange(20))
        body = b""
        content = call.get("requestBody", {}).get("content", {})
        if content:
            schema = content.get("application/json", next(iter(content.values()))).get("schema", {})
            drawn = self.over(base, schema) if base is not None and draw.chance(800) else self.value(schema)
            body = json.dumps(drawn, ensure_ascii=draw.chance(500)).encode("utf-8", "surrogatepass")
        return method, path, headers, body
