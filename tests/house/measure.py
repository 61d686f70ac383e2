"""What the house rules count: each rule's findings in this tree, as {where: how much}.

RULES fail on whatever exceptions.json does not list. WARNINGS are told and fail nowhere: a count is no aim. SIZES are
what a room where nobody wants to live is known by: they warn, too, but what exceptions.json lists may not grow.

`python3 tests/house/measure.py` takes out of exceptions.json what is no longer found and lowers what shrank. It never
adds or raises an entry: a new finding is repaired, not written down. With --warn it prints a line for each
rule that warns; pytest prints all that is found.
"""

import dataclasses
import functools
import json
import re
import sys

from conftest import ROOT, project_files

EXCEPTIONS = ROOT / "tests" / "house" / "exceptions.json"
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 600
GET_IF_MAX = 5
PROSE_COLUMNS_MAX = 120
FOLDER_FILES_MAX = 25
MEMBERS_MAX = 20
PRIVATE_FUNCTIONS_MAX = 40
CLASS_FILES_MAX = 3
# Written by programs from tables of the code, a row a line.
GENERATED_PAGES = {"docs/reference/cli.md", "docs/reference/configuration.md", "docs/reference/errors.md",
                   "docs/reference/gpu-faults.md", "docs/reference/job-fields.md", "docs/reference/node-fields.md",
                   "docs/reference/reservation-fields.md", "docs/reference/tenant-fields.md"}
BLANKED = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:[^"\\\n]|\\.)*"|(?<![\w])\'(?:[^\'\\\n]|\\.)+\'', re.DOTALL)
SCOPE = re.compile(r"\b(?:namespace|class|struct|union|enum|extern)\b[^()]*$")
HEAD = re.compile(r"([\w:~]+(?:\s*(?:\(\)|[=!<>+\-*/%\[\]&|^]+))?)\s*\(")
# A look-up in the state whose answer is used without a look whether there is one; `node_at` and its like check that.
LOOK_UP = r"(?:find_(?:node|tenant|attempt|array|booking|promise)|jobs\.find)"
NESTED = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
UNCHECKED = re.compile(rf"\b{LOOK_UP}{NESTED}->|(?<=[(\s])\*(?:\w+(?:\(\))?(?:\.|->))*{LOOK_UP}\(")
CODE_SPAN = re.compile(r"`[^`]*`")
LIST_MARK = re.compile(r"^\s*(?:[-*]|\d+\.)?\s*")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def blank(text):
    """The same text, its comments and literals as spaces: braces and words that are left are code."""
    return BLANKED.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


@functools.cache
def functions(text):
    """(name, first line, last line, body) of each function of a C++ file that is written out in it."""
    code = blank(text)
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda found: re.sub(r"[^\n]", " ", found[0]), code, flags=re.MULTILINE)
    found, scopes, since = [], [], 0  # scopes: (is a function's, name, where its head begins, where its body does)
    for at, mark in ((match.start(), match[0]) for match in re.finditer(r"[{};]", code)):
        if mark == "{" and at and not code[at - 1].isspace():  # An initializer, as clang-format writes them.
            scopes.append((False, "", None, at))
            continue
        if mark == "}" and scopes and scopes[-1][2] is None:
            scopes.pop()
            continue
        if mark == "{":
            head = code[since:at]
            inside = any(scope[0] for scope in scopes)
            named = HEAD.search(head)
            is_function = not inside and bool(named) and not SCOPE.search(head.split("(")[0] if named else head)
            begin = since + len(head) - len(head.lstrip())
            scopes.append((is_function, named[1] if named else "", begin, at))
        elif mark == "}" and scopes:
            is_function, name, begin, body = scopes.pop()
            if is_function:
                found.append((name, code.count("\n", 0, begin) + 1, code.count("\n", 0, at) + 1, code[body:at]))
        if not any(scope[0] for scope in scopes):
            since = at + 1
    return found


CLASS = re.compile(r"\b(?:class|struct)\s+(?:\[\[\w+\]\]\s+)?([\w:]+)[^;{}()=]*$")
NEXT = re.compile(r"\s*[;,{]")
NO_MEMBER = re.compile(r"(?:using|typedef|friend|static|static_assert|enum|class|struct|union|template|extern)\b|$")


def without_templates(text):
    """The text without what stands between < and >, and without arrows and comparisons."""
    text = re.sub(r"->|<=>|<=|>=|<<|>>(?=\s*\()", " ", text)
    while (shorter := re.sub(r"<[^<>]*>", "", text)) != text:
        text = shorter
    return text


@dataclasses.dataclass
class Scope:
    kind: str  # namespace | class | other
    name: str = ""
    private: bool = False
    members: int = 0
    private_functions: int = 0


def scope_of(head, outer):
    """What a `{` behind `head` opens."""
    if outer == "other":
        return Scope("other")
    plain = without_templates(head)
    if re.match(r"(?:inline\s+)?namespace\b|extern\b", plain):
        return Scope("namespace")
    named = CLASS.search(plain)
    if named and "enum" not in plain and "(" not in plain:
        return Scope("class", named[1].rpartition("::")[2], "class" in plain.split())
    return Scope("other")


@functools.cache
def classes(text):
    """(name, number of data members, number of private functions) of each class that is written out in a file."""
    code = blank(text)
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda found: re.sub(r"[^\n]", " ", found[0]), code, flags=re.MULTILINE)
    found, scopes, since = [], [Scope("namespace")], 0
    for mark in re.finditer(r"[{};]|\b(?:public|protected|private)\s*:(?!:)", code):
        word, own = mark[0][0], scopes[-1]
        head = code[since:mark.start()].strip() if own.kind != "other" else ""
        if word == "{":
            scopes.append(scope_of(head, own.kind))
            if scopes[-1].kind != "other":
                since = mark.end()
        elif word == "}":
            closed = scopes.pop() if len(scopes) > 1 else own
            if closed.kind == "class":
                found.append((closed.name, closed.members, closed.private_functions))
            # A body ends its function; an initializer belongs to a declaration whose end is yet to come.
            declares = closed.kind == "other" and NEXT.match(code, mark.end())
            if scopes[-1].kind != "other" and not declares:
                scopes[-1].private_functions += closed.kind == "other" and scopes[-1].private
                since = mark.end()
        elif word == ";" and own.kind != "other":
            plain = without_templates(re.sub(r"\{.*|\s=\s.*", "", head, flags=re.DOTALL)).strip()
            if own.kind == "class" and not NO_MEMBER.match(plain):
                own.members += "(" not in plain
                own.private_functions += "(" in plain and own.private
            since = mark.end()
        elif word == "p" and own.kind == "class":
            own.private = mark[0].startswith("private")
            since = mark.end()
    return found


def sources(*suffixes, tests=True):
    for name in project_files():
        if name.startswith(("src/", "tests/", "bench/")) and name.endswith(suffixes):
            if tests or not (name.endswith("_test.cc") or "/testing" in name or name.startswith("tests/")):
                yield name, (ROOT / name).read_text(encoding="utf-8")


def long_functions():
    found = {}
    for name, text in sources(".cc", ".h"):
        for function, first, last, _ in functions(text):
            if last - first + 1 > FUNCTION_LINES_MAX:
                where = f"{name}: {function}"
                found[where] = max(found.get(where, 0), last - first + 1)
    return found


def long_files():
    return {name: text.count("\n") for name, text in sources(".cc", ".h", ".py") if text.count("\n") > FILE_LINES_MAX}


def chains_of_get_if():
    found = {}
    for name, text in sources(".cc", ".h", tests=False):
        for function, _, _, body in functions(text):
            count = len(re.findall(r"\bget_if\s*<", body))
            if count > GET_IF_MAX:
                found[f"{name}: {function}"] = max(found.get(f"{name}: {function}", 0), count)
    return found


def unchecked_look_ups():
    found = {}
    for name, text in sources(".cc", ".h", tests=False):
        count = len(UNCHECKED.findall(blank(text)))
        if name.startswith("src/") and count > 0:
            found[name] = count
    return found


def doors_from_outside():
    """A door is what clients speak; the server's wiring alone knows them all."""
    found = {}
    wiring = ("src/api/doors/", "src/api/server.", "src/api/grpc_server.")
    for name, text in sources(".cc", ".h", tests=False):
        if not name.startswith(wiring):
            found.update({f"{name} includes {target}": 1 for target in INCLUDE.findall(text)
                          if target.startswith("api/doors/")})
    return found


def folders_of(room):
    """A room's folders from the lowest to the highest, as its CMakeLists.txt names them."""
    text = re.sub(r"#.*", "", (ROOT / "src" / room / "CMakeLists.txt").read_text())
    call = re.search(r"gpusched_room\((.*?)\)", text, re.DOTALL)
    named = re.search(r"\bFOLDERS\s+([^)]*)", call[1] if call else "")
    return named[1].split() if named else []


def includes_up_a_room():
    found = {}
    for name, text in sources(".cc", ".h", tests=False):
        if not name.startswith("src/"):
            continue
        room, folder = name.split("/")[1], "/".join(name.split("/")[2:-1]) or "."
        order = folders_of(room)
        for target in INCLUDE.findall(text):
            theirs = "/".join(target.split("/")[1:-1]) or "."
            if target.split("/")[0] == room and folder in order and theirs in order:
                if order.index(theirs) > order.index(folder):
                    found[f"{name} includes {target}"] = 1
    return found


def full_folders():
    """Files beside the tests."""
    counts = {}
    for name, _ in sources(".cc", ".h", tests=False):
        folder = name.rpartition("/")[0]
        counts[folder] = counts.get(folder, 0) + 1
    return {folder: count for folder, count in counts.items() if count > FOLDER_FILES_MAX}


def long_lines_of_prose():
    found = {}
    for name in project_files():
        if not name.endswith(".md") or name in GENERATED_PAGES:
            continue
        fenced = False
        for line in (ROOT / name).read_text(encoding="utf-8").split("\n"):
            fenced ^= line.lstrip().startswith("```")
            text = CODE_SPAN.sub("`", LIST_MARK.sub("", line))  # One long word cannot be wrapped.
            is_prose = not fenced and not line.lstrip().startswith(("|", "<", "    ")) and " " in text
            if is_prose and len(line) > PROSE_COLUMNS_MAX and "](" not in line:
                found[name] = max(found.get(name, 0), len(line))
    return found


def large_classes(at, most):
    found = {}
    for name, text in sources(".cc", ".h", tests=False):
        for one in classes(text):
            if one[at] > most:
                found[f"{name}: {one[0]}"] = one[at]
    return found


def many_members():
    return large_classes(1, MEMBERS_MAX)


def many_private_functions():
    return large_classes(2, PRIVATE_FUNCTIONS_MAX)


def scattered_classes():
    """Classes whose functions are in several files."""
    files = {}
    for name, text in sources(".cc", tests=False):
        for function, _, _, _ in functions(text):
            owner = function.split("::")[-2:-1]
            if owner:
                files.setdefault(f"{'/'.join(name.split('/')[:2])}: {owner[0]}", set()).add(name)
    return {where: len(names) for where, names in files.items() if len(names) > CLASS_FILES_MAX}


RULES = {
    "chains of more than five get_if": chains_of_get_if,
    "unchecked look-ups in the state": unchecked_look_ups,
    "includes of doors from outside the doors": doors_from_outside,
    "includes up a room's folders": includes_up_a_room,
    "lines of prose over 120 columns": long_lines_of_prose,
}

WARNINGS = {
    "functions over 70 lines": long_functions,
    "files over 600 lines": long_files,
    "folders with more than 25 files beside their tests": full_folders,
}
SIZES = {
    "classes with more than 20 members": many_members,
    "classes with more than 40 private functions": many_private_functions,
    "classes in more than three files": scattered_classes,
}


def exceptions():
    return json.loads(EXCEPTIONS.read_text(encoding="utf-8"))


def shrink():
    kept = exceptions()
    for rule, measure in {**RULES, **SIZES}.items():
        now = measure()
        kept[rule] = {where: min(much, now[where]) for where, much in kept.get(rule, {}).items() if where in now}
    EXCEPTIONS.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def warn():
    for rule, measure in {**SIZES, **WARNINGS}.items():
        found = sorted(measure().items(), key=lambda one: -one[1])
        if found:
            print(f"warning: {rule}: {len(found)}, most of all {', '.join(f'{where} ({much})' for where, much in found[:3])}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--warn"]:
        warn()
    else:
        shrink()
