"""Search by HEBO."""
from raygo.tune.search.hebo.hebo_search import HEBOSearch

__all__ = ["HEBOSearch"]
