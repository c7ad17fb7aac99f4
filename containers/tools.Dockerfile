# The programs of single-node benchmarks: sysbench, fio, ioping, HPL in hpcc, OpenBLAS; and collbench. To build it in a clone:
#   docker build -f containers/tools.Dockerfile -t collbench/tools .
# On the host's release host and image have the same versions: --build-arg BASE=debian:bookworm-slim for Debian 12.
# Programs of your own: --build-arg PACKAGES="openssl p7zip-full", packages of the distribution.
# HPCG is in no distribution. Its source is taken from containers/site/hpcg.tar.gz, else from HPCG_URL; in both cases
# HPCG_SHA256 must be its hash. Without either the image has no xhpcg.
ARG BASE=debian:trixie-slim

FROM ${BASE} AS build
ARG NO_INDEX=
ARG HPCG_URL=
ARG HPCG_SHA256=
COPY containers/site /site
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates curl g++ gcc libc6-dev make python3-dev python3-venv
RUN if [ -f /site/ca.crt ]; then cp /site/ca.crt /usr/local/share/ca-certificates/site.crt && update-ca-certificates; fi
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN mkdir -p /opt/hpcg/bin && cd /opt/hpcg \
 && if [ -n "$HPCG_URL" ] && [ ! -f /site/hpcg.tar.gz ]; then curl -fsSL -o /site/hpcg.tar.gz "$HPCG_URL"; fi \
 && if [ -f /site/hpcg.tar.gz ]; then \
      echo "$HPCG_SHA256  /site/hpcg.tar.gz" | sha256sum --check --strict \
      && mkdir /hpcg && tar -xzf /site/hpcg.tar.gz -C /hpcg --strip-components=1 && mkdir /hpcg/build && cd /hpcg/build \
      && ../configure GCC_OMP && make -j2 && cp bin/xhpcg /opt/hpcg/bin/; fi
RUN mkdir -p /site/wheels && python3 -m venv /opt/collbench \
 && PIP_NO_INDEX=$NO_INDEX /opt/collbench/bin/pip install --find-links /site/wheels "setuptools>=77"
COPY pyproject.toml setup.py README.md LICENSE constraints.txt /src/
COPY src /src/src
RUN PIP_NO_INDEX=$NO_INDEX /opt/collbench/bin/pip install --find-links /site/wheels --no-build-isolation \
    -c /src/constraints.txt "/src[suites]" \
 && /opt/collbench/bin/python -c "from collbench.timing import _loop; from collbench.workloads import _chase, _stream"

FROM ${BASE}
ARG PACKAGES=
RUN apt-get update \
 && apt-get install -y --no-install-recommends fio hpcc ioping libgomp1 libopenblas0-pthread python3 sysbench $PACKAGES \
 && rm -rf /var/lib/apt/lists/* && useradd --uid 1000 --create-home --shell /usr/sbin/nologin collbench
COPY --from=build /opt/hpcg/bin/ /usr/local/bin/
COPY --from=build /opt/collbench /opt/collbench
# Files of a layer, which a container copies when it opens them for writing (benchmark copyup).
ENV PATH=/opt/collbench/bin:$PATH
RUN python -m collbench.workloads.host.copyup make /collbench/layer
LABEL collbench.image=tools
# No GPU, whatever the default of the base or of the engine is.
ENV NVIDIA_VISIBLE_DEVICES=void NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER collbench
CMD ["collbench", "suite"]
