"""Trainables by name."""
from __future__ import annotations

from typing import Any

from raygo.tune.error import TuneError

__all__ = ["get_trainable_cls", "is_function_trainable", "register_env", "register_input", "register_trainable", "registry_contains_input",
           "registry_get_input", "validate_trainable"]

TRAINABLE_CLASS = "trainable_class"
ENV_CREATOR = "env_creator"
RLLIB_MODEL = "rllib_model"
RLLIB_PREPROCESSOR = "rllib_preprocessor"
RLLIB_ACTION_DIST = "rllib_action_dist"
RLLIB_INPUT = "rllib_input"
RLLIB_CONNECTOR = "rllib_connector"
TEST = "__test__"
KNOWN_CATEGORIES = [TRAINABLE_CLASS, ENV_CREATOR, RLLIB_MODEL, RLLIB_PREPROCESSOR, RLLIB_ACTION_DIST, RLLIB_INPUT, RLLIB_CONNECTOR, TEST]

_known: dict[tuple[str, str], Any] = {}


def register_trainable(name: str, trainable: Any, warn: bool = True) -> None:
    """Give a trainable a name, by which `Tuner` and `run` find it in this process.

    Parameters
    ----------
    name : str
        The name.
    trainable : callable or class
        The trainable.
    """
    from raygo.tune.trainable import Trainable, wrap_function

    if isinstance(trainable, type) and issubclass(trainable, Trainable):
        cls = trainable
    elif callable(trainable):
        cls = wrap_function(trainable, name)
    else:
        raise TypeError(f"register_trainable({name!r}): give a function or a Trainable class, not a {type(trainable).__name__}: {trainable!r}")
    _known[TRAINABLE_CLASS, name] = cls


def get_trainable_cls(trainable_name: str) -> Any:
    """The trainable of that name."""
    validate_trainable(trainable_name)
    return _known[TRAINABLE_CLASS, trainable_name]


def validate_trainable(trainable_name: str) -> None:
    """Refuse a name that nothing was registered under."""
    if (TRAINABLE_CLASS, trainable_name) not in _known:
        names = sorted(name for category, name in _known if category == TRAINABLE_CLASS)
        raise TuneError(f"Unknown trainable: {trainable_name}. register_trainable() gives a trainable a name; there are {names or 'none'}.")


def is_function_trainable(trainable: Any) -> bool:
    """Whether it is, or names, a function."""
    from raygo.tune.trainable import FunctionTrainable, Trainable

    if isinstance(trainable, str):
        trainable = get_trainable_cls(trainable)
    if isinstance(trainable, type):
        return issubclass(trainable, FunctionTrainable) or not issubclass(trainable, Trainable)
    return callable(trainable)


def register_env(name: str, env_creator: Any) -> None:
    """Give a maker of environments a name."""
    if not callable(env_creator):
        raise TypeError(f"register_env({name!r}): give a function, not a {type(env_creator).__name__}")
    _known[ENV_CREATOR, name] = env_creator


def register_input(name: str, input_creator: Any) -> None:
    """Give a maker of inputs a name."""
    if not callable(input_creator):
        raise TypeError(f"register_input({name!r}): give a function, not a {type(input_creator).__name__}")
    _known[RLLIB_INPUT, name] = input_creator


def registry_contains_input(name: str) -> bool:
    """Whether there is such an input."""
    return (RLLIB_INPUT, name) in _known


def registry_get_input(name: str) -> Any:
    """The maker of that input."""
    return _known[RLLIB_INPUT, name]
