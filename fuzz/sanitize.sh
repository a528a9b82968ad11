#!/bin/sh
# Build the compiled kernels with AddressSanitizer and UndefinedBehaviorSanitizer, apart from those
# in use, and run their tests with them. Usage: fuzz/sanitize.sh [python]
set -eu
cd "$(dirname "$0")/.."
python=${1:-.venv/bin/python}
case $python in /*) ;; *) python=$PWD/$python ;; esac # the tests run elsewhere
into=$(mktemp -d)
trap 'rm -rf "$into"' EXIT

cp -r ccpipe fuzz tests setup.py pyproject.toml README.md LICENSE "$into"
cd "$into"
find . -name '_*.cpython*.so' -delete
flags="-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all"
CCPIPE_KERNEL_FLAGS="$flags" "$python" setup.py --quiet build_ext --inplace

# The interpreter itself is not sanitized: the library comes first, and what Python keeps to its
# end is no leak of ours.
LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libstdc++.so)" \
ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=1 PYTHONMALLOC=malloc PYTHONPATH="$into" CCPIPE_KERNEL=compiled \
    "$python" -m pytest -s -p no:cacheprovider tests/formats/lineprotocol tests/formats/gridengine \
        tests/bus/nats/protocol
