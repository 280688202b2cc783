# syntax=docker/dockerfile:1
# The server in a container: docs/packaging.md.
#
# Built in one image, run in another that holds a small Debian, the program, and the certificates that the system trusts.
# It runs as a user without rights; what it keeps is in /var/lib/eventmesh.

FROM rust:1.95-bookworm AS build
WORKDIR /build
COPY . .
# What RocksDB and the dependencies compile to stays in the builder's caches.
RUN --mount=type=cache,target=/root/.cache/eventmesh \
    --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/build/target \
    make build \
    && mkdir -p /image/usr/bin /image/var/lib/eventmesh \
    && strip -o /image/usr/bin/eventmesh target/release/eventmesh

FROM debian:bookworm-slim
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /image/usr/bin/eventmesh /usr/bin/eventmesh
COPY --from=build --chown=65532:65532 /image/var/lib/eventmesh /var/lib/eventmesh
ENV EVENTMESH_DATA_DIR=/var/lib/eventmesh
ENV EVENTMESH_STORAGE_TYPE=embedded
USER 65532:65532
WORKDIR /var/lib/eventmesh
VOLUME /var/lib/eventmesh
EXPOSE 10105 10106
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=60s --retries=3 CMD ["/usr/bin/eventmesh", "health"]
ENTRYPOINT ["/usr/bin/eventmesh"]
CMD ["server"]
