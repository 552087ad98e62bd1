"""The C ABI against its manual: the headers compile as C11 and C++17, symbols and layouts stay, and the conformance host passes, plainly and
under AddressSanitizer, ThreadSanitizer and Go's race detector.

``RAYGO_UPDATE_GOLDEN=1`` writes the golden files anew, after a change that only appends.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from native import CAPI, HERE, LIBRARY, ROOT, WARNINGS, archive, can_sanitize, compiler, host, run

HEADERS = sorted((CAPI / "include").glob("*.h"))
STRESS_C = [HERE / "client_stress.c", *sorted(CAPI.glob("client*.c"))]
HANDLES_C = [HERE / "handles_stress.c", *sorted(CAPI.glob("client*.c")), *sorted(CAPI.glob("abi*.c"))]
# A leak is what nothing points to at exit; the stacks that it prints begin in Go, which cannot be unwound quickly.
ASAN = {**os.environ, "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0:handle_segv=0", "PYTHONMALLOC": "malloc"}


@pytest.fixture(scope="module")
def library() -> Path:
    if not LIBRARY.exists():
        pytest.skip(f"{LIBRARY.relative_to(ROOT)} is not built: run make build")
    return LIBRARY


def interpreter() -> str:
    """What workers run in: this Python when the package works in it, else nothing, and the host leaves Python out."""
    works = subprocess.run([sys.executable, "-c", "import raygo._binding"], capture_output=True, check=False).returncode == 0
    return sys.executable if works else ""


def conforms(program: Path, timeout: float, env: dict[str, str] | None = None) -> None:
    """Run the host, and see that it did all that this machine can."""
    python = interpreter()
    lines = run([program, python], timeout=timeout, env=env).splitlines()
    assert lines[-1] == "ok"
    assert ("python" in lines) == bool(python)


def golden(name: str, text: str) -> None:
    path = HERE / "golden" / name
    if os.environ.get("RAYGO_UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{path.relative_to(ROOT)} differs; if the change is meant, set RAYGO_UPDATE_GOLDEN=1 and look at the diff"


@pytest.mark.parametrize("header", HEADERS, ids=lambda path: path.name)
@pytest.mark.parametrize("language, standard", [("c", "c11"), ("c++", "c++17")])
def test_header_compiles_alone(header: Path, language: str, standard: str, tmp_path: Path) -> None:
    source = tmp_path / f"one.{'c' if language == 'c' else 'cc'}"
    source.write_text(f"#include \"{header.name}\"\nint main({'void' if language == 'c' else ''}) {{ return 0; }}\n", encoding="utf-8")
    run([*compiler(language), f"-std={standard}", *WARNINGS, "-pedantic", f"-I{CAPI / 'include'}", "-c", source, "-o", tmp_path / "one.o"])


def test_layouts_stay(tmp_path: Path) -> None:
    golden("layout.txt", run([host(tmp_path / "layout", sources="layout.c")]))


def test_exported_symbols_stay(library: Path) -> None:
    names = sorted(line.split()[-1] for line in run(["nm", "-D", "--defined-only", library]).splitlines())
    assert all(name.startswith("raygo_") for name in names)
    golden("symbols.txt", "\n".join(names) + "\n")


def test_every_declared_function_is_exported(library: Path) -> None:
    import re

    text = re.sub(r"/\*.*?\*/", "", (CAPI / "include" / "raygo.h").read_text(encoding="utf-8"), flags=re.DOTALL)
    declared = set(re.findall(r"^(?:raygo_status|void|uint32_t|const char \*) ?\*?(raygo_\w+)\(", text, re.MULTILINE))
    exported = {line.split()[-1] for line in run(["nm", "-D", "--defined-only", library]).splitlines()}
    assert len(declared) > 50
    assert declared <= exported
    assert {name for name in exported - declared if not name.startswith("raygo_engine_")} == set()


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
@pytest.mark.parametrize("sources", [STRESS_C, HANDLES_C], ids=["client", "handles"])
def test_stress_under_sanitizer(sanitizer: str, sources: list[Path], tmp_path: Path) -> None:
    can_sanitize(sanitizer, tmp_path)
    program = tmp_path / "stress"
    flags = ("-std=gnu11", "-g", "-O1", *WARNINGS, f"-fsanitize={sanitizer}", f"-I{CAPI}", f"-I{CAPI / 'include'}")
    run([*compiler(), *flags, *sources, "-o", program, "-lpthread"])
    assert run([program]).endswith("ok\n")


@pytest.mark.timeout(300)
def test_host_on_the_library(library: Path, tmp_path: Path) -> None:
    program = host(tmp_path / "conformance", f"-L{library.parent}", "-lraygo", f"-Wl,-rpath,{library.parent}")
    conforms(program, 250)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_host_under_address_sanitizer(tmp_path: Path) -> None:
    """With the library's C instrumented too: it is linked from an archive."""
    can_sanitize("address", tmp_path)
    library = archive(tmp_path, cflags="-fsanitize=address -fno-omit-frame-pointer")
    program = host(tmp_path / "conformance", "-fsanitize=address", library)
    conforms(program, 250, ASAN)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_host_under_race_detector(tmp_path: Path) -> None:
    """The detector's own memory map needs a host at a fixed place: hence -no-pie, and an archive in place of a shared library."""
    try:
        library = archive(tmp_path, "-race")
    except AssertionError as error:
        if "-race" in str(error) and "requires" in str(error):
            pytest.skip(f"Go cannot build with -race here: {str(error)[-300:]}")
        raise
    program = host(tmp_path / "conformance", "-no-pie", library)
    env = {**os.environ, "GORACE": "halt_on_error=1 exitcode=66"}
    conforms(program, 280, env)
