"""scikit-learn's RandomizedSearchCV on raygo's workers: nothing changes but the backend.

Needs scikit-learn.
"""
from __future__ import annotations

import time

import joblib
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import RandomizedSearchCV
from sklearn.svm import SVC

import raygo
from raygo.util.joblib import register_ray


def main() -> None:
    """Search, and print the best settings."""
    raygo.init()
    register_ray()
    images, labels = load_digits(return_X_y=True)
    space = {"C": np.logspace(-3, 3, 30), "gamma": np.logspace(-5, 0, 30)}
    start = time.perf_counter()
    with joblib.parallel_config("ray"):
        search = RandomizedSearchCV(SVC(), space, n_iter=12, cv=3, random_state=0).fit(images, labels)
    print(f"{search.n_splits_ * 12} fits in {time.perf_counter() - start:.2f} s; best: {search.best_params_}, accuracy {search.best_score_:.3f}")
    raygo.shutdown()


if __name__ == "__main__":
    main()
