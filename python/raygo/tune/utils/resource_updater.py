"""What schedulers may ask about the cluster."""
from __future__ import annotations

__all__ = ["TUNE_STATE_REFRESH_PERIOD"]

# Seconds for which Ray keeps what it knows of the cluster; raygo asks each time.
TUNE_STATE_REFRESH_PERIOD = 10


class ResourceUpdater:
    """The cluster's resources, whether they are in use or not."""

    def get_num_cpus(self) -> int:
        """CPUs."""
        return self._total("CPU")

    def get_num_gpus(self) -> int:
        """GPUs."""
        return self._total("GPU")

    def _total(self, name: str) -> int:
        import raygo

        return int(raygo.cluster_resources().get(name, 0))
