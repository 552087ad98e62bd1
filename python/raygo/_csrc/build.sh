#!/bin/sh
# Builds the binding for development, with symbols, beside the package; hatch_build.py makes the one that ships.
#   build.sh            optimised     build.sh asan      with AddressSanitizer: run Python with LD_PRELOAD=$(cc -print-file-name=libasan.so)
# PYTHON names the interpreter whose headers are used, OUT the file to write.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
python=${PYTHON:-python3}
include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
limited=$("$python" -c 'import sys; print("-DPy_LIMITED_API=0x030B0000" if sys.version_info >= (3, 11) else "")')
suffix=$("$python" -c 'import sys, sysconfig; print(".abi3.so" if sys.version_info >= (3, 11) else sysconfig.get_config_var("EXT_SUFFIX"))')
out=${OUT:-$here/../_binding$suffix}
flags="-O2"
if [ "${1:-}" = asan ]; then flags="-O1 -fsanitize=address,undefined -fno-omit-frame-pointer"; fi
# shellcheck disable=SC2086
${CC:-cc} $flags -g -shared -fPIC -std=gnu11 -Wall -Wextra -fvisibility=hidden -pthread "-DRAYGO_VERSION=\"$(cat "$root/VERSION")\"" $limited \
  -I"$include" -I"$here" -I"$root/capi" -I"$root/capi/include" -I"$root/collective" ${CFLAGS:-} "$here"/*.c "$root"/capi/client*.c "$root"/collective/*.c -o "$out.new" -ldl
mv "$out.new" "$out"
