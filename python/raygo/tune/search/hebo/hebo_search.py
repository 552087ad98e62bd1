"""Search by HEBO, a Bayesian optimiser for uneven and noisy objectives."""
from __future__ import annotations

import math
from typing import Any

from raygo.tune.search._spaces import flat_point, nested, parameters
from raygo.tune.search.searcher import Searcher
from raygo.tune.search.util import needs

__all__ = ["HEBOSearch"]

SPACE_ERROR_MESSAGE = "the space has to be a hebo.design_space.design_space.DesignSpace or a dict of domains of raygo.tune"


class HEBOSearch(Searcher):
    """Proposes what HEBO proposes.

    Parameters
    ----------
    space : dict or DesignSpace, optional
        A space of raygo.tune or of HEBO; the Tuner's param_space by default.
    metric, mode : str, optional
        What is optimised.
    points_to_evaluate : list of dict, optional
        Configurations for the first trials.
    evaluated_rewards : list, optional
        Their outcomes, where they are known.
    random_state_seed : int, optional
        A seed.
    max_concurrent : int
        How many trials run at once.
    """

    def __init__(self, space: Any = None, metric: str | None = None, mode: str | None = None, points_to_evaluate: list[dict[str, Any]] | None = None,
                 evaluated_rewards: list[float] | None = None, random_state_seed: int | None = None, max_concurrent: int = 8, **kwargs: Any) -> None:
        needs("HEBO", "hebo", "HEBOSearch")
        if not isinstance(max_concurrent, int) or max_concurrent < 1:
            raise ValueError(f"max_concurrent is {max_concurrent!r}: give 1 or more")
        super().__init__(metric=metric, mode=mode)
        self._points, self._rewards = list(points_to_evaluate or []), list(evaluated_rewards or [])
        self._seed, self._most, self._kwargs = random_state_seed, max_concurrent, kwargs
        self._space: Any = None
        self._params: list[Any] = []
        self._opt: Any = None
        self._live: dict[str, Any] = {}
        if space is not None:
            self._set_space(space)

    def _set_space(self, space: Any) -> None:
        if isinstance(space, dict):
            self._params = parameters(space, "HEBO")
            space = self.convert_search_space(space)
        elif not hasattr(space, "parse"):
            raise TypeError(SPACE_ERROR_MESSAGE)
        self._space = space

    @staticmethod
    def convert_search_space(spec: dict[str, Any], prefix: str = "") -> Any:
        """A space of raygo.tune in HEBO's terms."""
        from hebo.design_space.design_space import DesignSpace

        found: list[dict[str, Any]] = []
        for p in parameters(spec, "HEBO"):
            name = f"{prefix}{p.name}"
            if p.kind == "choice":
                found.append({"name": name, "type": "cat", "categories": list(p.categories)})
            elif p.kind == "normal":
                raise ValueError(f"HEBO does not know the distribution of {p.name}: use tune.uniform")
            elif p.log:
                found.append({"name": name, "type": "pow_int" if p.kind == "int" else "pow", "lb": p.lower, "ub": p.upper, "base": 10})
            else:
                found.append({"name": name, "type": "int" if p.kind == "int" else "num", "lb": p.lower, "ub": p.upper})
        return DesignSpace().parse(found)

    def _make(self) -> None:
        import numpy as np
        import pandas
        import torch
        from hebo.optimizers.hebo import HEBO

        if self._seed is not None:
            np.random.seed(self._seed)
            torch.random.manual_seed(self._seed)
        self._opt = HEBO(space=self._space, **self._kwargs)
        if self._points and self._rewards:
            points = pandas.DataFrame([flat_point(p) for p in self._points])
            sign = 1 if self._mode == "min" else -1
            self._opt.observe(points, np.array(self._rewards, dtype=float)[:, None] * sign)
            self._points = []

    def set_search_properties(self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any) -> bool:
        return self._take_search(metric, mode, config, has_space=self._space is not None)

    def suggest(self, trial_id: str) -> Any:
        self._require_search(self._space is not None, "space")
        if len(self._live) >= self._most:
            return None
        if self._opt is None:
            self._make()
        import pandas

        asked = pandas.DataFrame([flat_point(self._points.pop(0))]) if self._points else self._opt.suggest(n_suggestions=1)
        self._live[trial_id] = asked
        values = {name: value.item() if hasattr(value, "item") else value for name, value in asked.iloc[0].to_dict().items()}
        if not self._params:
            return values
        for p in self._params:
            if p.kind != "choice":
                values[p.name] = min(max(p.quantized(values[p.name]), p.lower), p.upper)
        return nested(values, self._params)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        asked = self._live.pop(trial_id, None)
        value = None if error else self._value(result, lower_is_better=True)
        if asked is not None and value is not None and math.isfinite(value):
            import numpy as np

            self._opt.observe(asked, np.array([[value]]))
