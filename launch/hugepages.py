"""Large memory pages for the arrays of a computation on processors.

XLA takes the temporary memory of every step anew from the C library, and with pages of 4 KiB the kernel's work of
giving it costs up to half of the step. glibc asks for pages of 2 MiB if its tunable `malloc.hugetlb` is 1, which it
reads once, when a process starts.
"""

import os
import platform
import sys

TUNABLES, WANTED = "GLIBC_TUNABLES", "glibc.malloc.hugetlb=1"


def use(environment=os.environ):
    """Starts this very command again with large pages, unless the user chose, or there is no glibc to ask."""
    chosen = environment.get(TUNABLES, "")
    if "malloc.hugetlb" in chosen or sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
        return
    environment[TUNABLES] = f"{chosen}:{WANTED}".strip(":")
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # the process keeps its id
