"""Run with an installed raygo: a task, an actor and an object, and where they were."""

from __future__ import annotations

import os
import time

start = time.perf_counter()
import raygo  # noqa: E402

imported = time.perf_counter()


@raygo.remote
def pid(x: int) -> tuple[int, int]:
    """Return the worker's pid and the argument."""
    return os.getpid(), x


@raygo.remote
class Counter:
    """Counts."""

    def __init__(self) -> None:
        self.n = 0

    def add(self, n: int) -> int:
        """Add and return the sum."""
        self.n += n
        return self.n


raygo.init(num_cpus=2)
first = raygo.get(pid.remote(7))
ready = time.perf_counter()
assert first[0] != os.getpid() and first[1] == 7
counter = Counter.remote()
assert raygo.get([counter.add.remote(i) for i in range(10)])[-1] == 45
assert raygo.get(raygo.put(bytes(1 << 20))) == bytes(1 << 20)
raygo.shutdown()
print(
    f"raygo {raygo.__version__} from {os.path.dirname(raygo.__file__)}: import {(imported - start) * 1e3:.0f} ms, "
    f"init to first result {(ready - imported) * 1e3:.0f} ms"
)
