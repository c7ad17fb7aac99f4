# torch.distributed without MPI: gloo, and with --build-arg CUDA=12 or 13 also NCCL on GPUs. To build it in a clone:
#   docker build -f containers/torch.Dockerfile -t collbench/torch .
# torch for the base's Python comes from containers/site/wheels, else from the index TORCH_INDEX; without it, from
# torch's index for the CPU or for CUDA 12.6, and for CUDA 13 from PyPI, whose torch is built for CUDA 13.
ARG BASE=debian:trixie-slim

FROM ${BASE} AS build
ARG TORCH_VERSION=2.13.0
ARG TORCH_INDEX=
ARG CUDA=
ARG NO_INDEX=
COPY containers/site /site
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates gcc libc6-dev python3-dev python3-venv
RUN if [ -f /site/ca.crt ]; then cp /site/ca.crt /usr/local/share/ca-certificates/site.crt && update-ca-certificates; fi
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN mkdir -p /site/wheels && python3 -m venv /opt/collbench \
 && case "$CUDA" in "") builds=cpu;; 12) builds=cu126;; *) builds=;; esac \
 && url=${TORCH_INDEX:-${builds:+https://download.pytorch.org/whl/$builds}} \
 && if ls /site/wheels/torch-*.whl >/dev/null 2>&1; then url=; fi \
 && PIP_NO_INDEX=$NO_INDEX /opt/collbench/bin/pip install --find-links /site/wheels ${url:+--extra-index-url "$url"} \
    "setuptools>=77" "torch==${TORCH_VERSION}" ${CUDA:+cuda-pathfinder nvidia-ml-py} \
 && if [ -n "$CUDA" ]; then /opt/collbench/bin/python -c \
    "import torch; assert (torch.version.cuda or '').startswith('$CUDA.'), f'this torch is made for CUDA {torch.version.cuda}'"; fi
COPY pyproject.toml setup.py README.md LICENSE constraints.txt /src/
COPY src /src/src
RUN PIP_NO_INDEX=$NO_INDEX /opt/collbench/bin/pip install --find-links /site/wheels --no-build-isolation /src \
 && /opt/collbench/bin/python -c "from collbench.timing import _loop; from collbench.workloads import _chase, _stream"

FROM ${BASE}
RUN apt-get update && apt-get install -y --no-install-recommends python3 qperf && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 1000 --create-home --shell /usr/sbin/nologin collbench
COPY --from=build /opt/collbench /opt/collbench
ENV PATH=/opt/collbench/bin:$PATH
LABEL collbench.image=torch
# The launcher asks the engine for specific GPUs, and the container then gets the driver's library and NVML. `void` means
# no GPU by default: with the `all` of some base images, every container would see every GPU where NVIDIA's runtime is the
# engine's default.
ENV NVIDIA_VISIBLE_DEVICES=void NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER collbench
CMD ["collbench", "list"]
