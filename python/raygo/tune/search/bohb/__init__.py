"""Search by BOHB, for HyperBandForBOHB."""
from raygo.tune.search.bohb.bohb_search import TuneBOHB

__all__ = ["TuneBOHB"]
