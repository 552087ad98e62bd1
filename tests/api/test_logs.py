"""What workers print, as the driver shows it."""

from __future__ import annotations

import json
import re
from typing import Any


def test_actors_are_named_by_class_or_by_their_own_words(driver: Any) -> None:
    out = driver("""
        import os, threading, raygo
        raygo.init(num_cpus=1)
        @raygo.remote
        class Plain:
            async def speak(self): print("from a coroutine")
        @raygo.remote
        class Named:
            def __init__(self, k):
                self.k = k
                print("too early")
            def __repr__(self): return f"Named(k={self.k})"
            def speak(self):
                os.write(1, b"from below\\n")
                t = threading.Thread(target=print, args=("from a thread",))
                t.start()
                t.join()
        plain, named = Plain.remote(), Named.remote(3)
        raygo.get([plain.speak.remote(), named.speak.remote()])
        raygo.shutdown()
    """).stdout
    shown = {text: name for name, text in re.findall(r"^\((.*) pid=\d+\) (.*)$", out, re.M)}
    assert shown == {"from a coroutine": "Plain", "too early": "Named", "from below": "Named(k=3)", "from a thread": "Named(k=3)"}, out


def test_threads_of_an_actor_keep_their_lines_apart(driver: Any) -> None:
    out = driver("""
        import sys, threading, raygo
        raygo.init(num_cpus=1)
        @raygo.remote
        class A:
            def speak(self):
                sys.setswitchinterval(1e-6)
                def run(k):
                    for i in range(300): print("line", k, i)
                threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
                [t.start() for t in threads]
                [t.join() for t in threads]
        raygo.get(A.remote().speak.remote())
        raygo.shutdown()
    """).stdout
    got = sorted(re.findall(r"^\(A pid=\d+\) line (\d) (\d+)$", out, re.M), key=lambda pair: (int(pair[0]), int(pair[1])))
    assert got == [(str(k), str(i)) for k in range(4) for i in range(300)]
    assert len(out.splitlines()) == 1200


def test_a_last_line_without_an_end_is_shown_under_its_task(driver: Any) -> None:
    out = driver("""
        import subprocess, sys, raygo
        raygo.init(num_cpus=1)
        @raygo.remote
        def f():
            subprocess.run(["echo", "from a child"])
            print("no end", end="")
        raygo.get(f.remote())
        raygo.shutdown()
    """).stdout
    assert re.search(r"^\(f pid=\d+\) no end$", out, re.M) and re.search(r"^\(\w+ pid=\d+\) from a child$", out, re.M), out


def test_the_logging_config_holds_in_workers(driver: Any) -> None:
    done = driver("""
        import logging, raygo
        raygo.init(logging_config=raygo.LoggingConfig(encoding="JSON", log_level="INFO", additional_log_standard_attrs=["name", "lineno", "message"]),
                    num_cpus=1)
        @raygo.remote
        class A:
            def speak(self): logging.getLogger("app").info("a word", extra={"colour": "blue"})
        raygo.get(A.options(name="till").remote().speak.remote())
        logging.getLogger("app").debug("not shown")
        raygo.shutdown()
        for wrong in ({"encoding": "XML"}, {"additional_log_standard_attrs": ["no-such"]}):
            try:
                raygo.LoggingConfig(**wrong)
            except ValueError:
                continue
            raise AssertionError(wrong)
    """)
    (row,) = (json.loads(line[line.index("{") :]) for line in done.stderr.splitlines() if "{" in line)
    assert {row["message"], row["name"], row["colour"], row["actor_name"], row["task_name"]} == {"a word", "app", "blue", "till", "A.speak"}
    assert {"job_id", "worker_id", "node_id", "actor_id", "task_id", "timestamp_ns", "lineno"} <= row.keys()


def test_bars_of_tqdm_ray(driver: Any) -> None:
    done = driver("""
        import raygo
        raygo.install_as_ray()
        raygo.init(num_cpus=1)
        @raygo.remote
        def f():
            from ray.experimental import tqdm_ray
            for _ in tqdm_ray.tqdm(range(5), desc="a walk"): pass
            with tqdm_ray.tqdm(total=4, unit="step") as bar:
                bar.update(3)
        raygo.get(f.remote())
        raygo.shutdown()
    """)
    assert re.search(r"^\(f pid=\d+\) a walk: 100%\|#{20}\| 5/5 \[", done.stderr, re.M) and "| 3/4 [" in done.stderr, done.stderr


def test_many_lines_lose_none(driver: Any) -> None:
    out = driver("""
        import raygo
        raygo.init(num_cpus=1)
        @raygo.remote
        def f():
            for i in range(50_000): print("line", i)
        raygo.get(f.remote())
    """).stdout
    assert re.findall(r"^\(f pid=\d+\) line (\d+)$", out, re.M) == [str(i) for i in range(50_000)]
