# `make` lists what there is. `make run` and `make test` work on a fresh checkout.

# Where rustup puts cargo: a shell that was open before the installation does not know it yet.
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

# Stages that a file brings in: NAME is run as tests/NAME/stage once that file is there.
# The order is the order of running. The leak audit looks at what all the others left behind.
HOOKS := fuzz tools pages user vm stress sdk langchain mcp schemathesis generators browser docker kills faults leaks

.DEFAULT_GOAL := help
.PHONY: help run test soak fuzz bench lint fmt setup

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-6s %s\n", $$1, $$2 }' Makefile

run: ## set up what is missing, build, and start the server on loopback (ARGS=… goes to `serve`)
	@scripts/setup run
	@cargo build --release --locked --bin ringfence
	@scripts/run $(ARGS)

test: ## set up what is missing and pass every test; prints the seconds of each stage
	@scripts/stage --begin
	@tests/leaks/stage --before
	@scripts/stage setup scripts/setup test
	@scripts/stage fmt cargo fmt --all --check
	@scripts/stage clippy cargo clippy --workspace --all-targets --locked -- -D warnings
	@scripts/stage docs env RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps --locked
	@scripts/stage build cargo build --workspace --locked
	@scripts/stage tests tests/workspace/stage
	@for name in $(HOOKS); do \
		[ ! -e tests/$$name/stage ] || scripts/stage $$name tests/$$name/stage || exit; \
	done
	@scripts/stage --table

soak: ## kill the server KILLS times (default 10000) while it is used, and reboot under it CYCLES times (default 1000)
	@scripts/setup test
	@KILLS=$${KILLS:-10000} tests/kills/stage
	@RINGFENCE_REBOOT_CYCLES=$${CYCLES:-1000} cargo nextest run --locked --profile soak -p cli files_survive_any_number

fuzz: ## feed the parsers of what strangers send with made-up bytes, each for SECONDS_EACH (60 if not said; FUZZ=NAME for one)
	@scripts/setup test
	@tests/fuzz/run

bench: ## measure against bare runs and peers, one table (ROW=… for one row)
	@scripts/setup bench
	@[ -e bench/run ] || { echo "bench/run is not there"; exit 1; }
	@bench/run $(ROW)

lint: ## check the format, the lints and the documentation
	@cargo fmt --all --check
	@cargo clippy --workspace --all-targets --locked -- -D warnings
	@RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps --locked

fmt: ## format the code
	@cargo fmt --all

setup: ## install what the tests need
	@scripts/setup test
