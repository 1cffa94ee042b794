"""``python -m launch``: the same as the ``repro`` command."""

import sys

from launch.cli import main

sys.exit(main())
