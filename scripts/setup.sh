#!/usr/bin/env bash
# Sets up the project on a machine that has only Python 3.11 or newer (PYTHON=python3.13 chooses one): .venv with the project
# and its development tools in the versions of uv.lock, and Java 17 or newer for Spark. Safe to call again: without a change it
# returns at once.
#
# Writes .venv/env.sh, which puts .venv/bin on PATH, sets JAVA_HOME and lets Python keep its bytecode (hundreds of processes
# of the tests would compile the project again); the Makefile sources it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly venv=.venv
readonly stamp=$venv/setup.stamp
readonly env_file=$venv/env.sh
readonly min_java=17

say() { printf 'setup: %s\n' "$*"; }
die() {
  printf 'setup: error: %s\n' "$*" >&2
  exit 1
}

# ---------------------------------------------------------------- the system's package manager

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null 2>&1; then
    # Without a terminal nobody can type a password: fail rather than wait.
    if [ -t 0 ]; then sudo "$@"; else sudo -n "$@"; fi
  else
    return 1
  fi
}

# install_one_of APT DNF BREW APK: each a space-separated list of package names, tried in order.
install_one_of() {
  local package
  if command -v apt-get >/dev/null 2>&1; then
    as_root apt-get update -qq || return 1
    for package in $1; do
      as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" && return 0
    done
  elif command -v dnf >/dev/null 2>&1; then
    for package in $2; do as_root dnf install -y -q "$package" && return 0; done
  elif command -v brew >/dev/null 2>&1; then
    for package in $3; do brew install --quiet "$package" && return 0; done # brew refuses to run as root
  elif command -v apk >/dev/null 2>&1; then
    for package in $4; do as_root apk add --quiet "$package" && return 0; done
  fi
  return 1
}

# ---------------------------------------------------------------- Python

# A version manager's shim may be on PATH without working, so each candidate is run.
usable_python() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
  local name
  for name in ${PYTHON:+"$PYTHON"} python3.11 python3.12 python3.13 python3.14 python3 python; do
    if command -v "$name" >/dev/null 2>&1 && usable_python "$name"; then
      command -v "$name"
      return 0
    fi
  done
  return 1
}

make_venv() {
  if [ -x "$venv/bin/python" ] && usable_python "$venv/bin/python" && "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    return 0
  fi
  local python version
  python=$(find_python) || die "no Python 3.11 or newer found (looked for python3.11 to python3.14, python3, python on PATH).
  Install one (https://www.python.org/downloads/, or your system's packages) and run this again."
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  say "creating $venv with $python ($version)"
  if ! "$python" -c 'import ensurepip' >/dev/null 2>&1; then
    say "this Python has no ensurepip (Debian packages it separately): installing python$version-venv"
    install_one_of "python$version-venv python3-venv" python3-pip "python@$version" py3-pip >&2 ||
      die "$python cannot create virtual environments. Install its venv package (on Debian: apt-get install python$version-venv) and run this again."
  fi
  "$python" -m venv --clear "$venv"
}

# uv is many times faster; pip knows its configured mirrors and certificates.
install_exactly() {
  "$venv/bin/uv" --quiet pip install --python "$venv/bin/python" --no-deps "$@" || "${pip[@]}" install --no-deps "$@"
}

install_project() {
  say "installing the project and its development tools (the first time takes minutes: Spark alone is 450 MB)"
  local pip=("$venv/bin/python" -m pip --quiet --disable-pip-version-check --no-input)
  "${pip[@]}" install 'uv>=0.9'
  # The list is complete, so nothing is resolved: pip would take the newest release of what is required with an extra
  # (coverage[toml]) although its version is pinned.
  "$venv/bin/uv" --quiet export --frozen --offline --all-extras --no-emit-workspace --output-file "$venv/requirements.txt" >&2
  install_exactly --require-hashes --requirement "$venv/requirements.txt"
  local package editable=(--editable .)
  for package in packages/*/; do editable+=(--editable "$package"); done
  install_exactly "${editable[@]}"
}

# ---------------------------------------------------------------- Java

# java_home_of JAVA: prints its home if it runs and is new enough. (The /usr/bin/java of macOS is only a stub.)
java_home_of() {
  local settings version home
  settings=$("$1" -XshowSettings:properties -version 2>&1 </dev/null) || return 1
  version=$(printf '%s\n' "$settings" | sed -n 's/^ *java\.specification\.version = \([0-9]*\).*/\1/p')
  home=$(printf '%s\n' "$settings" | sed -n 's/^ *java\.home = //p')
  [ -n "$home" ] && [ "${version:-0}" -ge "$min_java" ] && printf '%s\n' "$home"
}

find_java() {
  local java
  for java in \
    "${JAVA_HOME:-/nonexistent}/bin/java" \
    "$(command -v java || true)" \
    /usr/lib/jvm/*/bin/java /usr/java/*/bin/java /opt/java/*/bin/java /opt/jdk*/bin/java \
    /Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java \
    /opt/homebrew/opt/openjdk*/bin/java /usr/local/opt/openjdk*/bin/java /home/linuxbrew/.linuxbrew/opt/openjdk*/bin/java \
    "$HOME"/.sdkman/candidates/java/current/bin/java "$HOME"/.jdks/*/bin/java; do
    if [ -n "$java" ] && [ -x "$java" ] && java_home_of "$java"; then return 0; fi
  done
  return 1
}

write_env() {
  local home
  if ! home=$(find_java); then
    say "no Java $min_java or newer found: installing it with the system's package manager"
    install_one_of \
      "openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless" \
      "java-17-openjdk-headless java-21-openjdk-headless java-latest-openjdk-headless" \
      "openjdk@17 openjdk@21" \
      "openjdk17-jre-headless openjdk21-jre-headless" >&2 || say "the package manager could not install it"
    home=$(find_java) || die "Spark needs Java $min_java or newer and none was found: not in JAVA_HOME (${JAVA_HOME:-unset}), on PATH, or in the usual places.
  Install one (https://adoptium.net, or your system's openjdk-17 package), or set JAVA_HOME to one, and run this again."
  fi
  say "Java: $home"
  printf 'export JAVA_HOME=%q\nexport PATH=%q/bin:"$PATH"\nunset PYTHONDONTWRITEBYTECODE\n' "$home" "$PWD/$venv" >"$env_file"
}

# ---------------------------------------------------------------- main

# The directory is part of the key: in a moved checkout, the scripts in .venv/bin point to its old place.
key=$(printf '%s\n' "$PWD" | cat - pyproject.toml packages/*/pyproject.toml uv.lock scripts/setup.sh | cksum)

java_still_there() { (. "./$env_file" && [ -x "$JAVA_HOME/bin/java" ]) 2>/dev/null; }

if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$key" ] && [ -x "$venv/bin/python" ]; then
  java_still_there || write_env
  exit 0
fi
make_venv
install_project
write_env
printf '%s\n' "$key" >"$stamp"
say "done"
