"""Builds what the tests of the C ABI run: C programs, and the engine as an archive with a sanitizer."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
CAPI = ROOT / "capi"
LIBRARY = ROOT / "python" / "raygo" / "libraygo.so"
WARNINGS = ("-Wall", "-Wextra", "-Werror")


def compiler(language: str = "c") -> list[str]:
    """The C or C++ compiler's command; skips the test where there is none."""
    variable, names = ("CC", ("cc", "gcc", "clang")) if language == "c" else ("CXX", ("c++", "g++", "clang++"))
    command = shlex.split(os.environ.get(variable, "")) or [next((n for n in names if shutil.which(n)), names[0])]
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {language} compiler ({command[0]}) here")
    return command


def run(command: list[str | Path], timeout: float = 120, **more: object) -> str:
    """Run a command; its output, which is also the reason when it fails."""
    done = subprocess.run(
        [str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout, check=False, errors="replace", **more
    )
    assert done.returncode == 0, f"{shlex.join(map(str, command))} ended with {done.returncode}:\n{done.stdout[-8000:]}"
    return done.stdout


def can_sanitize(kind: str, folder: Path) -> None:
    """Skip the test where the compiler or the kernel cannot run this sanitizer."""
    source, program = folder / f"can_{kind}.c", folder / f"can_{kind}"
    source.write_text("int main(void) { return 0; }\n", encoding="utf-8")
    built = subprocess.run([*compiler(), f"-fsanitize={kind}", source, "-o", program], capture_output=True, text=True, check=False)
    if built.returncode or subprocess.run([program], capture_output=True, check=False).returncode:
        pytest.skip(f"-fsanitize={kind} does not work with this compiler here")


def archive(folder: Path, *flags: str, cflags: str = "") -> Path:
    """Build the engine as a C archive; skips where there is no Go that can."""
    go = shutil.which(os.environ.get("GO", "go"))
    if go is None:
        pytest.skip("no Go here to build the engine as an archive")
    target = folder / "libraygo.a"
    env = {**os.environ, "CGO_ENABLED": "1", "CC": shlex.join(compiler())}
    if cflags:
        env |= {"CGO_CFLAGS": f"-g -O1 {cflags}", "CGO_LDFLAGS": cflags}
    run([go, "build", *flags, "-buildvcs=false", "-buildmode=c-archive", "-o", target, "./capi"], timeout=900, cwd=ROOT, env=env)
    return target


def host(program: Path, *flags: str | Path, sources: str = "conf*.c") -> Path:
    """Compile the conformance host (or what `sources` names) and link it as the flags say."""
    files = sorted(HERE.glob(sources))
    assert files, sources
    run([*compiler(), "-std=gnu11", "-g", *WARNINGS, f"-I{CAPI / 'include'}", *files, "-o", program, *flags, "-lpthread", "-ldl", "-lm"])
    return program
