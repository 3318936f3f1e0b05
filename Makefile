# Each target sets up its own .venv on a fresh machine: only Python 3.11 or later is needed.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
export OPENBLAS_NUM_THREADS = 1
# Tests start hundreds of processes: without bytecode each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

# What another processor or other versions could change: numbers, and promises about bytes.
SHORT = tests/kernels tests/posteriors tests/states tests/policies/test_tabled.py tests/oracles \
	tests/lab/simulation tests/core/test_linalg.py tests/lab/experiments/test_plans.py \
	tests/cli/test_resume.py tests/roads/posterior

.PHONY: demo test slow check core kernels oldest bench torch sumo clean

demo: $(VENV)/.core
	$(BIN)/superarm demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest -q -n auto -m "not slow and not thorough" --doctest-modules

slow: $(VENV)/.dev
	$(BIN)/python -m pytest -q -n auto -m "slow or thorough"

# A short form of the tests under the BLAS of other processors: two that this one can run.
kernels: $(VENV)/.dev
	set -e; kernels=$$($(BIN)/python .ci/kernels.py); for kernel in $$kernels; do echo "BLAS of $$kernel"; \
		OPENBLAS_CORETYPE=$$kernel $(BIN)/python -m pytest -q -n auto -m "not slow" $(SHORT); done

# The same, and figures, with the oldest versions that pyproject.toml allows; Python 3.11 to 3.13.
# What old packages use of others may be deprecated by now.
oldest:
	$(PYTHON) -m venv --clear $(VENV)-oldest
	$(PYTHON) .ci/oldest.py > $(VENV)-oldest/constraints.txt
	$(VENV)-oldest/bin/python -m pip --disable-pip-version-check install --quiet \
		--constraint $(VENV)-oldest/constraints.txt --editable '.[test,cluster]'
	$(VENV)-oldest/bin/python -m pytest -q -n auto -m "not slow" -W ignore::DeprecationWarning \
		$(SHORT) tests/lab/test_plotting.py

# The wheel by itself, without any extra: it must answer, run and draw.
core:
	$(PYTHON) -m venv --clear $(VENV)-core
	$(VENV)-core/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt .
	cd $(VENV)-core && bin/superarm doctor && bin/superarm demo --quiet --out demo
	cd $(VENV)-core && bin/superarm run kernelized/rkhs-se --rounds 50 --seeds 2 --quiet --out run

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The peers of the benchmarks. torch comes first and by version: a bare "torch" pulls in CUDA.
torch: $(VENV)/.dev
	$(PIP) torch==2.13.0
	$(PIP) --editable '.[torch]'

# The traffic simulator, about 770 MB.
sumo: $(VENV)/.dev
	$(PIP) --editable '.[sumo]'

bench: $(VENV)/.dev
	$(BIN)/python -m bench streaming
	$(BIN)/python -m bench finite
	$(BIN)/python -m bench network
	$(BIN)/python -m bench combinatorial
	$(BIN)/python -m bench drift
	$(BIN)/python -m bench movement
	$(BIN)/python -m bench threads
	$(BIN)/python -m bench startup

clean:
	rm -rf $(VENV) $(VENV)-core $(VENV)-oldest demo runs

$(VENV)/.venv:
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.core: $(VENV)/.venv pyproject.toml constraints.txt
	$(PIP) --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.core
	$(PIP) --editable '.[dev]'
	touch $@
