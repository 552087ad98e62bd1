"""raygo.util: actor pools, queues, multiprocessing.Pool, as_completed."""
import asyncio
import multiprocessing
import os
import threading
import time

import pytest

import raygo
from raygo.util import ActorPool, as_completed, map_unordered
from raygo.util.multiprocessing import Pool
from raygo.util.queue import Empty, Full, Queue


@pytest.fixture(scope="module", autouse=True)
def session():
    raygo.shutdown()
    raygo.init(num_cpus=4, log_to_driver=False, object_store_memory=100 * 2**20)
    yield
    raygo.shutdown()


class Doubler:
    def double(self, value):
        time.sleep(0.01 * (value % 3))
        return 2 * value

    def fail(self, value):
        raise ValueError(value)


@pytest.fixture
def pool():
    actors = [raygo.remote(Doubler).remote() for _ in range(2)]
    yield ActorPool(actors)
    for actor in actors:
        raygo.kill(actor)


def test_actor_pool_maps(pool):
    assert list(pool.map(lambda a, v: a.double.remote(v), range(9))) == [2 * v for v in range(9)]
    assert sorted(pool.map_unordered(lambda a, v: a.double.remote(v), range(9))) == [2 * v for v in range(9)]


def test_actor_pool_by_hand(pool):
    for value in range(4):
        pool.submit(lambda a, v: a.double.remote(v), value)
    assert pool.has_next() and not pool.has_free()
    assert pool.get_next() == 0
    assert {pool.get_next_unordered(timeout=10) for _ in range(3)} == {2, 4, 6}
    with pytest.raises(StopIteration):
        pool.get_next()
    actor = pool.pop_idle()
    pool.push(actor)
    with pytest.raises(ValueError):
        pool.push(actor)
    pool.submit(lambda a, v: a.fail.remote(v), 1)
    with pytest.raises(ValueError):
        pool.get_next()
    assert pool.has_free()      # the actor is back although its call failed


def test_actor_pool_timeout():
    @raygo.remote
    class Slow:
        def nap(self, seconds):
            time.sleep(seconds)
            return seconds

    pool = ActorPool([Slow.remote()])
    pool.submit(lambda a, v: a.nap.remote(v), 0.5)
    with pytest.raises(TimeoutError):
        pool.get_next(timeout=0.05)
    assert pool.get_next(timeout=10) == 0.5


def test_queue_of_one_process():
    queue = Queue(maxsize=2)
    queue.put(1)
    queue.put_nowait(2)
    assert len(queue) == queue.qsize() == 2 and queue.full() and not queue.empty()
    with pytest.raises(Full):
        queue.put(3, timeout=0.05)
    assert queue.get() == 1 and queue.get_nowait() == 2
    with pytest.raises(Empty):
        queue.get(timeout=0.05)
    queue.put_nowait_batch([1, 2])
    with pytest.raises(Full):
        queue.put_nowait_batch([3])
    with pytest.raises(Empty):
        queue.get_nowait_batch(3)
    assert queue.get_nowait_batch(2) == [1, 2]
    for wrong in (lambda: queue.get(timeout=-1), lambda: queue.get_nowait_batch(-1)):
        with pytest.raises(ValueError):
            wrong()
    queue.shutdown()


def test_queue_between_tasks_and_coroutines():
    queue = Queue()

    @raygo.remote(num_cpus=1)
    def produce(queue, n):
        for i in range(n):
            queue.put(i)

    done = produce.remote(queue, 20)
    assert [queue.get(timeout=20) for _ in range(20)] == list(range(20))
    raygo.get(done)

    async def both():
        waiting = asyncio.ensure_future(queue.get_async())
        await queue.put_async("late")
        return await waiting

    assert asyncio.run(both()) == "late"
    waiter = threading.Thread(target=lambda: queue.get(timeout=20))
    waiter.start()
    queue.put(1)           # a get that waits does not stand in the way of the put
    waiter.join(20)
    assert not waiter.is_alive()
    queue.shutdown(force=True)


def test_pool_maps():
    with Pool(2) as pool:
        assert pool.map(lambda x: x + 1, range(10)) == list(range(1, 11))
        assert pool.starmap(max, [(1, 2), (5, 3)]) == [2, 5]
        assert list(pool.imap(lambda x: 2 * x, range(30), chunksize=4)) == [2 * x for x in range(30)]
        assert sorted(pool.imap_unordered(lambda x: -x, range(4))) == [-3, -2, -1, 0]
        assert pool.apply(max, (3, 4)) == 4 and pool.apply(dict, (), {"a": 1}) == {"a": 1}
        assert os.getpid() not in pool.map(lambda _: os.getpid(), range(8))
        assert len(set(pool.map(lambda _: os.getpid(), range(50)))) == 2
    with pytest.raises(ValueError):
        pool.map(abs, [1])


def test_pool_reads_endless_input_as_it_goes():
    def numbers():
        number = 0
        while True:
            yield number
            number += 1

    with Pool(2) as pool:
        results = pool.imap(abs, numbers())
        assert [next(results) for _ in range(20)] == list(range(20))


def test_pool_errors():
    class Odd(Exception):
        def __reduce__(self):
            raise TypeError("does not travel")

    def bad(x):
        if x == 3:
            raise KeyError(x)
        if x == 7:
            raise Odd("seven")
        return x

    with Pool(2) as pool:
        with pytest.raises(KeyError) as caught:
            pool.map(bad, range(5))
        assert "bad" in str(caught.value.__cause__)        # the traceback of the worker
        results, seen = pool.imap(bad, range(5), chunksize=5), []
        for _ in range(5):
            try:
                seen.append(next(results))
            except KeyError:
                seen.append("error")
        assert seen == [0, 1, 2, "error", 4]
        with pytest.raises(RuntimeError, match="Odd: seven"):
            pool.apply(bad, (7,))


def test_pool_results_and_callbacks():
    with Pool(2) as pool:
        got, errors = [], []
        result = pool.map_async(abs, [-1, -2], callback=got.append)
        result.wait(20)
        assert result.ready() and result.successful() and got == [[1, 2]] and result.get() == [1, 2]
        failing = pool.apply_async(int, ("x",), callback=got.append, error_callback=errors.append)
        failing.wait(20)
        assert not failing.successful() and isinstance(errors[0], ValueError) and len(got) == 1
        slow = pool.apply_async(time.sleep, (1,))
        with pytest.raises(multiprocessing.TimeoutError):
            slow.get(timeout=0.05)
        with pytest.raises(ValueError):
            slow.successful()


def test_pool_initializer_and_replacement():
    def remember(value):
        os.environ["REMEMBERED"] = value

    with Pool(2, initializer=remember, initargs=("yes",), maxtasksperchild=2) as pool:
        assert pool.map(lambda name: os.environ.get(name), ["REMEMBERED"] * 4) == ["yes"] * 4
        assert len({pool.apply(os.getpid) for _ in range(12)}) > 2

    def breaks():
        raise RuntimeError("cannot begin")

    with pytest.raises((RuntimeError, raygo.exceptions.RayActorError), match="cannot begin"):
        Pool(1, initializer=breaks)


def test_pool_close_and_join():
    pool = Pool(2)
    results = pool.map_async(lambda x: time.sleep(0.1) or x, range(4))
    with pytest.raises(ValueError):
        pool.join()
    pool.close()
    pool.join()
    assert results.get(5) == [0, 1, 2, 3]
    with pytest.raises(ValueError):
        pool.apply(abs, (1,))


def test_results_as_they_come():
    @raygo.remote
    def nap(seconds):
        time.sleep(seconds)
        return seconds

    assert list(as_completed([nap.remote(s) for s in (0.6, 0.0, 0.3)], chunk_size=1)) == [0.0, 0.3, 0.6]
    assert sorted(map_unordered(nap, [0.001] * 30, backpressure_size=10)) == [0.001] * 30
    refs = list(as_completed([nap.remote(0)], yield_obj_refs=True))
    assert isinstance(refs[0], raygo.ObjectRef)
    with pytest.raises(raygo.exceptions.GetTimeoutError):
        list(as_completed([nap.remote(2)], timeout=0.05))
    with pytest.raises(ValueError):
        list(as_completed([], chunk_size=0))
    with pytest.raises(ValueError):
        list(map_unordered(nap, [], backpressure_size=1, chunk_size=2))
