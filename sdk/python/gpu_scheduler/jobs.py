"""Jobs: what is asked for (:func:`job_request`) and what is known of them (:class:`Job`).

>>> request = job_request(["python", "train.py"], gpus=2, gpu_model="A100", max_runtime_s=3600, name="train")
>>> request["resources"] == {"gpu_count": 2, "gpu_model": "A100"}, request["max_runtime_ms"]
(True, 3600000)
"""

import datetime
import html
import re
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

FINAL = ("completed", "failed", "cancelled")
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,6})\d*)?Z")


def job_request(command: Union[str, Sequence[str], None] = None, *, name: Optional[str] = None,
                args: Optional[Sequence[str]] = None, image: Optional[str] = None,
                environment: Optional[Mapping[str, str]] = None, labels: Optional[Mapping[str, str]] = None,
                working_directory: Optional[str] = None, user: Optional[str] = None, comment: Optional[str] = None,
                gpus: Optional[int] = None, gpu_model: Optional[str] = None, gpu_memory_mb: Optional[int] = None,
                gpu_share: Optional[float] = None, mig: Optional[str] = None, cpus: Optional[float] = None,
                memory_mb: Optional[int] = None, nodes: Optional[int] = None, exclusive: bool = False,
                node_labels: Optional[Sequence[str]] = None, array: Optional[str] = None, after: Any = None,
                dependencies: Optional[Sequence[str]] = None, priority: Optional[int] = None,
                max_runtime_s: Optional[float] = None, begin_after_s: Optional[float] = None,
                deadline_after_s: Optional[float] = None, retries: Optional[int] = None, held: bool = False,
                require_feasible: bool = False, extra: Optional[Mapping[str, Any]] = None) -> Dict[str, Any]:
    """Makes the request for one job, as ``POST /v1/jobs`` takes it.

    Args:
        command: A list of words, executed as they are; or a line, run by ``/bin/sh -c``.
        name: Shown in lists.
        args: Further words behind the list ``command``.
        image: Container image.
        environment: Variables; the device variables win over them.
        labels: Chosen freely; lists can be filtered by them.
        working_directory: Absolute path on the node. If omitted: a folder of the attempt's own.
        user: Unix user of the node that the job runs as.
        comment: Free text for people, at most 1,024 bytes.
        gpus: Number of whole GPUs on each node.
        gpu_model: Part of the model's name, such as ``"A100"``; several: ``"H100,A100"``, the first preferred.
        gpu_memory_mb: GPU memory in MB, of all GPUs of one node together; of a share, its own.
        gpu_share: A part of one GPU, from 0.001 to 1, instead of ``gpus``.
        mig: A MIG slice, such as ``"1g.10gb"``, instead of ``gpus``.
        cpus: CPU cores on each node; 1 if omitted.
        memory_mb: Memory in MB on each node; 0 for no limit; the job's share of the node if omitted.
        nodes: Runs on so many nodes at once (a gang), the command once on each.
        exclusive: No other job runs on its nodes meanwhile.
        node_labels: Labels that the node must have, as ``"zone=eu"`` or ``"ssd"``.
        array: Makes many jobs with an index each: ``"0-999"``, ``"0-20:5"``, ``"0-99%10"`` (ten at a time).
        after: Jobs, or their ids, that must complete first.
        dependencies: Dependencies in full: ``"after_any:job-12"``, ``"after_start:job-12"``.
        priority: Higher starts earlier; 100 if omitted.
        max_runtime_s: Time limit of one attempt in seconds; none if omitted.
        begin_after_s: Seconds from now before which the job does not start.
        deadline_after_s: Seconds from now after which the job fails if it still waits.
        retries: How often a failed command is run again.
        held: The job waits until it is released.
        require_feasible: Refuse the job when no registered node could ever run it.
        extra: Further fields of the API's JobRequest, merged over all others: ``{"spec": {"umask": 63}}``.

    Raises:
        ValueError: There is nothing to run: neither command nor image.
    """
    if not command and not image and not extra:
        raise ValueError("a job needs a command or an image")
    line = command if isinstance(command, str) else None
    words = None if isinstance(command, str) else list(command or ())
    wanted = [after] if isinstance(after, (str, Job)) else list(after or ())
    request = _given({
        "spec": _given({
            "script": line, "command": words, "name": name, "args": list(args or ()), "image": image,
            "environment": dict(environment or {}), "labels": dict(labels or {}),
            "working_directory": working_directory, "user": user, "comment": comment}),
        "resources": _given({
            "gpu_count": gpus, "gpu_model": gpu_model, "gpu_memory_mb": gpu_memory_mb,
            "gpu_milli": None if gpu_share is None else round(gpu_share * 1000), "mig_profile": mig,
            "cpu_milli": None if cpus is None else round(cpus * 1000), "memory_mb": memory_mb, "nodes": nodes,
            "exclusive": exclusive or None, "node_labels": list(node_labels or ())}),
        "array": array, "priority": priority, "max_runtime_ms": _ms(max_runtime_s),
        "dependencies": ["after_ok:" + id_of(job) for job in wanted] + list(dependencies or ()),
        "begin_after_ms": _ms(begin_after_s), "deadline_after_ms": _ms(deadline_after_s),
        "retry": None if retries is None else {"exit_code_retries": retries}, "held": held or None,
        "require_feasible": require_feasible or None})
    return _merged(request, extra or {})


def _ms(span_s: Optional[float]) -> Optional[int]:
    return None if span_s is None else round(span_s * 1000)


def _given(fields: Dict[str, Any]) -> Dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None and value not in ([], {}, "")}


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> Dict[str, Any]:
    out = dict(below)
    for name, value in above.items():
        both = isinstance(value, Mapping) and isinstance(out.get(name), Mapping)
        out[name] = _merged(out[name], value) if both else value
    return out


def id_of(job: Any) -> str:
    """The id of a job that is given as one, or by its id.

    >>> id_of("job-12"), id_of(Job({"job_id": "job-13", "state": "pending"}))
    ('job-12', 'job-13')
    """
    return job.id if isinstance(job, Job) else str(job)


def time_of(text: Optional[str]) -> Optional[datetime.datetime]:
    """An RFC 3339 time in UTC as a datetime, to the microsecond."""
    match = _TIME.fullmatch(text or "")
    if not match:
        return None
    seconds = datetime.datetime.strptime(match[1], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=datetime.timezone.utc)
    return seconds + datetime.timedelta(microseconds=int((match[2] or "").ljust(6, "0")))


class Job:
    """A job as the scheduler last told of it; a value, which does not change by itself.

    Attributes that are not listed here are in :attr:`raw`, the API's Job message, and ``job["field"]`` reads them.

    >>> job = Job({"job_id": "job-12", "state": "completed", "exit_code": 0, "spec": {"name": "train"}})
    >>> job.id, job.name, job.is_final, job.succeeded, job["exit_code"]
    ('job-12', 'train', True, True, 0)
    >>> job
    <Job job-12 train: completed>
    """

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.raw: Dict[str, Any] = dict(raw)

    @property
    def id(self) -> str:
        """``job-<digits>``; of an element of an array also ``job-12[3]``."""
        return str(self.raw["job_id"])

    @property
    def name(self) -> str:
        """The name that it was given, or an empty string."""
        return str(self.raw.get("spec", {}).get("name", ""))

    @property
    def state(self) -> str:
        """One of pending, scheduled, running, completed, failed, cancelled and preempted."""
        return str(self.raw.get("state", ""))

    @property
    def message(self) -> str:
        """One sentence: why it is in this state."""
        return str(self.raw.get("message", ""))

    @property
    def reason(self) -> str:
        """The same in one word."""
        return str(self.raw.get("reason", ""))

    @property
    def is_final(self) -> bool:
        """Whether it has ended for good."""
        return self.state in FINAL

    @property
    def succeeded(self) -> bool:
        """Whether it completed."""
        return self.state == "completed"

    @property
    def exit_code(self) -> Optional[int]:
        """The exit code of its command; None while there is none."""
        return self.raw.get("exit_code")

    @property
    def attempts(self) -> int:
        """How often it was placed."""
        return int(self.raw.get("attempts", 0))

    @property
    def node(self) -> str:
        """The node of its first member; empty where it is not placed."""
        return str(self.raw.get("node_name", ""))

    @property
    def gpus(self) -> List[str]:
        """GPUs that it has or had, as ``"<node>-gpu-<index>"``."""
        return list(self.raw.get("allocated_gpus", ()))

    @property
    def labels(self) -> Dict[str, str]:
        """Its labels."""
        return dict(self.raw.get("spec", {}).get("labels", {}))

    @property
    def submitted_at(self) -> Optional[datetime.datetime]:
        """When it was submitted (UTC)."""
        return time_of(self.raw.get("submitted_at"))

    @property
    def started_at(self) -> Optional[datetime.datetime]:
        """When its last attempt started (UTC); None: not yet."""
        return time_of(self.raw.get("started_at"))

    @property
    def completed_at(self) -> Optional[datetime.datetime]:
        """When it ended (UTC); None: not yet."""
        return time_of(self.raw.get("completed_at"))

    @property
    def run_s(self) -> Optional[float]:
        """Seconds from its start to its end, or None."""
        begin, end = self.started_at, self.completed_at
        return (end - begin).total_seconds() if begin and end else None

    def usage_row(self) -> Dict[str, Any]:
        """One row of a table of usage. What no node measured is None; units are in the names."""
        measured, gpus = self.raw.get("usage") or {}, len(self.gpus)
        run_s = self.run_s
        return {"job_id": self.id, "name": self.name, "state": self.state, "tenant_id": self.raw.get("tenant_id", ""),
                "owner": self.raw.get("owner", ""), "gpus": gpus, "run_s": run_s,
                "gpu_seconds": None if run_s is None else run_s * gpus,
                "cpu_s": measured["cpu_ms"] / 1000 if "cpu_ms" in measured else None,
                "peak_memory_bytes": measured.get("peak_memory_bytes"),
                "gpu_use": measured["gpu_use_permille"] / 1000 if "gpu_use_permille" in measured else None,
                "peak_gpu_memory_mb": measured.get("peak_gpu_memory_mb")}

    def __getitem__(self, field: str) -> Any:
        return self.raw[field]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other.raw == self.raw

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return "<Job {}{}: {}>".format(self.id, " " + self.name if self.name else "", self.state)

    def _repr_html_(self) -> str:
        """A table for notebooks."""
        rows = [("state", self.state), ("why", self.message), ("node", self.node), ("GPUs", ", ".join(self.gpus)),
                ("exit code", "" if self.exit_code is None else str(self.exit_code)),
                ("submitted", self.raw.get("submitted_at", "")), ("started", self.raw.get("started_at", "")),
                ("ended", self.raw.get("completed_at", ""))]
        head = html.escape(self.id + (" " + self.name if self.name else ""))
        cells = "".join("<tr><td>{}</td><td>{}</td></tr>".format(name, html.escape(str(value)))
                        for name, value in rows if value)
        return "<table><tr><th colspan=2>{}</th></tr>{}</table>".format(head, cells)
