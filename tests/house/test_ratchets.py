"""What is too long or looks the wrong way may only become less: exceptions.json holds what was there when a rule came."""

import re
import subprocess

import pytest
from conftest import ROOT
from measure import RULES, exceptions, functions

SUBJECT = re.compile(r"[a-z0-9][\w .,/+*-]*: \S.*")
SUBJECT_COLUMNS_MAX = 72


@pytest.mark.parametrize("rule", RULES)
def test_there_are_no_more(rule):
    allowed, found = exceptions()[rule], RULES[rule]()
    more = {where: much for where, much in found.items() if much > allowed.get(where, 0)}
    assert not more, f"{rule}: mend these, the list of exceptions only shrinks"
    fewer = {where for where, much in allowed.items() if found.get(where, 0) < much}
    assert not fewer, f"{rule}: better than exceptions.json says; run python3 tests/house/measure.py and commit it"


def test_the_reader_sees_functions():
    text = '''
namespace a { struct B { int c() const { return f({1}); } };
template <typename T> void d(T t)
{
  if (t) { for (;;) { auto g = [] { return "}"; }; } }
}
B::B(int i) : x_{i}, y_(i) { /* } */ }
constexpr int table[] = {1, 2};
bool B::operator==(const B& other) const { return true; }
}'''
    assert [(name, last - first) for name, first, last, _ in functions(text)] == [
        ("c", 0), ("d", 3), ("B::B", 0), ("B::operator==", 0)]


def test_subjects_of_commits_say_what_changes_where():
    """Those of this machine's history that no release has: a checkout without history has none."""
    listed = subprocess.run(["git", "-C", str(ROOT), "log", "--format=%s", "--no-merges", "-n", "50"],
                            capture_output=True, text=True, check=False)
    wrong = [subject for subject in listed.stdout.split("\n") if subject and
             (len(subject) > SUBJECT_COLUMNS_MAX or not SUBJECT.fullmatch(subject))]
    assert not wrong
