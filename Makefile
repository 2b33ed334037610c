# The one way to set up, run and check crawlring; `make` alone says what there is.
#
# A virtual environment is made on demand in .venv from requirements.lock, and again when that file changes.

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	if $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$p; break; fi; done)
BIN := .venv/bin
READY := .venv/ready

.PHONY: help demo test check lint bench conformance takeover bench-scale docs-crawl torture faults soak explore fuzz stubs lock clean

help:
	@echo 'make demo    a whole crawl on this machine, with a node lost half way; needs no root'
	@echo 'make test    all tests; as root it installs the servers from Debian that they run on'
	@echo 'make check   lint, types, import rules and all tests: what CI runs'
	@echo 'make bench   crawlring beside Scrapy, crawlee and others, ROUNDS=5 times: docs/bench.md and .svg, anew; no root'
	@echo 'make takeover  takeover times, at the origin'
	@echo 'make conformance  other people'\''s test rows, judged: the table of docs/conformance.md, written anew'
	@echo 'make docs-crawl  12,000 real pages twice, judged by wget, lxml, sha1sum and warcio: docs/real-pages.md, anew'
	@echo 'make torture MINUTES=15 SEED=1 [STORE=cluster]  faults of every kind on hosts of their own, judged (root)'
	@echo 'make faults  each fault alone, RUNS=3 times (root; about an hour)'
	@echo 'make soak    45 minutes of torture at the default times (root)'
	@echo 'make explore the protocol in virtual time: 10,000 schedules, and each rule weakened until it is caught'
	@echo 'make fuzz MINUTES=10  hostile input to every parser'
	@echo 'make lock    requirements.lock anew from pyproject.toml'
	@echo 'make clean   remove what make made'

demo: $(READY)
	@$(BIN)/crawlring demo

# Processes that share the tests out; tests/side_by_side.py says how.
AT_ONCE ?= 2

test: $(READY)
	@sh .ci/servers
	$(BIN)/python -m pytest -n $(AT_ONCE)

check: lint test

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/lint-imports

# Each peer is installed into .venv/bench-<peer> by its first run; a round takes under three minutes. bench.json has all
# samples. Exit status 1 when a floor is missed or a peer did not run.
ROUNDS ?= 5

bench: $(READY)
	$(BIN)/python -m tests.bench --rounds $(ROUNDS) --memory --json bench.json --markdown docs/bench.md --svg docs/bench.svg

# The rows lie in the folder that CRAWLRING_CONFORMANCE names; exit status 1 when a gate is missed.
conformance: $(READY)
	$(BIN)/python -m tests.conformance --markdown docs/conformance.md

# Ten crashes, ten killed leases and ten drains, timed at the origin: about seven minutes.
takeover: $(READY)
	$(BIN)/python -m tests.bench.takeover

# A crash, a join and a start on frontiers of hundreds of thousands of sites: about twenty minutes, 3 GB.
bench-scale: $(READY)
	$(BIN)/python -m tests.bench.scale --json bench-scale.json

# The manuals of Python, PostgreSQL and OpenJDK as Debian packages them, behind nginx, over three nodes, twice: a
# quarter of an hour.
docs-crawl: $(READY)
	$(BIN)/python -m tests.cluster.docs_crawl --markdown docs/real-pages.md

MINUTES ?= 15
SEED ?= 1
STORE ?= single
RUNS ?= 3

# A crawl on separate hosts (network namespaces) under a schedule of faults; MINUTES of them, then its end, then the verdict.
torture: $(READY)
	@sh .ci/servers torture
	$(BIN)/python -m tests.torture --minutes $(MINUTES) --seed $(SEED) --store $(STORE)

faults: $(READY)
	@sh .ci/servers torture
	$(BIN)/python -m tests.torture --faults all --runs $(RUNS) --store $(STORE) --at-once 2

soak: $(READY)
	@sh .ci/servers torture
	$(BIN)/python -m tests.torture --minutes 45 --seed $(SEED) --store $(STORE) --ttl 10 --view-lease 5 --rejoin 10 --out torture/soak-$(SEED)

# Ten thousand clusters in virtual time, then every rule weakened until it is caught; the same of the store's scripts.
explore: $(READY)
	$(BIN)/python -m tests.scenarios.explore --seeds 10000
	$(BIN)/python -m tests.scenarios.explore --mutations
	$(BIN)/python -m tests.stores.amnesia --seeds 2000
	$(BIN)/python -m tests.stores.amnesia --mutations

fuzz: $(READY)
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES)

# Its output loads on protobuf 4.25 and all later ones; that of newer grpcio-tools refuses older runtimes.
stubs: $(READY)
	$(PYTHON) -m venv --clear .venv/stubs && .venv/stubs/bin/python -m pip install --quiet grpcio-tools==1.62.3 'setuptools<81'
	.venv/stubs/bin/python -m grpc_tools.protoc -I. --python_out=. --grpc_python_out=. shared/etcdrpc/etcd.proto

# pip, hatchling and editables are for the installs below and in the tests, which need nothing beyond the lock.
lock: $(READY)
	$(BIN)/python -m pip install --quiet uv
	printf 'pip\nhatchling\neditables\n' | $(BIN)/uv pip compile pyproject.toml - --group dev --universal \
		--python-version 3.11 --generate-hashes --no-annotate --no-header --quiet --upgrade -o requirements.lock

clean:
	rm -rf .venv dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# Debian parts pip from Python: without ensurepip, a pip from outside fills the environment.
$(READY): requirements.lock pyproject.toml
	@if [ -z '$(PYTHON)' ]; then echo 'Python 3.11 or later is needed, and none was found on PATH.' >&2; exit 1; fi
	@echo 'setting up .venv from requirements.lock with $(PYTHON) (a minute, once)'
	@if $(PYTHON) -c 'import venv, ensurepip' 2>/dev/null; then \
		$(PYTHON) -m venv --clear .venv && pip="$(BIN)/python -m pip"; \
	elif $(PYTHON) -m pip --version >/dev/null 2>&1; then \
		$(PYTHON) -m venv --clear --without-pip .venv && pip="$(PYTHON) -m pip --python $(BIN)/python"; \
	else \
		echo '$(PYTHON) has neither venv nor pip. On Debian and Ubuntu: apt-get install python3-venv' >&2; exit 1; \
	fi && \
	$$pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock && \
	$$pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(READY)
