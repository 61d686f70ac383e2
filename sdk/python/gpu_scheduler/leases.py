"""Leases: GPUs that are held for a while, for work that the caller starts itself."""

from typing import Any, Dict, Iterator, List, Mapping


class Lease:
    """A lease that holds its GPUs.

    It counts and iterates like the list of its GPUs. ``gpu-cli run --in-lease JOB -- COMMAND`` runs something in it.
    """

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.raw: Dict[str, Any] = dict(raw)

    @property
    def id(self) -> str:
        """Its UUID at the allocation door."""
        return str(self.raw["id"])

    @property
    def job_id(self) -> str:
        """The job that holds the GPUs."""
        return str(self.raw["job_id"])

    @property
    def node(self) -> str:
        """The node that has the GPUs."""
        return str(self.raw["hostname"])

    @property
    def gpus(self) -> List[str]:
        """Its GPUs as ``"<node>-gpu-<index>"``."""
        return list(self.raw["gpus"])

    @property
    def uuids(self) -> List[str]:
        """Its GPUs as the driver names them."""
        return list(self.raw["gpu_uuids"])

    @property
    def environment(self) -> Dict[str, str]:
        """Variables with which a program on the node sees these GPUs and no others."""
        return dict(self.raw["environment"])

    def __len__(self) -> int:
        return len(self.gpus)

    def __iter__(self) -> Iterator[str]:
        return iter(self.gpus)

    def __repr__(self) -> str:
        return "<Lease {} of {}>".format(self.job_id, ", ".join(self.gpus) or "no GPUs")
