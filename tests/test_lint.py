"""House rules that no linter knows. Each failure names file and line."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("capi", "engine", "objectstore", "collective", "python", "bindings", "tests")
SKIPPED = {"__pycache__", "node_modules", "target", "build", "testdata"}
MAX_LINES = 900  # most files are under 400; one that holds a central type may be longer


def sources(*suffixes: str) -> Iterator[Path]:
    """Yield the tree's files with these suffixes."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in suffixes and not SKIPPED & set(path.relative_to(ROOT).parts):
                yield path


def hits(pattern: str, *suffixes: str, skip: tuple[str, ...] = ()) -> list[str]:
    """Return file:line of each line that matches."""
    regex = re.compile(pattern)
    out = []
    for path in sources(*suffixes):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(skip) or path == Path(__file__):
            continue
        out += [f"{name}:{n}: {line.strip()}" for n, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1) if regex.search(line)]
    return out


def test_files_are_readable_lengths() -> None:
    long = {str(p.relative_to(ROOT)): n for p in sources(".go", ".c", ".h", ".py") if (n := len(p.read_text(encoding="utf-8").splitlines())) > MAX_LINES}
    assert not long


def test_no_trailing_blanks_and_a_last_newline() -> None:
    assert not hits(r"[ \t]$", ".go", ".c", ".h", ".py", ".pyi", ".md")
    assert not [str(p) for p in sources(".go", ".c", ".h", ".py", ".pyi", ".md") if (text := p.read_text(encoding="utf-8")) and not text.endswith("\n")]


def test_no_paths_of_one_machine_and_no_registry() -> None:
    pattern = r"/(home|root|work|Users)/\w|pypi\.org|files\.pythonhosted|proxy\.golang|registry\.npmjs"
    assert not hits(pattern, ".go", ".c", ".h", ".py", ".pyi", ".md", ".sh", ".toml")


def test_every_go_package_says_what_it_guarantees() -> None:
    packages = {path.parent for path in sources(".go")}
    libraries = {p for p in packages if any(not f.name.endswith("_test.go") and not re.search(r"^package main$", f.read_text(), re.M) for f in p.glob("*.go"))}
    assert not [str(p.relative_to(ROOT)) for p in sorted(libraries) if not (p / "doc.go").exists()]


def test_every_python_module_has_a_docstring() -> None:
    assert not [str(p.relative_to(ROOT)) for p in sources(".py") if p.stat().st_size and not ast.get_docstring(ast.parse(p.read_text(encoding="utf-8")))]


def test_the_package_does_not_poll() -> None:
    # Waiting is the engine's: a sleep in the package is a loop that looks again and again.
    # A pause before a further attempt says so on its line.
    assert not hits(r"\btime\.sleep\((?!.*# back off)", ".py", skip=("tests/", "python/examples/"))


PROGRAMS = ("engine/cmd/", "engine/gpu/raygo-gpus/", "engine/gpu/lazy/")  # they have a terminal of their own


def test_the_engine_writes_nothing_to_the_users_terminal() -> None:
    assert not hits(r"\bfmt\.Print(f|ln)?\(|os\.Std(out|err)\b|\blog\.(Print|Fatal)", ".go", skip=("tests/", "bindings/", *PROGRAMS))


def test_no_exception_is_swallowed_without_a_reason() -> None:
    out = []
    for path in sources(".py"):
        lines = path.read_text(encoding="utf-8").splitlines()
        for n, (line, after) in enumerate(zip(lines, lines[1:], strict=False), 1):
            # Broad, with nothing done about it, and no comment on either line that says why.
            if re.match(r"\s*except( \(?(Base)?Exception\b[^#]*)?:\s*$", line) and re.match(r"\s*(pass|continue)\s*$", after):
                out.append(f"{path.relative_to(ROOT)}:{n}: {line.strip()}")
    assert not out


ALLOWED = {
    # folder -> what of this module its packages may import; the table of errors is below everything
    "engine": ("engine", "objectstore", "collective"),
    "objectstore": ("objectstore", "engine/errs"),
    "collective": ("collective", "engine/errs"),
}


@pytest.mark.skipif(not (ROOT / "go.mod").exists(), reason="no Go sources here")
def test_dependencies_point_one_way() -> None:
    form = "{{.ImportPath}} {{join .Imports \" \"}}"
    done = subprocess.run(["go", "list", "-f", form, "./..."], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    module = re.search(r"^module (\S+)", (ROOT / "go.mod").read_text(), re.MULTILINE)
    assert module is not None
    wrong = []
    for line in done.stdout.splitlines():
        package, *imports = (name.removeprefix(module[1] + "/") for name in line.split() if name.startswith(module[1] + "/"))
        allowed = ALLOWED.get(package.split("/")[0])
        wrong += [f"{package} imports {name}" for name in imports if allowed is not None and not name.startswith(allowed)]
    assert not wrong
