"""Lazy graphs are not part of raygo.

The names that code imports before it decides whether to use them are here; making one of them raises NotImplementedError.
"""

from __future__ import annotations

from typing import Any

__raygo_stub__ = True


class DAGNode:
    """A node of a lazy graph: cannot be made."""

    __raygo_stub__ = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(f"dag.{type(self).__name__}: raygo has no lazy graphs (ray.dag); call .remote() and pass the references on")


class FunctionNode(DAGNode):
    """A function in a lazy graph: cannot be made."""


class ClassNode(DAGNode):
    """An actor in a lazy graph: cannot be made."""


class ClassMethodNode(DAGNode):
    """A method in a lazy graph: cannot be made."""


class InputNode(DAGNode):
    """The input of a lazy graph: cannot be made."""


class InputAttributeNode(DAGNode):
    """A part of the input of a lazy graph: cannot be made."""


class MultiOutputNode(DAGNode):
    """Several outputs of a lazy graph: cannot be made."""


__all__ = ["ClassMethodNode", "ClassNode", "DAGNode", "FunctionNode", "InputAttributeNode", "InputNode", "MultiOutputNode"]
