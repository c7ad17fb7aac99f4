# Open MPI built with CUDA from Debian's source package, and collbench. To build it in a clone:
#   docker build -f containers/openmpi-cuda.Dockerfile -t collbench/openmpi-cuda .
# The build needs no GPU and no driver. Open MPI's CUDA part is a plug-in that is skipped without a driver, so the image
# runs on machines with and without GPUs. It contains NCCL and CuPy for CUDA 12, or with --build-arg CUDA=13 for CUDA 13.
ARG BASE=debian:trixie-slim

FROM ${BASE} AS openmpi
ARG OPENMPI_VERSION=5.0.7
# If empty: the Debian mirror of the base image.
ARG OPENMPI_SOURCE=
ARG OPENMPI_SHA256=97f10c04e9b9a1771db3fd005009e4c07afa3ce739f940e41eb0fc7397cb9473
ARG CUDA_RUNTIME=nvidia-cuda-runtime-cu12==12.9.79
ARG NO_INDEX=
COPY containers/site /site
RUN apt-get update && apt-get install -y --no-install-recommends \
    ca-certificates curl gcc libc6-dev make perl python3-venv xz-utils zlib1g-dev
RUN if [ -f /site/ca.crt ]; then cp /site/ca.crt /usr/local/share/ca-certificates/site.crt && update-ca-certificates; fi
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
# CUDA's headers come from a wheel. The driver library belongs to the machine; a stub with its name is enough to link.
RUN mkdir -p /site/wheels /cuda/lib64 && python3 -m venv /pip \
 && PIP_NO_INDEX=$NO_INDEX /pip/bin/pip install --find-links /site/wheels --target /headers --no-deps "${CUDA_RUNTIME}" \
 && cp -r /headers/nvidia/cuda_runtime/include /cuda/include \
 && echo 'int cuMemFree(void) { return 0; } int cuMemFree_v2(void) { return 0; }' > /stub.c \
 && gcc -shared -fPIC -Wl,-soname,libcuda.so.1 -o /cuda/lib64/libcuda.so.1 /stub.c \
 && ln -s libcuda.so.1 /cuda/lib64/libcuda.so
RUN mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -n 1) \
 && pool=${mirror}pool/main/o/openmpi/openmpi_${OPENMPI_VERSION}.orig.tar.xz \
 && curl -fsSL --retry 3 -o /openmpi.tar.xz "${OPENMPI_SOURCE:-$pool}" && echo "${OPENMPI_SHA256}  /openmpi.tar.xz" | sha256sum -c - \
 && mkdir /build && tar -C /build --strip-components=1 -xf /openmpi.tar.xz && cd /build \
 && ./configure --prefix=/opt/openmpi --with-cuda=/cuda --with-cuda-libdir=/cuda/lib64 \
    --enable-mca-dso=accelerator-cuda,btl-smcuda,rcache-gpusm,rcache-rgpusm \
    --with-libevent=internal --with-hwloc=internal --with-pmix=internal --with-prrte=internal \
    --without-ucx --without-ofi --without-verbs --without-psm2 --disable-mpi-fortran --disable-oshmem --disable-io-romio \
    --disable-man-pages --disable-sphinx --disable-static --disable-debug --silent \
 && make -s -j "$(nproc)" && make -s install-strip \
 && rm -rf /opt/openmpi/share/doc /opt/openmpi/share/man /opt/openmpi/lib/*.la

FROM ${BASE} AS build
ARG MPI4PY_VERSION=4.1.2
ARG NO_INDEX=
COPY containers/site /site
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates gcc libc6-dev python3-dev python3-venv
RUN if [ -f /site/ca.crt ]; then cp /site/ca.crt /usr/local/share/ca-certificates/site.crt && update-ca-certificates; fi
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN mkdir -p /site/wheels && python3 -m venv /opt/collbench \
 && PIP_NO_INDEX=$NO_INDEX /opt/collbench/bin/pip install --find-links /site/wheels \
    "setuptools>=77" "mpi4py==${MPI4PY_VERSION}"
ARG CUDA=12
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
RUN apt-get update && apt-get install -y --no-install-recommends python3 zlib1g && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 1000 --create-home --shell /usr/sbin/nologin collbench
COPY --from=openmpi /opt/openmpi /opt/openmpi
COPY --from=build /opt/collbench /opt/collbench
RUN echo /opt/openmpi/lib > /etc/ld.so.conf.d/openmpi.conf && ldconfig
ENV PATH=/opt/collbench/bin:/opt/openmpi/bin:$PATH
ARG OPENMPI_VERSION=5.0.7
ARG MPI4PY_VERSION=4.1.2
LABEL collbench.image=openmpi-cuda collbench.mpi="Open MPI ${OPENMPI_VERSION}" \
      collbench.mpi.origin="Debian source openmpi ${OPENMPI_VERSION}" \
      collbench.mpi.vendor=openmpi collbench.mpi.cuda="built" collbench.mpi4py="${MPI4PY_VERSION}"
# The launcher asks the engine for specific GPUs, and the container then gets the driver's library and NVML. `void` means
# no GPU by default: with the `all` of some base images, every container would see every GPU where NVIDIA's runtime is the
# engine's default.
ENV NVIDIA_VISIBLE_DEVICES=void NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER collbench
CMD ["collbench", "list"]
