# The front door. Every target does its own set-up; only Python 3.11 and make are needed.
# `make clean` and then `make PYTHON=3.13 test` run everything with another version of Python.
PYTHON :=
PY := .venv/bin/python
# The machine's own certificates, so that set-up also works behind a company's proxy.
UV := .tools/bin/uv --system-certs
# Compiled modules are kept, also where the machine says otherwise: without them each process of a test compiles for a second.
export PYTHONDONTWRITEBYTECODE :=
# More than the two cores of a small machine: many tests wait for processes and servers half of their time.
PYTEST := .venv/bin/pytest -n 3 --dist worksteal
.PHONY: setup servers lock check test long sim chaos failover soak demo bench requirements changelog clean

setup: .venv/.ready

.tools/bin/uv:
	python3 -m venv .tools
	.tools/bin/pip install --quiet --disable-pip-version-check uv==0.13.7

.venv/.ready: pyproject.toml requirements.lock | .tools/bin/uv
	python=$$(python3 tools/interpreter.py $(PYTHON)) && $(UV) venv --quiet --allow-existing --python "$$python" .venv
	$(UV) pip sync --quiet --require-hashes --python $(PY) requirements.lock
	$(UV) pip install --quiet --no-deps --no-build-isolation --python $(PY) --editable .
	@touch $@

servers:  ## what tests start and no wheel carries
	@python3 tools/servers.py

lock: | .tools/bin/uv  ## versions and hashes, after a change of dependencies
	$(UV) pip compile --quiet --generate-hashes --universal --no-header --no-annotate --group dev \
	  --no-emit-index-url --output-file requirements.lock pyproject.toml tools/build-requirements.in

check: setup  ## lint, types, layers, fast tests; under two minutes
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/mypy --config-file tests/mypy.ini
	.venv/bin/lint-imports
	$(PYTEST) -m "not slow"

test: setup servers  ## everything
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/mypy --config-file tests/mypy.ini
	.venv/bin/lint-imports
	$(PYTEST) --cov=tickwork --cov-report=
	@echo "coverage by tests in their own process, without random histories: $$(.venv/bin/coverage report --format=total) %"

long: setup servers  ## the tests with all the seeds and examples that nobody waits for; half an hour
	TICKWORK_LONG=1 $(PYTEST)

sim: setup  ## a hundred seeds of the simulated cluster. SIM="--seed 7 --seeds 1"
	PYTHONPATH=tests $(PY) -m sim $(or $(SIM),--seed 0 --seeds 100)

chaos: setup  ## 100,000 tasks on real nodes under every kind of fault; a quarter of an hour. CHAOS="--seed 7 --minutes 30"
	$(PY) tools/chaos.py $(CHAOS)

failover: setup  ## kill -9 of an owner 50 times under load, then 50 clean stops; twenty minutes
	$(PY) tools/failover.py
	$(PY) tools/failover.py --clean

soak: setup  ## a million dispatches, half an hour beside old snapshots, two hours for memory; 2 h 40 min. SOAK="--row L12"
	$(PY) tools/soak.py --check $(SOAK)

demo: setup  ## schedules, a fan-out, retries, a wait and an approval, on a page; DEMO_SECONDS=15 ends by itself
	$(PY) tools/demo.py

bench: setup  ## every figure of docs/performance.md against its gate; some are missed
	$(PY) bench/core.py --check
	$(PY) bench/why.py --check
	$(PY) bench/reach.py --check
	$(PY) bench/start.py --check
	$(PY) bench/throughput.py --check
	$(PY) bench/throughput.py --store postgres --check
	$(PY) bench/beats.py --check
	$(PY) bench/durable.py --check

requirements: setup  ## proved, decided and open requirements; fails while an open one waits for nothing that is named
	$(PY) tools/requirements.py

changelog: setup  ## move the fragments of changelog.d into CHANGELOG.md
	$(PY) tools/changelog.py

clean:
	rm -rf .venv .tools build dist
