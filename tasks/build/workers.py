"""Who does the work of a build, through Apache Beam, and who is told how far it is."""

import contextlib
import functools
import logging
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tasks.task import DataError

# Beam's own choice for one machine may fetch a runner written in Go; this one is in the package.
LOCAL = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"


class Watch(Protocol):
    """Is told how far a build is: stages, and amounts of bytes done in each."""

    def begin(self, stage: str, total: int) -> None: ...

    def done(self, amount: int) -> None: ...


class Unwatched:
    def begin(self, stage: str, total: int) -> None: ...

    def done(self, amount: int) -> None: ...


@dataclass(frozen=True)
class Workers:
    """So many processes of this machine, or whoever Beam's own options name."""

    count: int = 1
    options: tuple[str, ...] = ()

    def map(self, function: Callable[[Any], None], elements: Sequence[Any]) -> None:
        """Calls a function of each element, on the workers, in no particular order."""
        if not elements:
            return
        beam, options = library()
        with beam.Pipeline(options=options(list(self.options) or self._here(len(elements)))) as pipeline:
            pipeline | beam.Create(list(elements)) | beam.Reshuffle() | beam.Map(function)

    def _here(self, elements: int) -> list[str]:
        """Beam's options for processes of this machine; one is this process itself."""
        count = min(self.count, elements)
        return [
            f"--runner={LOCAL}",
            f"--direct_running_mode={'multi_processing' if count > 1 else 'in_memory'}",
            f"--direct_num_workers={count}",
            "--default_sdk_harness_log_level=ERROR",
        ]


@functools.cache
def library():
    """(apache_beam, its PipelineOptions), without what importing them says about things that nothing here needs."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import apache_beam as beam
            from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError:
        raise DataError(
            "building a corpus needs Apache Beam: python -m pip install --no-deps -r requirements/beam.txt"
        ) from None
    finally:
        logging.disable(logging.NOTSET)
    return beam, PipelineOptions


@contextlib.contextmanager
def watched(stage: str, sizes: dict[Path, int], watch: Watch, pause: float = 0.3) -> Iterator[None]:
    """Tells of each file as it appears, whichever machine wrote it."""
    waiting, stop = dict(sizes), threading.Event()

    def look() -> None:
        for path in [path for path in waiting if path.exists()]:
            watch.done(waiting.pop(path))

    def keep_looking() -> None:
        while not stop.wait(pause):
            look()

    watch.begin(stage, sum(sizes.values()))
    thread = threading.Thread(target=keep_looking, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        look()
