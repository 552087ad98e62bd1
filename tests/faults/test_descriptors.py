"""Descriptors, address space and file sizes are short in the driver and in workers."""
import numpy as np
import pytest

import raygo
from raygo.exceptions import RayTaskError, WorkerCrashedError

MB = 2**20


def test_the_driver_has_no_descriptor_left_while_it_spills_and_restores(driver, tmp_path):
    process = driver("""
        import os, resource, sys
        import numpy as np
        import raygo
        import raygo.exceptions   # later nothing can be imported

        raygo.init(num_cpus=1, include_dashboard=False, object_store_memory=24 * 2**20, _object_spilling_directory=sys.argv[1])

        @raygo.remote
        def total(a):
            return float(a.sum())

        assert raygo.get(total.remote(np.ones(400_000)), timeout=20) == 400_000
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        taken = []
        try:
            while True:
                taken.append(os.dup(0))
        except OSError:
            pass
        small = [raygo.put(np.full(100_000, i)) for i in range(20)]   # 16 MB: no file is needed
        assert [int(raygo.get(r, timeout=20)[7]) for r in small] == list(range(20))
        assert raygo.get([total.remote(r) for r in small], timeout=20) == [100_000 * i for i in range(20)]
        more = []
        try:
            for i in range(20):
                more.append(raygo.put(np.full(400_000, i)))
        except raygo.exceptions.OutOfDiskError as error:
            assert "too many open files" in str(error) and sys.argv[1] in str(error), error
        else:
            raise AssertionError("64 MB fit into 24 without a file")
        for fd in taken:
            os.close(fd)
        more += [raygo.put(np.full(400_000, len(more) + i)) for i in range(20)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))   # files that are open stay usable
        assert [int(raygo.get(r, timeout=20)[3]) for r in more] == list(range(len(more)))
        assert [int(raygo.get(r, timeout=20)[3]) for r in small] == list(range(20))
        raygo.shutdown()
        print("fine")
    """, tmp_path / "spill")
    out, errors = process.communicate(timeout=100)
    assert out == "fine\n" and process.returncode == 0, (out, errors[-3000:])


def test_a_worker_without_descriptors_makes_and_reads_objects(runtime):
    @raygo.remote
    def big(i):
        return np.full(200_000, i)

    @raygo.remote(max_retries=0)
    def starved(refs):
        import os
        import resource

        raygo.get(big.remote(0))   # what a nested call imports is imported
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, limit[1]))
        taken = []
        try:
            while True:
                taken.append(os.dup(0))
        except OSError:
            pass
        try:
            got = [int(a[0]) for a in raygo.get(refs)]
            own = raygo.put(np.full(300_000, 7))
            got.append(int(raygo.get(own)[1]))
            got += [int(a[0]) for a in raygo.get([big.remote(i) for i in (8, 9)])]
            return got, np.full(200_000, 10)
        finally:
            for fd in taken:
                os.close(fd)
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)

    refs = [big.remote(i) for i in range(5)]
    for _ in range(3):
        got, array = raygo.get(starved.remote(refs), timeout=60)
        assert got == [0, 1, 2, 3, 4, 7, 8, 9] and array[0] == 10


def test_a_worker_short_of_address_space_says_so_and_goes_on(runtime):
    ref = raygo.put(np.ones(5_000_000))

    @raygo.remote(max_retries=0)
    def tight(refs, ask):
        import resource

        with open("/proc/self/statm") as f:
            size = int(f.read().split()[0]) * 4096
        old = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (size + 100 * MB, old[1]))
        try:
            if ask == "too much":
                return np.ones(50_000_000)   # 400 MB
            view = raygo.get(refs[0])   # 40 MB that are mapped already
            if ask == "a store it cannot map":
                raygo.put(view)   # the first time, all of the store is mapped for writing
            return float(view.sum())
        finally:
            resource.setrlimit(resource.RLIMIT_AS, old)

    for _ in range(3):
        assert raygo.get(tight.remote([ref], "what is mapped"), timeout=60) == 5_000_000
        with pytest.raises((MemoryError, RayTaskError), match="209715200 bytes of the object store cannot be mapped for writing.*ulimit -v"):
            raygo.get(tight.remote([ref], "a store it cannot map"), timeout=60)
        with pytest.raises((MemoryError, RayTaskError), match="Unable to allocate 381"):
            raygo.get(tight.remote([ref], "too much"), timeout=60)


def test_an_arena_that_cannot_be_mapped_is_a_plain_error(driver):
    """With too little address space for the store, init says how much it wanted; with enough it works."""
    process = driver("""
        import os
        import resource
        import numpy as np
        import raygo

        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")   # a store may not be larger
        store = memory * 3 // 4 >> 20 << 20
        old = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (store * 2 // 3, old[1]))
        for _ in range(3):
            try:
                raygo.init(num_cpus=1, include_dashboard=False, object_store_memory=store)
            except Exception as error:
                text = f"{type(error).__name__}: {error}"
                assert f"{store >> 20}.0 MiB" in text and "object_store_memory" in text and "ulimit -v" in text, text
            else:
                raise AssertionError(f"{store} bytes fit into two thirds")
        raygo.init(num_cpus=1, include_dashboard=False, object_store_memory=64 << 20)

        @raygo.remote
        def total(a):
            return float(a.sum())

        assert raygo.get(total.remote(np.ones(1_000_000)), timeout=30) == 1_000_000
        raygo.shutdown()
        print("fine")
    """)
    out, errors = process.communicate(timeout=100)
    assert out == "fine\n" and process.returncode == 0, (out, errors[-3000:])


@pytest.mark.parametrize("limit", [1, 10])
def test_files_may_not_grow_beyond_a_limit(driver, tmp_path, limit):
    """ulimit -f: objects that fit under it are spilled, into as many files as it takes; for others it is an error that says why."""
    process = driver("""
        import resource, sys
        import numpy as np
        import raygo

        limit = int(sys.argv[2])
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 20, 64 << 20))   # the arena is a file as well
        raygo.init(num_cpus=1, include_dashboard=False, object_store_memory=24 * 2**20, _object_spilling_directory=sys.argv[1])
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit << 20, 64 << 20))
        refs = []
        try:
            for i in range(30):
                refs.append(raygo.put(np.full(400_000, i)))
        except raygo.exceptions.OutOfDiskError as error:
            assert limit == 1 and "file too large" in str(error) and sys.argv[1] in str(error), error
            refs.clear()
            assert raygo.get(raygo.put(np.ones(400_000)), timeout=20).sum() == 400_000
        else:
            assert limit > 1
        assert [int(raygo.get(r, timeout=20)[3]) for r in refs] == list(range(len(refs)))
        raygo.shutdown()
        print("fine")
    """, tmp_path / "spill", limit)
    out, errors = process.communicate(timeout=100)
    assert out == "fine\n" and process.returncode == 0, (out, errors[-3000:])


def test_a_worker_that_used_up_its_cpu_time_is_a_crash_of_that_task(runtime):
    @raygo.remote(max_retries=0)
    def too_long():
        import resource
        import signal

        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CPU, (1, 2))
        view = raygo.put(np.ones(1_000_000))
        while view:
            pass

    with pytest.raises(WorkerCrashedError, match="SIGXCPU|SIGKILL"):
        raygo.get(too_long.remote(), timeout=60)
