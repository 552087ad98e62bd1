"""Domains of hyperparameters: what ``tune.uniform(0, 1)`` and its kind stand for until a trial draws from them.

Numbers are drawn by NumPy.  Without a `random_state` its global generator is used, so that ``numpy.random.seed`` makes draws repeatable.
"""
from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from numbers import Real
from typing import Any

__all__ = ["BaseSampler", "Categorical", "Domain", "Float", "Function", "Grid", "Integer", "LogUniform", "Normal", "Quantized", "Sampler",
           "Uniform", "choice", "lograndint", "loguniform", "qlograndint", "qloguniform", "qrandint", "qrandn", "quniform", "randint", "randn",
           "sample_from", "uniform"]

_ANY_BASE: Any = object()      # Ray's parameter `base`: the distribution does not depend on it


class Sampler:
    """How a domain is drawn from."""

    def sample(self, domain: Any, config: Any = None, size: int = 1, random_state: Any = None) -> Any:
        """Draw `size` values."""
        raise NotImplementedError


BaseSampler = Sampler


class Uniform(Sampler):
    """All values alike."""

    def sample(self, domain: Any, config: Any = None, size: int = 1, random_state: Any = None) -> Any:
        return _draw(domain._uniform(generator(random_state), size), domain, size)

    def __str__(self) -> str:
        return "Uniform"


class LogUniform(Sampler):
    """All orders of magnitude alike."""

    def __init__(self, base: float = _ANY_BASE) -> None:
        self.base = 10 if base is _ANY_BASE else base

    def sample(self, domain: Any, config: Any = None, size: int = 1, random_state: Any = None) -> Any:
        import numpy as np

        values = np.exp(generator(random_state).uniform(math.log(domain.lower), math.log(domain.upper), size))
        return _draw(np.clip(values, domain.lower, domain.upper), domain, size)

    def __str__(self) -> str:
        return "LogUniform"


class Normal(Sampler):
    """The bell curve."""

    def __init__(self, mean: float = 0.0, sd: float = 0.0) -> None:
        if not sd > 0:
            raise ValueError(f"the standard deviation is {sd}: give a number above 0")
        self.mean, self.sd = mean, sd

    def sample(self, domain: Any, config: Any = None, size: int = 1, random_state: Any = None) -> Any:
        return _draw(generator(random_state).normal(self.mean, self.sd, size), domain, size)

    def __str__(self) -> str:
        return "Normal"


class Quantized(Sampler):
    """Multiples of `q` nearest to what another sampler draws."""

    def __init__(self, sampler: Sampler, q: float) -> None:
        if not q > 0:
            raise ValueError(f"the step q is {q}: give a number above 0")
        self.sampler, self.q = sampler, q

    def get_sampler(self) -> Sampler:
        """The other sampler."""
        return self.sampler

    def sample(self, domain: Any, config: Any = None, size: int = 1, random_state: Any = None) -> Any:
        import numpy as np

        if self.q == 1 and isinstance(domain, Integer):
            return self.sampler.sample(domain, config, size, random_state)
        within = Float(*domain._multiples(self.q))           # whole numbers would leave the highest out
        drawn = np.atleast_1d(self.sampler.sample(within, config, size, random_state))
        return _draw(np.round(drawn / self.q) * self.q, domain, size)


class _Picks(Sampler):
    def sample(self, domain: Categorical, config: Any = None, size: int = 1, random_state: Any = None) -> Any:
        picked = [domain.categories[int(i)] for i in _integers(generator(random_state), 0, len(domain.categories), size)]
        return picked if size > 1 else picked[0]


class _Calls(Sampler):
    def sample(self, domain: Function, config: Any = None, size: int = 1, random_state: Any = None) -> Any:
        values = [domain.func(config) if domain.pass_config else domain.func() for _ in range(size)]
        return values if size > 1 else values[0]


class Grid(Sampler):
    """Every value once."""

    def sample(self, domain: Any, config: Any = None, size: int = 1, random_state: Any = None) -> Any:
        return {"grid_search": list(domain.categories)}


class Domain:
    """What a hyperparameter may be."""

    sampler: Sampler | None = None
    default_sampler_cls: type[Sampler] | None = None

    def cast(self, value: Any) -> Any:
        """A value as the domain has it."""
        return value

    def set_sampler(self, sampler: Sampler, allow_override: bool = False) -> None:
        """How it is drawn from; once, unless told otherwise."""
        if self.sampler is not None and not allow_override:
            raise ValueError(f"You can only choose one sampler for parameter domains. Existing sampler for parameter {self.__class__.__name__}: "
                             f"{self.sampler}. Tried to add {sampler}")
        self.sampler = sampler

    def get_sampler(self) -> Sampler:
        """How it is drawn from."""
        assert self.sampler is not None or self.default_sampler_cls is not None
        return self.sampler or self.default_sampler_cls()       # type: ignore[misc]

    def sample(self, config: Any = None, size: int = 1, random_state: Any = None) -> Any:
        """Draw a value, or a list of `size` values.

        Parameters
        ----------
        config : object, optional
            What `sample_from` functions are given.
        size : int
            How many.
        random_state : int or numpy generator, optional
            NumPy's global generator by default.
        """
        return self.get_sampler().sample(self, config=config, size=size, random_state=random_state)

    def is_grid(self) -> bool:
        """Whether all values are tried."""
        return isinstance(self.sampler, Grid)

    def is_function(self) -> bool:
        """Whether it is a function."""
        return False

    def is_valid(self, value: Any) -> bool:
        """Whether the value may have been drawn."""
        raise NotImplementedError

    @property
    def domain_str(self) -> str:
        """The bounds, for people."""
        return "(unknown)"

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self.domain_str}"

    def _copy(self) -> Any:
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        return new


class _Range(Domain):
    default_sampler_cls = Uniform

    def __init__(self, lower: float | None, upper: float | None) -> None:
        for bound in (lower, upper):
            if bound is not None and not isinstance(bound, Real):
                raise ValueError(f"a bound is {bound!r}: give a number")
        self.lower: Any = lower if lower is not None else -math.inf
        self.upper: Any = upper if upper is not None else math.inf
        if self.lower != self.lower or self.upper != self.upper:
            raise ValueError(f"a bound is not a number: lower={lower}, upper={upper}")
        if self.lower > self.upper:
            raise ValueError(f"the lower bound {lower} is above the upper bound {upper}")

    def uniform(self) -> Any:
        """All values alike."""
        if math.isinf(self.lower) or math.isinf(self.upper):
            raise ValueError(f"uniform values need bounds: lower={self.lower}, upper={self.upper}")
        return self._with(Uniform())

    def loguniform(self, base: float = _ANY_BASE) -> Any:
        """All orders of magnitude alike."""
        if not 0 < self.lower < math.inf or not 0 < self.upper < math.inf:
            raise ValueError(f"LogUniform requires bounds above 0, as there is no logarithm of others: lower={self.lower}, upper={self.upper}")
        return self._with(LogUniform(base))

    def quantized(self, q: float) -> Any:
        """Multiples of `q` only."""
        new = self._copy()
        new.set_sampler(Quantized(new.get_sampler(), q), allow_override=True)
        new._multiples(q)
        return new

    def _multiples(self, q: float) -> tuple[Any, Any]:
        """The lowest and the highest multiple of `q` within the bounds; an error if a bound is none, or there is none."""
        for which in ("lower", "upper"):
            bound = getattr(self, which)
            if not math.isinf(bound) and not math.isclose(bound / q, round(bound / q), rel_tol=1e-9, abs_tol=1e-9):
                raise ValueError(f"the {which} bound {bound} is not divisible by the quantization factor {q}")
        return self.lower, self.upper

    def _with(self, sampler: Sampler) -> Any:
        new = self._copy()
        new.set_sampler(sampler)
        return new

    @property
    def domain_str(self) -> str:
        return f"({self.lower}, {self.upper})"


class Float(_Range):
    """Real numbers between bounds."""

    def cast(self, value: Any) -> float:
        return float(value)

    def normal(self, mean: float = 0.0, sd: float = 1.0) -> Any:
        """The bell curve."""
        return self._with(Normal(mean, sd))

    def is_valid(self, value: float) -> bool:
        return bool(self.lower <= value <= self.upper)

    def _uniform(self, random: Any, size: int) -> Any:
        return random.uniform(self.lower, self.upper, size)


class Integer(_Range):
    """Whole numbers from `lower` up to, not including, `upper`."""

    def __init__(self, lower: int | None, upper: int | None) -> None:
        super().__init__(lower, upper)
        for which in ("lower", "upper"):
            bound = getattr(self, which)
            if not math.isinf(bound):
                if bound != int(bound):
                    raise ValueError(f"the {which} bound {bound} is no whole number")
                setattr(self, which, int(bound))
        if self.lower == self.upper:
            raise ValueError(f"there is no whole number from {lower} up to but not including {upper}")

    def cast(self, value: Any) -> int:
        return int(value)

    def is_valid(self, value: int) -> bool:
        return bool(self.lower <= value <= self.upper)

    def quantized(self, q: float) -> Any:
        return super().quantized(int(q))

    def _multiples(self, q: float) -> tuple[int, int]:
        if q == 1:
            return self.lower, self.upper
        step = int(q)
        low, high = -(-self.lower // step) * step, self.upper // step * step
        if low > high:
            raise ValueError(f"there is no multiple of {step} from {self.lower} to {self.upper}")
        return low, high

    def _uniform(self, random: Any, size: int) -> Any:
        return _integers(random, self.lower, self.upper, size)


class Categorical(Domain):
    """One of several values."""

    default_sampler_cls = _Picks

    def __init__(self, categories: Sequence[Any]) -> None:
        if not isinstance(categories, Iterable):
            raise ValueError(f"choice expects a list of values, not {categories!r}")
        self.categories = list(categories)
        if not self.categories:
            raise ValueError("choice([]): there is nothing to choose from, give at least one value")

    def uniform(self) -> Categorical:
        """All values alike."""
        new: Categorical = self._copy()
        new.set_sampler(_Picks())
        return new

    def grid(self) -> Categorical:
        """Every value once."""
        new: Categorical = self._copy()
        new.set_sampler(Grid())
        return new

    def __len__(self) -> int:
        return len(self.categories)

    def __getitem__(self, item: int) -> Any:
        return self.categories[item]

    def is_valid(self, value: Any) -> bool:
        return value in self.categories

    @property
    def domain_str(self) -> str:
        return f"{self.categories}"


class Function(Domain):
    """What a function returns."""

    default_sampler_cls = _Calls

    def __init__(self, func: Callable[..., Any]) -> None:
        if not callable(func):
            raise ValueError(f"sample_from takes a function, not {func!r}")
        self.func = func
        self.pass_config = _takes_an_argument(func)

    def is_function(self) -> bool:
        return True

    def is_valid(self, value: Any) -> bool:
        return True

    @property
    def domain_str(self) -> str:
        return f"{getattr(self.func, '__name__', self.func)}()"


def _takes_an_argument(func: Callable[..., Any]) -> bool:
    try:
        signature = inspect.signature(func)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(None)
    except TypeError:
        try:
            signature.bind()
        except TypeError:
            raise ValueError(f"sample_from takes a function of one parameter (the spec) or of none, not {func!r}") from None
        return False
    return True


def generator(random_state: Any) -> Any:
    """NumPy's generator for a seed, or for None."""
    import numpy as np

    if random_state is None:
        return np.random
    if isinstance(random_state, (int, np.integer)):
        return np.random.default_rng(int(random_state))
    return random_state


def _integers(random: Any, lower: int, upper: int, size: int) -> Any:
    draw = getattr(random, "integers", None) or random.randint
    return draw(lower, upper, size=size)


def _draw(values: Iterable[Any], domain: Domain, size: int) -> Any:
    cast = [domain.cast(value) for value in values]
    if isinstance(domain, Integer) and isinstance(domain.get_sampler(), LogUniform):
        cast = [min(value, domain.upper - 1) for value in cast]
    return cast if size > 1 else cast[0]


def uniform(lower: float, upper: float) -> Any:
    """A real number between `lower` and `upper`.

    Examples
    --------
    >>> 0 <= uniform(0, 1).sample() <= 1
    True
    """
    return Float(lower, upper).uniform()


def quniform(lower: float, upper: float, q: float) -> Any:
    """A multiple of `q` between `lower` and `upper`, both included."""
    return Float(lower, upper).uniform().quantized(q)


def loguniform(lower: float, upper: float, base: float = _ANY_BASE) -> Any:
    """A real number between `lower` and `upper`, all orders of magnitude alike."""
    return Float(lower, upper).loguniform(base)


def qloguniform(lower: float, upper: float, q: float, base: float = _ANY_BASE) -> Any:
    """A multiple of `q` between `lower` and `upper`, all orders of magnitude alike."""
    return Float(lower, upper).loguniform(base).quantized(q)


def choice(categories: Sequence[Any]) -> Any:
    """One of several values.

    A value may be a dict with domains of its own; they are drawn from when it is chosen.
    """
    return Categorical(categories).uniform()


def randint(lower: int, upper: int) -> Any:
    """A whole number from `lower` up to, not including, `upper`."""
    return Integer(lower, upper).uniform()


def lograndint(lower: int, upper: int, base: float = _ANY_BASE) -> Any:
    """A whole number from `lower` up to, not including, `upper`, all orders of magnitude alike."""
    return Integer(lower, upper).loguniform(base)


def qrandint(lower: int, upper: int, q: int = 1) -> Any:
    """A multiple of `q` between `lower` and `upper`, both included."""
    return Integer(lower, upper).uniform().quantized(q)


def qlograndint(lower: int, upper: int, q: int, base: float = _ANY_BASE) -> Any:
    """A multiple of `q` between `lower` and `upper`, both included, all orders of magnitude alike."""
    return Integer(lower, upper).loguniform(base).quantized(q)


def randn(mean: float = 0.0, sd: float = 1.0) -> Any:
    """A real number of the bell curve."""
    return Float(None, None).normal(mean, sd)


def qrandn(mean: float, sd: float, q: float) -> Any:
    """A multiple of `q` near the bell curve."""
    return Float(None, None).normal(mean, sd).quantized(q)


def sample_from(func: Callable[..., Any]) -> Any:
    """What `func` returns.

    It is called with the spec, in which the parameters that are known already can be read: ``spec.config.x`` or ``spec["x"]``.
    """
    return Function(func)
