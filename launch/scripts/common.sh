# shellcheck shell=bash
# Sourced by the scripts beside it: --dry-run, usage, and commands that are shown before they run.
DRY=
given=()
for word in "$@"; do # wherever it stands: no option of a run is called that
  if [ "$word" = --dry-run ]; then DRY=1; else given+=("$word"); fi
done
set -- "${given[@]+"${given[@]}"}"

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
