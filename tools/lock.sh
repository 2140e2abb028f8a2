#!/usr/bin/env bash
# Pins the packages of pyproject.toml, with hashes, for every Python that it allows.
set -euo pipefail
bin=$1
compile=("$bin/uv" pip compile --quiet --universal --generate-hashes --no-header --no-annotate --no-emit-index-url --upgrade)
echo "cython>=3.1
editables
hatchling
setuptools" | "${compile[@]}" pyproject.toml - --extra spark --extra java --output-file requirements/run.lock
"${compile[@]}" pyproject.toml --all-extras --group dev --output-file requirements/dev.lock
echo "uv" | "${compile[@]}" - --output-file requirements/uv.lock
echo "mkdocs-material" | "${compile[@]}" - --python-version 3.11 --output-file requirements/docs.lock
