"""Search by the package bayesian-optimization."""
from raygo.tune.search.bayesopt.bayesopt_search import BayesOptSearch

__all__ = ["BayesOptSearch"]
