"""A task that yields: its results are used while it is still running, and it stops when nobody wants more."""
from __future__ import annotations

import time
from collections.abc import Iterator

import raygo


@raygo.remote
def primes() -> Iterator[int]:
    """All of them, one by one."""
    found: list[int] = []
    number = 2
    while True:
        if all(number % p for p in found if p * p <= number):
            found.append(number)
            yield number
        number += 1


@raygo.remote
def square(number: int) -> int:
    """Its argument may be a result that another task has just yielded."""
    return number * number


def main() -> None:
    """Square the first primes as they come."""
    raygo.init()
    start = time.perf_counter()
    stream = primes.remote()
    squares = [square.remote(next(stream)) for _ in range(10)]
    del stream          # the producer is told to stop
    print(f"{raygo.get(squares)} after {time.perf_counter() - start:.2f} s")
    raygo.shutdown()


if __name__ == "__main__":
    main()
