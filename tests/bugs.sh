#!/usr/bin/env bash
# Runs bug reports made small: bugs.sh PYTHON FOLDER NUMBER…  Each must exit 0; all are run before one that failed fails the whole.
set -uo pipefail
python=$(realpath -s "$1") folder=$2
shift 2
if [ ! -d "$folder" ]; then
  echo "no $folder here: skipped"
  exit 0
fi
passed=0 failed=()
output=$(mktemp)
trap 'rm -f "$output"' EXIT
for number in "$@"; do
  for script in "$folder/$number"_*.py; do
    start=$(date +%s%N)
    if RAY_API=raygo PATH="$(dirname "$python"):$PATH" timeout -k 10 300 "$python" "$script" >"$output" 2>&1 </dev/null; then
      passed=$((passed + 1))
    else
      echo "---- $(basename "$script") exited with $?; its last lines:"
      tail -n 25 "$output"
      failed+=("$(basename "$script")")
    fi
    echo "$(basename "$script") $(( ($(date +%s%N) - start) / 1000000 )) ms"
  done
done
echo "$passed passed, ${#failed[@]} failed"
[ ${#failed[@]} -eq 0 ]
