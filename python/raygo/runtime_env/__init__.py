"""The surroundings of a task or actor: variables, working folder, modules, packages.

The engine builds them from canonical JSON (`canonical_json`), so that equal ones are built once.
"""

from __future__ import annotations

from raygo.runtime_env._environment import RuntimeEnv, RuntimeEnvConfig, canonical_json

__all__ = ["RuntimeEnv", "RuntimeEnvConfig"]
_ = canonical_json
