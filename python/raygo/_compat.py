"""``import ray`` meaning raygo.

`install_as_ray` puts a finder before all others: ``ray`` is a module of its own that answers with raygo's names (and Ray's version), and
``ray.x.y`` *is* the module ``raygo.x.y``, so that classes are the same whichever way they were reached.  What raygo lacks is not invented:
importing it fails as for any module that is not there.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
import types
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RAY_VERSION = "2.60.0"


class _Ray(types.ModuleType):
    """The module ``ray``."""

    def __getattr__(self, name: str) -> Any:
        import raygo

        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(f"module 'ray' has no attribute {name!r}")
        try:
            return getattr(raygo, name)
        except AttributeError:
            text = f"module 'ray' has no attribute {name!r}: raygo, which stands in for ray here, does not have it"
            raise AttributeError(text, name=name, obj=self) from None

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, ("ray",)  # functions that mention `ray` take it along by name

    def __dir__(self) -> list[str]:
        import raygo

        return dir(raygo)


class _Alias:
    """Loads ``ray.x`` as ``raygo.x``, and leaves that module's own account of itself as it was."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._spec: Any = None

    def create_module(self, spec: Any) -> types.ModuleType:
        module = importlib.import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self._spec


class _RayLoader:
    """Makes the module ``ray``."""

    def create_module(self, spec: Any) -> types.ModuleType:
        import raygo

        module = _Ray("ray", raygo.__doc__)
        module.__file__ = raygo.__file__
        module.__path__ = []  # a package without a folder: its submodules come from the finder alone
        vars(module).update(__version__=RAY_VERSION, __commit__=f"raygo {raygo.__version__}")
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        vars(module)["__all__"] = list(_raygo().__all__)


def _raygo() -> Any:
    return sys.modules["raygo"]


class _Finder:
    """Stands first on ``sys.meta_path``."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name == "ray":
            return importlib.machinery.ModuleSpec("ray", cast(Any, _RayLoader()), origin=_raygo().__file__, is_package=True)
        if not name.startswith("ray."):
            return None
        ours = f"raygo.{name[4:]}"
        try:
            found = importlib.util.find_spec(ours)
        except ModuleNotFoundError:
            return None
        if found is None:
            return None
        return importlib.machinery.ModuleSpec(name, cast(Any, _Alias(ours)), origin=found.origin, is_package=found.submodule_search_locations is not None)

    def find_distributions(self, context: Any = None) -> Iterator[Any]:
        """For ``importlib.metadata``."""
        if context is not None and context.name in (None, "ray"):
            yield _distribution()

    def invalidate_caches(self) -> None:
        """Nothing is cached."""


def _distribution() -> Any:
    from importlib import metadata

    class Ray(metadata.Distribution):
        """What ``importlib.metadata`` is told of ray."""

        def read_text(self, filename: str) -> str | None:
            if filename in ("METADATA", "PKG-INFO"):
                return f"Metadata-Version: 2.1\nName: ray\nVersion: {RAY_VERSION}\nSummary: raygo, installed as ray\n"
            return None

        def locate_file(self, path: Any) -> Any:
            from pathlib import Path

            return Path(_raygo().__file__).parent / path

    return Ray()


def install_as_ray() -> None:
    """Make ``import ray`` mean raygo, here and in the workers of this process.

    ``ray.__version__`` is that of the Ray whose API it is; `raygo.__version__` stays raygo's own.

    Raises
    ------
    RuntimeError
        Ray itself has been imported already.

    Examples
    --------
    >>> raygo.install_as_ray()  # doctest: +SKIP
    >>> import ray  # doctest: +SKIP
    """
    loaded = sys.modules.get("ray")
    if loaded is not None and not isinstance(loaded, _Ray):
        where = getattr(loaded, "__file__", "somewhere")
        raise RuntimeError(f"ray itself was imported before ({where}): call raygo.install_as_ray() before anything imports ray")
    os.environ["RAYGO_AS_RAY"] = "1"  # workers and child processes look at it when they import raygo
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())  # type: ignore[arg-type]
    importlib.import_module("ray")
