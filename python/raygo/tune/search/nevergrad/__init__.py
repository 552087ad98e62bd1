"""Search by Nevergrad."""
from raygo.tune.search.nevergrad.nevergrad_search import NevergradSearch

__all__ = ["NevergradSearch"]
