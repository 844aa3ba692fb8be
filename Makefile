# Every target sets up what it needs: Python 3.11 or newer and make are enough.
# `make` alone lists the targets. Extra arguments go in ARGS: make test ARGS="-k lease".

.DEFAULT_GOAL := help
SHELL := /bin/sh

# The first Python on the path that is new enough. Looked for once, and only by a target that installs.
PYTHON ?= $(eval PYTHON := $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done))$(PYTHON)

VENV := .venv
BIN := $(VENV)/bin
# ready,SETS: a stamp for each set of packages that a target needs; tools/environment.py installs them.
ready = $(addprefix $(VENV)/.ready-,$1)
# What is linted and typed; a folder that is not there yet is left out.
CODE := $(wildcard src tests tools benchmarks evidence examples deploy)
# Tests that run the blocks of pages beside what else they know of them; tests/docs/test_blocks.py lists them.
PAGE_TESTS := $(addprefix tests/,app/test_quickstart.py cli/test_docs.py compat/test_pages.py \
	worker/test_guide.py service/test_guide.py stores/test_postgres_guide.py stores/test_redis_guide.py house/test_states_diagram.py testing/test_guide.py end_to_end/test_remote.py docs/test_commands.py docs/test_first_app.py docs/test_troubleshooting.py docs/test_tutorials.py importers/test_guide.py)
ARGS ?=

evidence_needs = $(call ready,test $(if $(filter covered,$1),check) $(if $(filter fuzz-service,$1),fuzz))

# Two targets may not install packages into .venv at once.
.NOTPARALLEL:
.PHONY: help setup run demo format check test test-all docs bench evidence tools clean

help:
	@echo 'Usage: make TARGET [ARGS="..."], for example: make test ARGS="-k lease"'
	@awk '/^[a-z-]+: .*## [A-Z]/ { name = $$1; sub(":", "", name); sub(".*## ", ""); group = $$1; what = ""; \
	if (sub("WHAT: ", "")) what = " WHAT=name"; sub("[^ ]+ ", ""); sub(":", "", group); \
	printf "%-9s make %-19s %s\n", group, name what, $$0 }' $(firstword $(MAKEFILE_LIST))

# A set is an extra dev-... of pyproject.toml; `all` is the extra dev.
.PRECIOUS: $(VENV)/.ready-%
$(VENV)/.ready-%: pyproject.toml
	@test -n "$(PYTHON)" || { echo "Forebay needs Python 3.11 or newer; name yours with PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -m tools.environment $*

# ---------------------------------------------------------------- what a contributor needs

run: $(call ready,run) ## Try: sample tasks, a worker, the service and its dashboard, until Ctrl-C
	@$(BIN)/python -m tools.dashboard --optional
	@$(BIN)/python examples/sample/main.py $(ARGS)

demo: $(call ready,run) ## Try: a tour of half a minute: thousands of jobs, a killed worker, a proof
	@$(BIN)/python examples/tour/main.py $(ARGS)

setup: $(call ready,all) dashboard ## Change: install all that the other targets need, and build the dashboard

format: $(call ready,format) ## Change: format the code, and mend what ruff can mend
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

check: $(call ready,check) ## Change: format, lint, types, imports, requirement ids and the fast tests
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports
	$(BIN)/python tools/requirements.py --check
	$(BIN)/pytest -n 3 --dist worksteal tests/house --quiet
	$(BIN)/pytest tests/domain --quiet --cov=forebay.domain --cov-branch --cov-fail-under=100

# More processes than cores, because many tests wait: tests/conftest.py says how many. tests/house is about the
# repository itself: `make check` runs it.
test: $(call ready,test) dashboard ## Change: the tests that tell whether a change is right
	$(BIN)/pytest -n auto --dist worksteal -m "not extended" tests --ignore=tests/house $(ARGS)

test-all: check test test-extended ## Change: all tests: other ways of the engines, evidence, packaging, browser too

docs: $(call ready,test site) ## Change: links in the documents lead somewhere, and code in them runs
	$(BIN)/python tools/check_links.py
	$(BIN)/pytest --quiet tests/docs tests/house/test_docs.py $(PAGE_TESTS) $(ARGS)

bench: $(call ready,test) ## Measure WHAT: benchmarks, with ENGINE=... or QUICK=1; WHAT=list names them
	@$(call start,bench,$(or $(WHAT),store throughput latency))

evidence: $(call evidence_needs,$(WHAT)) ## Measure WHAT: a proof by crashes, faults and load; WHAT=list names them
	@$(call start,evidence,$(or $(WHAT),list))

tools: ## Maintain: list the targets for the site, the reference, packages, audits, versions
	@awk '/^[a-z-]+: .*#: / { name = $$1; sub(":", "", name); sub(".*#: ", ""); printf "make %-18s %s\n", name, $$0 }' $(firstword $(MAKEFILE_LIST))

clean: ## Maintain: remove .venv, caches and build results
	rm -rf dashboard/node_modules src/forebay/dashboard/static
	rm -rf $(VENV) .venv-peers .venv-pythons .venv-lowest build dist .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

# ---------------------------------------------------------------- for maintainers: `make tools` lists these

.PHONY: dashboard test-stores test-extended test-browser test-page pictures site reference requirements package types pythons lowest-versions audit sbom lock

dashboard: $(call ready,run) #: build the page of the dashboard, if its source has changed
	@$(BIN)/python -m tools.dashboard

test-stores: $(call ready,test) #: the store contract, the model test and what one engine alone can do
	$(BIN)/pytest -n auto --dist worksteal tests/stores $(ARGS)

# Status 69: no browser can be installed here, or the packages of the page cannot be fetched, so there is nothing to
# drive. Each other failure is a fault of our own. `make` and not $(MAKE): a dry run would start the line.
test-extended: $(call ready,extended) dashboard #: what test-all runs beyond test
	$(BIN)/pytest -n auto --dist worksteal -m extended tests $(ARGS)
	@$(BIN)/python tools/chromium.py > /dev/null && $(BIN)/python -m tools.dashboard --fetch; missing=$$?; \
	case $$missing in \
	0) make --no-print-directory test-browser ARGS= ;; \
	69) echo "make test-browser was left out: see above for what is missing" ;; \
	*) exit $$missing ;; \
	esac

test-browser: $(call ready,test browser site) dashboard #: a real browser drives every view of the dashboard; installs Chromium where it may
	FOREBAY_CHROMIUM="$$($(BIN)/python tools/chromium.py)" $(BIN)/pytest --quiet tests/browser/drive_*.py $(ARGS)

test-page: dashboard #: types and tests of the page's own logic
	@$(BIN)/python -m tools.dashboard --test

pictures: $(call ready,test browser) dashboard #: take the pictures of the dashboard in docs/images again; some minutes
	FOREBAY_CHROMIUM="$$($(BIN)/python tools/chromium.py)" $(BIN)/python -m tests.browser.pictures $(ARGS)

site: $(call ready,site) #: build the documents as static pages with a search, offline: build/site
	@$(BIN)/python -m tools.build_site $(ARGS)

reference: $(call ready,test) #: write the pages of docs/reference that are made from the code, the .proto file and its code
	$(BIN)/python tools/reference.py $(ARGS)
	$(BIN)/python tools/proto.py $(ARGS)
	$(BIN)/python -m tools.reference_pages $(ARGS)

requirements: $(call ready,run) #: lines shown, partly shown, not built and decided against: [ARGS="--section 4"]
	@$(BIN)/python tools/requirements.py $(ARGS)

package: $(call ready,run release) #: build the sdist and the wheel twice, compare them, install the wheel and try it
	@$(BIN)/python tools/package.py $(ARGS)

types: $(call ready,test release) #: see that every name a user can import is typed, as pyright --verifytypes judges it
	@$(BIN)/python tools/typed.py $(ARGS)

pythons: $(call ready,run) #: say which Pythons are here, and run the tests on each: [ARGS=--list] [ARGS='tests/app']
	@$(BIN)/python tools/pythons.py $(ARGS)

lowest-versions: $(call ready,run) #: run tests with the lowest version of every dependency: [ARGS=--list] [ARGS='tests/cli']
	@$(BIN)/python tools/lowest_versions.py $(ARGS)

audit: $(call ready,all) #: look up known vulnerabilities of Python and npm packages; status 69 without the network
	@$(BIN)/python -m tools.audit

sbom: $(call ready,test release) #: list the packages of an installation with all extras as CycloneDX JSON: build/forebay.cdx.json
	@$(BIN)/python -m tools.sbom $(ARGS)

lock: $(call ready,release) #: write the hashes of what the image of deploy installs; needs the network
	@$(BIN)/uv pip compile pyproject.toml --extra postgres --extra redis --extra server --python-version 3.13 \
	--python-platform linux --generate-hashes --no-annotate --custom-compile-command 'make lock' \
	--quiet --output-file deploy/app/requirements.txt $(ARGS)

# ---------------------------------------------------------------- benchmarks and evidence, by their names

list = awk '/^$1[.]/ { sub("^$1[.]", ""); name = $$1; sub(".* \# ", ""); \
	printf "make $1 WHAT=%-15s %s\n", name, $$0 }' $(firstword $(MAKEFILE_LIST))
unknown = { echo "make $1 has no WHAT=$2; make $1 WHAT=list names them all" >&2; exit 2; }
# start,KIND,NAMES: run the commands of these names, one after the other.
start = $(if $(filter list,$2),$(call list,$1),$(foreach name,$2,$(or $($1.$(name)),$(call unknown,$1,$(name))) &&) true)

QUICKLY = $(if $(QUICK),--quick)

# KIND.NAME = command # purpose, as WHAT=list prints it
bench.store      = $(BIN)/python -m benchmarks.store $(ARGS) # the SQLite store beside SQLite alone, and the goals
bench.throughput = $(BIN)/python -m benchmarks.throughput $(ARGS) # enqueue and drain on SQLite beside SQLite alone
bench.latency    = $(BIN)/python -m benchmarks.latency $(ARGS) # pick-up on SQLite, cold start, memory of an idle worker
bench.postgres   = $(BIN)/python -m benchmarks.postgres $(ARGS) # the PostgreSQL store beside a bare table: enqueue, drain, pick-up
bench.redis      = $(BIN)/python -m benchmarks.redis $(ARGS) # the Redis store beside bare keys: enqueue, drain, pick-up, backlog, restart
bench.pinned     = $(BIN)/python -m benchmarks.pinned $(ARGS) # PostgreSQL with a long past, a backlog and a pinned horizon: 15 minutes
bench.flow       = $(BIN)/python -m benchmarks.flow $(URL) $(ARGS) # a fan-out of 10,000 with a join: URL=sqlite:////tmp/flow.db
bench.schedules  = $(BIN)/python -m benchmarks.schedules $(URL) $(ARGS) # 10,000 schedules at once: URL=sqlite:////tmp/schedules.db
bench.service    = $(BIN)/python -m benchmarks.service $(ARGS) # the service over HTTP: batches, single enqueues, long polls
bench.polls      = $(BIN)/python -m benchmarks.polls $(ARGS) # ten thousand clients that wait at one server: [ARGS=--quick]
bench.explorer   = $(BIN)/python -m benchmarks.explorer $(ARGS) # searches with five million finished jobs: [ARGS='--engine sqlite']
bench.scale      = $(BIN)/python -m benchmarks.scale $(ARGS) # drains by number of workers, a long history: [ARGS='--engine redis']
bench.limits     = $(BIN)/python -m benchmarks.limits $(ARGS) # a drain under limits beside the same without, on every engine
bench.workers    = $(BIN)/python -m benchmarks.workers $(ARGS) # isolated processes, time limits, deaths, idle workers, unknown tasks
bench.compare    = $(BIN)/python -m benchmarks.compare --engine $(or $(ENGINE),sqlite) $(QUICKLY) $(ARGS) # peers and the engine alone: ENGINE=sqlite|postgres|redis [QUICK=1]
bench.profile    = $(BIN)/python -m benchmarks.profile --engine $(or $(ENGINE),sqlite) $(ARGS) # the time of one job, stage by stage: ENGINE=sqlite|postgres|redis
bench.growth     = $(BIN)/python -m benchmarks.growth $(if $(ENGINE),--engine $(ENGINE)) $(if $(PART),--part $(PART)) $(QUICKLY) $(ARGS) # plots of speed against backlog, history, processes, payload: [ENGINE=] [PART=] [QUICK=1]

evidence.crash-matrix = $(BIN)/python -m evidence.matrix $(ARGS) # a process killed at every point of every operation: [ARGS='--engine redis --operation fire']
evidence.simulate     = $(BIN)/python -m evidence.simulate $(ARGS) # a small system on a simulated clock, faults at every store call: [ARGS='--runs 0']
evidence.soak         = $(BIN)/python -m evidence.soak --minutes $(or $(MINUTES),5) --engine $(or $(ENGINE),sqlite) $(ARGS) # worker programs under load and fire: [MINUTES=30] [ENGINE=sqlite|postgres|redis]
evidence.crowd        = $(BIN)/python -m evidence.crowd --engine $(or $(ENGINE),sqlite) $(ARGS) # processes on one store at full load: [ENGINE=sqlite|postgres|redis]
evidence.incidents    = $(BIN)/python -m evidence.incidents $(ARGS) # a fork with the clock set back, a move while workers run: [ARGS='--engine redis']
evidence.fence        = $(BIN)/python tools/fence.py $(ARGS) # the attempt taken out of the fence, one statement at a time: a test must fail
evidence.mutate       = $(BIN)/python tools/mutate.py $(ARGS) # each guard of each statement removed in turn: the suite must fail
evidence.fuzz-service = $(BIN)/python tools/fuzz_service.py $(ARGS) # right and wrong requests at each operation of the service: [ARGS=--each]
evidence.covered      = $(BIN)/python tools/covered.py $(ARGS) # how much of queue, worker and dashboard their tests reach: 20 minutes
evidence.flaky        = $(BIN)/python tools/flaky.py --times $(or $(TIMES),20) $(or $(ARGS),tests) # tests that fail now and then: [TIMES=20] [ARGS=tests/worker]

# The names as targets: make bench-service, make compare, make crash-matrix.
bench-%: $(call ready,test)
	@$(call start,bench,$*)
compare profile growth: $(call ready,test)
	@$(call start,bench,$@)
.SECONDEXPANSION:
$(patsubst evidence.%,%,$(filter evidence.%,$(.VARIABLES))): $$(call evidence_needs,$$@)
	@$(call start,evidence,$@)
