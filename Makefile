# make demo   fresh clone → JPEG files to batches: speed, what fused, contact sheet
# make test   fresh clone → whole test suite
# make docs   fresh clone → documentation in site/, with a picture of every image op
# make fuzz   MINUTES of damaged files, random calls and programs, interrupts, forks, kills; see docs/reliability.md
# Overridable: PYTHON, VENV, JOBS, PYTEST_ARGS, DEMO_ARGS, BENCH_ARGS, MINUTES, FUZZ_ARGS; e.g. make test PYTEST_ARGS='-m "not slow"'

PYTHON      ?= python3
VENV        ?= .venv
JOBS        ?= 3
PYTEST_ARGS ?=
DEMO_ARGS   ?=
BENCH_ARGS  ?=
MINUTES     ?= 3
FUZZ_ARGS   ?=

PY := $(VENV)/bin/python

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv demo test fuzz lint docs format bench clean

help:
	@echo "make demo | test | fuzz | lint | docs | format | bench | venv | clean"

# A stamp per set of extras: nothing is installed twice, and a change of pyproject.toml installs again.
# An environment that could not be completed has no stamp, so the next call tries again.
$(PY):
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml | $(PY)
	$(PY) -m pip install --quiet -e .
	@touch $@

# torch is pinned by the extra: a looser requirement may pull gigabytes of CUDA. The bytecode of all 24 thousand modules
# takes 40 s of CPU time: pip compiles it on one core, `compileall` on all, without the packages' own tests (a fifth of the
# source). It must be there before the tests run, which take a warning of a compiler as an error. One call for all extras
# resolves them once.
$(VENV)/.test: pyproject.toml | $(PY)
	$(PY) -m pip install --quiet --no-compile -e '.[test,dev,docs]'
	$(PY) -W ignore -m compileall -qq -j 0 -x '/tests/' $(VENV)/lib || true # a template that is no Python is no failure
	@touch $(VENV)/.core $(VENV)/.docs $@

$(VENV)/.bench: pyproject.toml | $(PY)
	$(PY) -m pip install --quiet -e '.[bench]'
	@touch $(VENV)/.core $@

venv: $(VENV)/.test

# The photographs of the demo (14 MB, not installed). Without a network it uses drawings, and tries again next time.
$(VENV)/.photos: | $(PY)
	@$(PY) -m pip download --quiet --no-deps --only-binary :all: --dest $(VENV)/photos scikit-image && touch $@ || echo "no photographs"

demo: $(VENV)/.core $(VENV)/.photos
	$(PY) -m ndd demo --photos $(VENV)/photos $(DEMO_ARGS)

# Some tests wait for processes that they started, so three workers keep two cores busy: 13 minutes.
# Workers start with neighbouring tests, which share kernels; whoever has finished takes from the others.
test: $(VENV)/.test
	$(PY) -m pytest -q -n $(JOBS) --dist=worksteal $(PYTEST_ARGS)

# Fresh seeds each time, after all failures of the past (tests/faults/past).
fuzz: $(VENV)/.test
	$(PY) -m tests.faults.fuzz --minutes $(MINUTES) --jobs $(JOBS) $(FUZZ_ARGS)

lint: $(VENV)/.test
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -m pyright

$(VENV)/.docs: pyproject.toml | $(PY)
	$(PY) -m pip install --quiet -e '.[docs]'
	@touch $(VENV)/.core $@

# A warning is an error: `strict` in mkdocs.yml.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet
	@echo "site/index.html"

format: $(VENV)/.test
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

# Installs the peers, measures for about 40 minutes, writes bench-report/ and appends to bench/results.csv.
# A short version: make bench BENCH_ARGS=--quick; one workload: BENCH_ARGS='train --rounds 3'; see bench/README.md.
# A peer that does not import (torchvision where its build does not fit torch) is left out, with one line that says so;
# add another build by hand with `$(PY) -m pip install --no-deps …`, so that torch stays as it is.
bench: $(VENV)/.bench
	$(PY) -m bench $(BENCH_ARGS)

clean:
	rm -rf $(VENV) build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
