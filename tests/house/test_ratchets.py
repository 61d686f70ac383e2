"""What looks the wrong way, and what grew too large, may only become less: exceptions.json holds what was there when a
rule came. Counts of lines and files are told as warnings, as are classes that become large."""

import re
import subprocess
import warnings

import pytest
from conftest import ROOT
from measure import RULES, SIZES, WARNINGS, classes, exceptions, functions

SUBJECT = re.compile(r"[a-z0-9][\w .,/+*-]*: \S.*")
SUBJECT_COLUMNS_MAX = 72


@pytest.mark.parametrize("rule", RULES)
def test_there_are_no_more(rule):
    allowed, found = exceptions()[rule], RULES[rule]()
    more = {where: much for where, much in found.items() if much > allowed.get(where, 0)}
    assert not more, f"{rule}: repair these, the list of exceptions only shrinks"
    fewer = {where for where, much in allowed.items() if found.get(where, 0) < much}
    assert not fewer, f"{rule}: better than exceptions.json says; run python3 tests/house/measure.py and commit it"


@pytest.mark.parametrize("rule", SIZES)
def test_what_is_large_does_not_grow(rule):
    listed, found = exceptions()[rule], SIZES[rule]()
    grown = {where: f"{listed[where]} -> {much}" for where, much in found.items() if much > listed.get(where, much)}
    if new := sorted(set(found) - set(listed)):
        warnings.warn(f"{rule}: {', '.join(f'{where} ({found[where]})' for where in new)}")
    assert not grown, f"{rule}: give a new subject a class of its own"


@pytest.mark.parametrize("rule", WARNINGS)
def test_counts_are_told(rule):
    if found := WARNINGS[rule]():
        warnings.warn(f"{rule}: {', '.join(f'{where} ({much})' for where, much in sorted(found.items()))}")


def test_the_reader_sees_classes():
    text = '''
namespace a { namespace {
inline int f() { return 1; }
struct S { int a = 1; std::vector<std::function<void(int)>> b{1, 2}; static int c; using X = int; int f() const { return 1; }
           enum class E { kA, kB }; E e = E::kA; struct In { int q; }; };
class C final : public B<int> {
 public:
  explicit C(int x) : x_(x) {}
  int g();
 private:
  friend class D;
  void p(std::map<int, int> a) const;
  int q() { if (1) { return 2; } }
  static int r();
  int x_;  // }
  std::optional<int> y_{1};
  bool z_ = f(1);
};
enum class Not { kOne };
template <typename T> class Of { T t_; };
} }'''
    assert classes(text) == [("In", 1, 0), ("S", 3, 0), ("C", 3, 2), ("Of", 1, 0)]


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
