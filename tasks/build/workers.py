"""Who does the work of a build, through Apache Beam, and who is told how far it is."""

import contextlib
import functools
import logging
import os
import shlex
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tasks.build.parts import whole
from tasks.task import DataError


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

    def map(self, function: Callable[[Any], None], elements: Sequence[Any], fault: Path) -> None:
        """Calls a function of each element, on the workers, in no particular order.

        fault: a file by which a worker tells that it failed, and then all others stop. DataError with what it told;
        Beam's own way is some hundred lines of its insides.
        """
        if not elements:
            return
        beam = library()
        # Starting a process takes seconds; it is to have several elements to do.
        count = min(self.count, max(len(elements) // 4, 1))
        runner, options = (None, self.options) if self.options else _here(count)
        fault.unlink(missing_ok=True)
        careful = functools.partial(_careful, function, str(fault))
        try:
            work = beam.Pipeline(runner, beam.pipeline.PipelineOptions(list(options)))
        except ValueError as error:  # which tells of all options at once
            raise DataError(f"Apache Beam, told {' '.join(options)}: {' '.join(str(error).split())}") from None
        with work as pipeline:
            pipeline | beam.Create(list(elements)) | beam.Reshuffle() | beam.Map(careful)
        if fault.exists():
            raise DataError(fault.read_text())


def _careful(function: Callable[[Any], None], fault: str, element: Any) -> None:
    if Path(fault).exists():
        return
    try:
        function(element)
    except (DataError, OSError) as error:
        with whole(Path(fault)) as out:
            out.write(str(error).encode(errors="backslashreplace"))  # it may tell of a name that is no UTF-8


def _here(count: int):
    """(Beam's runner on this machine, its options): this process itself for one worker, else so many others.

    Named as 'DirectRunner' it would first try another one, written in Go, which it fetches.
    """
    from apache_beam.runners.portability.fn_api_runner import fn_runner
    from apache_beam.transforms.environments import SubprocessSDKEnvironment

    if count == 1:
        return fn_runner.FnApiRunner(), ()
    # Beam would start its own module, which begins by talking; and it takes an environment for a mistake.
    logging.getLogger(fn_runner.__name__).setLevel(logging.ERROR)
    others = SubprocessSDKEnvironment.from_command_string(f"{shlex.quote(sys.executable)} -m {__name__} {os.getpid()}")
    return fn_runner.FnApiRunner(default_environment=others), (f"--direct_num_workers={count}",)


@functools.cache
def library():
    """apache_beam, without what importing it says about things that nothing here needs."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import apache_beam as beam
    except ImportError:
        raise DataError(
            "building a corpus needs Apache Beam: python -m pip install --no-deps -r requirements/beam.txt"
        ) from None
    finally:
        logging.disable(logging.NOTSET)
    return beam


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


def follow(leader: int, pause: float = 1) -> None:
    """Ends this process soon after another one has ended; without it, a worker would wait for work for ever."""

    def watch() -> None:
        while True:
            try:
                os.kill(leader, 0)
            except ProcessLookupError:
                os._exit(1)
            time.sleep(pause)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """One of several workers on this machine: told by its environment who has work for it, and by a word who leads."""
    follow(int(sys.argv[1]))
    library()
    logging.disable(logging.WARNING)
    from apache_beam.runners.worker import sdk_worker_main

    sdk_worker_main.main([])


if __name__ == "__main__":
    main()
