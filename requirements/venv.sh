#!/bin/sh
# Builds .venv from requirements/cpu.txt and beam.txt, or finds it in place (a tenth of a second). make calls it before each target.
# PYTHON names the interpreter; without it the first that fits is taken.
#
# What is in place is judged by contents, not by times: a fresh checkout of the same pins keeps the environment, a
# folder that was moved, a half-finished installation or another PYTHON builds it anew.
set -eu
cd "$(dirname "$0")/.."
unset PYTHONDONTWRITEBYTECODE PYTHONHOME PYTHONPATH # without .pyc files TensorFlow takes half a minute to import
venv=.venv
pins="$(pwd) $(cat requirements/cpu.txt requirements/beam.txt | cksum)"
project=$(cksum <pyproject.toml)

stop() {
  echo "make: $*" >&2
  exit 1
}

identity() {
  "$1" -c 'import sys; print(getattr(sys, "base_prefix", ""), sys.version_info[:3])' 2>/dev/null
}

# Prints what hinders an interpreter, and nothing if it fits. Fails if it does not run, as a version manager's shim may.
hindrance() {
  "$1" 2>/dev/null <<'EOF'
from __future__ import print_function
import os, sys, sysconfig
name = "Python %d.%d.%d (%s)" % (tuple(sys.version_info[:3]) + (sys.executable,))
if not (3, 11) <= sys.version_info[:2] <= (3, 13):
    print("needs Python 3.11, 3.12 or 3.13, found " + name + ": install one, or name it: make PYTHON=/path/to/python3.12")
    sys.exit()
try:
    import ensurepip, venv
except ImportError:
    print("%s has no venv module: on Debian or Ubuntu, apt install python%d.%d-venv" % ((name,) + sys.version_info[:2]))
    sys.exit()
if sys.version_info[:2] == (3, 13):
    from shutil import which
    tools = [os.environ.get(v) or sysconfig.get_config_var(v) or d for v, d in (("CC", "cc"), ("CXX", "c++"))]
    lacking = [tool.split()[0] for tool in tools if not which(tool.split()[0])]
    if not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
        lacking.append("Python.h")
    if lacking:
        print("%s: its one package without a wheel (editdistance) needs a C++ compiler and Python.h, lacking here: %s; "
              "apt install g++ python3.13-dev, or use Python 3.11 or 3.12" % (name, ", ".join(lacking)))
EOF
}

# All interpreters that may fit, one a line, the preferred first.
candidates() {
  for name in python3.12 python3.11 python3 python3.13 python; do
    (IFS=:; for folder in $PATH; do [ -x "$folder/$name" ] && echo "$folder/$name"; done; true)
  done
  for folder in "${PYENV_ROOT:-${HOME:-}/.pyenv}"/versions/3.12.* "${PYENV_ROOT:-${HOME:-}/.pyenv}"/versions/3.11.*; do
    [ -x "$folder/bin/python" ] && echo "$folder/bin/python"
  done
  true
}

# Sets `python`, or stops with one line that says what to do.
choose() {
  if [ -n "${PYTHON:-}" ]; then
    why=$(hindrance "$PYTHON") || stop "PYTHON=$PYTHON does not run; give the path of a Python 3.11, 3.12 or 3.13"
    [ -z "$why" ] || stop "$why"
    python=$PYTHON
    return
  fi
  first=
  while read -r python; do
    why=$(hindrance "$python") || continue
    [ -n "$why" ] || return 0
    case $why in needs*) first=${first:-$why} ;; *) nearest=${nearest:-$why} ;; esac
  done <<EOF
$(candidates)
EOF
  stop "${nearest:-${first:-needs Python 3.11, 3.12 or 3.13, found none: install one, or name it: make PYTHON=/path/to/python3.12}}"
}

in_place() {
  [ "$(cat $venv/.pins 2>/dev/null)" = "$pins" ] && found=$(identity $venv/bin/python) || return 1
  [ -z "${PYTHON:-}" ] || [ "$found" = "$(identity "$PYTHON")" ]
}

install() {
  $venv/bin/python -m pip install --disable-pip-version-check --quiet --no-deps "$@" ||
    stop "pip could not install the pinned packages, as it says above; the next make begins anew"
}

if ! in_place; then
  choose
  # Of an active environment (perhaps the one that is about to go) the interpreter that it was made from.
  python=$("$python" -c 'import sys; print(getattr(sys, "_base_executable", sys.executable))')
  echo "building $venv with $("$python" --version): about 0.6 GB of packages, one to three minutes"
  rm -rf $venv
  "$python" -m venv $venv || stop "$python could not make $venv, as it says above"
  install -r requirements/cpu.txt -r requirements/beam.txt
  echo "$pins" >$venv/.pins
fi
if [ "$(cat $venv/.project 2>/dev/null)" != "$project" ]; then
  install --no-build-isolation --editable .
  echo "$project" >$venv/.project
fi
