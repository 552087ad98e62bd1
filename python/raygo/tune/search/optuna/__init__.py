"""Search by Optuna."""
from raygo.tune.search.optuna.optuna_search import OptunaSearch

__all__ = ["OptunaSearch"]
