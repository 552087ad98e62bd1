"""What the soak does: activities that make, pass on, keep and verify values, and tasks that die at bad moments.

Every value says by itself which bytes it must have, so whoever meets it can verify all of it.
"""
import asyncio
import mmap
import os
import signal
import tempfile
import threading
import time
from dataclasses import dataclass, field

import numpy as np

import raygo
from raygo.exceptions import GetTimeoutError, RayActorError, TaskCancelledError, WorkerCrashedError

PATIENCE = 120   # seconds; what takes longer hangs
SIZES = [10, 100, 2_000, 20_000, 60_000, 200_000, 500_000]   # words of 8 bytes: within frames, small in the arena, up to 4 MB


class Corrupt(Exception):
    """A value came with other bytes than were stored."""


def content(seed, words):
    return (np.arange(words, dtype=np.uint64) + np.uint64(seed)) * np.uint64(0x9E3779B97F4A7C15)


def value(seed, words):
    """One of the forms in which users keep their data."""
    a = content(seed, words)
    form = seed % 4
    return (seed, words, a if form < 2 else a.tobytes() if form == 2 else {"parts": [a[: words // 2], a[words // 2 :].copy()]})


def verify(v):
    """The bytes that were verified."""
    seed, words, data = v
    if isinstance(data, bytes):
        data = np.frombuffer(data, np.uint64)
    elif isinstance(data, dict):
        data = np.concatenate(data["parts"])
    if not np.array_equal(data, content(seed, words)):
        wrong = np.flatnonzero(data != content(seed, words)) if len(data) == words else []
        raise Corrupt(f"value {seed} of {words} words came with {len(data)}, {len(wrong)} of them wrong, the first at {wrong[:1]}")
    return 8 * words


def die_soon(ms):
    """This process is killed at some moment of what follows."""
    threading.Thread(target=lambda: (time.sleep(ms / 1000), os.kill(os.getpid(), signal.SIGKILL)), daemon=True).start()


# ---- tasks that are run again whatever happens to their workers


@raygo.remote(max_retries=-1)
def make(seed, words):
    return value(seed, words)


@raygo.remote(max_retries=-1)
def check(*values):
    return sum(map(verify, values))


@raygo.remote(max_retries=-1)
def nest(seeds, words, outer):
    """References in a value: some made here, some passed through."""
    return {"made": [raygo.put(value(s, words)) for s in seeds], "outer": outer}


@raygo.remote(max_retries=-1)
def tree(depth, seed, words):
    if depth == 0:
        return value(seed, words)
    below = [tree.remote(depth - 1, 3 * seed + i, words) for i in range(3)]
    for v in raygo.get(below, timeout=PATIENCE):
        verify(v)
    return value(seed, words)


@raygo.remote(max_retries=-1, num_returns="streaming")
def stream(seed, words, count):
    for i in range(count):
        yield value(seed + i, words)


@raygo.remote(max_restarts=-1, max_task_retries=-1, num_cpus=0)
class Keeper:
    """Keeps references and views until it is told, or dies."""

    def __init__(self):
        self.refs, self.views = [], []

    def keep(self, refs):
        self.refs += refs
        self.views = raygo.get(self.refs[-2:], timeout=PATIENCE)
        return sum(map(verify, self.views))

    def verify(self):
        return sum(map(verify, self.views)) + sum(verify(raygo.get(r, timeout=PATIENCE)) for r in self.refs[:2])

    def drop(self):
        self.refs, self.views = [], []

    async def echo(self, v):
        await asyncio.sleep(0)
        return v


# ---- tasks that die


def cut_off_buffer(size):
    """An array whose bytes are gone: whoever copies it gets SIGBUS in the middle of the copy, so between create and seal."""
    with tempfile.TemporaryFile() as f:
        f.truncate(size)
        m = mmap.mmap(f.fileno(), size)
        f.truncate(size // 2)
    return np.frombuffer(m, np.uint8)


def keep_putting(seed, words):
    while True:
        raygo.put(value(seed, words))


def hold_and_get(refs):
    held = []
    while True:
        held = held[-3:]
        for r in refs:
            held.append(raygo.get(r, timeout=PATIENCE))
            verify(held[-1])


@raygo.remote(max_retries=0)
def doomed(how, ms, seed, words, refs):
    if how == "sealing":
        raygo.put(cut_off_buffer(max(words * 8, 1 << 17)))
    die_soon(ms)
    if how == "writing":
        keep_putting(seed, words)
    elif how == "getting":   # pins, and what is on disk is restored for it
        hold_and_get(refs)
    elif how == "submitting":
        while True:
            raygo.wait([make.remote(seed, words) for _ in range(5)], num_returns=2, timeout=0.01)
    time.sleep(60)


@raygo.remote(max_retries=0, num_returns="streaming")
def doomed_stream(ms, seed, words):
    die_soon(ms)
    i = 0
    while True:
        yield value(seed + i, words)
        i += 1


# ---- what the driver's threads do


@dataclass
class World:
    """What the threads of a driver share.  `pool` has references of values that must survive; each thread owns what it takes out."""

    budget: int   # words that the pool may hold
    until: float
    lock: threading.Lock = field(default_factory=threading.Lock)
    pool: list = field(default_factory=list)
    pooled: int = 0
    counts: dict = field(default_factory=dict)
    errors: list = field(default_factory=list)
    since: dict = field(default_factory=dict)   # when each thread began what it does now

    def count(self, what, n=1):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + n

    def add(self, ref, words, rng):
        with self.lock:
            self.pool.append((ref, words))
            self.pooled += words
            while self.pooled > self.budget:
                _, w = self.pool.pop(rng.randrange(len(self.pool)))
                self.pooled -= w

    def pick(self, rng, k=1):
        with self.lock:
            return [r for r, _ in rng.sample(self.pool, min(k, len(self.pool)))]

    def verified(self, bytes, n=1):
        self.count("verified", n)
        self.count("verified_bytes", bytes)


def get(world, refs):
    values = raygo.get(refs, timeout=PATIENCE)
    for v in values:
        world.verified(verify(v))


def put_some(world, rng):
    for _ in range(rng.randrange(1, 5)):
        words = rng.choice(SIZES)
        world.add(raygo.put(value(rng.getrandbits(32), words)), words, rng)


def make_some(world, rng):
    for _ in range(rng.randrange(1, 5)):
        words = rng.choice(SIZES)
        world.add(make.remote(rng.getrandbits(32), words), words, rng)


def get_some(world, rng):
    get(world, world.pick(rng, rng.randrange(1, 4)))


def hold_views(world, rng):
    """A view outlives its reference."""
    refs = [raygo.put(value(rng.getrandbits(32), rng.choice(SIZES))) for _ in range(2)] + world.pick(rng)
    views = raygo.get(refs, timeout=PATIENCE)
    del refs
    time.sleep(rng.random() * 0.2)
    for v in views:
        world.verified(verify(v))


def pass_on(world, rng):
    refs = world.pick(rng, rng.randrange(1, 4))
    results = [check.remote(*refs) for _ in range(rng.randrange(1, 4))]
    del refs
    for n in raygo.get(results, timeout=PATIENCE):
        world.verified(n)


def nested(world, rng):
    seeds, words = [rng.getrandbits(32) for _ in range(rng.randrange(1, 5))], rng.choice(SIZES[:-1])
    outer = nest.remote(seeds, words, world.pick(rng, 2))
    if rng.random() < 0.5:
        outer = raygo.get(raygo.put([nest.remote(seeds, words, [outer])]))[0]
        outer = raygo.get(outer, timeout=PATIENCE)["outer"][0]
    inner = raygo.get(outer, timeout=PATIENCE)
    del outer
    get(world, inner["made"] + inner["outer"])


def trees(world, rng):
    world.verified(verify(raygo.get(tree.remote(rng.randrange(1, 4), rng.getrandbits(20), rng.choice(SIZES[:4])), timeout=PATIENCE)))


def streams(world, rng):
    count, words = rng.randrange(1, 20), rng.choice(SIZES[:-1])
    items = stream.options(_generator_backpressure_num_objects=rng.choice([-1, 1, 5])).remote(rng.getrandbits(32), words, count)
    wanted = count if rng.random() < 0.7 else rng.randrange(count)
    for i, ref in enumerate(items):
        get(world, [ref])
        if i + 1 >= wanted:
            break
    else:
        if i + 1 != count:
            raise Corrupt(f"a stream of {count} ended after {i + 1}")


def doom(world, rng):
    how = rng.choice(["writing", "getting", "submitting", "sealing", "streaming"])
    ms, seed, words = rng.random() * 30, rng.getrandbits(32), rng.choice(SIZES)
    try:
        if how == "streaming":
            for ref in doomed_stream.remote(ms, seed, min(words, 200_000)):
                get(world, [ref])
        else:
            raygo.get(doomed.remote(how, ms, seed, words, world.pick(rng, 5)), timeout=PATIENCE)
        raise AssertionError(f"a task that was to die while {how} has not")
    except WorkerCrashedError:
        world.count(f"died {how}")


def keepers(world, rng):
    """An actor that is killed restarts without what it kept; its callers do not notice."""
    keeper = Keeper.remote()
    for _ in range(rng.randrange(1, 6)):
        world.verified(raygo.get(keeper.keep.remote(world.pick(rng, 2)), timeout=PATIENCE))
        world.verified(raygo.get(keeper.verify.remote(), timeout=PATIENCE))
        v = value(rng.getrandbits(32), rng.choice(SIZES[:5]))
        got = raygo.get([keeper.echo.remote(v) for _ in range(rng.randrange(1, 4))], timeout=PATIENCE)
        for v in got:
            world.verified(verify(v))
    if rng.random() < 0.3:
        raygo.kill(keeper)
        try:
            raygo.get(keeper.verify.remote(), timeout=PATIENCE)
        except RayActorError:
            world.count("actors killed")


def cancelled(world, rng):
    refs = [rng.choice([make, tree]) for _ in range(3)]
    refs = [f.remote(rng.getrandbits(20), 2_000) if f is make else f.remote(2, rng.getrandbits(20), 2_000) for f in refs]
    refs.append(check.remote(*refs[:2]))
    time.sleep(rng.random() * 0.01)
    for r in refs[1:]:
        raygo.cancel(r, force=rng.random() < 0.5, recursive=True)
    for r in refs:
        try:
            v = raygo.get(r, timeout=PATIENCE)
            world.verified(v if isinstance(v, int) else verify(v))
        except (TaskCancelledError, WorkerCrashedError, raygo.exceptions.RayTaskError):
            world.count("cancelled")


def impatient(world, rng):
    """A get that gives up leaves no pin behind."""
    try:
        for v in raygo.get(world.pick(rng, 5), timeout=rng.random() * 0.005):
            world.verified(verify(v))
    except GetTimeoutError:
        world.count("gave up")


ACTIVITIES = [put_some, make_some, get_some, get_some, hold_views, pass_on, pass_on, nested, trees, streams, doom, keepers, cancelled, impatient]
