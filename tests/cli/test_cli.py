"""The command ``raygo``: without an engine, and asking a real one in another process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raygo


def command(*words: str, timeout: float = 60, **env: str) -> subprocess.CompletedProcess[str]:
    """Run ``python -m raygo`` with these words."""
    words = (sys.executable, "-m", "raygo", *words)
    env = {**os.environ, **env}
    return subprocess.run(words, capture_output=True, text=True, timeout=timeout, check=False, env=env, stdin=subprocess.DEVNULL)


class TestWithoutAnEngine:
    def test_version(self) -> None:
        assert command("version").stdout == command("--version").stdout == f"raygo {raygo.__version__}\n"

    def test_help_names_every_command(self) -> None:
        text = command("--help").stdout
        for name in ("status", "memory", "list", "get", "summary", "timeline", "logs", "run", "version"):
            assert f"\n  {name} " in text

    @pytest.mark.parametrize("words", [["status"], ["list", "tasks"], ["memory", "--stats"], ["timeline"], ["logs"]])
    def test_no_session_is_one_sentence(self, words: list[str], tmp_path: Path) -> None:
        done = command(*words, RAYGO_TMPDIR=str(tmp_path))
        assert done.returncode == 3
        assert ("no session" if words == ["logs"] else "no running engine") in done.stderr and str(tmp_path) in done.stderr and "raygo.init()" in done.stderr
        assert "Traceback" not in done.stderr

    def test_session_of_another_version_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "session.json").write_text(json.dumps({"version": "9.9.9", "socket": "x", "pid": 1}))
        done = command("status", "--address", str(tmp_path))
        assert done.returncode == 3 and "9.9.9" in done.stderr and raygo.__version__ in done.stderr

    def test_dead_engine_is_one_sentence(self, tmp_path: Path) -> None:
        (tmp_path / "session.json").write_text(json.dumps({"version": raygo.__version__, "socket": str(tmp_path / "gone.sock"), "pid": 12345}))
        done = command("status", "--address", str(tmp_path))
        assert done.returncode == 3 and "does not answer" in done.stderr and "12345" in done.stderr and "Traceback" not in done.stderr

    def test_a_session_that_ended_is_passed_over(self, tmp_path: Path) -> None:
        root = tmp_path / f"raygo-{os.getuid()}"
        for name, ended in (("session_1", None), ("session_2", "2026-01-01T00:00:00Z")):
            (root / name / "logs").mkdir(parents=True)
            (root / name / "logs" / f"{name}.out").write_text("text\n")
            (root / name / "session.json").write_text(json.dumps({"version": raygo.__version__, "socket": name, "pid": os.getpid(), "ended": ended}))
        (root / "session_latest").symlink_to("session_2")
        done = command("status", RAYGO_TMPDIR=str(tmp_path))
        assert done.returncode == 3 and "session_1" in done.stderr and "does not answer" in done.stderr
        assert "session_2.out" in command("logs", RAYGO_TMPDIR=str(tmp_path)).stdout
        (root / "session_1" / "session.json").unlink()
        assert "no running engine" in command("status", RAYGO_TMPDIR=str(tmp_path)).stderr
        done = command("status", "--address", str(root / "session_2"))
        assert done.returncode == 3 and "ended at 2026-01-01" in done.stderr

    def test_bad_filter(self) -> None:
        done = command("list", "tasks", "-f", "nonsense", "--address", "/nowhere")
        assert done.returncode != 0

    @pytest.mark.parametrize("missing", ["click", "rich"])
    def test_without_click_or_rich(self, missing: str, tmp_path: Path) -> None:
        # A module that fails as one that is not installed does.
        (tmp_path / f"{missing}.py").write_text(f"raise ModuleNotFoundError(\"No module named '{missing}'\", name='{missing}')\n")
        env = {"PYTHONPATH": str(tmp_path)}
        done = command("status", **env)
        assert done.returncode == 1 and done.stderr == f"raygo's command line needs {missing}, which is not installed: pip install 'raygo[default]'\n"
        assert command("version", **env).returncode == 0
        script = tmp_path / "s.py"
        script.write_text("print('ran')\n")
        assert command("run", str(script), **env).stdout == "ran\n"


class TestRun:
    def script(self, tmp_path: Path, text: str) -> str:
        path = tmp_path / "script.py"
        path.write_text(textwrap.dedent(text))
        return str(path)

    def test_ray_is_raygo_here_and_in_workers(self, tmp_path: Path) -> None:
        (tmp_path / "beside.py").write_text("VALUE = 5\n")
        path = self.script(
            tmp_path,
            """
            import sys
            import ray
            import beside

            class Pair:
                def __init__(self, a, b):
                    self.a, self.b = a, b

            @ray.remote
            def f(pair):
                import ray as again, beside
                return again.__name__, beside.VALUE, Pair(pair.b, pair.a)

            if __name__ == "__main__":
                ray.init(num_cpus=1)
                name, value, pair = ray.get(f.remote(Pair(1, 2)))
                print(sys.argv[1:], value, type(pair) is Pair, pair.a, pair.b)
            """,
        )
        done = command("run", path, "--flag", "x y", "-h")
        assert done.stdout == "['--flag', 'x y', '-h'] 5 True 2 1\n", done.stderr

    def test_module(self, tmp_path: Path) -> None:
        (tmp_path / "mod.py").write_text("import sys, ray\nprint(__name__, sys.argv[1:], ray.__version__)\n")
        done = subprocess.run([sys.executable, "-m", "raygo", "run", "-m", "mod", "a"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert done.stdout == "__main__ ['a'] 2.60.0\n", done.stderr

    def test_exception_shows_only_the_script(self, tmp_path: Path) -> None:
        done = command("run", self.script(tmp_path, "def f():\n    1 / 0\nf()\n"))
        assert done.returncode == 1
        assert done.stderr.startswith("Traceback") and "ZeroDivisionError" in done.stderr and "_run.py" not in done.stderr

    def test_exit_status_is_the_scripts(self, tmp_path: Path) -> None:
        assert command("run", self.script(tmp_path, "import sys\nsys.exit(7)\n")).returncode == 7

    def test_exit_handlers_see_the_scripts_globals(self, tmp_path: Path) -> None:
        done = command("run", self.script(tmp_path, "import atexit\nX = 3\natexit.register(lambda: print(X))\n"))
        assert done.stdout == "3\n"

    def test_no_such_script(self) -> None:
        done = command("run", "/nowhere/x.py")
        assert done.returncode == 2 and done.stderr == "raygo run: cannot read /nowhere/x.py: No such file or directory\n"

    def test_missing_words(self) -> None:
        assert command("run").returncode == 2
        assert command("run", "--help").stdout.startswith("Usage: raygo run SCRIPT")


DRIVER = """
import sys
import raygo

@raygo.remote
def double(x):
    return 2 * x

@raygo.remote
class Keeper:
    def ready(self):
        print("keeper is here", flush=True)
        return True

raygo.init(num_cpus=2, namespace="cli")
keeper = Keeper.options(name="the-keeper").remote()
big = raygo.put(bytes(300_000))
raygo.get([keeper.ready.remote(), *(double.remote(i) for i in range(5))])
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A driver in another process, with its session in a folder of its own; the environment in which the command finds it."""
    env = {"RAYGO_TMPDIR": str(tmp_path_factory.mktemp("session"))}
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **env}
    )
    assert driver.stdin is not None and driver.stdout is not None and driver.stderr is not None
    for line in driver.stdout:
        if line == "ready\n":
            break
    else:
        pytest.fail(driver.stderr.read())
    yield env
    driver.communicate(timeout=30)
    assert driver.returncode == 0


def test_memory_of_an_empty_session_is_nothing(tmp_path: Path) -> None:
    env = {"RAYGO_TMPDIR": str(tmp_path)}
    script = textwrap.dedent("""
        import sys, numpy, raygo

        @raygo.remote
        def double(x):
            return 2 * x

        raygo.init(num_cpus=1, object_store_memory=100 << 20)
        print("ready", flush=True)
        sys.stdin.readline()
        ref = raygo.put(numpy.ones(100_000))
        value = raygo.get(double.remote(ref))
        print("made", flush=True)
        sys.stdin.readline()
        del ref, value
        print("gone", flush=True)
        sys.stdin.readline()
        """)
    driver = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **env})
    assert driver.stdin is not None and driver.stdout is not None

    def said() -> dict[str, Any]:
        done = command("memory", "--format", "json", **env)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)  # type: ignore[no-any-return]

    try:
        assert driver.stdout.readline() == "ready\n"
        assert said()["totals"] == {"objects": 0, "bytes": 0, "references": {}}
        assert "No objects." in command("memory", **env).stdout
        driver.stdin.write("\n")
        driver.stdin.flush()
        assert driver.stdout.readline() == "made\n"
        assert said()["totals"]["bytes"] >= 1_600_000
        driver.stdin.write("\n")
        driver.stdin.flush()
        assert driver.stdout.readline() == "gone\n"
        deadline = time.monotonic() + 60
        while (last := said())["totals"]["objects"] and time.monotonic() < deadline:
            pass  # a release may wait a moment for company
        assert last["totals"] == {"objects": 0, "bytes": 0, "references": {}} and last["store"]["used"] == last["store"]["pinned"] == 0
    finally:
        driver.communicate("\n", timeout=60)


class TestAsking:
    def ok(self, engine: dict[str, str], *words: str) -> str:
        done = command(*words, **engine)
        assert done.returncode == 0, done.stderr + done.stdout
        assert not done.stderr
        return done.stdout

    def test_status(self, engine: dict[str, str]) -> None:
        text = self.ok(engine, "status")
        assert "1 alive" in text and "CPU" in text and "FINISHED" in text and "ALIVE" in text

    def test_list_tasks(self, engine: dict[str, str]) -> None:
        rows = json.loads(self.ok(engine, "list", "tasks", "--format", "json", "-f", "name=double"))
        assert len(rows) == 5 and {row["state"] for row in rows} == {"FINISHED"}
        assert self.ok(engine, "list", "tasks").count("double") == 5

    def test_list_actors(self, engine: dict[str, str]) -> None:
        rows = json.loads(self.ok(engine, "list", "actors", "--format", "json"))
        assert [(row["name"], row["class_name"], row["state"]) for row in rows] == [("the-keeper", "Keeper", "ALIVE")]

    def test_get(self, engine: dict[str, str]) -> None:
        (row,) = json.loads(self.ok(engine, "list", "actors", "--format", "json", "--detail"))
        assert json.loads(self.ok(engine, "get", "actors", row["actor_id"], "--format", "json")) == [row]
        assert re.search(r"class_name +Keeper", self.ok(engine, "get", "actors", row["actor_id"]))
        done = command("get", "tasks", "ab12", **engine)
        assert done.returncode == 1 and "whose task_id is ab12" in done.stderr

    @pytest.mark.parametrize("kind", ["tasks", "actors", "objects", "workers", "nodes", "jobs", "placement-groups"])
    def test_list_shows_a_table(self, engine: dict[str, str], kind: str) -> None:
        assert self.ok(engine, "list", kind).strip()
        assert isinstance(json.loads(self.ok(engine, "list", kind, "--detail", "--format", "json")), list)

    def test_memory_names_who_keeps_what(self, engine: dict[str, str]) -> None:
        text = self.ok(engine, "memory")
        (line,) = (line for line in text.splitlines() if "293.0 KiB" in line and "arena" in line)
        assert "Driver" in line and "driver" in line and "LOCAL_REFERENCE" in line
        (handle,) = (line for line in text.splitlines() if "ACTOR_HANDLE" in line)
        assert "Keeper" in handle
        assert "Object store memory usage" in text and "RAY_record_ref_creation_sites=1" in text

    def test_memory_for_other_programs(self, engine: dict[str, str]) -> None:
        said = json.loads(self.ok(engine, "memory", "--format", "json"))
        assert said["objects"][0]["object_size"] >= 300_000 and said["objects"][0]["creator"] == "driver"
        assert said["totals"]["objects"] == said["store"]["objects"] and said["totals"]["bytes"] >= 300_000
        assert said["store"]["used"] >= 300_000
        rows = [line.split("\t") for line in self.ok(engine, "memory", "--no-format", "--units", "KB", "--n", "1").splitlines() if "\t" in line]
        assert rows[-1][rows[-2].index("Size")] == f"{said['objects'][0]['object_size'] / 1024:.3f} KB"
        assert rows[-1][-1] == said["objects"][0]["object_id"]

    def test_memory_groups_and_orders(self, engine: dict[str, str]) -> None:
        text = self.ok(engine, "memory", "--group-by", "STACK_TRACE", "--sort-by", "REFERENCE_TYPE", "--units", "B")
        assert text.count("--- Summary for stack trace: disabled ---") == 1
        kinds = [word for line in text.splitlines() for word in line.split() if word in ("ACTOR_HANDLE", "LOCAL_REFERENCE")]
        assert kinds == sorted(kinds) and "LOCAL_REFERENCE" in kinds
        assert "… and " in self.ok(engine, "memory", "--num-entries", "0")

    def test_memory_stats(self, engine: dict[str, str]) -> None:
        figures = {line.split()[0] for line in self.ok(engine, "memory", "--stats").splitlines()}
        assert {"capacity", "used", "slack", "largest_free", "warm", "cold", "free_runs", "disk_used", "waiting"} <= figures
        short = self.ok(engine, "memory", "--stats-only")
        assert "% full" in short and "Object references" not in short

    def test_status_has_the_stores_line(self, engine: dict[str, str]) -> None:
        (line,) = (line for line in self.ok(engine, "status").splitlines() if "object_store_memory" in line)
        assert "KiB / " in line

    @pytest.mark.parametrize("kind", ["tasks", "actors", "objects"])
    def test_summary(self, engine: dict[str, str], kind: str) -> None:
        text = self.ok(engine, "summary", kind)
        if kind == "tasks":
            assert "5 FINISHED" in text

    def test_timeline(self, engine: dict[str, str], tmp_path: Path) -> None:
        path = tmp_path / "t.json"
        assert "events in" in self.ok(engine, "timeline", "-o", str(path))
        assert any("double" in str(event.get("name")) for event in json.loads(path.read_text()))

    def test_logs(self, engine: dict[str, str]) -> None:
        assert self.ok(engine, "logs").strip()
        assert "keeper is here" in self.ok(engine, "logs", "*", "--tail", "-1")

    def test_the_engine_does_not_mind_its_callers_leaving(self, engine: dict[str, str]) -> None:
        for _ in range(5):
            self.ok(engine, "list", "workers")
        assert "ALIVE" in self.ok(engine, "list", "actors")
