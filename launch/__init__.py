"""The shared trainer and what surrounds it: configs, devices, checkpoints, evaluation, records, the command line.

One run, read top to bottom: ``cli`` -> ``composition`` (files to one gin text) -> ``config`` (gin text to an
``Experiment``) -> ``train`` -> ``evaluate`` -> ``records``. A model is known here only by ``init``, ``start`` and
``apply``; a task only by ``feed``, ``metrics`` and ``fingerprint``. To be decoded (``translate``), a model needs
``translate`` and its task ``references``, ``encode`` and ``decode``.
"""
