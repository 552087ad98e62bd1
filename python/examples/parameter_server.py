"""A parameter server: an actor holds the weights, tasks compute gradients on their part of the data.

Logistic regression on made data, so that it needs NumPy only.
"""
from __future__ import annotations

import numpy as np

import raygo


@raygo.remote
class ParameterServer:
    """Holds the weights and takes steps."""

    def __init__(self, size: int, lr: float) -> None:
        self.weights = np.zeros(size)
        self.lr = lr

    def step(self, *gradients: np.ndarray) -> np.ndarray:
        """One step along the mean of the gradients; the new weights."""
        self.weights = self.weights - self.lr * np.mean(gradients, axis=0)
        return self.weights


@raygo.remote
def gradient(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of the logistic loss on one part of the data."""
    return x.T @ (1 / (1 + np.exp(-x @ weights)) - y) / len(y)


def main() -> None:
    """Train, and print how well it went."""
    raygo.init()
    rng = np.random.default_rng(0)
    truth = rng.normal(size=20)
    parts = []
    for _ in range(4):
        x = rng.normal(size=(2000, 20))
        y = (x @ truth + rng.normal(scale=0.5, size=2000) > 0).astype(float)
        parts.append((raygo.put(x), raygo.put(y)))
    server = ParameterServer.remote(20, 1.0)
    weights = raygo.put(np.zeros(20))
    for _ in range(100):
        # References go straight from task to actor and back: the driver never waits for the values.
        weights = server.step.remote(*[gradient.remote(weights, x, y) for x, y in parts])
    found = raygo.get(weights)
    print(f"the direction found and the true one: cosine {found @ truth / np.linalg.norm(found) / np.linalg.norm(truth):.4f}")
    raygo.shutdown()


if __name__ == "__main__":
    main()
