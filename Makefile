# Everything runs in a virtual environment that the first target to need it creates.
#   make demo       install, build and train on the lazy device, compared with the CPU
#   make test       GoogleTest and pytest
#   make smoke      the ten-second subset of pytest, on what is built now
#   make conformance  every op of PyTorch's database, as on the CPU; CONFORMANCE='--dtypes float32' and such
#   make bench      the lazy device against eager and other peers, in processes of their own; BENCH='GPT-2|DQN' chooses cases
#   make fmt        format the sources in place
#   make lint       layering, a test for every source, formatting, Python lint and types; make tidy adds clang-tidy
#   make sanitize   GoogleTest and random programs of threads under address, undefined-behaviour and thread sanitizers
#   make clean      remove everything that was built, but not the environment
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
SANITIZERS ?= address+undefined thread
# Each needs a processor; tests compute on one thread.
TEST_PROCESSES ?= 2

BIN := $(VENV)/bin
CMAKE = $(BIN)/cmake
CONFIGURE = $(CMAKE) -S . -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DPython_EXECUTABLE=$(abspath $(BIN)/python)
CPP_FILES = $(shell find common device kernels lowering backend torch_lazyplug test bench tools -name '*.cpp' -o -name '*.h')

export CMAKE_BUILD_PARALLEL_LEVEL ?= 2
export PIP_NO_INPUT = 1
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: demo test smoke conformance fmt lint tidy sanitize clean build build-tests googletest xbyak
.DELETE_ON_ERROR:

demo: $(VENV)/installed-examples build
	$(BIN)/python examples/train_digits.py --device lazy --compare

test: build-tests $(VENV)/installed-test
	$(BIN)/ctest --test-dir build --output-on-failure
	$(BIN)/python -m pytest --numprocesses $(TEST_PROCESSES) --dist worksteal test/python

smoke:
	$(BIN)/python -m pytest -q -m smoke test/python

fmt: $(VENV)/installed-lint
	$(BIN)/clang-format -i $(CPP_FILES)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lint: $(VENV)/build-tools $(VENV)/installed-lint
	$(BIN)/python tools/check_includes.py
	$(BIN)/python tools/check_tests.py
	$(BIN)/clang-format --dry-run -Werror $(CPP_FILES)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# GCC's precompiled headers mean nothing to clang, so the compile commands come from a build without.
tidy: $(VENV)/build-tools
	$(CONFIGURE) -B build-tidy -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DLAZYPLUG_BATCH=1
	clang-tidy -p build-tidy --quiet $(filter-out test/%,$(filter %.cpp,$(CPP_FILES)))

sanitize: $(addprefix sanitize-,$(SANITIZERS))

# A report fails the run. What libtorch and Python never free looks like leaks to the address sanitizer. Mutexes that
# libtorch locks and its headers unlock look like bugs to the thread sanitizer, which sees only the latter.
sanitize-%: export ASAN_OPTIONS = detect_leaks=0
sanitize-%: export UBSAN_OPTIONS = halt_on_error=1 print_stacktrace=1
sanitize-%: export TSAN_OPTIONS = report_mutex_bugs=0 suppressions=$(CURDIR)/tools/tsan.supp

# Python is not instrumented: the runtime, and the C++ library that it intercepts, must be there before anything else.
RUNTIME = $(if $(findstring address,$*),libasan.so libstdc++.so) $(if $(findstring thread,$*),libtsan.so libstdc++.so)

sanitize-%: $(VENV)/build-tools googletest xbyak
	$(CONFIGURE) -B build-$* -DLAZYPLUG_BUILD_TESTS=ON -DLAZYPLUG_SANITIZE=$*
	$(CMAKE) --build build-$*
	$(BIN)/ctest --test-dir build-$* --output-on-failure
	LD_PRELOAD="$(foreach library,$(RUNTIME),$(shell $(CXX) -print-file-name=$(library)))" \
	  PYTHONPATH=build-$* LAZYPLUG_DEVICE_COUNT=2 $(BIN)/python test/python/interleavings.py --programs 150

clean:
	rm -rf build build-* dist *.egg-info $(VENV)/installed-*
	rm -f torch_lazyplug/*.so torch_lazyplug/_build_info.py
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

build: $(VENV)/build-tools xbyak
	$(CONFIGURE) -B build
	$(CMAKE) --build build

build-tests: $(VENV)/build-tools googletest xbyak
	$(CONFIGURE) -B build -DLAZYPLUG_BUILD_TESTS=ON
	$(CMAKE) --build build

googletest:
	tools/install_package.sh GoogleTest libgtest-dev gtest/gtest.h -lgtest_main -lgtest -pthread

# Without it, everything works, and chains of cheap ops take longer.
xbyak:
	tools/install_package.sh --optional Xbyak libxbyak-dev xbyak/xbyak.h

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

# PyTorch and the build tools, as [build-system] in pyproject.toml requires them.
$(VENV)/build-tools: pyproject.toml | $(BIN)/python
	$(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['build-system']['requires'], sep='\n')" > $@.txt
	$(BIN)/pip install -r $@.txt
	touch $@

$(VENV)/installed-lint: pyproject.toml | $(BIN)/python
	$(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['lint'], sep='\n')" > $@.txt
	$(BIN)/pip install -r $@.txt
	touch $@

# installed-<extra>: the package, editable, with the dependencies of that extra.
$(VENV)/installed-%: setup.py pyproject.toml $(VENV)/build-tools | xbyak
	$(BIN)/pip install --no-build-isolation -e '.[$*]'
	touch $@

CONFORMANCE_JSON ?= build/conformance.jsonl

conformance: build $(VENV)/installed-test
	PYTHONPATH=test $(BIN)/python -m conformance --json $(CONFORMANCE_JSON) $(CONFORMANCE)

# Random programs on the lazy device and on the CPU: make fuzz N=100000 SEED=1, FUZZ="--training --schedule random".
N ?= 10000
SEED ?= 1
FUZZ ?= --mix
fuzz:
	cd test && nice $(abspath $(BIN))/python -m fuzz -n $(N) --seed $(SEED) --save ../build/fuzz $(FUZZ)
.PHONY: fuzz

# Without BENCH, op cases and models; CONTEST has options of the runner, such as --threads 1 --rounds 3 eager lazy.
BENCH ?=
bench: build $(VENV)/installed-bench
	$(BIN)/python bench/contest.py --filter '$(BENCH)' --json build/bench.json --plot build/bench.png $(CONTEST)
.PHONY: bench
