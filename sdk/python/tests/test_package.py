"""What the distribution says of itself; needs no package, so that the suite is never empty."""

import ast
import re
import subprocess
import sys

from conftest import PACKAGE, ROOT

PROJECT = (PACKAGE / "pyproject.toml").read_text()
MODULES = sorted((PACKAGE / "gpu_scheduler").glob("*.py"))


def test_every_module_is_of_the_oldest_python_that_is_promised():
    oldest = tuple(int(word) for word in re.search(r'requires-python = ">=(\d+)\.(\d+)"', PROJECT).groups())
    assert len(MODULES) > 8
    for module in MODULES:
        ast.parse(module.read_text(), str(module), feature_version=oldest)


def test_the_version_is_the_same_everywhere():
    version = re.search(r'^version = "([^"]+)"$', PROJECT, re.MULTILINE)[1]
    assert '__version__ = "{}"'.format(version) in (PACKAGE / "gpu_scheduler" / "__init__.py").read_text()
    assert "## {} ".format(version) in (ROOT / "CHANGELOG.md").read_text()


def test_the_name_is_not_one_of_somebody_else():
    name = re.search(r'^name = "([^"]+)"$', PROJECT, re.MULTILINE)[1]
    assert name not in ("gpu-scheduler", "gpusched")
    for page in (PACKAGE / "README.md", ROOT / "docs" / "python.md"):
        assert name in page.read_text()


def test_every_public_name_is_documented():
    undocumented = []
    for module in MODULES:
        for found in ast.walk(ast.parse(module.read_text())):
            if isinstance(found, ast.ClassDef):
                members = [one for one in found.body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))]
                undocumented += ["{}.{}".format(found.name, one.name) for one in [found, *members]
                                 if not (one.name.startswith("_") or found.name.startswith("_"))
                                 and module.name[0] != "_" and not ast.get_docstring(one)]
    assert not undocumented


def test_where_httpx_is_missing_the_import_says_so():
    script = ("import sys; sys.modules['httpx'] = None\n"
              "try: import gpu_scheduler\n"
              "except ImportError as error: print(error)")
    done = subprocess.run([sys.executable, "-c", script], env={"PYTHONPATH": str(PACKAGE)}, stdout=subprocess.PIPE,
                          universal_newlines=True, check=True)
    assert "httpx" in done.stdout
