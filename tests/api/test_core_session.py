"""Starting, joining and ending sessions; each driver is a process of its own."""

from __future__ import annotations

from typing import Any


def test_init_answers_and_refuses_a_second(driver: Any) -> None:
    driver("""
        import os, raygo
        assert not raygo.is_initialized()
        context = raygo.init(num_cpus=1, namespace="shop", log_to_driver=False)
        info = context.address_info
        assert info["node_id"] == raygo.get_runtime_context().get_node_id() and os.path.isdir(info["session_dir"])
        assert context["address"].startswith("unix:") and context.dashboard_url is None and "session_dir" in repr(context)
        assert raygo.get_runtime_context().namespace == "shop"
        try:
            raygo.init()
        except RuntimeError as e:
            assert "ignore_reinit_error=True" in str(e)
        else:
            raise AssertionError
        assert raygo.init(ignore_reinit_error=True).address_info == info
        raygo.shutdown()
        assert not raygo.is_initialized()
        raygo.shutdown()
        with raygo.init(num_cpus=2) as again:
            assert raygo.cluster_resources()["CPU"] == 2
        assert not raygo.is_initialized()
        context.disconnect()
    """)


def test_first_use_starts_a_session(driver: Any) -> None:
    done = driver("""
        import raygo
        @raygo.remote
        def f(): return "auto"
        print(raygo.get(f.remote()), raygo.is_initialized())
    """)
    assert "auto True" in done.stdout


def test_functions_outlive_sessions_and_references_do_not(driver: Any) -> None:
    driver("""
        import raygo
        @raygo.remote
        def f(): return 1
        @raygo.remote
        class C:
            def m(self): return 2
        for _ in range(3):
            raygo.init(num_cpus=1, log_to_driver=False)
            ref, c = f.remote(), C.remote()
            assert raygo.get(ref) == 1 and raygo.get(c.m.remote()) == 2
            raygo.shutdown()
        raygo.init(num_cpus=1, log_to_driver=False)
        for call in (lambda: raygo.get(ref), lambda: c.m.remote()):
            try:
                call()
            except (ReferenceError, RuntimeError, raygo.exceptions.RayError) as e:
                assert "session" in str(e), e
            else:
                raise AssertionError
    """)


def test_a_second_driver_joins(driver: Any, tmp_path: Any) -> None:
    driver(
        """
        import subprocess, sys, textwrap, raygo
        address = raygo.init(num_cpus=2, namespace="one", log_to_driver=False)["address"]
        other = textwrap.dedent('''
            import raygo, sys
            raygo.init(address=sys.argv[1], namespace="one", log_to_driver=False)
            @raygo.remote(num_cpus=0)
            class Keep:
                def get(self): return "kept"
            k = Keep.options(name="keep", lifetime="detached").remote()
            print(raygo.get(k.get.remote()))
        ''')
        for i, name in enumerate((address, raygo.get_runtime_context().gcs_address, "auto")):
            source = other.replace('"keep"', f'"keep{i}"')
            out = subprocess.run([sys.executable, "-c", source, name], capture_output=True, text=True, timeout=30)
            assert out.returncode == 0 and "kept" in out.stdout, out.stderr
            assert raygo.get(raygo.get_actor(f"keep{i}").get.remote()) == "kept"
    """,
        RAYGO_TMPDIR=str(tmp_path),  # "auto" must not find sessions of others
    )


def test_auto_finds_the_newest_that_runs(driver: Any, tmp_path: Any) -> None:
    driver(
        """
        import os, subprocess, sys, raygo
        address = raygo.init(num_cpus=1, log_to_driver=False)["address"]
        # A session that started later and has ended is the latest, but not the one to join.
        subprocess.run([sys.executable, "-c", "import raygo; raygo.init(address='local', num_cpus=1)"], check=True, timeout=30)
        code = "import raygo, sys; assert raygo.init(address='auto', log_to_driver=False)['address'] == sys.argv[1]"
        subprocess.run([sys.executable, "-c", code, address], check=True, timeout=30)
    """,
        RAYGO_TMPDIR=str(tmp_path),
    )


def test_no_session_to_join(driver: Any) -> None:
    driver(
        """
        import raygo
        for address in ("auto", "/nonexistent", "unix:/nonexistent"):
            try:
                raygo.init(address=address)
            except (ConnectionError, raygo.exceptions.RayError) as e:
                assert "nonexistent" in str(e) or "Could not find any running Ray instance" in str(e), e
            else:
                raise AssertionError
    """,
        RAYGO_TMPDIR="/nonexistent",
        RAY_ADDRESS="",
    )


def test_what_workers_print_is_shown(driver: Any) -> None:
    done = driver("""
        import sys, raygo
        raygo.init(num_cpus=1)
        @raygo.remote
        def speak():
            print("words from a worker")
            print("errors from a worker", file=sys.stderr)
        raygo.get(speak.remote())
        raygo.shutdown()
    """)
    assert "words from a worker" in done.stdout and "errors from a worker" in done.stderr
    line = next(line for line in done.stdout.splitlines() if "words" in line)
    assert "speak" in line and "pid=" in line


def test_forked_children_are_told(driver: Any) -> None:
    driver("""
        import os, sys, raygo
        raygo.init(num_cpus=1, log_to_driver=False)
        @raygo.remote
        def f(): return 1
        ref = f.remote()
        pid = os.fork()
        if pid == 0:
            said = 0
            for call in (lambda: raygo.get(ref), lambda: f.remote(), lambda: raygo.put(1), lambda: raygo.nodes(), lambda: raygo.wait([ref])):
                try:
                    call()
                except RuntimeError as e:
                    said += "fork" in str(e)
            sys.exit(0 if said == 5 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert raygo.get(ref) == 1
    """)


def test_install_as_ray_reaches_workers(driver: Any) -> None:
    driver("""
        import raygo
        raygo.install_as_ray()
        import ray
        ray.init(num_cpus=1, log_to_driver=False)
        @ray.remote
        def f():
            import importlib.metadata, ray
            from ray.exceptions import RayTaskError
            return ray.__version__, importlib.metadata.version("ray"), ray.is_initialized()
        assert ray.get(f.remote()) == ("2.60.0", "2.60.0", True)
        @ray.remote
        def g(): return ray.get(f.remote())
        assert ray.get(g.remote())[0] == "2.60.0"
    """)


def test_runtime_env_of_the_job_and_of_a_task(driver: Any, tmp_path: Any) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "shelf.py").write_text("COLOUR = 'green'\n")
    driver(
        """
        import os, sys, raygo
        def paint():
            import shelf
            shelf.COLOUR = "blue"
        env = {"working_dir": sys.argv[1], "env_vars": {"A": "1", "B": "1"}, "worker_process_setup_hook": paint}
        raygo.init(num_cpus=1, log_to_driver=False, runtime_env=env)
        @raygo.remote
        def look():
            import shelf
            return shelf.COLOUR, os.environ["A"], os.environ["B"]
        assert raygo.get(look.remote(), timeout=30) == ("blue", "1", "1")
        assert raygo.get(look.options(runtime_env={"env_vars": {"B": "2"}}).remote(), timeout=30) == ("blue", "1", "2")
        def fails():
            raise ValueError("no paint left")
        try:
            raygo.get(look.options(runtime_env={"worker_process_setup_hook": fails}, max_retries=0).remote(), timeout=30)
        except raygo.exceptions.WorkerCrashedError as error:
            assert "no paint left" in str(error), error
        else:
            raise AssertionError("a task ran although its worker's setup hook had raised")
    """,
        str(project),
    )


def test_rounds_leave_nothing(driver: Any) -> None:
    driver("""
        import os, threading, raygo
        @raygo.remote
        def f(): return 1
        def round():
            raygo.init(num_cpus=1)
            assert raygo.get(f.remote()) == 1 and f.remote().future().result(10) == 1
            raygo.shutdown()
            return len(os.listdir("/proc/self/fd")), threading.active_count(), len(os.listdir("/proc/self/task"))
        first = [round() for _ in range(3)][-1]
        last = [round() for _ in range(5)][-1]
        assert last[0] <= first[0] and last[1] <= first[1] and last[2] <= first[2] + 2, (first, last)
    """)
