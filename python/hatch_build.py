"""Builds the native parts: libraygo.so (Go), the binding (C), libraygo_collective.so (Go), which joins
nodes in collectives, and raygo-gpus (Go), which finds GPUs.

Hatchling calls the hook at the end for wheels and editable installs; ``python python/hatch_build.py`` rebuilds in place, which is what
``make build`` does. Both end in :func:`build`. Only the standard library is used, so that the rebuild needs nothing installed.

Environment: ``CC`` and ``GO`` name the tools, ``CFLAGS`` is added, ``GOOS``/``GOARCH`` cross-compile (then ``RAYGO_PYTHON_INCLUDE`` names the
target's Python headers if they differ, and ``RAYGO_PLATFORM_TAG`` the wheel's platform).
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
else:
    try:
        from hatchling.builders.hooks.plugin.interface import BuildHookInterface
    except ImportError:  # a rebuild in place runs without hatchling
        BuildHookInterface = object

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python" / "raygo"
LIMITED_API = sys.version_info >= (3, 11)  # the oldest limited API with the buffer protocol, which zero-copy reads need


class BuildError(Exception):
    """What is missing on this machine, in one sentence for its user."""


def version() -> str:
    """Return the one version of wheel, library, binding and package."""
    return (ROOT / "VERSION").read_text(encoding="utf-8").strip()


def needed_go() -> tuple[int, ...]:
    """Return the oldest Go that go.mod accepts."""
    match = re.search(r"^go (\d+(?:\.\d+)*)", (ROOT / "go.mod").read_text(encoding="utf-8"), re.MULTILINE)
    if match is None:
        raise BuildError("go.mod names no Go version")
    return tuple(map(int, match[1].split(".")))


def find_go() -> str:
    """Return the path of a Go that is new enough."""
    need = ".".join(map(str, needed_go()))
    name = os.environ.get("GO", "go")
    path = shutil.which(name) or shutil.which("/usr/local/go/bin/go")
    if path is None:
        raise BuildError(f"raygo's engine needs Go {need} or newer to build, and no Go was found ({name!r} is not on the PATH).")
    answer = subprocess.run([path, "env", "GOVERSION"], cwd=ROOT, capture_output=True, text=True, check=False)
    found = re.match(r"go(\d+(?:\.\d+)*)", answer.stdout.strip())
    if found is None:
        # Since 1.21 an old Go refuses go.mod itself; its own words say the versions.
        raise BuildError(f"raygo's engine needs Go {need} or newer to build; {path} answered: {(answer.stderr or answer.stdout).strip()}")
    if tuple(map(int, found[1].split("."))) < needed_go():
        raise BuildError(f"raygo's engine needs Go {need} or newer to build; {path} is Go {found[1]}.")
    return path


def find_cc() -> list[str]:
    """Return the C compiler's command."""
    command = shlex.split(os.environ.get("CC", "")) or [next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), "cc")]
    if shutil.which(command[0]) is None:
        raise BuildError(f"raygo needs a C11 compiler to build (GCC 9, Clang 10 or newer), and {command[0]!r} was not found. Install one, or name it in CC.")
    return command


def python_include() -> str:
    """Return the folder of Python.h."""
    include = os.environ.get("RAYGO_PYTHON_INCLUDE") or sysconfig.get_path("include")
    if not (Path(include) / "Python.h").exists():
        raise BuildError(
            f"raygo needs the headers of Python {sys.version_info.major}.{sys.version_info.minor} to build, and {include} has no Python.h. "
            "Install them (Debian: python3-dev, Fedora: python3-devel)."
        )
    return include


def binding_name() -> str:
    """Return the binding's file name: one for all of 3.11 and later, one of its own for 3.10."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise BuildError("raygo does not build for free-threaded Python yet: use the ordinary build of the same version.")
    return "_binding.abi3.so" if LIMITED_API else f"_binding{sysconfig.get_config_var('EXT_SUFFIX')}"


def wheel_tag() -> str:
    """Return python-abi-platform for this machine or for RAYGO_PLATFORM_TAG."""
    platform = os.environ.get("RAYGO_PLATFORM_TAG") or sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return f"cp311-abi3-{platform}" if LIMITED_API else f"cp310-cp310-{platform}"


def run(what: str, command: list[str], env: dict[str, str] | None = None) -> None:
    """Run a compiler and keep its words for the error."""
    done = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.stdout.strip():
        print(done.stdout.rstrip(), file=sys.stderr)
    if done.returncode != 0:
        raise BuildError(f"building {what} failed: {shlex.join(command)} ended with status {done.returncode}; its messages are above.")


def build_library(target: Path, package: str) -> None:
    """Build a Go package as a C shared library. Go's own cache makes a rebuild without changes cheap."""
    go, cc = find_go(), find_cc()
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    link = f"-s -w -extldflags '-s -Wl,--version-script={ROOT / 'capi' / 'libraygo.map'}'"
    env = {**os.environ, "CGO_ENABLED": "1", "CC": shlex.join(cc)}
    try:
        run(
            target.name,
            [go, "build", "-buildmode=c-shared", "-buildvcs=false", "-trimpath", "-ldflags", link, "-o", str(partial), package],
            env,
        )
        os.replace(partial, target)  # never written in place: a running process has the old one mapped
    finally:
        partial.unlink(missing_ok=True)
        partial.with_suffix(".h").unlink(missing_ok=True)  # cgo's header; raygo.h is written by hand


def build_gpu_probe(target: Path) -> None:
    """Build the program that asks NVIDIA's library for the names of the GPUs; it loads the library where there is one."""
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    # go-nvml names functions that NVIDIA has deprecated; that is its affair.
    flags = " ".join(filter(None, [os.environ.get("CGO_CFLAGS", "-O2"), "-Wno-deprecated-declarations"]))
    env = {**os.environ, "CGO_ENABLED": "1", "CC": shlex.join(find_cc()), "CGO_CFLAGS": flags}
    try:
        run(target.name, [find_go(), "build", "-buildvcs=false", "-trimpath", "-ldflags", "-s -w", "-o", str(partial), "./engine/gpu/raygo-gpus"], env)
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def binding_sources() -> list[Path]:
    """Return what the binding is compiled from: its own C, the C client and the collectives."""
    return [*sorted((PACKAGE / "_csrc").glob("*.c")), *sorted((ROOT / "capi").glob("client*.c")), *sorted((ROOT / "collective").glob("*.c"))]


def build_binding(target: Path) -> None:
    """Build the C extension, unless it is newer than everything it is made from."""
    include = python_include()
    sources = binding_sources()
    headers = [path for folder in (PACKAGE / "_csrc", ROOT / "capi", ROOT / "capi" / "include", ROOT / "collective") for path in folder.glob("*.h")]
    inputs = [*sources, *headers, ROOT / "VERSION", Path(__file__)]
    if target.exists() and all(target.stat().st_mtime > path.stat().st_mtime for path in inputs):
        return
    partial = target.with_name(f".{os.getpid()}.{target.name}")
    try:
        run(
            target.name,
            [
                *find_cc(),
                *("-shared", "-fPIC", "-O2", "-s", "-std=gnu11", "-Wall", "-Wextra", "-fvisibility=hidden", "-pthread"),
                f'-DRAYGO_VERSION="{version()}"',
                *(["-DPy_LIMITED_API=0x030B0000"] if LIMITED_API else []),
                *(f"-I{path}" for path in (include, PACKAGE / "_csrc", ROOT / "capi", ROOT / "capi" / "include", ROOT / "collective")),
                *shlex.split(os.environ.get("CFLAGS", "")),
                *map(str, sources),
                *("-o", str(partial), "-ldl"),
            ],
        )
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def build(folder: Path) -> list[Path]:
    """Build all into `folder` and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "libraygo.so", folder / "libraygo_collective.so", folder / binding_name(), folder / "raygo-gpus"]
    build_library(paths[0], "./capi")
    build_library(paths[1], "./collective/lib")
    build_binding(paths[2])
    build_gpu_probe(paths[3])
    return paths


class NativeBuildHook(BuildHookInterface):  # type: ignore[misc, unused-ignore]
    """Hatchling's way in."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build, and tell hatchling the files and the tag. An editable install gets them in the tree itself."""
        if self.target_name != "wheel":
            return
        try:
            paths = build(PACKAGE if version == "editable" else ROOT / "build" / wheel_tag())
        except BuildError as error:
            # A traceback through the build front end would bury the one sentence that helps.
            self.app.abort(str(error))
            raise
        build_data["pure_python"] = False
        build_data["tag"] = wheel_tag()
        if version != "editable":
            build_data["force_include"].update({str(path): f"raygo/{path.name}" for path in paths})


def main(argv: list[str] | None = None) -> int:
    """Rebuild in place."""
    parser = argparse.ArgumentParser(description="Build raygo's native parts in place, or into --into.")
    parser.add_argument("--into", type=Path, default=PACKAGE, metavar="FOLDER")
    try:
        build(parser.parse_args(argv).into.resolve())
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
