#!/usr/bin/env bash
# Builds a wheel and tries it: wheel.sh PYTHON native|x86_64|aarch64
#
# native: with this machine's compiler, for a quick check.  The others: with zig as the C compiler, linked against glibc 2.28, so that
# auditwheel can call it manylinux_2_28.  A wheel for another machine is built and inspected, not run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=$(realpath -s "$1") kind=$2
work=$PWD/build/wheel-$kind
rm -rf "$work"
mkdir -p "$work/raw" "$work/out"

case $kind in
  native) ;;
  x86_64 | aarch64)
    go_arch=$([ "$kind" = x86_64 ] && echo amd64 || echo arm64)
    # cgo asks the compiler for its flags in ways that zig's driver answers only as a plain program, hence the script. zig refuses a flag
    # of go-nvml's, which raygo-gpus does not need: it has what the flag excuses the lack of.
    cat >"$work/cc" <<CC
#!/bin/bash
exec "$python" -m ziglang cc -target $kind-linux-gnu.2.28 "\${@/#-Wl,--unresolved-symbols=*/-Wl,--export-dynamic}"
CC
    chmod +x "$work/cc"
    export CC=$work/cc GOOS=linux GOARCH=$go_arch RAYGO_PLATFORM_TAG=linux_$kind
    ;;
  *)
    echo "wheel.sh: unknown kind $kind" >&2
    exit 2
    ;;
esac

"$python" -m build --wheel --outdir "$work/raw" . >"$work/build.log" 2>&1 || { tail -n 40 "$work/build.log" >&2; exit 1; }
wheel=$(echo "$work"/raw/*.whl)
if [ "$kind" != native ]; then
  # For a machine other than its own, auditwheel takes no name and finds the oldest that holds.
  plat=(--plat auto)
  [ "$kind" != "$(uname -m)" ] || plat=(--only-plat --plat "manylinux_2_28_$kind")
  PATH="$(dirname "$python"):$PATH" "$python" -m auditwheel repair "${plat[@]}" -w "$work/out" "$wheel" >"$work/repair.log" 2>&1 \
    || { tail -n 40 "$work/repair.log" >&2; exit 1; }
  wheel=$(echo "$work"/out/*.whl)
  "$python" -m auditwheel show "$wheel" >"$work/show.log"
  sed -n 's/^This constrains the platform tag to "\(.*\)".*/symbols would do for \1/p' "$work/show.log"
fi
"$python" tests/packaging/inspect_wheel.py "$wheel"
echo "$(basename "$wheel"): $(( $(stat -c %s "$wheel") / 1024 )) KiB"

if [ "$kind" = native ] || [ "$kind" = "$(uname -m)" ]; then
  "$python" -m venv "$work/venv"
  "$work/venv/bin/python" -m pip install -q "$wheel[default]"
  # From another folder, so that it is the installed package that answers.
  (cd "$work" && timeout 60 venv/bin/python "$OLDPWD/tests/packaging/smoke.py" && timeout 60 venv/bin/raygo version)
else
  echo "not run: this machine is $(uname -m)"
fi

if [ "$kind" != native ]; then
  mkdir -p dist
  cp "$wheel" dist/
  echo "dist/$(basename "$wheel")"
fi
