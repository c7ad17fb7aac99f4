# Intel MPI from its PyPI wheel, and collbench. To build it in a clone:
#   docker build -f containers/intelmpi.Dockerfile -t collbench/intelmpi .
# --build-arg CUDA=12 or 13 adds NCCL and CuPy, for GPUs. This MPI does not accept device memory.
ARG BASE=debian:trixie-slim

FROM ${BASE} AS build
ARG INTELMPI_VERSION=2021.18.1
ARG MPI4PY_VERSION=4.1.2
ARG NO_INDEX=
COPY containers/site /site
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates gcc libc6-dev python3-dev python3-venv
RUN if [ -f /site/ca.crt ]; then cp /site/ca.crt /usr/local/share/ca-certificates/site.crt && update-ca-certificates; fi
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN mkdir -p /site/wheels && python3 -m venv /opt/collbench \
 && PIP_NO_INDEX=$NO_INDEX /opt/collbench/bin/pip install --find-links /site/wheels \
    "setuptools>=77" "mpi4py==${MPI4PY_VERSION}" "impi-rt==${INTELMPI_VERSION}"
ARG CUDA=
COPY pyproject.toml constraints.txt /src/
RUN if [ -n "$CUDA" ]; then /opt/collbench/bin/python -c \
    "import tomllib; print(*tomllib.load(open('/src/pyproject.toml', 'rb'))['project']['optional-dependencies']['cuda$CUDA'], sep='\n')" \
    > /cuda.txt && PIP_NO_INDEX=$NO_INDEX /opt/collbench/bin/pip install --find-links /site/wheels -c /src/constraints.txt -r /cuda.txt; fi
COPY setup.py README.md LICENSE /src/
COPY src /src/src
RUN PIP_NO_INDEX=$NO_INDEX /opt/collbench/bin/pip install --find-links /site/wheels --no-build-isolation \
    -c /src/constraints.txt "/src${CUDA:+[cuda$CUDA]}" \
 && /opt/collbench/bin/python -c "from collbench.timing import _loop; from collbench.workloads import _chase, _stream"

FROM ${BASE}
RUN apt-get update && apt-get install -y --no-install-recommends python3 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 1000 --create-home --shell /usr/sbin/nologin collbench
COPY --from=build /opt/collbench /opt/collbench
ENV PATH=/opt/collbench/bin:$PATH
ARG INTELMPI_VERSION=2021.18.1
ARG MPI4PY_VERSION=4.1.2
LABEL collbench.image=intelmpi collbench.mpi="Intel MPI ${INTELMPI_VERSION}" collbench.mpi.origin="wheel impi-rt==${INTELMPI_VERSION}" \
      collbench.mpi.vendor=intelmpi collbench.mpi.cuda="not built" collbench.mpi4py="${MPI4PY_VERSION}"
# The launcher asks the engine for specific GPUs, and the container then gets the driver's library and NVML. `void` means
# no GPU by default: with the `all` of some base images, every container would see every GPU where NVIDIA's runtime is the
# engine's default.
ENV NVIDIA_VISIBLE_DEVICES=void NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER collbench
CMD ["collbench", "list"]
