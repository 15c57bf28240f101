# The commands of this project; CI runs the same ones. `make demo` and `make test` need only make and
# a Python 3.11 to 3.13: they build the environment themselves.
#
#   PYTHON=/path/to/python3.12 make test     another interpreter (default: the first suitable one)
#   VENV=/somewhere/else make test           another place for the environment (default: .venv)
#   CONSTRAINTS=mine.txt make test           other versions of the packages (default: constraints.txt)
#   make test PYTEST_ARGS="-k tagi"          more arguments for pytest

PYTHON ?=
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
WORKERS ?= 2
PYTEST_ARGS ?=
export PYTEST_ARGS
# TensorFlow keeps what it compiled for as long as the process lives, and tests slow down many times
# in one of several GB: in `make test` a process has so many files, and as many processes run as there
# are workers. Slow tests are last; after TFP_FNSPACE_SLOW_TESTS_UNTIL (seconds since 1970), which CI
# sets, skipped.
FILES_PER_RUN ?= 8
# Fuzzed cases of each model in `make fuzz`.
FUZZ_CASES ?= 2000

TF_CPP_MIN_LOG_LEVEL ?= 3
export TF_CPP_MIN_LOG_LEVEL
# Each worker of the tests has a core, and one thread each for what TensorFlow, NumPy and
# scikit-learn run side by side.
test test-fast coverage exhaustive fuzz: export TF_NUM_INTRAOP_THREADS ?= 1
test test-fast coverage exhaustive fuzz: export TF_NUM_INTEROP_THREADS ?= 1
test test-fast coverage exhaustive fuzz: export OMP_NUM_THREADS ?= 1
export PIP_DISABLE_PIP_VERSION_CHECK ?= 1

VENV_PYTHON := $(VENV)/bin/python
# Recipes name the stamp as `"$(VENV)/.installed"`; as a target it needs its spaces escaped.
empty :=
space := $(empty) $(empty)
STAMP := $(subst $(space),\$(space),$(VENV))/.installed
DOCS_STAMP := $(STAMP)-docs

# Run, not looked up: a pyenv shim exists for versions that it then refuses to run.
SUITABLE := -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' </dev/null >/dev/null 2>&1

# Shell lines that set $$py to the interpreter, or stop with one clear error.
define FIND_PYTHON
py=; \
if [ -n "$(PYTHON)" ]; then \
  if "$(PYTHON)" $(SUITABLE); then py="$(PYTHON)"; \
  else echo "error: PYTHON=$(PYTHON) is not a working Python 3.11, 3.12 or 3.13" >&2; exit 1; fi; \
else \
  for candidate in python3 python python3.13 python3.12 python3.11; do \
    if "$$candidate" $(SUITABLE); then py=$$candidate; break; fi; \
  done; \
  if [ -z "$$py" ]; then \
    echo "error: no Python 3.11, 3.12 or 3.13 found (tried python3, python, python3.13, python3.12, python3.11)." >&2; \
    echo "       Install one, or name it: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; exit 1; \
  fi; \
fi
endef

# Shell lines that define `install LOG ARGUMENTS...`: by uv, in an eighth of pip's time; by pip where
# uv cannot (it has its own settings for indexes and certificates, and no wheel on some machines).
define INSTALL
show() { tee "$$1" | while IFS= read -r line; do case $$line in \
    *Downloading*"("*M*B")"*) echo "    downloading $${line##*Downloading }" ;; \
    "Installing collected packages"*) echo "    unpacking the packages (about a minute)" ;; \
  esac; done; [ "$$(tail -n 1 "$$1")" = "status 0" ]; }; \
by_uv() { { "$(VENV_PYTHON)" -m pip install -q uv -c "$(CONSTRAINTS)" && \
    "$(VENV)/bin/uv" pip install --python "$(VENV_PYTHON)" -c "$(CONSTRAINTS)" "$$@"; } 2>&1; echo "status $$?"; }; \
by_pip() { "$(VENV_PYTHON)" -m pip install --progress-bar off -c "$(CONSTRAINTS)" "$$@" 2>&1; echo "status $$?"; }; \
install() { \
  log=$$1; shift; \
  by_uv "$$@" </dev/null | show "$$log" && return; \
  echo "    uv could not install them (all it said is in $$log.uv); pip goes on, which takes minutes"; mv "$$log" "$$log.uv"; \
  by_pip "$$@" </dev/null | show "$$log" && return; \
  grep -v '^WARNING: Location' "$$log" | tail -n 15 >&2; \
  echo "error: pip install failed; all it said is in $$log. Is there a network? 'make' again continues." >&2; return 1; \
}
endef

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast test-lowest coverage exhaustive fuzz check format docs colabs kill estimators dist bench clean FORCE

help: ## this list (also what `make` alone does)
	@echo "make <target>; the first one builds the environment $(VENV)"
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' Makefile | while IFS='|' read -r name text; do \
	  printf '  %-11s %s\n' "$$name" "$$text"; done

demo: $(STAMP) ## the commands on a real table, the quick methods: scores, a picture, export, in build/demo
	@echo "==> running the demo"
	@"$(VENV_PYTHON)" -m tfp_fnspace demo --output-dir build/demo
	@echo "==> demo finished: see build/demo"

ifdef METHOD
test: $(STAMP)
	@echo "==> running the tests of $(METHOD)"
	@"$(VENV_PYTHON)" -m pytest "tests/methods/$(METHOD)" $(PYTEST_ARGS)
	@echo "==> no test of $(METHOD) failed; those that all methods share did not run"
else
test: $(STAMP) ## all tests but the exhaustive ones; METHOD=diwp: those of one method
	@echo "==> running the tests with $(WORKERS) workers (make test-fast leaves out the slow ones)"
	@status=0; \
	export PYTEST_ADDOPTS="$$PYTEST_ADDOPTS $$PYTEST_ARGS"; \
	for word in test slow; do \
	  if [ $$word = slow ]; then marked=slow; else marked="not slow"; fi; \
	  grep -rl --include='test_*.py' $$word tests | LC_ALL=C sort -r \
	    | xargs -P $(WORKERS) -n $(FILES_PER_RUN) sh -c '\
	      if [ "$$0" = slow ] && [ "$$(date +%s)" -gt "$${TFP_FNSPACE_SLOW_TESTS_UNTIL:-9999999999}" ]; then \
	        echo "==> the time for slow tests is over, skipped: $$*"; exit 0; fi; \
	      printed=$$("$(VENV_PYTHON)" -m pytest -m "$$0 and not exhaustive" "$$@" </dev/null 2>&1) && code=0 || code=$$?; \
	      printf "==> pytest -m \"%s\" %s\n%s\n" "$$0" "$$*" "$$printed"; \
	      [ $$code -eq 5 ] || exit $$code' "$$marked" || status=1; \
	done; \
	exit $$status
	@echo "==> no test failed; what was skipped, and why, is above"
endif

test-fast: $(STAMP) ## the tests not marked slow
	@echo "==> running the tests not marked slow with $(WORKERS) workers"
	@"$(VENV_PYTHON)" -m pytest -n $(WORKERS) --dist worksteal -m "not slow and not exhaustive" $(PYTEST_ARGS)
	@echo "==> the fast tests passed; the slow ones did not run"

test-lowest: $(STAMP) ## test-fast with the lowest versions that setup.py supports, in build/lowest
	@mkdir -p build/lowest
	@"$(VENV_PYTHON)" tests/lowest_versions.py > build/lowest/now.txt
	@cd build/lowest && { cmp -s now.txt constraints.txt || cp now.txt constraints.txt; }
	@$(MAKE) --no-print-directory VENV=build/lowest/venv CONSTRAINTS=build/lowest/constraints.txt test-fast

coverage: $(STAMP) ## test-fast, with the lines that ran counted; fails below the floor of pyproject.toml
	@echo "==> running the tests not marked slow with $(WORKERS) workers, and counting lines"
	@"$(VENV_PYTHON)" -m pytest -n $(WORKERS) --dist worksteal -m "not slow and not exhaustive" \
	  --cov --cov-report=term --cov-report=html:build/coverage $(PYTEST_ARGS)
	@echo "==> what did not run is marked in build/coverage/index.html"

exhaustive: $(STAMP) ## before a release: the cases that make test has a sample of
	@echo "==> running the tests marked exhaustive with $(WORKERS) workers"
	@"$(VENV_PYTHON)" -m pytest -n $(WORKERS) --dist worksteal -m exhaustive $(PYTEST_ARGS)
	@echo "==> all cases passed; make test has the others"

fuzz: $(STAMP) ## 2,000 fuzzed calls of each model (FUZZ_CASES), others each time
	@echo "==> fuzzing the boundary with $(FUZZ_CASES) cases a model and $(WORKERS) workers"
	@TFP_FNSPACE_FUZZ_CASES=$(FUZZ_CASES) "$(VENV_PYTHON)" -m pytest -n $(WORKERS) -m "" tests/test_fuzz.py $(PYTEST_ARGS)
	@echo "==> no violation"

check: $(STAMP) ## ruff and basedpyright: lint, format and types, changes nothing
	@echo "==> ruff check"
	@"$(VENV_PYTHON)" -m ruff check .
	@echo "==> ruff format --check"
	@"$(VENV_PYTHON)" -m ruff format --check .
	@echo "==> basedpyright"
	@"$(VENV)/bin/basedpyright" --project pyproject.toml --pythonpath "$(VENV_PYTHON)"
	@echo "==> lint, format and types are clean"

format: $(STAMP) ## ruff: format and fix in place
	@echo "==> ruff check --fix, ruff format"
	@"$(VENV_PYTHON)" -m ruff check --fix . && fixed=0 || fixed=$$?; \
	"$(VENV_PYTHON)" -m ruff format . && exit $$fixed

docs: $(DOCS_STAMP) ## the site, into build/site: links checked, warnings are errors
	@echo "==> checking the links of the Markdown files"
	@"$(VENV_PYTHON)" docs/check_links.py
	@echo "==> building the site"
	@NO_MKDOCS_2_WARNING=1 "$(VENV_PYTHON)" -m mkdocs build --strict --quiet
	@echo "==> the site is built: open build/site/index.html"

colabs: $(STAMP) ## the notebooks anew, with what they show kept in them
	@echo "==> running the notebooks: about a minute each"
	@"$(VENV_PYTHON)" colabs/run.py
	@echo "==> done: colabs/*.ipynb; now make docs"

estimators: $(STAMP) ## scikit-learn's checks of every estimator
	@echo "==> running scikit-learn's checks: minutes for each estimator"
	@TF_CPP_MIN_LOG_LEVEL=3 "$(VENV_PYTHON)" tests/check_estimators.py
	@echo "==> all checks passed but those that tests/check_estimators.py lists"

kill: $(STAMP) ## kill -9 of every method at random moments; the resumed weights must be the same
	@echo "==> killing five methods at ten moments, twice, and copying backups: some minutes"
	@"$(VENV_PYTHON)" tests/kill_and_resume.py --copies 10
	@echo "==> every run that was killed, and every copy, ended at the same weights"

dist: $(STAMP) ## wheel and archive of the sources in dist/, checked by twine
	@echo "==> installing build and twine"
	@"$(VENV_PYTHON)" -m pip install -q build twine
	@echo "==> building dist/"
	@rm -rf dist build/lib build/bdist.*
	@"$(VENV_PYTHON)" -m build --no-isolation > "$(VENV)/build.log" 2>&1 || { tail -n 15 "$(VENV)/build.log" >&2; exit 1; }
	@"$(VENV_PYTHON)" -m twine check --strict dist/*
	@echo "==> done: $$(ls dist | tr '\n' ' ')"

bench: $(STAMP) ## speed of TAGI beside pytagi; results in benchmarks/results
	@echo "==> installing pytagi (it also needs Debian's libopenmpi3)"
	@"$(VENV_PYTHON)" -m pip install -q pytagi nvidia-nccl-cu12
	@echo "==> running benchmarks/tagi_speed.py: leave the machine alone meanwhile"
	@"$(VENV_PYTHON)" benchmarks/tagi_speed.py
	@echo "==> benchmark finished: results are in benchmarks/results"

clean: ## remove build outputs and caches (the environment stays)
	@rm -rf build dist *.egg-info .pytest_cache .ruff_cache htmlcov .coverage .coverage.*
	@find tfp_fnspace tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
	@echo "==> removed build outputs and caches; the environment stays: rm -rf \"$(VENV)\" to remove it"

# Installed anew when a dependency changed, or when the environment's interpreter is gone.
$(STAMP): setup.py $(CONSTRAINTS) $(if $(shell "$(VENV_PYTHON)" $(SUITABLE) && echo works),,FORCE)
	@if [ -e "$(VENV)" ] && ! "$(VENV_PYTHON)" $(SUITABLE); then \
	  if [ -f "$(VENV)/pyvenv.cfg" ]; then \
	    echo "==> $(VENV) has no working Python 3.11 to 3.13: removing it"; rm -rf "$(VENV)"; \
	  else \
	    echo "error: VENV=$(VENV) exists and is not a virtual environment" >&2; exit 1; \
	  fi; \
	fi; \
	if [ ! -e "$(VENV)" ]; then \
	  $(FIND_PYTHON); \
	  version=$$("$$py" -c 'import platform; print(platform.python_version())'); \
	  echo "==> creating $(VENV) with Python $$version ($$py)"; \
	  if ! reason=$$("$$py" -m venv "$(VENV)" 2>&1); then \
	    rm -rf "$(VENV)"; \
	    if "$$py" -m virtualenv --version >/dev/null 2>&1; then \
	      echo "==> python -m venv failed; using virtualenv"; \
	      "$$py" -m virtualenv -q "$(VENV)" || exit 1; \
	    elif command -v virtualenv >/dev/null 2>&1; then \
	      echo "==> python -m venv failed; using virtualenv"; \
	      virtualenv -q -p "$$py" "$(VENV)" || exit 1; \
	    else \
	      minor=$${version%.*}; \
	      echo "error: '$$py -m venv' failed and there is no virtualenv." >&2; \
	      echo "       Debian and Ubuntu: sudo apt install python$$minor-venv. Elsewhere: $$py -m pip install --user virtualenv" >&2; \
	      echo "       What venv said: $$reason" >&2; exit 1; \
	    fi; \
	  fi; \
	fi
	@echo "==> installing tfp_fnspace[dev,demo] with the versions of $(CONSTRAINTS)"
	@echo "    (the first time: TensorFlow and about 200 more packages, some 900 MB)"
	@$(INSTALL); install "$(VENV)/install.log" -e '.[dev,demo]'
	@touch "$(VENV)/.installed"
	@echo "==> environment ready: $(VENV)"

$(DOCS_STAMP): $(STAMP)
	@echo "==> installing tfp_fnspace[docs] with the versions of $(CONSTRAINTS)"
	@$(INSTALL); install "$(VENV)/install-docs.log" -e '.[docs]'
	@touch "$(VENV)/.installed-docs"

FORCE:
