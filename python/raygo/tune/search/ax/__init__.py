"""Search by Ax."""
from raygo.tune.search.ax.ax_search import AxSearch

__all__ = ["AxSearch"]
