"""The languages' bindings against a running Python driver: their own tests, their examples, and functions of theirs that Python calls."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from native import CAPI, LIBRARY, ROOT, WARNINGS, compiler, run

BINDINGS = ROOT / "bindings"
SERVING = "serving "


@pytest.fixture(scope="module")
def session() -> Iterator[str]:
    """A driver in this process; gives the folder of its session."""
    raygo = pytest.importorskip("raygo")
    if not LIBRARY.exists():
        pytest.skip(f"{LIBRARY.relative_to(ROOT)} is not built: run make build")
    raygo.init(num_cpus=2, object_store_memory=256 << 20)
    try:
        yield raygo._session.get().session_dir
    finally:
        raygo.shutdown()


def tool(name: str) -> str:
    path = shutil.which(name) or shutil.which(Path.home() / ".cargo" / "bin" / name)
    if path is None:
        pytest.skip(f"no {name} here")
    return path


def environment(session: str) -> dict[str, str]:
    return {**os.environ, "RAYGO_TEST_ADDRESS": session, "RAYGO_PYTHON": sys.executable, "RAYGO_LIB_DIR": str(LIBRARY.parent)}


@contextmanager
def example(command: list[str | Path], session: str, **more: object) -> Iterator[list[str]]:
    """Run a program until it serves; gives the lines it printed before. It must end well after the calls that it was told to expect."""
    program = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, text=True, env=environment(session), **more)  # type: ignore[call-overload]
    assert program.stdout is not None
    lines = []
    try:
        for line in program.stdout:
            if line.startswith(SERVING):
                break
            lines.append(line.rstrip("\n"))
        else:
            pytest.fail(f"{command} ended with {program.wait(30)} before it served; it said {lines}")
        yield lines
        assert program.wait(30) == 0
    finally:
        program.kill()
        program.wait()
        program.stdout.close()


def call_dot(name: str) -> None:
    """What every example serves, called four times."""
    import raygo
    from raygo import cross_language

    dot = cross_language.named_function(name)
    assert raygo.get(dot.remote([1.0, 2.0], [3.0, 4.0]), timeout=30) == 11.0
    assert raygo.get(dot.remote([], []), timeout=30) == 0.0
    with pytest.raises(raygo.exceptions.RayTaskError, match="1 and 2 numbers|two lists of numbers of one length"):
        raygo.get(dot.remote([1.0], [1.0, 2.0]), timeout=30)
    assert raygo.get(dot.remote([2], [5.5]), timeout=30) == 11.0


def check_lines(lines: list[str]) -> None:
    assert lines == ["put and got 1048576 bytes, the last is 200", "Python says the median is 6.5"]


def test_c_example_serves_python(session: str, tmp_path: Path) -> None:
    program = tmp_path / "example"
    run(
        [*compiler(), "-std=c11", "-O2", *WARNINGS, "-pedantic", f"-I{CAPI / 'include'}", BINDINGS / "c" / "example.c", "-o", program]
        + [f"-L{LIBRARY.parent}", "-lraygo", f"-Wl,-rpath,{LIBRARY.parent}"]
    )
    with example([program, session, "4"], session) as lines:
        call_dot("c.dot")
    check_lines(lines)


def test_c_example_alone(session: str, tmp_path: Path) -> None:
    """With its own Makefile and an engine of its own."""
    folder = tmp_path / "c"
    shutil.copytree(BINDINGS / "c", folder)
    make = tool("make")
    run([make, "-C", folder, f"LIB={LIBRARY.parent}", f"INCLUDE={CAPI / 'include'}", f"CC={' '.join(compiler())}"])
    lines = run([folder / "example"], env=environment(session)).splitlines()
    check_lines(lines[:2])
    assert lines[2:] == ["serving c.dot", "c.dot([1, 2], [3, 4]) is 11"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_rust(session: str) -> None:
    cargo = tool("cargo")
    folder = BINDINGS / "rust"
    probe = subprocess.run([cargo, "fetch", "--locked"], cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    if probe.returncode:
        pytest.skip(f"cargo cannot get the crate's dependencies here: {probe.stderr[-300:]}")
    run([cargo, "test", "--locked", "--quiet", "--features", "arrow"], timeout=800, cwd=folder, env=environment(session))
    run([cargo, "build", "--locked", "--quiet", "--example", "dot"], timeout=600, cwd=folder, env=environment(session))
    target = Path(os.environ.get("CARGO_TARGET_DIR") or folder / "target")
    with example([target / "debug" / "examples" / "dot", session, "4"], session) as lines:
        call_dot("rust.dot")
    check_lines(lines)


@pytest.mark.timeout(300)
def test_node(session: str, tmp_path: Path) -> None:
    node, npm = tool("node"), tool("npm")
    if int(run([node, "--version"]).lstrip("v").split(".")[0]) < 18:
        pytest.skip("the Node here is older than 18")
    folder = tmp_path / "node"
    shutil.copytree(BINDINGS / "node", folder, ignore=shutil.ignore_patterns("node_modules"))
    got = subprocess.run([npm, "ci", "--no-audit", "--no-fund"], cwd=folder, capture_output=True, text=True, check=False, timeout=200)
    if got.returncode:
        pytest.skip(f"npm cannot get the package's dependencies here: {got.stderr[-300:]}")
    run([node, "--expose-gc", "--test", "test/"], timeout=200, cwd=folder, env=environment(session))
    lines = run([node, "example.js", session], cwd=folder, env=environment(session)).splitlines()
    check_lines(lines[:2])
    assert lines[2:] == ["Python counts 100000 rows"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_go(session: str, tmp_path: Path) -> None:
    go = tool("go")
    run([go, "test", "-count=1", "./bindings/go"], timeout=600, cwd=ROOT, env=environment(session))
    run([go, "test", "-run=^$", "-bench=.", "-benchtime=20ms", "./bindings/go"], timeout=600, cwd=ROOT, env=environment(session))
    program = tmp_path / "example"
    run([go, "build", "-o", program, "./bindings/go/example"], timeout=600, cwd=ROOT)
    with example([program, session, "4"], session) as lines:
        call_dot("go.dot")
    check_lines(lines)


def test_python_serves_nobody(session: str) -> None:
    """A name that no program serves is an error that says so."""
    import raygo
    from raygo import cross_language

    with pytest.raises(Exception, match="no process serves it.*nobody.there"):
        raygo.get(cross_language.named_function("nobody.there").remote(), timeout=30)
