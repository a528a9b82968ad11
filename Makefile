# Two commands: `make up` shows this machine's metrics live, `make test` checks everything.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help up test lint types imports pytest install install-test debian clean
.DEFAULT_GOAL := help

help:
	@echo "make up       install into $(VENV) and start everything on this machine"
	@echo "make test     install what the tests need; lint, types, import rules, all tests"
	@echo "make docs     the site of the pages, in build/site"
	@echo "make long     tests that take too long for every change; properties with more examples"
	@echo "make slurm    jobs of all kinds on a real Slurm, as root"
	@echo "make site     packages, images and a real Kubernetes, installed as sites do, as root"
	@echo "make chaos    kill, freeze and starve every part, and account for every line"
	@echo "make bench    measure speed, as ratios"
	@echo "make scale    flows of simulated clusters of up to 100 000 nodes, measured"
	@echo "make wheels   what a release consists of, in dist/: wheels, sdist, SBOM, checksums"
	@echo "make bundle   one file in dist/ that installs without internet, after make wheels"
	@echo "make packages .deb, .rpm and archives with their own Python, in dist/, after make wheels"
	@echo "make images   container images of ccpipe and of a node, by docker, podman or buildah"
	@echo "make fuzz     hostile bytes for SECONDS=60, then sanitizers"

up: install
	$(BIN)/ccpipe up $(ARGS)

test: install-test debian lint types imports pytest

install: $(VENV)/.installed
install-test: $(VENV)/.installed-test

# Debian's Python comes without ensurepip; pip can then install itself from outside.
$(BIN)/python:
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || { \
	  rm -rf $(VENV) && $(PYTHON) -m venv --without-pip $(VENV) && \
	  $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; }

# What a new install is needed for: dependencies, entry points and the compiled kernel.
BUILD := pyproject.toml setup.py $(shell find ccpipe -name "*.pyx" -o -name "*.pxi" -o -name "*.hpp")

$(VENV)/.installed: $(BUILD) | $(BIN)/python
	@echo "installing into $(VENV): once, one or two minutes"
	@$(PYTHON) scripts/install.py $(BIN)/python --editable '.[all]'
	@touch $@

$(VENV)/.installed-test: $(BUILD) | $(BIN)/python
	@echo "installing what tests need into $(VENV): once, some minutes"
	@$(PYTHON) scripts/install.py $(BIN)/python --editable '.[test]'
	@touch $@ $(VENV)/.installed

# The engine of ClickHouse has 534 MB: for long tests only.
$(VENV)/.installed-long: $(BUILD) | $(BIN)/python
	@$(PYTHON) scripts/install.py $(BIN)/python --editable '.[clickhouse-engine]'
	@touch $@

# Real stores for the tests: installed where we may, else their tests are skipped by name.
debian:
	scripts/install-debian.sh
	$(PYTHON) scripts/java_servers.py install

lint:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types:
	$(BIN)/mypy

imports:
	$(BIN)/lint-imports

# Most tests wait for real programs and disks: four workers keep two cores busy. Neighbours stay
# together, so that the servers of a module start once.
pytest:
	$(BIN)/pytest -n 4 --dist worksteal

# What takes a quarter of a minute and more, and every property with many more examples.
.PHONY: long
long: install-test $(VENV)/.installed-long debian
	$(PYTHON) scripts/otlp_receivers.py install
	$(PYTHON) scripts/minio_server.py install
	$(BIN)/pytest -n 2 --dist worksteal -m long
	$(BIN)/pytest -n 2 --dist worksteal -m 'hypothesis and not long' --hypothesis-profile thorough

# Jobs of all kinds on a real Slurm, which this starts and ends; needs root.
.PHONY: slurm
slurm: install-test
	scripts/slurm_cluster.py install
	$(BIN)/pytest -m slurm tests/slurm

ENGINE := buildah podman runc netavark aardvark-dns catatonit mmdebstrap
PACKING := autoconf automake debootstrap dpkg-dev libtool rpm tcl

# What a site installs, built and tried: packages, images, a real Kubernetes. Needs root.
.PHONY: site
site: install-test debian
	scripts/install-debian.sh $(ENGINE) $(PACKING)
	$(BIN)/python -m pip install --quiet 'podman-compose>=1.6'
	scripts/kubernetes_cluster.py install
	$(PYTHON) scripts/wheels.py --out dist
	$(BIN)/pytest -m site tests/site $(ARGS)

# Every fault, several rounds each, in some ten minutes; writes docs/operations/reliability.md.
.PHONY: chaos
chaos: install-test
	$(PYTHON) scripts/otlp_receivers.py install
	$(PYTHON) scripts/minio_server.py install
	$(BIN)/pytest -m chaos tests/chaos

# Speed, as ratios of one run; the tables land in benchmarks/.
.PHONY: bench fuzz
bench: install-test
	$(BIN)/python -m benchmarks

# Clusters of 1 000 to 100 000 nodes from publisher to store, in some twelve minutes; it writes
# benchmarks/scale.json and what docs/operations/scale.md says of it. ARGS=--quick takes two minutes.
.PHONY: scale
scale: install-test debian
	$(BIN)/python -m benchmarks.scale --page docs/operations/scale.md $(ARGS)

# Hostile bytes for SECONDS, then the tests of the codec with sanitizers.
fuzz: install-test
	$(BIN)/python -m pip install --quiet --editable '.[fuzz]'
	fuzz/run.sh $(or $(SECONDS),60) $(BIN)/python

# A wheel for each Python that is here, with the kernels, for glibc 2.28 or later; each is tried.
.PHONY: wheels
wheels:
	$(PYTHON) scripts/wheels.py --out dist $(ARGS)

# One file that installs without internet: the wheels of `make wheels` and of all libraries.
.PHONY: bundle
bundle:
	$(PYTHON) scripts/bundle.py --wheels dist --out dist $(ARGS)

# Packages with their own Python, which is built once, from the wheel of `make wheels`.
.PHONY: packages
packages:
	$(PYTHON) -m scripts.packages --wheels dist --out dist $(ARGS)

# bridges/Dockerfile for a site and for its nodes, with tags and labels.
.PHONY: images
images:
	$(PYTHON) scripts/images.py $(ARGS)

# The site of the pages; warnings are errors.
.PHONY: docs
docs: install-test
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet -c docs -d build/doctrees . build/site
	@echo "build/site/index.html"

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
