"""tools/proto tells which change of a protobuf file an older program does not understand."""

import importlib.machinery
import importlib.util
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
pytest.importorskip("google.protobuf", reason="python3-protobuf is not installed")
sys.dont_write_bytecode = True
LOADER = importlib.machinery.SourceFileLoader("tools_proto", str(ROOT / "tools" / "proto"))
proto = importlib.util.module_from_spec(importlib.util.spec_from_loader("tools_proto", LOADER))
LOADER.exec_module(proto)

OLD = """syntax = "proto3";
package p;
enum E { NONE = 0; ONE = 1; }
message M {
  int64 a = 1;
  string b = 2;
  message In { E e = 1; }
  repeated In in = 3;
}
service S { rpc Get(M) returns (M); }
"""


def compiled(folder, text):
    folder.mkdir()
    (folder / "a.proto").write_text(text)
    return proto.compiled(folder)


@pytest.mark.parametrize("was, becomes, fails, sentence", [
    ("string b = 2;", "string b = 2; string c = 4;", None, None),
    ("int64 a = 1;", "reserved 1;", None, None),
    ("int64 a = 1;", "", True, "p.M.a = 1 is gone, and its number is not reserved"),
    ("int64 a = 1;", "string a = 1;", True, "p.M.a = 1 has another type"),
    ("int64 a = 1;", "repeated int64 a = 1;", True, "p.M.a = 1 has another type"),
    ("int64 a = 1;", "int64 size = 1;", False, "p.M.a = 1 is size now"),
    ("ONE = 1;", "", True, "p.E.ONE = 1 is gone, and its number is not reserved"),
    ("E e = 1;", "", True, "p.M.In.e = 1 is gone, and its number is not reserved"),
    ("rpc Get(M) returns (M);", "", True, "p.S.Get is gone"),
    ("returns (M)", "returns (stream M)", True, "p.S.Get takes or gives something else"),
])
def test_what_breaks_an_older_program_is_a_failure(tmp_path, was, becomes, fails, sentence):
    assert was in OLD
    found = list(proto.compare(compiled(tmp_path / "old", OLD), compiled(tmp_path / "new", OLD.replace(was, becomes))))
    assert found == ([(fails, sentence)] if sentence else [])


def test_a_file_that_protoc_warns_of_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="protoc refuses"):
        compiled(tmp_path / "p", 'syntax = "proto3";\nimport "gone.proto";\n')
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / "b.proto").write_text('syntax = "proto3";\n')
    with pytest.raises(SystemExit, match="unused"):
        (tmp_path / "q" / "a.proto").write_text('syntax = "proto3";\nimport "b.proto";\n')
        proto.compiled(tmp_path / "q")
