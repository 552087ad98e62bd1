"""The process that workers are forked from is killed or stopped; descriptors run out."""
import os
import signal

import pytest
from test_kill import alive, until

import raygo
from raygo.exceptions import GetTimeoutError


@raygo.remote(num_cpus=0)
class Actor:
    def pids(self):
        return os.getpid(), os.getppid()


def test_template_killed_while_it_forks(runtime):
    """Actors and tasks whose process never came into being get another one: they have not begun, so it costs no restart and no retry."""
    first = Actor.remote()
    own, template = raygo.get(first.pids.remote(), timeout=60)
    os.kill(template, signal.SIGSTOP)
    others = [Actor.remote() for _ in range(6)]   # some take processes that are there already
    with pytest.raises(GetTimeoutError, match="start"):
        raygo.get([a.pids.remote() for a in others], timeout=0.5)
    os.kill(template, signal.SIGKILL)
    found = raygo.get([a.pids.remote() for a in others], timeout=60)
    assert len({pid for pid, _ in found}) == 6
    assert template not in {parent for _, parent in found[-1:]}
    assert raygo.get(first.pids.remote(), timeout=60)[0] == own, "a worker outlives its template"


def test_template_stopped_does_not_stop_shutdown():
    raygo.shutdown()
    raygo.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    actor = Actor.remote()
    worker, template = raygo.get(actor.pids.remote(), timeout=60)
    os.kill(worker, signal.SIGSTOP)
    os.kill(template, signal.SIGSTOP)
    raygo.shutdown()
    assert until(lambda: not alive(worker) and not alive(template))


def test_shutdown_ends_templates_that_are_being_started(driver):
    """Each round kills the template and shuts down while another one comes: at its start, while it imports, and when it is ready."""
    process = driver("""
        import os, random, signal, time
        import raygo

        def children():
            found = set()
            for task in os.listdir("/proc/self/task"):
                try:
                    with open(f"/proc/self/task/{task}/children") as f:
                        found |= {int(pid) for pid in f.read().split()}
                except FileNotFoundError:
                    pass
            return found

        def descriptors():
            found = set()
            for fd in os.listdir("/proc/self/fd"):
                try:
                    found.add((fd, os.readlink(f"/proc/self/fd/{fd}")))
                except FileNotFoundError:
                    pass
            return found

        raygo.init(num_cpus=1, include_dashboard=False)
        raygo.shutdown()
        before, rng = descriptors(), random.Random(1)
        for _ in range(8):
            raygo.init(num_cpus=1, include_dashboard=False, log_to_driver=False)

            @raygo.remote
            def parent():
                return os.getppid()

            template = raygo.get(parent.remote(), timeout=60)
            parent.remote()
            os.kill(template, signal.SIGKILL)
            time.sleep(rng.random() * 0.3)
            raygo.shutdown()
            assert not children(), children()
            assert descriptors() <= before, descriptors() - before
    """)
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 0, errors[-3000:]


def test_descriptors_run_out(driver):
    process = driver("""
        import resource, raygo
        resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))
        raygo.init(num_cpus=2, include_dashboard=False)

        @raygo.remote(num_cpus=0)
        class Actor:
            def one(self): return 1

        @raygo.remote
        def two(): return 2

        assert raygo.get(two.remote(), timeout=60) == 2
        actors = [Actor.remote() for _ in range(30)]
        try:
            raygo.get([a.one.remote() for a in actors], timeout=3)
        except raygo.exceptions.GetTimeoutError as error:
            assert "ulimit -n" in str(error), error
        else:
            raise AssertionError("48 descriptors were enough")
        del actors
        assert raygo.get([two.remote() for _ in range(20)], timeout=60) == [2] * 20
        raygo.shutdown()
    """)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors[-3000:]
    assert errors.count("no worker process can be started") == 1, errors[-3000:]
