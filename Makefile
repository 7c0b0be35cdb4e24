# `make demo` and `make test` work in a fresh clone on a new machine: they make a virtual environment here, install torch
# and the package into it, and run. Nothing is installed into the system's Python. Re-runs are quick.
#
#   make PYTHON=python3.12 ...       the interpreter to use (3.10 or newer)
#   make VENV=.venv-312 ...          the folder of the virtual environment
#   make TORCH='torch==2.13.0 --index-url URL' ...      what pip is told to install as torch, e.g. a CPU build
#   make test ARGS='-k order -x'     more arguments to pytest
PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0
ARGS ?=
SECONDS ?= 60

SHELL := bash
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check
NATIVE := CMakeLists.txt $(shell find csrc cmake -type f)
CPP := $(shell find csrc tests -name '*.h' -o -name '*.cpp')

# An environment keeps the interpreter that it was made with.
ifeq ($(filter command line environment,$(origin PYTHON)),)
else ifneq ($(wildcard $(BIN)/python),)
  version_of = $(shell $(1) -c 'import sys; print(sys.version)' 2>&1)
  ifneq ($(call version_of,$(PYTHON)),$(call version_of,$(BIN)/python))
    $(error $(VENV) was made with another Python than $(PYTHON): give another folder as VENV=, or `make clean` first)
  endif
endif

.PHONY: demo test test-all test-most environments soak test-spark test-connect test-spark-oldest test-tensorflow test-ray build lint format asan tsan fuzz wheel clean help
.DELETE_ON_ERROR:

help:  ## say what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST)  | sed -E 's/:[^#]*##/:/' | awk -F: '{ printf "make %-10s%s\n", $$1, $$2 }'

demo: $(STAMPS)/demo  ## real data from Parquet to a trained network
	$(BIN)/python examples/demo.py

test: $(STAMPS)/dev  ## the test suite without its slow tests
	$(BIN)/python -m pytest -m "not slow and not spark and not ray and not tensorflow" $(ARGS)

# All of them run, whatever becomes of the others, and the end says which failed. Slow tests of Spark are part of it.
# JOBS=2 makes two lanes at a time.
LANES := test-spark test-most test-ray asan test-connect tsan test-spark-oldest test-tensorflow fuzz
JOBS ?= 1
test-all: $(STAMPS)/dev  ## all tests there are: slow ones, sanitizers, Spark, Ray, oldest versions (an hour or more)
	MAKE='$(MAKE)' JOBS=$(JOBS) SPARK_MARKS=spark scripts/lanes.sh $(LANES)

environments: $(STAMPS)/dev $(STAMPS)/spark $(STAMPS)/spark-oldest $(STAMPS)/tensorflow $(STAMPS)/ray

test-most: $(STAMPS)/dev  ## the test suite with its slow tests
	$(BIN)/python -m pytest -m "not spark and not ray and not tensorflow" $(ARGS)

soak: $(STAMPS)/dev  ## loaders at work for SECONDS=60, killed and resumed at random
	FASTSHARD_SOAK_SECONDS=$(SECONDS) $(BIN)/python -m pytest tests/soak $(ARGS)

# One session of Spark or Ray, so one process, whatever number ARGS has for the other lanes.
ALONE := -n 0
SPARK_MARKS ?= spark and not slow
test-spark: $(STAMPS)/spark  ## the tests that need Spark, in one classic session
	$(VENV)-spark/bin/python -m pytest -m "$(SPARK_MARKS)" $(ARGS) $(ALONE) tests/spark tests/trainers

test-connect: $(STAMPS)/spark  ## the same in one session of Spark Connect
	FASTSHARD_SPARK=connect $(VENV)-spark/bin/python -m pytest -m "$(SPARK_MARKS)" $(ARGS) $(ALONE) tests/spark

test-spark-oldest: $(STAMPS)/spark-oldest  ## writing and collecting with Spark 3.5 and the oldest NumPy, pandas, pyarrow and torch
	$(VENV)-spark-oldest/bin/python -W ignore -m pytest -W ignore -m "spark and not slow" $(ARGS) $(ALONE) tests/spark

test-tensorflow: $(STAMPS)/tensorflow  ## Petastorm's converter with TensorFlow
	$(VENV)-tensorflow/bin/python -m pytest -m tensorflow $(ARGS) $(ALONE) tests/spark

test-ray: $(STAMPS)/ray  ## the tests that need Ray or DeepSpeed
	$(VENV)-ray/bin/python -m pytest -m ray $(ARGS) $(ALONE) tests/ray tests/trainers

build: $(STAMPS)/dev  ## virtual environment with everything for development
	@echo "$(VENV) is ready: $(BIN)/python, $(BIN)/fastshard"

lint: $(STAMPS)/dev  ## style and types
	@failed=; for check in 'ruff check .' 'ruff format --check .' mypy 'clang-format --dry-run -Werror $(CPP)'; do \
	    echo "$${check%% csrc*}"; $(BIN)/$$check || failed=1; done; [ -z "$$failed" ]

format: $(STAMPS)/dev  ## rewrite the sources in the project's style
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP)

asan: $(STAMPS)/dev  ## the tests of the native core under AddressSanitizer and UndefinedBehaviorSanitizer
	scripts/sanitize.sh asan $(VENV) $(ARGS)

tsan: $(STAMPS)/dev  ## the same under ThreadSanitizer
	scripts/sanitize.sh tsan $(VENV) $(ARGS)

fuzz:  ## any bytes as an Arrow file, for SECONDS=60, under AddressSanitizer
	scripts/prepare-system.sh $(PYTHON) fuzzer
	scripts/fuzz.sh $(SECONDS)

wheel: $(STAMPS)/dev  ## source distribution and wheel, in dist/
	scripts/wheel.sh $(VENV)

clean:  ## remove what the targets above made
	rm -rf build dist $(VENV) .venv-* .hypothesis .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMPS)/venv: scripts/prepare-system.sh
	scripts/prepare-system.sh $(PYTHON)
	$(PYTHON) -m venv $(VENV)
	mkdir -p $(STAMPS) && touch $@

# torch comes first and alone, so that no other package chooses its build. The rest of the line is what the native core
# is built with: pip builds in this environment, where CMake keeps its state between builds.
$(STAMPS)/tools: $(STAMPS)/venv
	$(PIP) install $(TORCH)
	$(PIP) install scikit-build-core pybind11 cmake ninja 'numpy>=2.0'
	touch $@

$(STAMPS)/demo: $(STAMPS)/tools pyproject.toml $(NATIVE)
	$(PIP) install --no-build-isolation --editable '.[demo]'
	touch $@

$(STAMPS)/dev: $(STAMPS)/tools pyproject.toml $(NATIVE)
	$(PIP) install --no-build-isolation --editable '.[dev]'
	touch $@ $(STAMPS)/demo

$(STAMPS)/spark: $(STAMPS)/dev scripts/spark-environment.sh scripts/layers.sh
	scripts/prepare-system.sh $(PYTHON) java
	scripts/spark-environment.sh $(VENV) $(VENV)-spark
	touch $@

$(STAMPS)/tensorflow: $(STAMPS)/dev scripts/tensorflow-environment.sh scripts/layers.sh
	scripts/tensorflow-environment.sh $(VENV) $(VENV)-tensorflow
	touch $@

$(STAMPS)/ray: $(STAMPS)/dev scripts/ray-environment.sh scripts/layers.sh
	scripts/prepare-system.sh $(PYTHON) java
	scripts/ray-environment.sh $(VENV) $(VENV)-ray
	touch $@

$(STAMPS)/spark-oldest: $(STAMPS)/dev scripts/spark-environment.sh scripts/layers.sh
	scripts/prepare-system.sh $(PYTHON) java
	scripts/spark-environment.sh $(VENV) $(VENV)-spark-oldest oldest
	touch $@
