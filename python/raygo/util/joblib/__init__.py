"""scikit-learn and other users of joblib on the session's workers."""
from __future__ import annotations

__all__ = ["register_ray"]


def register_ray() -> None:
    """Make ``joblib.parallel_config("ray")`` (and ``"raygo"``) run batches as tasks.

    Examples
    --------
    >>> register_ray()                                        # doctest: +SKIP
    >>> with joblib.parallel_config("ray"):                   # doctest: +SKIP
    ...     RandomizedSearchCV(SVC(), space).fit(x, y)
    """
    try:
        import joblib
    except ImportError as error:
        raise ImportError("raygo.util.joblib needs joblib: pip install joblib") from error
    from raygo.util.joblib.ray_backend import RayBackend

    joblib.register_parallel_backend("ray", RayBackend)
    joblib.register_parallel_backend("raygo", RayBackend)
