"""joblib's backend."""
import os
import time

import pytest

import raygo

joblib = pytest.importorskip("joblib")
np = pytest.importorskip("numpy")


@pytest.fixture(scope="module", autouse=True)
def session():
    raygo.shutdown()
    raygo.init(num_cpus=4, resources={"widget": 2}, log_to_driver=False, object_store_memory=200 * 2**20)
    from raygo.util.joblib import register_ray

    register_ray()
    yield
    raygo.shutdown()


def run(calls, **kwargs):
    with joblib.parallel_config("ray"):
        return joblib.Parallel(**kwargs)(calls)


def test_batches_run_in_workers():
    assert run(joblib.delayed(lambda v: v * v)(i) for i in range(300)) == [i * i for i in range(300)]
    assert os.getpid() not in run(joblib.delayed(os.getpid)() for _ in range(8))


def test_number_of_jobs():
    with joblib.parallel_config("ray"):
        assert joblib.Parallel()._effective_n_jobs() == 4
        assert joblib.Parallel(n_jobs=-2)._effective_n_jobs() == 3

    def span(_):
        begin = time.time()
        time.sleep(0.2)
        return begin, time.time()

    spans = run([joblib.delayed(span)(i) for i in range(6)], n_jobs=2)
    points = sorted([(b, 1) for b, _ in spans] + [(e, -1) for _, e in spans])
    live = peak = 0
    for _, step in points:
        live += step
        peak = max(peak, live)
    assert peak == 2


def test_errors_keep_their_type_and_the_backend_goes_on():
    def bad(i):
        raise ArithmeticError(f"item {i}")

    with joblib.parallel_config("ray"), joblib.Parallel(n_jobs=2) as parallel:
        with pytest.raises(ArithmeticError, match="item"):
            parallel(joblib.delayed(bad)(i) for i in range(3))
        assert parallel(joblib.delayed(abs)(i) for i in (-1, -2)) == [1, 2]


def test_nested_and_generators():
    def outer(i):
        return sum(joblib.Parallel(n_jobs=2)(joblib.delayed(pow)(j, 2) for j in range(3)))

    assert run([joblib.delayed(outer)(i) for i in range(3)], n_jobs=2) == [5, 5, 5]
    assert list(run([joblib.delayed(abs)(-i) for i in range(5)], return_as="generator")) == list(range(5))
    slow_first = [joblib.delayed(lambda s: time.sleep(s) or s)(s) for s in (0.8, 0.0, 0.0)]
    assert list(run(slow_first, return_as="generator_unordered"))[-1] == 0.8


def test_large_arrays_are_stored_once_and_results_are_writable():
    big = np.arange(400_000.0)

    def look(i, array, small):
        small[0] = i            # a copy of its own, as with joblib's own processes
        return array[i], array.flags.writeable, small

    found = run([joblib.delayed(look)(i, big, np.zeros(3)) for i in range(6)])
    assert [f[0] for f in found] == list(range(6)) and not any(f[1] for f in found)
    found[0][2][0] = 9

    from raygo.util.joblib.ray_backend import _Shared

    shared = _Shared(2**20)
    refs = [shared.dump({"a": big, "b": [big, big]})[1] for _ in range(3)]
    assert len({r for some in refs for r in some}) == 1 and all(len(some) == 1 for some in refs)
    assert _Shared(None).dump(big)[1] == []


def test_remote_args():
    with joblib.parallel_config("ray", ray_remote_args={"resources": {"widget": 1}}, n_jobs=2):
        given = joblib.Parallel()(joblib.delayed(lambda: raygo.get_runtime_context().get_assigned_resources())() for _ in range(2))
    assert all(g["widget"] == 1 for g in given)


def test_scikit_learn():
    pytest.importorskip("sklearn")
    from sklearn.datasets import load_digits
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import RandomizedSearchCV, cross_val_score
    from sklearn.svm import SVC

    x, y = load_digits(return_X_y=True)
    x, y = x[:600], y[:600]

    def search():
        return RandomizedSearchCV(SVC(), {"C": np.logspace(-3, 3, 9)}, cv=3, n_iter=4, random_state=5).fit(x, y)

    with joblib.parallel_config("ray"):
        there = search()
        scores = cross_val_score(RandomForestClassifier(10, random_state=0, n_jobs=2), x, y, cv=3, n_jobs=3)
    assert there.best_params_ == search().best_params_
    assert scores.mean() > 0.8
