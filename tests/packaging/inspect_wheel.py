"""Says what is wrong with a wheel's contents, and exits 1 then: inspect_wheel.py WHEEL."""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path

NEEDED = {
    "raygo/__init__.py", "raygo/py.typed", "raygo/_binding.pyi", "raygo/libraygo.so", "raygo/libraygo_collective.so", "raygo/raygo-gpus",
    "raygo/_cli/__init__.py", "raygo/_template.py",
}


def problems(wheel: Path) -> list[str]:
    """Return one sentence per fault."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    found = [f"{name} is missing" for name in sorted(NEEDED - names)]
    if not any(re.fullmatch(r"raygo/_binding\.(abi3|cpython-310-[\w-]+)\.so", name) for name in names):
        found.append("the binding is missing")
    found += [f"{name} does not belong there" for name in sorted(names) if not re.match(r"raygo/|raygo-[^/]+\.dist-info/|raygo\.libs/", name)]
    found += [f"{name} is a source of the build" for name in sorted(names) if name.endswith((".c", ".h", ".go", ".map", ".pyc"))]
    if not re.search(r"-(cp311-abi3|cp310-cp310)-(many)?linux[\w.]+\.whl$", wheel.name):
        found.append(f"the tag of {wheel.name} is wrong")
    return found


if __name__ == "__main__":
    faults = problems(Path(sys.argv[1]))
    print("\n".join(faults) or "contents are right")
    sys.exit(bool(faults))
