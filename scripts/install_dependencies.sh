#!/usr/bin/env bash
# Install the packages that building, testing and the quick start need, on Debian 12 or Ubuntu 24.04.
# Does nothing when all of them are there. Needs root or sudo otherwise.
set -euo pipefail

packages=(build-essential cmake ninja-build ccache mold pkg-config git curl python3 python3-pip python3-venv
  libabsl-dev libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc libspdlog-dev nlohmann-json3-dev
  libssl-dev prometheus-cpp-dev libcli11-dev libyaml-cpp-dev libpcre2-dev libutf8proc-dev libhwloc-dev libsystemd-dev
  libgtest-dev libgmock-dev libbenchmark-dev librapidcheck-dev zlib1g-dev libcurl4-openssl-dev iproute2 iptables)

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
  echo "This script knows Debian and Ubuntu only; the list at its top names what to install elsewhere." >&2
  exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "Installing packages needs root: run scripts/install_dependencies.sh as root once." >&2; exit 1; }
  as_root=(sudo)
fi
# On a fresh Ubuntu the automatic updates may hold the lock for a while. sudo drops the caller's variables, env sets them anew.
apt_get() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@"; }
give_up() {
  echo "install_dependencies.sh: $1. Are Debian's or Ubuntu's package servers reachable? (On Ubuntu, 'universe' must be enabled.)" >&2
  exit 1
}

echo "Installing ${missing[*]:-Boost} with apt-get ..."
# A broken list of someone else's does no harm here; what is truly missing shows below.
apt_get update || true
if [ -z "$boost" ]; then
  for candidate in libboost1.83-dev libboost1.81-dev; do
    if apt-cache show "$candidate" >/dev/null 2>&1; then boost=$candidate; break; fi
  done
  [ -n "$boost" ] || give_up "no Boost 1.83 or 1.81 (libboost1.83-dev) is in the package lists"
  missing+=("$boost")
fi
apt_get install -y --no-install-recommends "${missing[@]}" || give_up "apt-get could not install the packages"
