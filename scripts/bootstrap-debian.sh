#!/usr/bin/env bash
# Installs what the build needs on Debian 12 (or a relative of it). Root, or a user with sudo. Idempotent.
#   scripts/bootstrap-debian.sh          what the program and its demo need
#   scripts/bootstrap-debian.sh --test   also clang for the fuzzers and for formatting
set -euo pipefail

packages=(
  cmake ninja-build ccache
  libboost1.81-dev libboost-json1.81-dev libssl-dev libexpected-dev libfmt-dev libspdlog-dev libutf8proc-dev
  libcli11-dev libedit-dev libbsd-dev libmd-dev libncurses-dev libxxhash-dev libzstd-dev
  libgtest-dev libgmock-dev python3 python3-venv python3-pip
)
[ "${1:-}" = "--test" ] && packages+=(clang-19 libclang-rt-19-dev clang-format-19)

command -v apt-get >/dev/null || { echo "error: this script installs Debian packages, and apt-get is not here." >&2
  echo "Install the libraries listed in it by your system's own means, then run: cmake --preset release" >&2; exit 1; }

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ "${#missing[@]}" -eq 0 ]; then exit 0; fi

sudo=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "error: need root or sudo to install: ${missing[*]}" >&2; exit 1; }
  sudo=(sudo)
fi
echo "installing: ${missing[*]}"
"${sudo[@]}" apt-get update -qq
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
