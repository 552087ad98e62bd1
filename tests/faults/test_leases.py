"""A process reads what it put without asking the engine. What it reads stays all the same, and goes when it should."""

import os
import signal

import numpy as np
from test_spill import MB, array, eventually, put, session, stats

import raygo
from raygo import _calls


def test_a_view_of_an_own_value_survives_pressure():
    with session():
        ref = raygo.put(array(7, 4 * MB))
        view = raygo.get(ref)
        at = view.__array_interface__["data"][0]
        more = put(30, 2 * MB)  # twice the store
        assert stats()["spilled"] > 0
        assert (view == 7).all()
        assert raygo.get(ref).__array_interface__["data"][0] == at
        assert [raygo.get(r)[0] for r in more] == list(range(30))
        assert (view == 7).all()


def test_an_own_value_can_leave_memory_when_nobody_looks_at_it():
    with session():
        refs = put(4, 4 * MB)
        assert [raygo.get(r)[0] for r in refs] == [0, 1, 2, 3]
        more = put(14, 2 * MB)
        assert "spilled" in {row["where"] for row in _calls.call("state.objects", {}) if row["object_size"] > 3 * MB}
        assert [raygo.get(r)[0] for r in refs] == [0, 1, 2, 3]
        assert [raygo.get(r)[0] for r in more] == list(range(14))


def test_a_list_of_own_and_other_values():
    make = raygo.remote(array)
    with session():
        refs = [raygo.put(array(0, 3 * MB)), make.remote(1), raygo.put(array(2, 3 * MB)), raygo.put(3)]
        assert [int(np.max(v)) for v in raygo.get(refs)] == [0, 1, 2, 3]
        assert [v[0] for v in raygo.get([refs[0], refs[2]])] == [0, 2]
        assert [v[0] for v in raygo.get([refs[0], refs[0]])] == [0, 0]


def test_the_space_goes_with_the_last_view():
    with session():
        ref = raygo.put(array(3, 4 * MB))
        first, second = raygo.get(ref), raygo.get(ref)
        part = first[10:20]
        del ref, first
        eventually(lambda: [row["reference_type"] for row in _calls.call("state.objects", {})] == ["PINNED_IN_MEMORY"])
        assert stats()["pinned"] >= 4 * MB
        del second
        assert stats()["used"] >= 4 * MB
        assert (part == 3).all()
        del part
        eventually(lambda: stats()["used"] == 0)
        assert stats()["pinned"] == 0


def test_what_is_read_without_asking_is_listed_as_pinned():
    with session():
        ref = raygo.put(array(3, 4 * MB))
        view = raygo.get(ref)
        assert [row["reference_type"] for row in _calls.call("state.objects", {})] == ["PINNED_IN_MEMORY"]
        del view
        eventually(lambda: [row["reference_type"] for row in _calls.call("state.objects", {})] == ["LOCAL_REFERENCE"])
        assert raygo.get(ref)[0] == 3  # by the engine now


@raygo.remote
class Keeper:
    def fill(self):
        self.refs = [raygo.put(array(i, 3 * MB)) for i in range(3)]
        self.views = [raygo.get(r) for r in self.refs]
        return os.getpid(), [v[0] for v in self.views]

    def drop_refs(self):
        self.refs = None


def test_pins_of_a_killed_process_are_gone():
    with session():
        for _ in range(3):
            keeper = Keeper.remote()
            pid, seen = raygo.get(keeper.fill.remote())
            assert seen == [0, 1, 2]
            raygo.get(keeper.drop_refs.remote())
            assert stats()["pinned"] >= 9 * MB
            os.kill(pid, signal.SIGKILL)
            del keeper
            eventually(lambda: stats()["used"] == 0)


def test_a_forked_child_takes_no_pin_with_it():
    with session():
        ref = raygo.put(array(5, 4 * MB))
        views = [raygo.get(ref)]
        child = os.fork()
        if not child:
            views.clear()
            del ref
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        del ref
        more = put(20, 2 * MB)
        assert (views[0] == 5).all()
        assert stats()["pinned"] >= 4 * MB
        views.clear()
        del more
        eventually(lambda: stats()["used"] == 0)


def test_arrays_come_back_in_every_shape():
    with session():
        for shape in ((MB,), (1024, 1024), (1, MB), (MB, 1)):
            value = np.arange(MB, dtype=np.int32).reshape(shape)
            got = raygo.get(raygo.put(value))
            assert got.shape == shape and got.dtype == value.dtype and not got.flags.writeable
            assert (got == value).all()
