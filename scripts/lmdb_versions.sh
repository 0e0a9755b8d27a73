#!/usr/bin/env bash
# The LMDB store's test of `clear` with each version of lmdb that pyproject.toml allows; VERSIONS, SIZES and LIVES set the extent.
set -uo pipefail
cd "$(dirname "$0")/.."
failed=0
for version in ${VERSIONS:-1.7.5 1.8.1 2.0.0 2.1.1 2.2.1 2.3.0 3.0.0}; do
    home=.lmdb/$version
    if [ ! -f "$home/stamp" ]; then
        python -m venv --clear "$home" &&
            "$home/bin/python" -m pip install --quiet --disable-pip-version-check "lmdb==$version" numpy pyarrow msgspec pydantic &&
            touch "$home/stamp" || exit 1
    fi
    PYTHONPATH=src "$home/bin/python" -X faulthandler tests/state/store_lives.py "${SIZES:-20}" "${LIVES:-100}" 2>&1 | tail -20
    code=${PIPESTATUS[0]}
    [ "$code" -le 1 ] || echo "lmdb $version: ended with exit code $code"
    [ "$code" -eq 0 ] || failed=1
done
exit $failed
