"""`import ray` meaning raygo, and what an import of raygo costs.  Each case is a process of its own: it changes how modules are found."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest


def run(source: str) -> str:
    """Run it in a fresh interpreter; its output."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(source)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_names_versions_and_modules() -> None:
    run("""
        import raygo
        raygo.install_as_ray()
        raygo.install_as_ray()
        import ray, importlib.util, importlib.metadata
        assert ray.__version__ == "2.60.0" != raygo.__version__
        assert importlib.metadata.version("ray") == "2.60.0"
        assert importlib.metadata.version("cloudpickle")
        assert importlib.util.find_spec("ray") is not None
        assert importlib.util.find_spec("ray.exceptions") is not None
        assert importlib.util.find_spec("ray.rllib") is None
        import ray.exceptions, ray.actor
        from ray.exceptions import RayTaskError
        import raygo.exceptions
        assert ray.exceptions is raygo.exceptions and RayTaskError is raygo.exceptions.RayTaskError
        assert raygo.exceptions.__name__ == "raygo.exceptions" == raygo.exceptions.__spec__.name
        assert ray.get is raygo.get and ray.ObjectRef is raygo.ObjectRef
        from ray._private.worker import global_worker, WORKER_MODE, SCRIPT_MODE
        assert not global_worker.connected and global_worker.mode is None and (SCRIPT_MODE, WORKER_MODE) == (0, 1)
        from ray.autoscaler.sdk import request_resources
        request_resources(num_cpus=4)
        import ray.cloudpickle as pickle
        assert pickle.loads(pickle.dumps(lambda: 5))() == 5
        import pickle as p
        assert p.loads(p.dumps(ray.ObjectRef)) is ray.ObjectRef
        assert ray.exceptions.RayError.__module__ == "raygo.exceptions"
    """)


def test_what_is_lacking_is_named() -> None:
    run("""
        import raygo
        raygo.install_as_ray()
        import ray
        def error(statement):
            try:
                exec(statement)
            except (ImportError, AttributeError) as e:
                return type(e).__name__, str(e)
            raise AssertionError(statement)
        kind, text = error("import ray.rllib")
        assert kind == "ModuleNotFoundError" and "ray.rllib" in text, text
        kind, text = error("from ray import rllib")
        assert kind == "ImportError" and "rllib" in text, text
        kind, text = error("ray.no_such_thing")
        assert kind == "AttributeError" and "no_such_thing" in text and "raygo" in text, text
        kind, text = error("raygo.no_such_thing")
        assert kind == "AttributeError" and "no_such_thing" in text, text
        assert not hasattr(ray, "zz_no_such_name")
    """)


def test_children_follow() -> None:
    run("""
        import subprocess, sys, raygo
        raygo.install_as_ray()
        subprocess.run([sys.executable, "-c", "import raygo, ray; assert ray.get is raygo.get"], check=True)
    """)


def test_ray_itself_is_not_replaced_under_its_users() -> None:
    run("""
        import sys, types, raygo
        sys.modules["ray"] = types.ModuleType("ray")
        try:
            raygo.install_as_ray()
        except RuntimeError as e:
            assert "before anything imports ray" in str(e)
        else:
            raise AssertionError
    """)


def test_stubs_say_so() -> None:
    run("""
        import raygo
        from raygo.dag import InputNode
        @raygo.remote
        def f(): pass
        @raygo.remote
        class C:
            def m(self): pass
        for call in (lambda: f.bind(), lambda: C.bind(), lambda: InputNode(), lambda: raygo.java_function("A", "b")):
            try:
                call()
            except NotImplementedError as e:
                assert "raygo" in str(e)
            else:
                raise AssertionError
        assert f.bind.__raygo_stub__
    """)


@pytest.mark.parametrize(
    "module", ["typing", "numpy", "torch", "pyarrow", "cloudpickle", "msgpack", "asyncio", "inspect", "logging", "dataclasses", "concurrent.futures"]
)
def test_import_stays_light(module: str) -> None:
    run(f"""
        import sys
        before = set(sys.modules)
        import threading, os
        import raygo
        assert {module!r} not in set(sys.modules) - before, {module!r}
        assert threading.active_count() == 1
    """)


def test_import_takes_tens_of_milliseconds() -> None:
    # Processor time, which other work on the machine does not lengthen much.
    took = min(float(run("import time; t = time.process_time(); import raygo; print(time.process_time() - t)")) for _ in range(5))
    assert took < 0.06, f"{took * 1e3:.0f} ms"


def test_every_public_name_is_there() -> None:
    run("""
        import raygo
        for name in raygo.__all__:
            assert getattr(raygo, name) is not None, name
        assert set(raygo.__all__) <= set(dir(raygo)) and sorted(raygo.__all__) == raygo.__all__
    """)
