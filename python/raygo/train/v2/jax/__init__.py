"""JAX on several workers, which are one jax.distributed cluster."""
import importlib.util as _util

if _util.find_spec("jax") is None:
    raise ImportError("raygo.train.v2.jax needs the package jax: pip install jax")

from raygo.train.v2.jax.config import JaxConfig
from raygo.train.v2.jax.jax_trainer import JaxTrainer

__all__ = ["JaxConfig", "JaxTrainer"]
