# shellcheck shell=bash
# Sourced by the scripts beside it: --dry-run, usage, and commands that are shown before they run.
DRY=
if [ "${1:-}" = --dry-run ]; then
  DRY=1
  shift
fi

# Prints the comment at the top of the script, without its marks.
usage() {
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "launch/scripts/${0##*/}" >&2
  exit 2
}

# Words as they could be typed.
typed() {
  local line
  printf -v line '%q ' "$@"
  printf %s "${line% }"
}

# Shows a command as it could be typed, and runs it unless this is a dry run.
run() {
  typed "$@"
  echo
  [ -n "$DRY" ] || "$@"
}
