# Each target sets up what it needs from nothing, in .venv and build/.
#
#   make test TORCH=torch==2.13.0    also runs the tests that need PyTorch

PYTHON ?= python3
VENV ?= .venv
TORCH ?=
PYTEST_FLAGS ?= -n 2

ifneq ($(words $(CURDIR)),1)
$(error This checkout is at '$(CURDIR)'. The dynamic loader cannot preload a library \
whose path holds a space: move the checkout)
endif

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
CMAKE = $(BIN)/cmake -G Ninja -DPython_EXECUTABLE=$(abspath $(BIN)/python) \
	-DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja)
FOLDERS := compiler examples recorder runtime traces
NATIVE_FOLDERS := recorder/native runtime/native runtime/simgpu tests/native
SOURCES := CMakeLists.txt pyproject.toml README.md LICENSE \
	$(shell find cmake src $(FOLDERS) -type f -not -name '*.pyc' -not -name '*.md')
NATIVE_SOURCES := $(shell find $(NATIVE_FOLDERS) -name '*.cpp' -o -name '*.h')
PYTHON_PATHS := src/transit $(FOLDERS) benchmarks tests

.DEFAULT_GOAL := help
.PHONY: help demo test check format test-gpu sanitize sanitize-address,undefined \
	sanitize-thread clean
.DELETE_ON_ERROR:

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

demo: $(VENV)/installed ## record, compile and replay a small job on a simulated GPU
	@$(BIN)/transit demo

test: $(VENV)/installed torch ## run the tests that need no GPU
	$(BIN)/python -m pytest -m "not gpu" $(PYTEST_FLAGS)

test-gpu: $(VENV)/installed torch ## run the tests that need an NVIDIA GPU (TORCH=torch)
	$(BIN)/python -m pytest -m gpu

check: build/check/compile_commands.json ## formatting, lint and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mypy benchmarks/*.py
	$(BIN)/clang-format --dry-run -Werror $(NATIVE_SOURCES)
	printf '%s\0' $(filter %.cpp,$(NATIVE_SOURCES)) | \
		xargs -0 -n 1 -P 2 $(BIN)/clang-tidy -p build/check --quiet

format: $(VENV)/tools ## put Python and C++ into the project's format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/clang-format -i $(NATIVE_SOURCES)

sanitize: sanitize-address sanitize-thread ## simulated-GPU tests under sanitizers

# Python is not built with the sanitizer, so its runtime is preloaded, into every process,
# with the libstdc++ whose throw it has to find; the shim comes before it there, which
# does no harm. Not ours: Python's leaks, and races within libraries. Left out are tests that
# start the command line often and run little native code (bad input, calibration, status),
# and those that do again what others do, in larger jobs: the demo, graphs end to end, whole
# windows, training loops, many steps.
library = $(shell $(CXX) -print-file-name=$(1))
SANITIZERS_address := address,undefined
SANITIZERS_thread := thread
SANITIZER_RUNTIME_address := libasan.so
SANITIZER_RUNTIME_thread := libtsan.so
# The recorder ends these jobs from within dlopen, which the runtime takes for a fault; and
# a host as slow as that is not ahead.
SANITIZER_SKIP_thread := or held_by_another or without_the_shim or foreign_cupti \
	or host_that_is_ahead
sanitize-address sanitize-thread: sanitize-%: $(VENV)/installed
	$(CMAKE) -S . -B build/sanitize-$* -DTRANSIT_SANITIZE=$(SANITIZERS_$*) \
		>build/sanitize-$*.log
	$(BIN)/cmake --build build/sanitize-$* --parallel 2
	$(BIN)/cmake --install build/sanitize-$* --prefix build/sanitize-$*/install \
		>>build/sanitize-$*.log
	mkdir -p build/sanitize-$*/lib
	cp -r build/sanitize-$*/install/transit/*/*.so \
		build/sanitize-$*/install/transit/runtime/simgpu build/sanitize-$*/lib
	TRANSIT_LIB_DIR=$(CURDIR)/build/sanitize-$*/lib \
	ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0 \
	UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
	TSAN_OPTIONS=halt_on_error=1:ignore_noninstrumented_modules=1:die_after_fork=0 \
	LD_PRELOAD=$(call library,$(SANITIZER_RUNTIME_$*)):$(call library,libstdc++.so.6) \
		$(BIN)/python -m pytest -m "not gpu" $(PYTEST_FLAGS) tests/integration \
		--ignore-glob 'tests/integration/test_bad_*.py' \
		--ignore tests/integration/test_calibrate.py \
		--ignore tests/integration/test_status.py \
		--ignore tests/integration/test_graph_end_to_end.py \
		-k "not (test_demo or test_windows_keep or test_many_steps or \
			test_a_training_loop or test_the_command $(SANITIZER_SKIP_$*))"

clean: ## remove what the targets made
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

# Dependency groups need pip 25.1, newer than what comes with Python 3.11.
$(VENV)/created:
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and \
		'transit needs Python 3.11 or newer: make PYTHON=python3.12 ...')"
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade "pip>=25.1"
	touch $@

$(VENV)/tools: $(VENV)/created pyproject.toml
	$(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', \
		'rb'))['project']['dependencies'], sep='\n')" >$(VENV)/dependencies.txt
	$(PIP) install --group dev --requirement $(VENV)/dependencies.txt
	touch $@

# A wheel, as users get it. Without isolation, so that the native build is kept and
# what did not change is not compiled again.
$(VENV)/installed: $(VENV)/tools $(SOURCES)
	$(PIP) install --no-build-isolation --no-deps --force-reinstall .
	touch $@

build/check/compile_commands.json: $(VENV)/tools $(wildcard CMakeLists.txt \
		*/CMakeLists.txt */*/CMakeLists.txt */*/*.cmake cmake/*.cmake)
	mkdir -p build
	$(CMAKE) -S . -B build/check -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >build/check.log

.PHONY: torch
torch: $(VENV)/created
	$(if $(TORCH),$(PIP) install "$(TORCH)")
