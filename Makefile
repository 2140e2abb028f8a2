# `make run` and `make test` are all a newcomer needs: each prepares .venv by itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := $(VENV)/.run-ready
DEV := $(VENV)/.dev-ready
KERNELS := hatch_build.py src/penstock/kernel/record_walk.py src/penstock/kernel/record_walk.pxd src/penstock/kernel/compiling.py
DOCS_VENV := .venv-docs
COMPAT := tests/clients tests/tools_of_kafka tests/examples

.PHONY: help run broker test coverage test-long sim fuzz compat lint types unit setup bench bench-spark docs docs-site lock clean
.DEFAULT_GOAL := help

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

run: $(RUN) ## the demo: a broker on 127.0.0.1:9092, events, a Spark pipeline (Ctrl-C stops it); DEMO="--port 9192 --seconds 60" to choose
	@exec $(BIN)/penstock demo $(DEMO)

broker: $(RUN) ## a broker alone on 127.0.0.1:9092 (Ctrl-C stops it); UP="--port 9192 --data DIR" to choose
	@exec $(BIN)/penstock up $(UP)

test: lint types unit ## lint, types and tests, with the skipped tests and their reasons at the end

coverage: $(DEV) ## the tests with the share of lines and branches that they reach; build/coverage/index.html shows each line (about half an hour)
	@$(BIN)/python -m pytest -n 3 --dist loadgroup -q --cov --cov-report term:skip-covered --cov-report html:build/coverage --session-timeout 5400 $(TESTS)

compat: $(DEV) ## every client and tool of Kafka against Penstock, and all that is ours against Apache Kafka (some twenty minutes)
	@$(BIN)/python -m pytest -q -m "not long" $(COMPAT)
	@$(BIN)/python -m pytest -q -m "compat and not long"
	@PENSTOCK_TESTED_BROKER=apache-kafka $(BIN)/python -m pytest -q -m "not long" tests/clients/groups tests/examples

test-long: $(DEV) ## the tests that take longer than every run can afford
	@PENSTOCK_EXAMPLES=fresh $(BIN)/python -m pytest -q -m long $(TESTS)

sim: $(DEV) ## whole clusters under random faults, in virtual time, on all cores; SEEDS=1000 RAFT=20000 FIRST=42 MINUTES=10 to choose
	@$(BIN)/python -m penstock.sim.trials --seeds $(or $(SEEDS),100) --raft $(or $(RAFT),1000) $(if $(FIRST),--first $(FIRST)) $(if $(MINUTES),--minutes $(MINUTES))

fuzz: $(DEV) ## requests that nobody would send, to simulated clusters, on all cores; CASES=2000000 FIRST=42 to choose
	@$(BIN)/python -m penstock.sim.fuzz --cases $(or $(CASES),100000) $(if $(FIRST),--first $(FIRST)) $(FUZZ)

setup: $(DEV) ## prepare .venv with everything, run nothing

lint: $(DEV)
	@$(BIN)/ruff check src tests tools bench examples
	@$(BIN)/ruff format --check --quiet src tests tools bench examples || { echo "run: .venv/bin/ruff format ."; exit 1; }

types: $(DEV)
	@$(BIN)/mypy
	@$(BIN)/mypy --cache-dir .mypy_cache/tests --config-file tools/mypy-tests.ini tests bench tools examples

unit: $(DEV)
	@./tools/debian_packages.sh kcat postgresql redis-server iproute2
	@$(BIN)/python -m pytest -n 3 --dist loadgroup -q --durations=15 --maxfail 25 --max-worker-restart 0 --session-timeout 3600 $(TESTS)

bench: $(DEV) ## benchmarks beside Apache Kafka (about half an hour); BENCH="--quick" or "--cases produce" to choose
	@$(BIN)/python -m bench $(BENCH)

bench-spark: $(DEV) ## Spark's source, sinks and tables, beside Spark's own Kafka connector and Parquet (about twenty minutes)
	@$(BIN)/python -m bench.spark --streams --results bench/results/spark/source.json
	@$(BIN)/python -m bench.spark_sink --results bench/results/spark/sink.json
	@$(BIN)/python -m bench.spark_lake --results bench/results/spark/lake.json

docs: $(DEV) ## write the generated pages under docs/ again
	@$(BIN)/python tools/generate_docs.py

docs-site: $(DOCS_VENV)/.ready ## the documentation as a site with search, in build/site (index.html opens in a browser)
	@NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs --quiet build --strict && echo "penstock: open build/site/index.html"

lock: $(DEV) ## pin the newest packages that pyproject.toml allows
	@./tools/lock.sh $(BIN)

clean: ## remove what was built or fetched, but no data
	@rm -rf $(VENV) $(DOCS_VENV) build/site .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(RUN): requirements/run.lock pyproject.toml $(KERNELS)
	@./tools/prepare.sh $(PYTHON) $(VENV) requirements/run.lock
	@touch $@

$(DEV): requirements/dev.lock pyproject.toml $(KERNELS)
	@./tools/prepare.sh $(PYTHON) $(VENV) requirements/dev.lock
	@touch $@ $(RUN)

$(DOCS_VENV)/.ready: requirements/docs.lock
	@$(PYTHON) -m venv $(DOCS_VENV)
	@$(DOCS_VENV)/bin/python -m pip --quiet --disable-pip-version-check install --require-hashes -r requirements/docs.lock
	@touch $@
