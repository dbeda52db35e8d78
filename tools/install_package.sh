#!/usr/bin/env bash
# Makes sure that a C++ library is there, from the system's packages:
#
#   install_package.sh [--optional] NAME PACKAGE HEADER [LINKER FLAG...]
#
# Without --optional it fails if it cannot be had; with it, it says so.
set -euo pipefail

is_optional=false
if [ "$1" = --optional ]; then
  is_optional=true
  shift
fi
name=$1 package=$2 header=$3
shift 3

has_library() { # only compiles if there is nothing to link
  local program
  program=$(mktemp)
  trap 'rm -f "$program"' RETURN
  echo "#include <$header>" | "${CXX:-c++}" -x c++ -std=c++17 - "${@:--c}" -o "$program" 2>/dev/null
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
  echo "$name is missing and $1." >&2
  $is_optional && exit 0
  echo "Install the package $package (Debian, Ubuntu), or what it is called here, then run this again." >&2
  exit 1
}

install() {
  "$1" DEBIAN_FRONTEND=noninteractive apt-get install -y "$package"
}

if has_library "$@"; then
  exit 0
fi
command -v apt-get >/dev/null || give_up "there is no apt-get here to install it with"
prefix=$(privilege) || give_up "installing it needs administrator rights"
# The package lists of a fresh machine may be empty.
install "$prefix" || { "$prefix" apt-get update && install "$prefix"; } || give_up "apt-get could not install it"
