#!/usr/bin/env bash
# Install the packages that building, testing and the quick start need, on Debian 12 or Ubuntu 24.04.
# Does nothing when all of them are there. Needs root or sudo otherwise.
set -euo pipefail

packages=(build-essential cmake ninja-build ccache mold pkg-config git python3 python3-pip python3-venv
  libabsl-dev libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc libspdlog-dev nlohmann-json3-dev
  libssl-dev prometheus-cpp-dev libcli11-dev libyaml-cpp-dev libpcre2-dev libutf8proc-dev libhwloc-dev libsystemd-dev
  libgtest-dev libgmock-dev libbenchmark-dev librapidcheck-dev zlib1g-dev libcurl4-openssl-dev)

installed() { [ "$(dpkg-query -W -f='${Status}' "$1" 2>/dev/null)" = "install ok installed" ]; }

# Debian 12's default Boost is 1.74; Beast and Asio with C++20 coroutines want 1.81 or newer.
boost=""
for candidate in libboost1.83-dev libboost1.81-dev; do
  if installed "$candidate"; then boost=$candidate; break; fi
done

missing=()
for package in "${packages[@]}"; do installed "$package" || missing+=("$package"); done
if [ ${#missing[@]} -eq 0 ] && [ -n "$boost" ]; then exit 0; fi

if ! command -v apt-get >/dev/null; then
  echo "This script knows Debian and Ubuntu only; docs/development.md lists what to install elsewhere." >&2
  exit 1
fi
sudo=""
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "Installing packages needs root: run this script as root once." >&2; exit 1; }
  sudo=sudo
fi
echo "Installing ${#missing[@]} packages with apt-get ..."
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -q
if [ -z "$boost" ]; then
  for candidate in libboost1.83-dev libboost1.81-dev; do
    if apt-cache show "$candidate" >/dev/null 2>&1; then boost=$candidate; break; fi
  done
  [ -n "$boost" ] || { echo "No Boost 1.81 or newer in the package lists; install one by hand." >&2; exit 1; }
  missing+=("$boost")
fi
$sudo apt-get install -y -q --no-install-recommends "${missing[@]}"
