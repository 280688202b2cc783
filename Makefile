# What people run and what CI runs. Everything is stock cargo behind three scripts: one installs the
# system packages that are missing, one compiles RocksDB once for all profiles, one installs what the
# tests hold the server against.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
.NOTPARALLEL:
.PHONY: run build test system native peers format lint doc unit reference bench-publish bench-consume \
  bench-fanout bench-latency bench-memory bench-gate bench-gate-suite bench-neighbours

# Arguments of the server: make run ARGS=-Deventmesh.http.port=8080
ARGS ?=
NATIVE = native=$$(scripts/native-rocksdb); eval "$$native"

run: system
	$(NATIVE); exec cargo run --release --bin eventmesh -- standalone $(ARGS)

build: system
	$(NATIVE); cargo build --release --bin eventmesh

# The whole gate.
test: system native peers format lint doc unit

system:
	scripts/system-packages

native:
	scripts/step rocksdb true

# What others wrote and the tests hold the server against.
peers:
	scripts/system-packages --peers
	scripts/step peers scripts/peers

format:
	scripts/step format cargo fmt --all --check

lint:
	scripts/step lint cargo clippy --workspace --all-targets -- -D warnings

doc:
	scripts/step documentation env RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps

# A test that fails says why; the stack of the error behind it would only hide that.
unit:
	scripts/step tests env RUST_LIB_BACKTRACE=0 cargo test --workspace

# The documents that are made from the code; a test says when they are out of date.
reference: system
	$(NATIVE); cargo build --bin eventmesh; \
	  run() { cargo run -q --bin eventmesh -- config reference --format "$$1" > "$$2.new"; mv "$$2.new" "$$2"; }; \
	  run properties conf/eventmesh.properties; run markdown docs/configuration.md

# Publishing, memory and embedded, beside a bare axum server in turns; medians of five, as JSON.
bench-publish: build
	target/release/eventmesh bench publish-suite $(ARGS)

# Poll and acknowledge with 16 clients on the embedded log; medians of five, as JSON.
bench-consume: build
	target/release/eventmesh bench consume-suite $(ARGS)

# The security gate by itself: rules, quotas, a whole admission and its p99, an audit record.
bench-gate:
	cargo bench -p mesh-gate --bench gate -- $(ARGS)

# Publishing through the whole security gate, beside an open one in turns; medians of five, as JSON.
bench-gate-suite: build
	target/release/eventmesh bench gate-suite $(ARGS)

# 20 events a second to 1,000 streams, with and without acks, beside bare streams in turns; as JSON.
bench-fanout: build
	target/release/eventmesh bench fanout-suite $(ARGS)

# 1,000 events a second to one subscriber, by stream and by poll, beside a bare stream; as JSON.
bench-latency: build
	target/release/eventmesh bench latency-suite $(ARGS)

# What an idle stream and an idle subscription take, beside bare streams; as JSON.
bench-memory: build
	target/release/eventmesh bench memory-suite $(ARGS)

# What a well-behaved tenant feels of a hostile one, attack by attack, beside an idle server.
bench-neighbours: build
	scripts/bench-neighbours $(ARGS)
