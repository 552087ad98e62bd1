"""The C core under AddressSanitizer and ThreadSanitizer, with threads as ranks."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "collective"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_core_under_sanitizer(sanitizer: str, tmp_path: Path) -> None:
    command = shlex.split(os.environ.get("CC", "")) or [next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), "cc")]
    if shutil.which(command[0]) is None:
        pytest.skip(f"no C compiler ({command[0]}) here")
    flags = ("-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", f"-I{CORE}")
    (tmp_path / "can.c").write_text("int main(void) { return 0; }\n", encoding="utf-8")
    able = subprocess.run([*command, *flags, tmp_path / "can.c", "-o", tmp_path / "can"], capture_output=True, check=False)
    if able.returncode or subprocess.run([tmp_path / "can"], capture_output=True, check=False).returncode:
        pytest.skip(f"-fsanitize={sanitizer} does not work with this compiler here")
    program = tmp_path / "stress"
    sources = [Path(__file__).with_name("stress.c"), *sorted(CORE.glob("*.c"))]
    built = subprocess.run([*command, *flags, *sources, "-o", program, "-lpthread"], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    done = subprocess.run([program], capture_output=True, text=True, timeout=250, check=False)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr[-6000:]
