"""Requests to the autoscaler."""

from __future__ import annotations

from typing import Any


def request_resources(
    num_cpus: int | None = None,
    bundles: list[dict[str, Any]] | None = None,
    bundle_label_selectors: list[dict[str, str]] | None = None,
) -> None:
    """State what will be needed, so that a cluster with an autoscaler can grow ahead of it.

    A session without an autoscaler, such as one that `raygo.init` started, has nothing to do for it.

    Parameters
    ----------
    num_cpus
        CPUs in all.
    bundles
        Sets of resources that are needed at the same time.
    bundle_label_selectors
        One label selector for each bundle.
    """
    if num_cpus is not None and (not isinstance(num_cpus, int) or isinstance(num_cpus, bool)):
        raise TypeError("num_cpus should be of type int.")
    if bundles is not None:
        if not isinstance(bundles, list) or not all(isinstance(bundle, dict) for bundle in bundles):
            raise TypeError("bundles should be of type List[Dict].")
    if bundle_label_selectors is not None and len(bundle_label_selectors) != len(bundles or []):
        raise ValueError("bundle_label_selectors must have one entry for each bundle")
