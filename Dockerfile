# An image with one binary and the libraries that it links to: no shell, no package manager, no root.
#
#   docker build -t feedfleet .
#   docker run --rm --read-only --cap-drop ALL -p 127.0.0.1:7878:7878 -v feedfleet:/data \
#     -e FEEDFLEET_API__TOKENS='[{name = "me", role = "write", token = "AT-LEAST-16-CHARACTERS"}]' \
#     feedfleet run --data /data --listen 0.0.0.0:7878
#
# The token is required, because inside the container the API listens on a public address. Without build arguments this
# file compiles the program. dev/image instead puts a compiled program into ./prebuilt and sets a base image without Rust,
# so that the build needs no network.
ARG BASE=docker.io/library/rust:1.95-slim-bookworm

FROM ${BASE} AS build
WORKDIR /source
COPY . .
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
# aws-lc, jemalloc, SQLite and zstd are written in C; the slim image includes a C compiler, but not make.
# hadolint ignore=DL3008
RUN if [ ! -x prebuilt/feedfleet ]; then \
      apt-get update && apt-get install -y --no-install-recommends make && rm -rf /var/lib/apt/lists/* && \
      cargo build --profile dist --locked -p cli && install -D -s target/dist/feedfleet prebuilt/feedfleet; \
    fi
# The program, its shared libraries and their loader, CA certificates, and one user.
RUN install -D prebuilt/feedfleet /image/feedfleet && \
    mkdir -p /image/etc/ssl/certs /image/tmp /image/data && \
    ldd /image/feedfleet | grep -o '/[^ ]*' | while read -r library; do install -D "$library" "/image$library"; done && \
    cp -L /etc/ssl/certs/ca-certificates.crt /image/etc/ssl/certs/ && \
    echo 'feedfleet:x:65532:65532:feedfleet:/data:/feedfleet' >/image/etc/passwd && \
    echo 'feedfleet:x:65532:' >/image/etc/group && \
    echo 'hosts: files dns' >/image/etc/nsswitch.conf && \
    chmod 1777 /image/tmp && chown -R 65532:65532 /image/data

FROM scratch
LABEL org.opencontainers.image.title="feedfleet" \
      org.opencontainers.image.description="Polls RSS, Atom and JSON feeds on time and politely" \
      org.opencontainers.image.licenses="MIT"
COPY --from=build /image /
USER 65532:65532
WORKDIR /data
VOLUME /data
EXPOSE 7878
# Works for every role: all listen on this port unless --listen changes it. Kubernetes uses its own probes.
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s CMD ["/feedfleet", "health"]
ENTRYPOINT ["/feedfleet"]
CMD ["--help"]
