"""What is left of a session that has ended does nothing to the next one, whose numbers are the same."""
import gc

import pytest

import raygo


def start():
    raygo.init(num_cpus=2, include_dashboard=False, log_to_driver=False)


def test_references_and_handles_of_the_session_before():
    @raygo.remote
    def slow(after=None):
        import time

        time.sleep(1)
        return 7

    @raygo.remote(num_cpus=0)
    class Actor:
        def one(self):
            return 1

    raygo.shutdown()
    start()
    old = [slow.remote() for _ in range(2)], [Actor.remote() for _ in range(3)]
    raygo.shutdown()
    start()
    new = [slow.remote() for _ in range(2)], [Actor.remote() for _ in range(3)]
    assert [r._task for r in old[0]] == [r._task for r in new[0]], "else the test shows nothing"
    uses = [lambda r=r: raygo.cancel(r) for r in old[0]] + [lambda a=a: raygo.kill(a) for a in old[1]]
    uses += [lambda: raygo.get(old[0][0]), lambda: raygo.put(old[0]), lambda: old[1][0].one.remote(), lambda: slow.remote(old[0][0])]
    for use in uses:
        with pytest.raises(ReferenceError, match="session that has ended"):
            use()
    uses.clear()
    old, use = None, None
    gc.collect()
    assert raygo.get(new[0], timeout=20) == [7, 7]
    assert raygo.get([a.one.remote() for a in new[1]], timeout=20) == [1, 1, 1]
    raygo.shutdown()
