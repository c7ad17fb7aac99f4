# The commands of developers and CI. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENVS ?= .venvs
OPENMPI := $(VENVS)/openmpi
MPICH := $(VENVS)/mpich
DEMO := $(VENVS)/demo
SOURCES := pyproject.toml setup.py constraints.txt $(wildcard src/collbench/*/_*.[ch])
# The images to build, and what the site needs instead of the Dockerfiles' defaults: a base, certificates, a folder with
# torch's wheel (the image torch is then built too).
IMAGES ?= openmpi
BASE ?=
CA_BUNDLE ?=
WHEELHOUSE ?=
BUILD = $(OPENMPI)/bin/collbench image build $(if $(BASE),--base $(BASE)) $(if $(CA_BUNDLE),--ca-bundle $(CA_BUNDLE))
REQUIRE ?= mpi,torch,cuda
PROCESSES := unit contract property golden fuzz
ON_OPENMPI = PATH=$(abspath $(OPENMPI))/bin:$$PATH COLLBENCH_REQUIRE=$(REQUIRE) \
  COLLBENCH_OTHER_MPIRUN=$(abspath $(MPICH))/bin/mpirun $(OPENMPI)/bin/python -m pytest
# Launchers and engines fail now and then by themselves: once in thousands of launches. A test that fails runs once more,
# and the summary lists it as RERUN.
AGAIN := --reruns=1
# `make test` runs what is fast and a few tests with ranks, containers and a browser; `make test-all` every one.
RARE ?= not rare
RANKS := $(shell n=$$(nproc); echo $$(( n > 4 ? 4 : n < 2 ? 2 : n )))
CROWDED := $(shell [ $$(nproc) -ge 2 ] || echo "--map-by :OVERSUBSCRIBE")

# Open MPI refuses to run as root unless both variables are set; containers and CI run as root.
ifeq ($(shell id -u),0)
export OMPI_ALLOW_RUN_AS_ROOT := 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM := 1
endif

.PHONY: help demo test test-all test-processes test-containers test-mpis faults images push dist reference site check format clean

help: ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## /make \1\t/p' $(MAKEFILE_LIST)

demo: $(DEMO)/.ready ## measure all-reduce on this machine and print a table
	$(DEMO)/bin/mpirun $(CROWDED) -n $(RANKS) $(DEMO)/bin/collbench demo

test: $(OPENMPI)/.ready ## set up the environments, then lint, types, fast tests, a few on both MPIs and in containers, the site
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target test-containers test-mpis site

test-all: $(OPENMPI)/.ready ## every test, with all images: hours
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target test-containers test-mpis RARE="slow or not slow" \
	  IMAGES="openmpi-cuda openmpi mpich intelmpi tools $(if $(WHEELHOUSE),,torch)" BUILDS=yes
	$(MAKE) --no-print-directory site
	$(MAKE) --no-print-directory faults

# What starts no ranks and no containers: a process for each core, while images are built.
test-processes: check $(MPICH)/.ready
	$(ON_OPENMPI) --numprocesses=auto --dist=worksteal -m '$(RARE)' $(addprefix tests/,$(PROCESSES))

test-containers: images # what waits for an engine, a browser or a GPU more than for processors
	$(ON_OPENMPI) $(AGAIN) -m '$(RARE)' $(addprefix --ignore=tests/,$(PROCESSES) mpi)

test-mpis: test-processes
	$(ON_OPENMPI) $(AGAIN) -m '$(RARE)' tests/mpi
	PATH=$(abspath $(MPICH))/bin:$$PATH COLLBENCH_REQUIRE=mpi COLLBENCH_OTHER_MPIRUN=$(abspath $(OPENMPI))/bin/mpirun \
	  $(MPICH)/bin/python -m pytest $(AGAIN) tests/mpi -m "mpi and not torch and not one_mpi and ($(RARE))"

faults: images ## long fault tests on a real container engine
	PATH=$(abspath $(OPENMPI))/bin:$$PATH COLLBENCH_REQUIRE=mpi,docker $(OPENMPI)/bin/python -m pytest tests/faults

images: $(OPENMPI)/.ready ## build the container images, if an engine answers
	@if timeout 20 docker version >/dev/null 2>&1; then \
	  $(BUILD) $(IMAGES) $(if $(WHEELHOUSE),&& $(BUILD) torch --wheelhouse $(WHEELHOUSE)) \
	    $(if $(BUILDS),&& $(BUILD) openmpi --as openmpi-4.1 --build-arg OPENMPI_VERSION=4.1.8); \
	else echo "no container engine answers: container tests will be skipped (as root, tools/engine.sh starts one)"; fi

push: images ## build IMAGES, and push them to REGISTRY (host and path) with the tag TAG
	@for image in $(IMAGES); do \
	  docker tag collbench/$$image $(REGISTRY)/$$image:$(TAG) && docker push $(REGISTRY)/$$image:$(TAG) || exit; done

dist: $(VENVS)/dist/.ready ## build the sdist and the wheels for both processors into dist/
	$(VENVS)/dist/bin/python tools/dist.py

reference: $(OPENMPI)/.ready ## write the tables of the manual and the JSON Schemas that are made from the code
	$(OPENMPI)/bin/python -m tools.reference

site: $(VENVS)/site/.ready ## build the documentation site into build/site; a link that leads nowhere is an error
	$(VENVS)/site/bin/sphinx-build -q -W --keep-going docs build/site

check: $(OPENMPI)/.ready ## ruff, mypy, the import rules, the files of GitHub against their schemas, zizmor
	$(OPENMPI)/bin/ruff check .
	$(OPENMPI)/bin/ruff format --check .
	$(OPENMPI)/bin/mypy
	$(OPENMPI)/bin/lint-imports
	$(OPENMPI)/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(OPENMPI)/bin/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/*.yml
	$(OPENMPI)/bin/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff
	$(OPENMPI)/bin/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(OPENMPI)/bin/zizmor --offline --quiet .github

format: $(OPENMPI)/.ready ## format the code with ruff
	$(OPENMPI)/bin/ruff format .
	$(OPENMPI)/bin/ruff check --fix .

clean: ## remove environments and caches
	rm -rf $(VENVS) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info src/collbench/timing/*.so src/collbench/workloads/*.so src/collbench/yardsticks/*.so

$(OPENMPI)/.ready: EXTRAS := openmpi,torch,cuda12,suites,browser,test
$(MPICH)/.ready: EXTRAS := mpich,test
$(DEMO)/.ready: EXTRAS := openmpi
$(VENVS)/dist/.ready: EXTRAS := dist
$(VENVS)/site/.ready: EXTRAS := analysis,site

$(VENVS)/%/.ready: $(SOURCES)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "collbench needs Python 3.11 or later; name it: make PYTHON=python3.12 ..."; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "this Python cannot create environments; on Debian and Ubuntu: apt-get install python3-venv"; exit 2; }
	@command -v cc >/dev/null && $(PYTHON) -c 'import sys, sysconfig, pathlib; sys.exit(not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists())' || echo "no C compiler or no Python.h: the C loop will be missing and calls will be timed from Python (apt-get install gcc python3-dev)"
	$(PYTHON) -m venv $(VENVS)/$*
	$(VENVS)/$*/bin/python -m pip install --quiet -c constraints.txt --editable '.[$(EXTRAS)]'
	touch $@
