"""What is built: the files in wheel and sdist, what the library shows, and that versions must agree."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "raygo"


def run(*command: str | os.PathLike[str], timeout: float = 100, **options: object) -> subprocess.CompletedProcess[str]:
    """Run a command with its output kept."""
    return subprocess.run([os.fspath(word) for word in command], capture_output=True, text=True, timeout=timeout, check=False, **options)  # type: ignore[call-overload]


def load(path: Path) -> object:
    """Import a file that is in no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


hatch_build = load(ROOT / "python" / "hatch_build.py")


@pytest.fixture(scope="module")
def dists(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Build an sdist, and a wheel from what the sdist holds, as an installer without wheels for its machine does."""
    pytest.importorskip("build")
    out = tmp_path_factory.mktemp("dist")
    done = run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(out.glob("*.tar.gz")), next(out.glob("*.whl"))


@pytest.mark.timeout(400)
def test_sdist_holds_what_a_build_needs(dists: tuple[Path, Path]) -> None:
    with tarfile.open(dists[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = {"VERSION", "LICENSE", "README.md", "CHANGELOG.md", "go.mod", "go.sum", "pyproject.toml", "Makefile", "python/hatch_build.py", "capi/libraygo.map"}
    assert needed <= names
    assert {path for path in names if path.startswith("python/raygo/_csrc/") and path.endswith(".c")}
    assert not {path for path in names if path.endswith(".so") or path.startswith((".venv", ".git/", ".ci", "build/", "dist/"))}


@pytest.mark.timeout(400)
def test_wheel_contents_and_tag(dists: tuple[Path, Path]) -> None:
    inspect = load(Path(__file__).parent / "inspect_wheel.py")
    assert inspect.problems(dists[1]) == []  # type: ignore[attr-defined]
    version = (ROOT / "VERSION").read_text().strip()
    with zipfile.ZipFile(dists[1]) as archive:
        meta = archive.read(f"raygo-{version}.dist-info/METADATA").decode()
        entry = archive.read(f"raygo-{version}.dist-info/entry_points.txt").decode()
    assert f"\nVersion: {version}\n" in meta
    assert "raygo = raygo._cli:main" in entry
    bare = [line for line in meta.splitlines() if line.startswith("Requires-Dist:") and "extra ==" not in line]
    assert [re.split(r"[ ><=;]", line.partition(": ")[2])[0] for line in bare] == ["cloudpickle"]


def exported(library: Path) -> set[str]:
    """Return the names that a library defines for others."""
    if shutil.which("nm") is None:
        pytest.skip("needs nm")
    return {line.split()[-1] for line in run("nm", "-D", "--defined-only", library).stdout.splitlines()}


def test_library_exports_only_its_abi() -> None:
    names = exported(PACKAGE / "libraygo.so")
    assert "raygo_version" in names
    assert not {name for name in names if not name.startswith("raygo_")}


def test_binding_exports_only_its_entry() -> None:
    assert exported(PACKAGE / hatch_build.binding_name()) == {"PyInit__binding"}  # type: ignore[attr-defined]


def test_generated_files_are_up_to_date() -> None:
    done = run(sys.executable, ROOT / "capi" / "generate.py", "--check")
    assert done.returncode == 0, done.stdout


def test_one_version_everywhere() -> None:
    import raygo
    from raygo import _binding

    version = (ROOT / "VERSION").read_text().strip()
    assert raygo.__version__ == _binding.VERSION == version
    # In a process of its own: the library brings the Go runtime, which this one may not want.
    code = f"import ctypes; f = ctypes.CDLL({str(PACKAGE / 'libraygo.so')!r}).raygo_version; f.restype = ctypes.c_char_p; print(f().decode())"
    assert run(sys.executable, "-c", code).stdout.strip() == version


def copy_of_package(folder: Path, **versions: str) -> Path:
    """Copy the package, with `package=` another version in the Python part or `binding=` in the C part."""
    target = folder / "raygo"
    shutil.copytree(PACKAGE, target, ignore=shutil.ignore_patterns("__pycache__", "_csrc"))
    if "package" in versions:
        (target / "_version.py").write_text(f'__version__ = "{versions["package"]}"\n')
    if "binding" in versions:
        # The same length, so that the text can be replaced where it stands in the compiled file.
        path = target / hatch_build.binding_name()  # type: ignore[attr-defined]
        old = (ROOT / "VERSION").read_text().strip().encode()
        new = versions["binding"].encode()
        assert len(old) == len(new)
        data = path.read_bytes()
        assert b"\0" + old + b"\0" in data
        path.write_bytes(data.replace(b"\0" + old + b"\0", b"\0" + new + b"\0"))
    return folder


@pytest.mark.parametrize("part", ["package", "binding"])
def test_other_version_is_refused_naming_both(part: str, tmp_path: Path) -> None:
    version = (ROOT / "VERSION").read_text().strip()
    other = re.sub(r"\d", "9", version)
    folder = copy_of_package(tmp_path, **{part: other})
    done = run(
        sys.executable, "-c", "import raygo; raygo.init(num_cpus=1); print('started')", cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(folder)}, timeout=60
    )
    assert done.returncode != 0 and "started" not in done.stdout
    last = done.stderr.strip().splitlines()[-1]
    assert version in last and other in last, done.stderr


IMPORT = "import sys, time; t = time.perf_counter(); import raygo; t = time.perf_counter() - t; print(t, *sys.modules)"


def test_import_is_light() -> None:
    answers = [run(sys.executable, "-c", IMPORT).stdout.split() for _ in range(5)]
    modules = set(answers[0][1:])
    heavy = {"numpy", "torch", "pyarrow", "pandas", "asyncio", "click", "rich", "multiprocessing", "concurrent.futures"}
    assert not heavy & modules
    # The goal is 60 ms; a busy machine gets room, for this is to find a heavy import, not to measure.
    assert min(float(answer[0]) for answer in answers) < 0.25


def test_import_starts_no_thread() -> None:
    code = "import raygo, os; print(len(os.listdir('/proc/self/task')))"
    assert run(sys.executable, "-c", code).stdout.strip() == "1"


class TestWhatIsMissing:
    """A tool that is missing or too old gives one sentence."""

    def message(self, monkeypatch: pytest.MonkeyPatch, find: str) -> str:
        with pytest.raises(hatch_build.BuildError) as caught:  # type: ignore[attr-defined]
            getattr(hatch_build, find)()
        return str(caught.value)

    def test_no_go(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(hatch_build.shutil, "which", lambda *_: None)  # type: ignore[attr-defined]
        need = re.search(r"^go (\S+)", (ROOT / "go.mod").read_text(), re.MULTILINE)
        assert need is not None
        text = self.message(monkeypatch, "find_go")
        assert f"Go {need[1]} or newer" in text and "no Go was found" in text

    def test_old_go(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        old = tmp_path / "go"
        old.write_text("#!/bin/sh\necho go1.18.2\n")
        old.chmod(0o755)
        monkeypatch.setenv("GO", str(old))
        assert "is Go 1.18.2" in self.message(monkeypatch, "find_go")

    def test_go_that_refuses_the_module(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        old = tmp_path / "go"
        old.write_text("#!/bin/sh\necho 'go.mod requires go >= 9' >&2\nexit 1\n")
        old.chmod(0o755)
        monkeypatch.setenv("GO", str(old))
        assert "go.mod requires go >= 9" in self.message(monkeypatch, "find_go")

    def test_no_compiler(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CC", "no-such-compiler")
        assert "'no-such-compiler' was not found" in self.message(monkeypatch, "find_cc")

    def test_no_headers(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("RAYGO_PYTHON_INCLUDE", str(tmp_path))
        assert "has no Python.h" in self.message(monkeypatch, "python_include")

    def test_rebuild_says_it_in_one_line(self) -> None:
        done = run(sys.executable, ROOT / "python" / "hatch_build.py", env={**os.environ, "CC": "no-such-compiler"})
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1 and done.stderr.startswith("error: raygo needs a C11 compiler")
