"""Each of the API's codes has a class, and an exception keeps what the scheduler said."""

import pickle
import re

import pytest
from conftest import ROOT, need

need("httpx")

from gpu_scheduler import GpuSchedulerError, JobFailedError, NotFoundError, errors  # noqa: E402

PAGE = (ROOT / "docs" / "reference" / "errors.md").read_text()
ROWS = re.findall(r"^\| `(\w+)` \| (\d+) \| (\w+) \| *(yes)? *\|", PAGE, re.MULTILINE)


def test_every_code_of_the_reference_has_a_class():
    assert len(ROWS) > 60
    kinds = {code: (errors.class_of(code), errors.class_of(code, int(status))) for code, status, _, _ in ROWS}
    assert not {code for code, (alone, known) in kinds.items() if alone is GpuSchedulerError or alone != known}


def test_what_may_pass_by_itself_is_told_by_the_class():
    passing = (errors.RateLimitedError, errors.UnavailableError, errors.DeadlineError)
    assert not [code for code, _, _, retry in ROWS if retry and not issubclass(errors.class_of(code), passing)]


@pytest.mark.parametrize("builtin, code, status", [
    (LookupError, "job_not_found", 404), (PermissionError, "permission_denied", 403),
    (ValueError, "unprocessable", 422), (TimeoutError, "timeout", 504)])
def test_kinds_that_python_has_are_those_too(builtin, code, status):
    assert isinstance(errors.error_of(code, "why", status=status), builtin)


def test_an_unknown_code_is_known_by_its_status():
    assert isinstance(errors.error_of("new_thing", "why", status=404), NotFoundError)


def test_exceptions_can_be_pickled():
    error = pickle.loads(pickle.dumps(errors.error_of("queue_full", "full", "jobs", 429, 2.5)))
    assert (str(error), error.code, error.field, error.retry_after_s) == ("full", "queue_full", "jobs", 2.5)
    assert str(pickle.loads(pickle.dumps(JobFailedError("it failed")))) == "it failed"
