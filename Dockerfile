# One binary on what it links to: no shell, no package manager, no root.
#
#   docker build -t feedfleet .
#   docker run --rm --read-only --cap-drop ALL -p 7878:7878 -v feedfleet:/data feedfleet run --data /data --listen 0.0.0.0:7878 ...
#
# Without --build-arg anything, the program is built here. dev/image puts one that was built outside into ./prebuilt and gives
# a base without Rust, which works without a network.
ARG BASE=docker.io/library/rust:1.95-slim-bookworm

FROM ${BASE} AS build
WORKDIR /source
COPY . .
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
# aws-lc, SQLite and zstd are C; the slim image has a compiler.
RUN if [ ! -x prebuilt/feedfleet ]; then \
      cargo build --release --locked -p cli && install -D -s target/release/feedfleet prebuilt/feedfleet; \
    fi
# The program, the libraries that it names and their loader, certificates, and the names of one user.
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
# Any role: all answer at this port unless --listen says otherwise. Kubernetes has probes of its own.
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s CMD ["/feedfleet", "health"]
ENTRYPOINT ["/feedfleet"]
CMD ["--help"]
