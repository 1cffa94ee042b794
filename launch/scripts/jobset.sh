#!/usr/bin/env bash
# A run on Kubernetes as a JobSet, one process for each machine (launch/scripts/Containerfile makes the image).
#
#   jobset.sh [--dry-run] NAME IMAGE MACHINES CLAIM STEM [OPTION ...]
#
# CLAIM is a volume claim that all machines can write, for runs and data (at /shared). RESOURCE=google.com/tpu or
# nvidia.com/gpu (default), with COUNT of them a machine. A machine that is lost restarts all, and the run continues.
# A dry run prints what would be applied.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=launch/scripts/common.sh
. launch/scripts/common.sh
[ $# -ge 5 ] || usage
name=$1 image=$2 machines=$3 claim=$4
shift 4

quoted() { # as a string of JSON, which YAML reads too
  local text=${1//\\/\\\\}
  printf '"%s"' "${text//\"/\\\"}"
}
words=
for word in "$@"; do words+="${words:+, }$(quoted "$word")"; done

manifest() {
  cat <<YAML
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: $name
spec:
  failurePolicy:
    maxRestarts: ${RESTARTS:-10}
  replicatedJobs:
  - name: workers
    template:
      spec:
        parallelism: $machines
        completions: $machines
        backoffLimit: 0
        template:
          spec:
            restartPolicy: Never
            terminationGracePeriodSeconds: 120
            containers:
            - name: worker
              image: $image
              args: [$words]
              env:
              - name: NUMBER
                valueFrom:
                  fieldRef:
                    fieldPath: metadata.annotations['batch.kubernetes.io/job-completion-index']
              - name: REPRO_PROCESSES
                value: \$(NUMBER)/$machines@$name-workers-0-0.$name:8476
              - name: REPRO_RUNS
                value: /shared/runs
              resources:
                limits:
                  ${RESOURCE:-nvidia.com/gpu}: ${COUNT:-8}
              volumeMounts:
              - name: shared
                mountPath: /shared
            volumes:
            - name: shared
              persistentVolumeClaim:
                claimName: $claim
YAML
}

if [ -n "$DRY" ]; then manifest; else manifest | kubectl apply -f -; fi
