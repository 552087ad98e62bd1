"""raygo in a real Jupyter kernel."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")

pytestmark = pytest.mark.filterwarnings("ignore")


class Notebook:
    """A kernel, and the cells that were run in it."""

    def __init__(self) -> None:
        self.notebook = nbformat.v4.new_notebook(cells=[])
        self.client = nbclient.NotebookClient(self.notebook, timeout=60, allow_errors=True, kernel_name="python3")

    def run(self, source: str) -> list[Any]:
        cell = nbformat.v4.new_code_cell(source)
        self.notebook.cells.append(cell)
        self.client.execute_cell(cell, len(self.notebook.cells) - 1)
        return list(cell.outputs)

    def text(self, source: str) -> str:
        """What a cell prints, what it ends with, and its errors."""
        return "".join(str(out.get("text") or out.get("data", {}).get("text/plain") or f"{out.get('ename')}: {out.get('evalue')}") for out in self.run(source))


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    book = Notebook()
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[2] / "python"), os.environ.get("PYTHONPATH")]))
    home = str(tmp_path_factory.mktemp("jupyter"))
    before = dict(os.environ)
    os.environ.update(PYTHONPATH=path, IPYTHONDIR=home, JUPYTER_RUNTIME_DIR=home)
    try:
        with book.client.setup_kernel():
            yield book
    finally:
        os.environ.clear()
        os.environ.update(before)


def test_cells(notebook: Notebook, eventually: Callable[..., None]) -> None:
    (shown,) = notebook.run("import os, time, raygo\nraygo.init(num_cpus=2)")
    assert shown.data["text/plain"].startswith("RayContext(") and "raygo version" in shown.data["text/html"]

    # Whatever a cell defines anew is what the next call uses.
    notebook.run("@raygo.remote\ndef f(): return helper(), Point().x, K\ndef helper(): return 'old'\nclass Point: x = 1\nK = 1")
    assert notebook.text("raygo.get(f.remote())") == "('old', 1, 1)"
    notebook.run("def helper(): return 'new'")
    notebook.run("class Point: x = 2")
    assert notebook.text("K = 2\nraygo.get(f.remote())") == "('new', 2, 2)"
    notebook.run("@raygo.remote\nclass A:\n    def who(self): return 'first'\na = A.remote()")
    assert notebook.text("a") .startswith("Actor(A, ")
    notebook.run("@raygo.remote\nclass A:\n    def who(self): return 'second'")
    assert notebook.text("raygo.get([a.who.remote(), A.remote().who.remote()])") == "['first', 'second']"

    assert notebook.text("raygo.put(1)").startswith("ObjectRef(")
    assert notebook.text("await f.remote()") == "('new', 2, 2)"
    said = notebook.text("@raygo.remote\ndef speak(): print('from a worker')\nraygo.get(speak.remote())\ntime.sleep(0.2)")
    assert said.startswith("(speak pid=") and said.endswith(") from a worker\n")
    assert "ZeroDivisionError" in notebook.text("raygo.get(raygo.remote(lambda: 1 / 0).remote())")

    # Interrupting a cell ends its wait and nothing else.
    pid = int(notebook.text("os.getpid()"))
    notebook.run("@raygo.remote(num_cpus=0)\ndef slow(): time.sleep(60)")
    for wait in ("raygo.get(ref)", "raygo.wait([ref])"):
        timer = threading.Timer(0.5, os.kill, (pid, signal.SIGINT))
        timer.start()
        assert notebook.text(f"ref = slow.remote()\nbegin = time.time()\n{wait}").startswith("KeyboardInterrupt")
        timer.join()
        assert float(notebook.text("time.time() - begin")) < 10
    assert notebook.text("raygo.get(f.remote())") == "('new', 2, 2)"

    # A kernel that is killed, as a restart does, leaves no process behind.
    children = psutil.Process(pid).children(recursive=True)
    assert children
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not [p for p in children if p.is_running() and p.status() != psutil.STATUS_ZOMBIE])
