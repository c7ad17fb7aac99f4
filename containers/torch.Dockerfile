# torch.distributed with gloo, without MPI. In a clone:
#   docker build -f containers/torch.Dockerfile -t collbench/torch .
# A CPU build of torch for the base's Python: from its own index, or from wheels in containers/site/wheels.
ARG BASE=debian:trixie-slim

FROM ${BASE} AS build
ARG TORCH_VERSION=2.13.0
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG NO_INDEX=
COPY containers/site /site
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates gcc libc6-dev python3-dev python3-venv
RUN if [ -f /site/ca.crt ]; then cp /site/ca.crt /usr/local/share/ca-certificates/site.crt && update-ca-certificates; fi
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN mkdir -p /site/wheels && python3 -m venv /opt/collbench \
 && if ls /site/wheels/torch-*.whl >/dev/null 2>&1; then index=; else index="--extra-index-url $TORCH_INDEX"; fi \
 && PIP_NO_INDEX=$NO_INDEX /opt/collbench/bin/pip install --find-links /site/wheels $index \
    "setuptools>=77" "torch==${TORCH_VERSION}"
COPY pyproject.toml setup.py README.md LICENSE constraints.txt /src/
COPY src /src/src
RUN PIP_NO_INDEX=$NO_INDEX /opt/collbench/bin/pip install --find-links /site/wheels --no-build-isolation /src \
 && /opt/collbench/bin/python -c "from collbench.timing import _loop"

FROM ${BASE}
RUN apt-get update && apt-get install -y --no-install-recommends python3 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 1000 --create-home --shell /usr/sbin/nologin collbench
COPY --from=build /opt/collbench /opt/collbench
ENV PATH=/opt/collbench/bin:$PATH
LABEL collbench.image=torch
USER collbench
CMD ["collbench", "list"]
