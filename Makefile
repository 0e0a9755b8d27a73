# Everything runs from a fresh clone: each target first sets up .venv and Java (scripts/setup.sh).
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup prepare lock demo demo-kafka test test-slow test-changed test-packages test-all test-fast test-newest test-spark coverage explore fuzz chaos chaos-cluster kills kills-starts lmdb-versions lint docs \
	build format bench bench-cluster bench-kafka bench-sql nexmark bench-functions bench-state bench-patterns \
	flink-parity pyflink-tests clean

WORKERS ?= 3
SPARK_WORKERS ?= 1
RERUNS ?= 0
SECONDS_EACH ?= 60
ROUNDS ?= 3
MINUTES ?= 5
SYSTEM ?= kafka
KILLS ?= 30
ENGINE ?= local
UPGRADES ?= 20
STANDBYS ?= 10
DRAINS ?= 10
RUN := . .venv/env.sh &&
# Without a number of reruns the plugin is left out: it asks another process about each test, which takes 40 ms.
REPEATING = $(if $(filter-out 0,$(RERUNS)),--reruns $(RERUNS),-p no:rerunfailures)
WITHOUT_SPARK = pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(REPEATING)
# After a failure, if repeating was asked for: what has failed of these tests, one after the other.
OR_ALONE = $(if $(filter-out 0,$(RERUNS)),|| pytest --last-failed --last-failed-no-failures none $(REPEATING) $(1))
CORE = tests --ignore tests/typing
SPARK_CACHE = -o cache_dir=.pytest_cache/spark
WITH_SPARK = pytest -n $(SPARK_WORKERS) --dist worksteal $(SPARK_CACHE) $(REPEATING)
# Beside other tests, their output comes at their end.
SHOWN = $(if $(SPARK_OUTPUT),mkdir -p build; { $(1); } >$(SPARK_OUTPUT) 2>&1; code=$$?; cat $(SPARK_OUTPUT); exit $$code,$(1))
# Collecting takes seconds in each process: the tests with Spark are looked for where the marker is.
SPARK_FILES = $$(grep -rl "mark.spark" tests --include="test_*.py")

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

setup: ## .venv, the project and its tools, Java
	@scripts/setup.sh

lock: setup ## update uv.lock for pyproject.toml; UPGRADE=1 takes the newest versions
	$(RUN) uv lock $(if $(UPGRADE),--upgrade)

demo: setup ## a job on flight data: stopped with a savepoint, changed, and resumed
	$(RUN) python examples/demo.py

demo-kafka: setup ## a real Kafka through state to Kafka, PostgreSQL and a Delta table; the job is killed twice
	$(RUN) PYTHONPATH=tests python scripts/demo_kafka.py

test: prepare ## the core's tests but the slow ones: test-fast and, beside it, test-spark; RERUNS=1 repeats what failed, once
	@$(MAKE) --no-print-directory -j2 --keep-going test-fast test-spark SPARK_OUTPUT=build/spark.log

prepare: setup ## download what the tests' servers need: packages of Debian, jars
	@$(RUN) PYTHONPATH=tests python -m servers.prepare

test-changed: setup ## the tests closest to what has changed, for about a minute; SINCE=main
	$(RUN) python scripts/test_changed.py $(if $(SINCE),--since $(SINCE))

test-packages: setup ## the tests of packages/* that have changed since they passed here; ALL=1, or ONLY=kinesis
	$(RUN) python scripts/test_packages.py $(if $(ALL),--all) $(if $(ONLY),--only $(ONLY)) \
		-n $(WORKERS) --dist loadfile --no-loadscope-reorder $(REPEATING)

test-all: setup ## everything that is tested, before an issue is called resolved: make test, test-packages ALL=1, test-slow
	@$(MAKE) test; tests=$$?; $(MAKE) test-packages ALL=1; packages=$$?; $(MAKE) test-slow && [ $$tests$$packages = 00 ]

test-slow: SPARK_WORKERS = 2
test-slow: prepare ## the slow tests, before a release: the same proofs on more systems, at more steps, on clusters
	$(RUN) failed=0; \
		$(WITHOUT_SPARK) -m "slow and not spark" || failed=1; \
		$(WITH_SPARK) -m "slow and spark" || failed=1; \
		exit $$failed

test-fast test-spark: REPEATING = -p no:rerunfailures
test-fast: prepare ## the tests of `make test` without Spark
	$(RUN) $(WITHOUT_SPARK) -m "not spark and not slow" --junitxml build/tests.xml $(CORE) \
		$(call OR_ALONE,-m "not spark and not slow" $(CORE))

test-newest: setup ## `make test-fast` in a new virtual environment, .newest, with the newest versions that pyproject.toml allows
	$(RUN) python -m venv --clear .newest
	.newest/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	.newest/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[all]' $(addprefix --editable ,$(wildcard packages/*)) \
		--group dev
	$(RUN) PATH="$$PWD/.newest/bin:$$PATH" $(WITHOUT_SPARK) -m "not spark and not slow"

test-spark: prepare ## the tests of `make test` with Spark, SPARK_WORKERS side by side
	$(RUN) $(call SHOWN,$(WITH_SPARK) -m "spark and not slow" --junitxml build/spark.xml $(SPARK_FILES) \
		$(call OR_ALONE,$(SPARK_CACHE) -m "spark and not slow" $(SPARK_FILES)))

coverage: prepare ## the tests without Spark, with code coverage; fails below the floor
	$(RUN) pytest -n $(WORKERS) -m "not spark and not untraced" --cov --cov-report=term:skip-covered --cov-report=html:build/coverage

explore: setup ## the property tests on new random examples, ROUNDS times
	$(RUN) for round in $$(seq $(ROUNDS)); do \
		EXAMPLES=other pytest -n $(WORKERS) -m "hypothesis and not spark" || exit 1; done

fuzz: setup ## damaged savepoints: more examples than the tests, then atheris for SECONDS_EACH on each reader
	$(RUN) EXAMPLES=other FUZZ_TIMES=100 pytest --timeout 1800 tests/savepoint/test_savepoint_fuzz.py
	$(RUN) python -m pip install --quiet --disable-pip-version-check atheris
	@mkdir -p .fuzz
	$(RUN) cd .fuzz && for target in savepoint.json snapshot changes part; do \
		python ../scripts/fuzz_savepoint.py $$target -max_total_time=$(SECONDS_EACH) || exit 1; done

chaos: setup ## kills, suspended drivers, full disks, damaged files for MINUTES=5; SEED= and ONLY= repeat a failure
	$(RUN) PYTHONPATH=tests python -m chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only "$(ONLY)")

chaos-cluster: MINUTES = 20
chaos-cluster: setup ## a cluster of three hosts: processes, disks, network and object store fail for MINUTES=20 (needs root)
	$(RUN) PYTHONPATH=tests python -m chaos.on_cluster --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

kills: setup ## a job that writes to SYSTEM=kafka is killed KILLS=30 times; ENGINE=local or spark; each record must arrive once
	$(RUN) PYTHONPATH=tests python -m kills $(SYSTEM) --kills $(KILLS) --engine $(ENGINE) $(if $(ONLY),--only $(ONLY))

kills-starts: setup ## UPGRADES=20 upgrades, STANDBYS=10 leaders, DRAINS=10 drains are killed; nothing may be lost or repeated
	$(RUN) PYTHONPATH=tests python -m kills.starts --upgrades $(UPGRADES) --standbys $(STANDBYS) --drains $(DRAINS)

lmdb-versions: setup ## clear() of the LMDB store with each allowed version of lmdb
	$(RUN) scripts/lmdb_versions.sh

lint: setup ## style, types, import layers
	$(RUN) ruff check . && ruff format --check .
	$(RUN) uv lock --check --offline --quiet || { echo "uv.lock does not fit pyproject.toml: run make lock"; exit 1; }
	$(RUN) mypy
	$(RUN) pytest -q tests/typing
	$(RUN) lint-imports
	$(RUN) python scripts/check_light_import.py
	$(RUN) python scripts/check_benchmarks.py

docs: setup ## the documentation as a site in build/docs; broken links and anchors are errors
	$(RUN) python scripts/build_docs.py

build: setup ## wheel and source distribution in dist, tested with a job
	$(RUN) python scripts/check_build.py

format: setup ## reformat the code
	$(RUN) ruff check --fix . && ruff format .

bench: setup ## forkpoint against Spark's own operators; writes bench.json
	$(RUN) python benchmarks/run.py
	$(RUN) python benchmarks/beside.py

bench-cluster: setup ## a standalone cluster with the state root on S3, and on the local disk
	$(RUN) python benchmarks/on_cluster.py --state-root s3
	$(RUN) python benchmarks/on_cluster.py --state-root disk
	$(RUN) python benchmarks/rebuild.py
	$(RUN) python benchmarks/scale.py

bench-kafka: setup ## from Kafka to Kafka: throughput and latency, against Flink's Java (and PyFlink after make flink-parity)
	$(RUN) python benchmarks/kafka/throughput.py
	$(RUN) python benchmarks/kafka/latency.py --interval-ms 10

bench-sql: setup ## SQL queries against Flink's Java, in turn
	$(RUN) python benchmarks/sql/planning.py
	$(RUN) python benchmarks/sql/against_flink.py

nexmark: setup ## Nexmark's queries against Flink's Java (and PyFlink after make flink-parity), in turn; writes nexmark.json. TEXTS: the published queries
	$(RUN) python benchmarks/nexmark/against_flink.py $(TEXTS)

bench-functions: setup ## functions with state and windows against Flink in Java, in turn
	$(RUN) python benchmarks/functions/against_flink.py

bench-state: setup ## state beyond memory against Flink in Java with RocksDB, in turn, each in a control group; as root
	$(RUN) python benchmarks/large_state/against_flink.py

bench-patterns: setup ## patterns against Flink's CEP in Java, in turn
	$(RUN) python benchmarks/patterns/against_flink.py

flink-parity: setup .flink/venv/stamp ## run the parity programs on PyFlink and on Flink, and record the results
	.flink/venv/bin/python tests/parity/pyflink/record.py
	.flink/venv/bin/python tests/parity/pyflink/record_names.py
	$(RUN) python tests/parity/pyflink/flink_examples.py --record
	$(RUN) python tests/parity/pyflink/own_tests.py
	$(RUN) python tests/parity/java/record.py
	$(RUN) python tests/parity/java/patterns/record_patterns.py

pyflink-tests: setup .flink/venv/stamp ## PyFlink's own examples and tests on forkpoint, compared with the records
	$(RUN) python tests/parity/pyflink/flink_examples.py
	$(RUN) python tests/parity/pyflink/own_tests.py --check

.flink/venv/stamp: tests/parity/pyflink/requirements.txt
	$(RUN) python -m venv --clear .flink/venv
	.flink/venv/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

clean: ## remove all build products, except .venv and .flink
	rm -rf .newest .coverage* .bench .chaos .demo .fuzz .lmdb build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache spark-warehouse
