#!/usr/bin/env bash
# Provides Docker Engine and a base image on a bare Debian machine, for tests and CI: ./engine.sh [BASE]
#
# Installs docker.io if docker is missing, starts dockerd if none answers, and gets BASE (the slim image of a Debian
# suite, default debian:bookworm-slim) from a registry, or makes it with debootstrap if no registry can be reached.
# Existing software and images are kept. Needs root to install or start something.
set -euo pipefail

base=${1:-debian:bookworm-slim}
suite=${base#debian:}
suite=${suite%-slim}
log=${ENGINE_LOG:-/var/log/dockerd.log}

need_root() {
  [ "$(id -u)" = 0 ] || { echo "engine.sh: $1 needs root; run it as root once" >&2; exit 2; }
}

install() {
  need_root "installing $*"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -q >/dev/null
  apt-get install -qy --no-install-recommends "$@" >/dev/null
}

answers() {
  timeout 20 docker version >/dev/null 2>&1
}

command -v docker >/dev/null || install docker.io iptables ca-certificates
if ! answers; then
  command -v dockerd >/dev/null && command -v iptables >/dev/null || install docker.io iptables ca-certificates
  need_root "starting dockerd"
  setsid dockerd >"$log" 2>&1 </dev/null &
  for _ in $(seq 60); do
    answers && break
    sleep 0.5
  done
  answers || { echo "engine.sh: dockerd does not answer; the end of its log ($log):" >&2; tail -n 5 "$log" >&2; exit 1; }
fi

if ! docker image inspect "$base" >/dev/null 2>&1 && ! timeout 60 docker pull -q "$base" >/dev/null 2>&1; then
  command -v debootstrap >/dev/null || install debootstrap
  need_root "making $base with debootstrap"
  root=$(mktemp -d)
  trap 'rm -rf "$root"' EXIT
  debootstrap --variant=minbase "$suite" "$root" >"$root.log" || { tail -n 5 "$root.log" >&2; exit 1; }
  rm -rf "$root.log" "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
  tar -C "$root" -c . | docker import -c 'CMD ["bash"]' - "$base" >/dev/null
fi

echo "engine $(docker version --format '{{.Server.Version}}'), $base $(docker image inspect --format '{{.Id}}' "$base")"
