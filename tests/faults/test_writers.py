"""Space that is asked for and never sealed comes back, whatever ended its writer."""
import os
import socket
import struct

import numpy as np
import pytest
from test_kill import left_in_store, until
from test_socket import address, closed_by_engine, frame, hello

import raygo
from raygo._calls import call
from raygo.exceptions import WorkerCrashedError

DEATHS = int(os.environ.get("RAYGO_DEATHS", "100"))   # by hand: RAYGO_DEATHS=1000
MB = 2**20
CREATE, CREATED, ABORT, WELCOME = 5, 66, 7, 64


def next_frame(s, kind):
    """The payload of the next frame of this kind."""
    def take(n):
        out = b""
        while len(out) < n:
            got = s.recv(n - len(out))
            assert got, "the engine ended the connection"
            out += got
        return out

    while True:
        size, found, _, _ = struct.unpack("<IHHQ", take(16))
        payload = take(size)
        if found == kind:
            return payload


def prefix(welcome):
    import msgpack

    unpacker = msgpack.Unpacker()   # padding follows the map
    unpacker.feed(welcome)
    return unpacker.unpack()["prefix"]


def test_connections_that_end_between_create_and_seal(runtime):
    for i in range(1000):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(20)
            s.connect(address())
            s.sendall(hello())
            number = prefix(next_frame(s, WELCOME)) << 32 | 1
            s.sendall(frame(CREATE, struct.pack("<IIQ", 0, 0, (i % 50 + 1) * 100_000), number=number))
            if i % 3:
                _, status, offset = struct.unpack_from("<IIQ", next_frame(s, CREATED))
                assert status == 0 and offset % 64 == 0
    assert until(lambda: not left_in_store()), left_in_store()


def test_space_is_asked_for_twice_or_given_back_twice(runtime):
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(20)
        s.connect(address())
        s.sendall(hello())
        number = prefix(next_frame(s, WELCOME)) << 32 | 1
        ask = frame(CREATE, struct.pack("<IIQ", 0, 0, MB), number=number)
        s.sendall(ask)
        next_frame(s, CREATED)
        assert left_in_store() == {"arena_objects": 1, "used": MB}
        back = frame(ABORT, struct.pack("<QII", number, 0, 0), number=number)
        s.sendall(back + back)
        assert until(lambda: not left_in_store()), left_in_store()
        s.sendall(ask + ask)
        assert closed_by_engine(s)
    assert until(lambda: not left_in_store()), left_in_store()


@pytest.fixture
def cut_off(runtime):
    """Makes an array over a file that ends in its middle: copying it is a bus error half-way, between create and seal."""
    def make(size):   # here, or workers would import this file and all it needs
        import mmap
        import tempfile

        import numpy as np

        with tempfile.TemporaryFile() as f:
            f.truncate(size)
            m = mmap.mmap(f.fileno(), size)
            f.truncate(size // 2 & ~4095)
        return np.frombuffer(m, np.uint8)

    call("modules.preload", {"modules": ["numpy"]})
    return make


@pytest.mark.timeout(600)
def test_workers_that_die_in_the_middle_of_the_copy(cut_off):
    """Sizes on both sides of what is copied by one thread, by two, and around the caches."""
    @raygo.remote(max_retries=0)
    def dies(size):
        raygo.put(cut_off(size))

    sizes = [100_000, MB, 9 * MB, 30 * MB]
    for start in range(0, DEATHS, 10):
        refs = [dies.remote(sizes[i % 4]) for i in range(start, start + 10)]
        for ref in refs:
            with pytest.raises(WorkerCrashedError, match="SIGBUS"):
                raygo.get(ref, timeout=60)
        del ref
    refs.clear()
    assert until(lambda: not left_in_store()), left_in_store()


def test_results_whose_copy_kills_the_worker(cut_off):
    """The same for return values and for a stream's items."""
    @raygo.remote(max_retries=0, num_returns=2)
    def two():
        return np.ones(MB), cut_off(MB)

    @raygo.remote(max_retries=0, num_returns="streaming")
    def items():
        yield np.ones(MB)
        yield cut_off(MB)

    for _ in range(5):
        for ref in two.remote():
            with pytest.raises(WorkerCrashedError, match="SIGBUS"):
                raygo.get(ref, timeout=60)
        stream = items.remote()
        assert raygo.get(next(stream), timeout=60).sum() == MB
        with pytest.raises(WorkerCrashedError, match="SIGBUS"):
            for ref in stream:
                raygo.get(ref, timeout=60)
        del ref, stream
    assert until(lambda: not left_in_store()), left_in_store()


def test_ctrl_c_during_a_big_put_and_during_a_restore(driver):
    process = driver("""
        import os, signal, threading, time
        import numpy as np
        import raygo
        from raygo._calls import call

        raygo.init(num_cpus=1, include_dashboard=False, object_store_memory=1200 * 2**20)
        big = np.ones(2**27)   # 1 GiB

        def interrupted(action, after):
            timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            try:
                action()
                timer.join()
                time.sleep(0.01)
            except KeyboardInterrupt:
                return True
            return False

        def zero():
            end = time.monotonic() + 20
            while time.monotonic() < end:
                stats = call("store.stats")
                if not (stats["objects"] or stats["used"] or stats["pinned"] or stats["spilled"] or stats["waiting"]):
                    return
                time.sleep(0.01)
            raise AssertionError(call("store.stats"))

        for i in range(5):
            assert interrupted(lambda: raygo.put(big), 0.01 + 0.05 * i)
            zero()
        del big
        raygo.shutdown()
        raygo.init(num_cpus=1, include_dashboard=False, object_store_memory=100 * 2**20)
        for i in range(6):
            refs = [raygo.put(np.full(2**21, k)) for k in range(12)]   # 16 MiB each: half of them are on disk
            raygo.wait(refs, num_returns=len(refs))
            assert call("store.stats")["spilled"]
            seen = []

            def look():
                for _ in range(4):
                    for k, r in enumerate(refs):
                        value = raygo.get(r)
                        assert value[0] == value[-1] == k
                        seen.append(k)

            interrupted(look, 0.02 * (i + 1))
            for k, r in enumerate(refs):
                assert raygo.get(r)[5] == k
            del refs, r
            zero()
        print("fine")
    """)
    out, errors = process.communicate(timeout=110)
    assert out == "fine\n" and process.returncode == 0, (process.returncode, errors[-3000:])
