"""Search by ZOOpt."""
from raygo.tune.search.zoopt.zoopt_search import ZOOptSearch

__all__ = ["ZOOptSearch"]
