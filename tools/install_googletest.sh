#!/usr/bin/env bash
# Makes sure that GoogleTest's headers and libraries are there, from the system's packages.
set -euo pipefail

package=libgtest-dev

has_googletest() {
  local program
  program=$(mktemp)
  trap 'rm -f "$program"' RETURN
  echo '#include <gtest/gtest.h>' | "${CXX:-c++}" -x c++ -std=c++17 - -lgtest_main -lgtest -pthread -o "$program" 2>/dev/null
}

# The prefix that gives the right to install packages, or failure.
privilege() {
  if [ "$(id -u)" = 0 ]; then
    echo env
  else
    sudo -n true 2>/dev/null && echo sudo
  fi
}

give_up() {
  echo "GoogleTest is missing and $1." >&2
  echo "Install the package $package (Debian, Ubuntu) or gtest-devel (Fedora), then run this again." >&2
  exit 1
}

install() {
  "$1" DEBIAN_FRONTEND=noninteractive apt-get install -y "$package"
}

if has_googletest; then
  exit 0
fi
command -v apt-get >/dev/null || give_up "there is no apt-get here to install it with"
prefix=$(privilege) || give_up "installing it needs administrator rights"
# The package lists of a fresh machine may be empty.
install "$prefix" || { "$prefix" apt-get update && install "$prefix"; } || give_up "apt-get could not install it"
