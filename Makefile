# Everything a person needs, as one-word commands. `make` alone lists them.
# Each target first installs what is missing (tools/install-deps) and builds what it uses; builds take turns.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory


.PHONY: help deps deps-extra build daily man-pages install uninstall package image test test-kube nightly check format bench bench-against quality chaos mutants dev demo demo-ha demo-machines demo-pilot fuzz asan tsan tidy lint proto coverage clean

help: ## list the targets
	@echo "gpu-scheduler: make <target>"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: deps ## build the programs into build/bin/
	@tools/build release all-programs

# What a scheduler and an agent run with, without the simulation and the benchmarks.
daily: deps
	@tools/build release gpu-scheduler gpu-agent gpu-cli gpu-shim gpu-pilot

man-pages: build ## write the manual pages of gpu-cli, gpu-pilot, gpu-scheduler and gpu-agent into build/man/
	@for name in gpu-cli gpu-pilot gpu-scheduler gpu-agent; do build/bin/$$name man build/man || exit 1; done

demo: ## run real jobs on this machine, under a minute; builds unless an installed package has this commit (BUILD=1: always)
	@BUILD=$(BUILD) tools/demo.sh --installed || { status=$$?; [[ $$status == 3 ]] || exit $$status; $(MAKE) daily && tools/demo.sh; }

demo-ha: daily ## run three schedulers that are one on this machine and kill their leader, in 20 s (needs cargo to build)
	@tools/demo-ha

demo-machines: daily ## jobs bring machines from a provider, idle machines go back, in half a minute
	@tools/demo-machines

demo-pilot: daily ## a line in a log brings a machine before its GPU is asked for, in half a minute
	@tools/demo-pilot

dev: daily ## start a scheduler and an agent, and stay up (Ctrl-C ends both)
	@build/bin/gpu-scheduler dev

install: build ## programs, manual pages, systemd units, default configuration into PREFIX=/usr/local (DESTDIR=... in front)
	@tools/install-files install

uninstall: ## take away what make install has put there; data and changed configuration stay
	@tools/install-files uninstall

package: daily ## pack the programs: a wheel, Debian packages, a tar file, their hashes and contents, into build/package
	@tools/install-python
	@tools/package

image: daily ## a container image of the programs, by docker, podman or buildah
	@tools/install-deps --extra
	@tools/image

test: deps ## what .ci/run runs: build, format, demonstration, all tests but the long ones, a smoke of each sanitizer
	@tools/test

test-kube: daily ## the Kubernetes tests on a real control plane; builds it once into a cache (minutes; needs Go 1.25 or newer)
	@tools/control-plane build
	@tools/run-tests --only kube

nightly: deps ## hours: every test, all sanitizers and fuzzers, fresh seeds, kills, planted bugs (STAGES="asan fuzz")
	@tools/install-deps --nightly
	@tools/install-python
	@tools/install-prometheus
	@tools/nightly $(STAGES)

check: deps ## format, floors and the fast tests (before every commit)
	@tools/build release all
	@tools/format --check
	@tools/run-tests --fast
	@/usr/bin/python3 -B tests/house/measure.py --warn

format: deps ## rewrite the C++ files in the project's format
	@tools/format

bench: deps ## run every benchmark (one: make bench NAME=journal)
	@tools/build release all-programs all-benches
	@tools/bench $(NAME)

bench-against: deps ## the hot paths of commit BASE and of this checkout in turn (some: make bench-against BASE=main NAME="rest engine")
	@tools/bench-against $(or $(BASE),$(error say which commit: make bench-against BASE=COMMIT)) $(NAME)

quality: deps ## what scheduling is worth on public traces: published, ours, met or not (one: make quality NAME=kth)
	@tools/build release all-quality
	@tools/bench quality $(NAME)

chaos: deps ## hours of fresh seeds, kill rounds and planted bugs (some: make chaos STAGES="seeds kill" MINUTES=10 ROUNDS=50)
	@tools/build release all-programs disk_recorder journal_test
	@MINUTES=$(MINUTES) ROUNDS=$(ROUNDS) tools/chaos $(STAGES)

mutants: deps ## small faults put into the code one by one: each must turn a fast test red (some: make mutants NAME=hub)
	@tools/mutants $(NAME)

asan: deps ## the pure rooms' tests under address and undefined-behaviour sanitizers
	@tools/build asan
	@tools/run-tests --build build/asan --kinds gtest line

tsan: deps ## the threaded rooms' tests under the thread sanitizer
	@tools/build tsan all-tests
	@tools/run-tests --build build/tsan --kinds gtest line

fuzz: deps-extra ## every fuzzer for 60 s each (make fuzz FUZZ=-runs=1000000)
	@tools/build fuzz
	@tools/fuzz $(or $(FUZZ),60)

tidy: deps-extra ## clang-tidy on all sources (some: make tidy FILES="src/base/crc32c.cc")
	@tools/build debug
	@tools/tidy $(FILES)

lint: deps-extra ## shellcheck on the scripts, flake8 on the Python files
	@tools/lint

proto: deps ## the protobuf files compile without a warning, and older programs are understood (against: make proto COMMIT=HEAD~5)
	@tools/proto $(COMMIT)

coverage: deps-extra ## what share of the pure rooms' lines and branches their tests run, a room a line
	@tools/coverage

deps: ## install the Debian packages that are missing
	@tools/install-deps

deps-extra:
	@tools/install-deps --extra

clean: ## remove everything that was built
	@rm -rf build
