# Every target sets up what it needs: Python 3.11 or newer and make are enough.
# `make` alone lists the targets. Extra arguments go in ARGS: make test ARGS="-k lease".

.DEFAULT_GOAL := help
SHELL := /bin/sh

# The first Python on the path that is new enough.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# What is linted and typed; a folder that is not there yet is left out.
CODE := $(wildcard src tests tools benchmarks evidence examples deploy)
# Tests that run the blocks of pages beside what else they know of them; tests/docs/test_blocks.py lists them.
PAGE_TESTS := $(addprefix tests/,app/test_quickstart.py cli/test_docs.py facades/test_pages.py \
	worker/test_guide.py service/test_guide.py stores/test_postgres_guide.py stores/test_redis_guide.py house/test_states_diagram.py testing/test_guide.py end_to_end/test_remote.py docs/test_commands.py docs/test_first_app.py docs/test_troubleshooting.py docs/test_tutorials.py moving_in/test_guide.py)
ARGS ?=

.PHONY: help setup dashboard check format test test-page test-browser pictures test-stores test-hybrid run demo bench bench-limits bench-workers bench-postgres bench-redis bench-pinned bench-flow bench-schedules bench-service bench-polls bench-explorer bench-scale compare profile growth docs mutate fence simulate crash-matrix soak crowd fuzz-service covered flaky reference site requirements audit sbom lock clean types package pythons lowest-versions incidents

help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(READY): pyproject.toml
	@test -n "$(PYTHON)" || { echo "Forebay needs Python 3.11 or newer; name yours with PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	FOREBAY_SKIP_DASHBOARD=1 $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

setup: $(READY) dashboard ## Create .venv with everything the other targets need, and build the dashboard (done once)

dashboard: $(READY) ## Build the page of the dashboard, if its source has changed
	@$(BIN)/python tools/dashboard.py

check: $(READY) ## Format, lint, types, imports, requirement ids and the fast tests
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports
	$(BIN)/python tools/requirements.py --check
	$(BIN)/pytest tests/house tests/domain --quiet --cov=forebay.domain --cov-branch --cov-fail-under=100

format: $(READY) ## Rewrite the code in the house format and mend what ruff can mend
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

test: $(READY) dashboard ## All tests, on three processes: many of them wait
	$(BIN)/pytest -n 3 --dist worksteal tests $(ARGS)

test-page: $(READY) ## Types and tests of the page's own logic
	@$(BIN)/python tools/dashboard.py
	@$(BIN)/python tools/dashboard.py --test

test-browser: $(READY) dashboard ## A real browser drives every view of the dashboard; installs Chromium where it may
	FOREBAY_CHROMIUM="$$($(BIN)/python tools/chromium.py)" $(BIN)/pytest --quiet tests/browser/drive_*.py $(ARGS)

pictures: $(READY) dashboard ## Take the pictures of the dashboard in docs/images again; takes some minutes
	FOREBAY_CHROMIUM="$$($(BIN)/python tools/chromium.py)" $(BIN)/python -m tests.browser.pictures $(ARGS)

test-stores: $(READY) ## The store contract, the model test and what one engine alone can do
	$(BIN)/pytest -n 3 --dist worksteal tests/stores $(ARGS)

# What goes by engines, but for what needs one of them by name.
BY_ENGINE := $(addprefix tests/,stores/contract stores/test_model.py stores/test_model_schedules.py stores/test_limits_waking.py \
	worker app scheduler testing/test_trial.py end_to_end/test_supervisor.py end_to_end/test_schedules_kill.py \
	end_to_end/test_sequence_kill.py end_to_end/test_steps_kill.py end_to_end/test_worker_waits.py \
	end_to_end/test_isolated_processes.py end_to_end/test_cp2.py end_to_end/test_limits_kill.py \
	end_to_end/test_workflow_kill.py end_to_end/test_workflow_race.py evidence/test_matrix.py)
BESIDE ?= up killed flushed stopped

test-hybrid: $(READY) ## All that goes by engines on PostgreSQL accelerated by Redis, which is up, killed, flushed, stopped: [BESIDE=killed]
	@for what in $(BESIDE); do echo "Redis is $$what:"; \
	FOREBAY_TEST_ENGINE=hybrid FOREBAY_TEST_BESIDE=$$what $(BIN)/pytest -n 3 --dist worksteal $(BY_ENGINE) $(ARGS) || exit 1; done

audit: $(READY) ## Look up known vulnerabilities of all packages, of Python and of npm; needs the network, else status 69
	@$(BIN)/python -m tools.audit

sbom: $(READY) ## List the packages of an installation with all extras as CycloneDX JSON: build/forebay.cdx.json
	@$(BIN)/python -m tools.sbom $(ARGS)

lock: $(READY) ## Write the hashes of what the image of deploy installs; needs the network
	@$(BIN)/uv pip compile pyproject.toml --extra postgres --extra redis --extra server --python-version 3.13 \
	--python-platform linux --generate-hashes --no-annotate --custom-compile-command 'make lock' \
	--quiet --output-file deploy/app/requirements.txt $(ARGS)

run: $(READY) dashboard ## Run an app with sample tasks, a worker, the service and its dashboard until Ctrl-C
	@$(BIN)/python examples/sample/main.py $(ARGS)

demo: $(READY) ## A tour of half a minute: thousands of jobs, a killed worker, a proof at the end
	@$(BIN)/python examples/tour/main.py $(ARGS)

bench: $(READY) ## Measure the store, throughput and latency beside SQLite alone and the goals
	$(BIN)/python -m benchmarks.store $(ARGS)
	$(BIN)/python -m benchmarks.throughput $(ARGS)
	$(BIN)/python -m benchmarks.latency $(ARGS)

bench-postgres: $(READY) ## Measure the PostgreSQL store beside a bare table: enqueue, drain, pick-up
	$(BIN)/python -m benchmarks.postgres $(ARGS)

bench-redis: $(READY) ## Measure the Redis store beside bare keys: enqueue, drain, pick-up, a long backlog, a restart
	$(BIN)/python -m benchmarks.redis $(ARGS)

bench-pinned: $(READY) ## Measure PostgreSQL with a long past, a long backlog and a pinned horizon: fifteen minutes
	$(BIN)/python -m benchmarks.pinned $(ARGS)

bench-flow: $(READY) ## Measure a fan-out of 10,000 with a join beside plain jobs: URL=sqlite:////tmp/flow.db
	$(BIN)/python -m benchmarks.flow $(URL) $(ARGS)

bench-schedules: $(READY) ## Measure 10,000 schedules at once, and how punctual jobs are: URL=sqlite:////tmp/schedules.db
	$(BIN)/python -m benchmarks.schedules $(URL) $(ARGS)

bench-service: $(READY) ## Measure the service over HTTP: batches, single enqueues, long polls
	$(BIN)/python -m benchmarks.service $(ARGS)

bench-polls: $(READY) ## Ten thousand clients that wait at one server: [ARGS=--quick]
	$(BIN)/python -m benchmarks.polls $(ARGS)

bench-explorer: $(READY) ## Measure searches, first pages and totals with five million finished jobs: [ARGS='--engine sqlite']
	$(BIN)/python -m benchmarks.explorer $(ARGS)

bench-scale: $(READY) ## Measure drains by number of workers, a job from end to end, and a long history: [ARGS='--engine redis']
	$(BIN)/python -m benchmarks.scale $(ARGS)

bench-limits: $(READY) ## Measure a drain under limits beside the same without, on every engine
	$(BIN)/python -m benchmarks.limits $(ARGS)

bench-workers: $(READY) ## Measure isolated processes, time limits, deaths, idle workers, unknown tasks
	$(BIN)/python -m benchmarks.workers $(ARGS)

compare: $(READY) ## Forebay, its peers and the engine alone in turns: ENGINE=sqlite|postgres|redis|hybrid [QUICK=1]
	@$(BIN)/python -m benchmarks.compare --engine $(or $(ENGINE),sqlite) $(if $(QUICK),--quick) $(ARGS)

profile: $(READY) ## Where the time of one job goes, stage by stage: ENGINE=sqlite|postgres|redis
	@$(BIN)/python -m benchmarks.profile --engine $(or $(ENGINE),sqlite) $(ARGS)

growth: $(READY) ## Plots of speed against backlog, history, processes, payload: [ENGINE=...] [PART=...] [QUICK=1]
	@$(BIN)/python -m benchmarks.growth $(if $(ENGINE),--engine $(ENGINE)) $(if $(PART),--part $(PART)) $(if $(QUICK),--quick) $(ARGS)

types: $(READY) ## See that everything a user can import is typed, as pyright --verifytypes judges it
	@$(BIN)/python tools/typed.py $(ARGS)

package: $(READY) ## Build the sdist and the wheel twice, compare them, install the wheel and try it
	@$(BIN)/python tools/package.py $(ARGS)

pythons: $(READY) ## Say which Pythons are here, and run the tests on each: [ARGS=--list] [ARGS='tests/app']
	@$(BIN)/python tools/pythons.py $(ARGS)

lowest-versions: $(READY) ## Run tests with the lowest version of every dependency: [ARGS=--list] [ARGS='tests/cli']
	@$(BIN)/python tools/lowest_versions.py $(ARGS)

docs: $(READY) ## Check all links in the documents and run all code in them, offline
	$(BIN)/python tools/check_links.py
	$(BIN)/pytest --quiet tests/docs tests/house/test_docs.py $(PAGE_TESTS) $(ARGS)

mutate: $(READY) ## Remove each guard of each statement in turn and see the suite fail
	$(BIN)/python tools/mutate.py $(ARGS)

covered: $(READY) ## How much of the queue, the worker and the dashboard their tests reach: twenty minutes
	$(BIN)/python tools/covered.py $(ARGS)

flaky: $(READY) ## Run tests again and again and name those that fail now and then: [TIMES=20] [ARGS=tests/worker]
	$(BIN)/python tools/flaky.py --times $(or $(TIMES),20) $(or $(ARGS),tests)

fence: $(READY) ## Take the attempt out of the fence, one statement of one engine at a time, and see a test fail
	$(BIN)/python tools/fence.py $(ARGS)

simulate: $(READY) ## Lives of a small system on a simulated clock, with faults at every store call: [ARGS='--runs 0']
	$(BIN)/python -m evidence.simulate $(ARGS)

crash-matrix: $(READY) ## Kill a process at every point of every store operation: [ARGS='--engine redis --operation fire']
	$(BIN)/python -m evidence.matrix $(ARGS)

incidents: $(READY) ## Fork with the clock set back; move a store with blobs while workers of the new one run: [ARGS='--engine redis']
	$(BIN)/python -m evidence.incidents $(ARGS)

MINUTES ?= 5

soak: $(READY) ## Worker programs under a mixed load and under fire: [MINUTES=30] [ENGINE=sqlite|postgres|redis|hybrid]
	$(BIN)/python -m evidence.soak --minutes $(MINUTES) --engine $(or $(ENGINE),sqlite) $(ARGS)

crowd: $(READY) ## Several processes on one store under full load, for a minute: [ENGINE=sqlite|postgres|redis|hybrid]
	$(BIN)/python -m evidence.crowd --engine $(or $(ENGINE),sqlite) $(ARGS)

fuzz-service: $(READY) ## Throw 500 examples at each operation of the service, right and wrong ones: [ARGS='--max-examples 20'], one by one and within bounds: [ARGS=--each]
	$(BIN)/python tools/fuzz_service.py $(ARGS)

reference: $(READY) ## Write the pages of docs/reference that are made from the code, the .proto file and its code
	$(BIN)/python tools/reference.py $(ARGS)
	$(BIN)/python tools/proto.py $(ARGS)
	$(BIN)/python -m tools.reference_pages $(ARGS)

site: $(READY) ## Build the documentation as static pages with a search, offline: build/site
	@$(BIN)/python -m tools.build_site $(ARGS)

requirements: $(READY) ## What is shown by tests, what waits and what was decided against
	@$(BIN)/python tools/requirements.py $(ARGS)

clean: ## Remove .venv, caches and build results
	rm -rf dashboard/node_modules src/forebay/dashboard/static
	rm -rf $(VENV) .venv-peers .venv-pythons .venv-lowest build dist .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
