"""What README, docs/five-minutes.md, docs/policies.md, docs/coming-from-slurm.md and docs/reference show is true of the
built programs.

`sh` blocks run in order against a scheduler and an agent, as those of docs/operate do. A block that cannot run has an
HTML comment before it, `<!-- not run: WHY -->`, and is counted here. `console` blocks run too, and must print what the
page shows. Every `gpu-cli` line, run or not, must be one that gpu-cli understands; JSON and YAML parse; settings exist.
"""

import http.server
import json
import os
import re
import shutil
import subprocess
import threading

import harness
import pytest
from harness import ROOT, program
from test_operator_guide import Site

# Pages by name, and how many of their blocks say that they are not run.
NOT_RUN = {"README.md": 4, "docs/five-minutes.md": 1, "docs/policies.md": 6, "docs/reference/gangs.md": 1,
           "docs/reference/gpu-sim.md": 1, "docs/reference/services.md": 3, "docs/reference/sessions.md": 1}
# Its `text` blocks are what the `sh` blocks before them print, but for numbers of jobs and times.
SHOWN = "docs/five-minutes.md"
# Made by programs, from the grammars and tables of the code; their blocks have no language.
GENERATED = {"docs/reference/cli.md", "docs/reference/configuration.md", "docs/reference/errors.md",
             "docs/reference/gpu-faults.md"}
LANGUAGES = {"sh", "console", "text", "json", "yaml"}
BLOCK = re.compile(r"^(?:<!-- not run: (?P<why>[^\n]+) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$",
                   re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`((?:gpu-(?:cli|agent|scheduler|sim)) [^`]+)`")
OPTION = re.compile(r"(?<![\w-])(--[a-z][\w-]*)")
# Writes manual pages where it is told to; is to be refused.
NOT_EVEN_TRIED = re.compile(r"gpu-cli man |\|\| true\)")


def pages():
    files = [ROOT / "README.md", ROOT / "docs/five-minutes.md", ROOT / "docs/policies.md",
             ROOT / "docs/coming-from-slurm.md", *sorted((ROOT / "docs/reference").glob("*.md"))]
    return {str(file.relative_to(ROOT)): file.read_text() for file in files}


PAGES = pages()


def blocks(page, *languages):
    return [found for found in BLOCK.finditer(PAGES[page]) if not languages or found["language"] in languages]


def test_every_block_has_a_language_and_those_not_run_a_reason():
    wrong = [f"{page}: {block['text'][:60]}" for page in PAGES.keys() - GENERATED for block in blocks(page)
             if block["language"] not in LANGUAGES]
    assert not wrong
    # An indented block has no language, and would never run.
    plain = {page: re.sub(BLOCK, "", text) for page, text in PAGES.items() if page not in GENERATED}
    assert not [page for page, text in plain.items() if re.search(r"^\n    \S", text, re.MULTILINE)]
    counted = {page: sum(1 for block in blocks(page) if block["why"]) for page in PAGES}
    assert {page: count for page, count in counted.items() if count} == NOT_RUN


# --- Blocks that run. ---

@pytest.fixture(name="site")
def site_fixture(new_world):
    world = new_world(SCHEDULER_NODE_LEASE_MS=1500)
    world.strict = False  # What the pages submit may go on.
    site = Site(world)
    yield site
    harness.kill_processes_of(world.folder)


@pytest.mark.parametrize("page", sorted(page for page in PAGES if page != SHOWN and any(not b["why"] for b in
                                                                                        blocks(page, "sh"))))
def test_the_shell_blocks_of_a_page_run(site, page):
    site.start()
    site.world.api().wait_for(site.world.api().submit("true"))  # Something has run there.
    for number, block in enumerate(blocks(page, "sh"), 1):
        if not block["why"]:
            status, out = site.run(block["text"])
            assert status == 0, f"block {number} of {page} ended with {status}:\n{block['text']}\n---\n{out}"


def without_numbers(text):
    return re.sub(r"\bjob-\d+", "job-N", text)


def test_the_five_minutes_print_what_the_page_shows(site):
    site.start()
    ran = 0
    found = blocks(SHOWN, "sh", "text")
    for block, after in zip(found, [*found[1:], None]):
        if block["language"] == "sh" and not block["why"]:
            status, out = site.run(block["text"], site.world.folder)
            assert status == 0, f"{block['text']}\n---\n{out}"
            assert after is not None and after["language"] == "text", f"what does it print?\n{block['text']}"
            assert without_numbers(out) == without_numbers(after["text"]), block["text"]
            ran += 1
    assert ran == sum(1 for block in found if block["language"] == "text")


def commands_of(text):
    """[(command, what it prints)] of a console block: a command goes on while a quote is open."""
    found = []
    for line in text.splitlines():
        if found and found[-1][0].count("'") % 2:
            found[-1][0] += "\n" + line
        elif line.startswith("$ "):
            found.append([line[2:], []])
        else:
            found[-1][1].append(line)
    return found


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
@pytest.mark.parametrize("page", sorted(page for page in PAGES if blocks(page, "console")))
def test_the_console_blocks_of_a_page_print_what_it_says(site, page):
    site.world.scheduler.start()
    ours = {}  # Ids as the page has them, and as they are here.
    for block in blocks(page, "console"):
        for command, expected in commands_of(block["text"]):
            for theirs, here in ours.items():
                command = re.sub(rf"\b{theirs}\b", here, command)
            status, out = site.run(command, site.world.folder)  # Some write files.
            assert status == 0, f"{command} ended with {status}:\n{out}"
            printed = out.rstrip("\n").splitlines()
            assert len(printed) == len(expected), f"{command}\n{out}"
            for line, shown in zip(printed, expected):
                for theirs, here in zip(re.findall(r"\bjob-\d+", shown), re.findall(r"\bjob-\d+", line)):
                    ours.setdefault(theirs, here)
                for theirs, here in ours.items():
                    shown = re.sub(rf"\b{theirs}\b", here, shown)
                assert line == shown, command


# --- Commands that are only looked at. ---

class NothingThere(http.server.BaseHTTPRequestHandler):
    """Answers 404, so that what gpu-cli was understood to ask is over at once."""

    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b'{"error":"nothing is here","code":"not_found"}'
        self.send_response(404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = answer

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module", name="shell")
def shell_fixture(tmp_path_factory):
    """Runs a line in which only gpu-cli exists; [(words, status, error)] of its calls."""
    folder = tmp_path_factory.mktemp("cli")
    for name in ("home/.config/fish/completions", "here"):
        (folder / name).mkdir(parents=True)
    wrapper = folder / "bin" / "gpu-cli"
    wrapper.parent.mkdir()
    wrapper.write_text(f"""#!/bin/bash
error=$({program("gpu-cli")} "$@" 2>&1 >{folder}/out </dev/null)
status=$?
printf '%s\\0%s\\0%s\\0' "$*" "$status" "$error" >>{folder}/calls
echo job-12
exit $status
""")
    wrapper.chmod(0o755)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), NothingThere)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    # A line stands alone here: what the lines before it put into variables are jobs.
    environment = dict.fromkeys(re.findall(r"(?m)^(?:[$] )?([a-z_]+)=[$][({]", "\n".join(PAGES.values())), "job-12")
    environment |= {"PATH": str(wrapper.parent), "HOME": str(folder / "home"), "USER": "user",
                   "GPU_SCHEDULER_URL": f"http://127.0.0.1:{server.server_port}"}
    for name in re.findall(r"(?<![\w/.])(?:\./)?([\w-]+\.(?:sh|py|tar|ndjson))", "\n".join(PAGES.values())):
        (folder / "here" / name).write_text('{"command":["true"]}\n' if name.endswith("ndjson") else "true\n")

    def run(line):
        (folder / "calls").write_bytes(b"")
        subprocess.run(["/bin/bash", "-c", line], cwd=folder / "here", env=environment, stdin=subprocess.DEVNULL,
                       capture_output=True, check=False, timeout=harness.PATIENCE_S)
        words = (folder / "calls").read_bytes().decode().split("\0")[:-1]
        return list(zip(words[0::3], words[1::3], words[2::3]))

    yield run
    server.shutdown()


def cli_lines(page):
    """Lines of blocks in which gpu-cli is called; in the generated page without the syntax of commands."""
    for block in blocks(page):
        for line in block["text"].splitlines():
            line = line.removeprefix("$ ")
            is_syntax = page in GENERATED and ("[" in line.partition(" -")[0] or re.search(r"\b[A-Z]{3,}\b", line))
            is_shown = block["language"] in ("text", "console") and "$ " + line not in block["text"]
            if re.search(r"(?:^|[(|] *)gpu-cli ", line) and not is_syntax and not is_shown:
                yield line


@pytest.mark.parametrize("page", sorted(page for page in PAGES if any(cli_lines(page))))
def test_gpu_cli_understands_every_line(shell, page):
    for line in cli_lines(page):
        if not NOT_EVEN_TRIED.search(line):
            calls = shell(line)
            assert calls, line
            # Usage: nothing was sent. Nobody sits at a terminal here, though, and there is no provider to log in at.
            excused = ("-t needs a terminal", "does not say where people log in")
            assert not [call for call in calls if call[1] == "2" and not any(why in call[2] for why in excused)], line


def test_a_line_that_gpu_cli_does_not_understand_is_seen(shell):
    assert shell("gpu-cli submit --gpu 2 -- true")[0][1] == "2"
    assert shell("gpu-cli submit --gpus 2 -- true")[0][1] == "4"


def helps():
    """Every command's help, by the words before its options; each asked for once."""
    known = {}

    def ask(*words):
        if words not in known:
            done = subprocess.run([program(words[0]), *words[1:], "--help"], stdin=subprocess.DEVNULL, text=True,
                                  capture_output=True, check=False, timeout=harness.PATIENCE_S)
            known[words] = done.stdout + done.stderr if done.returncode == 0 else None
        return known[words]

    return ask


def commands_named():
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for span in SPAN.findall(page.read_text()):
            yield str(page.relative_to(ROOT)), re.split(r" -- | --$", span)[0]


def test_every_command_and_option_that_a_sentence_names_exists():
    ask = helps()
    wrong = []
    for page, span in commands_named():
        binary, *words = span.split()
        verb = []
        for word in words:
            if not re.fullmatch(r"[a-z][a-z-]*", word) or len(verb) == 2:
                break
            verb.append(word)
        texts = [text for count in range(len(verb) + 1) if (text := ask(binary, *verb[:count])) is not None]
        # "gpu-cli node" is a group of commands, of which the next word must be one.
        wanted = len(verb) if len(texts) > 1 and f"{verb[0]} COMMAND" in texts[1] else min(len(verb), 1)
        if len(texts) <= wanted and not (verb and f"{binary} {verb[0]}" in texts[0]):
            wrong.append(f"{page}: no command {span}")
        wrong += [f"{page}: no {option} in {span}" for option in OPTION.findall(span)
                  if not re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", "\n".join(texts))]
    assert not wrong


# --- Data. ---

def test_every_json_block_parses():
    for page in PAGES:
        for block in blocks(page, "json"):
            # One object, or one a line.
            for document in block["text"].splitlines() if "\n{" in block["text"] else [block["text"]]:
                json.loads(document)


def without_settings():
    return {name: value for name, value in os.environ.items() if not name.startswith("GPU_SCHEDULER")}


@pytest.fixture(scope="module", name="settings")
def settings_fixture():
    """{section: keys} of the scheduler's configuration."""
    shown = subprocess.run([program("gpu-scheduler"), "--print-config"], capture_output=True, text=True, check=True,
                           env=without_settings())
    found = {}
    for section, key in re.findall(r"^(?:([a-z_]+):|  ([a-z_]+): .*)$", shown.stdout, re.MULTILINE):
        if section:
            found[section] = keys = set()
        else:
            keys.add(key)
    return found


def test_every_yaml_block_is_a_configuration(settings, tmp_path):
    for page in PAGES:
        for number, block in enumerate(blocks(page, "yaml")):
            if block["text"].startswith("apiVersion:"):
                continue  # An object of Kubernetes: tests/kube.
            file = tmp_path / f"{number}.yaml"
            file.write_text(block["text"])
            if block["text"].split(":")[0] in settings:
                command = [program("gpu-scheduler"), "--config", str(file), "--print-config"]
            else:
                command = [program("gpu-agent"), "doctor", "--config", str(file), "--data-dir", str(tmp_path / "data"),
                           "--node", "n1", "--sim-gpus", "1xA100-SXM4-80GB", "--scheduler", "127.0.0.1:1"]
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=without_settings(),
                                  timeout=harness.PATIENCE_S)
            good = done.returncode == 0 if "--print-config" in command else f"{file} is valid" in done.stdout
            assert good, f"{page}: {done.stdout}{done.stderr}"


def test_every_setting_that_a_page_names_exists(settings):
    missing = []
    for page in sorted((ROOT / "docs").rglob("*.md")) + [ROOT / "README.md"]:
        # Those pages' settings are the chart's and gpu-pilot's: tests/kube, test_pilot.
        if "adr" not in page.parts and page.name not in ("kubernetes.md", "pilot.md"):
            for span in re.findall(r"`([^`\n]+)`", page.read_text()):
                found = re.match(r"([a-z]+)\.([a-z_]+)(\*?)(?=$|[:= ])", span)
                if found and found[1] in settings and found[2] not in ("h", "lock", "sock", "token", "yaml"):
                    keys = settings[found[1]]
                    if not (any(key.startswith(found[2]) for key in keys) if found[3] else found[2] in keys):
                        missing.append(f"{page.relative_to(ROOT)}: {span}")
    assert not missing
