"""What a person watching a run sees: a progress bar with the time left, or plain lines without a terminal."""

import sys
import time

PLAIN_SECONDS = 10.0  # without a terminal a line at most this often, so that logs stay readable


class Monitor:
    """Progress of one run on a rich console.

    Args:
      console: a ``rich.console.Console``.
      title: shown before the bar, such as ``[2/12] reformer/table2/lsh4 cpu seed 1``.
    """

    def __init__(self, console, title):
        self._console, self._title = console, title
        self._bar = self._task = None
        self._values, self._speed = "", ""

    def note(self, text):
        """One line of information."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def start(self, experiment, done, parameters):
        """Training begins, or goes on after ``done`` steps."""
        self._total, self._first, self._begun, self._shown = experiment.steps, None, None, 0.0
        self._tokens = experiment.batch_size * experiment.task.length
        resumed = f", continues after step {done:,}" if done else ""
        self.note(
            f"{self._title}: {parameters:,} parameters, {experiment.steps:,} steps of "
            f"{experiment.batch_size} x {experiment.task.length:,} tokens{resumed}"
        )
        self._open("training", experiment.steps, done)

    def stepped(self, step):
        """An update has finished. Speed and time left are those after the first one, which had to be compiled."""
        now = time.monotonic()
        if self._begun is None:
            self._first, self._begun = step, now
        rate = (step - self._first) / max(now - self._begun, 1e-9)
        self._speed = f"{rate * self._tokens:,.0f} tokens/s" if rate else "compiled"
        if self._bar:
            self._bar.update(self._task, completed=step, values=self._values, speed=self._speed)
        elif now - self._shown > PLAIN_SECONDS or step == self._total:
            self._shown = now
            left = f"  {_clock((self._total - step) / rate)} left" if rate else ""
            self.note(f"  step {step:,}/{self._total:,}  {self._values}  {self._speed}{left}")

    def logged(self, step, values):
        """A logging interval was closed."""
        self._values = "  ".join(f"{name} {value:.4g}" for name, value in values.items() if name != "grad_norm")

    def evaluated(self, name, result):
        """One evaluation has finished."""
        if self._bar and self._bar.tasks[0].total is None:
            self._close()
        metric, entry = next(iter(result["metrics"].items()))
        spread = f" ± {entry['spread']:.2f}" if result["draws"] > 1 else ""
        self.note(
            f"  {name:>6} on {result['split']}: {metric} {entry['value']:.2f}{spread} {entry['unit']}"
            f"  ({result['examples']:,} examples, {result['draws']} draw{'s' if result['draws'] > 1 else ''})"
        )
        if "signatures" in result:  # of several scores of one thing, all are wanted
            for metric, entry in result["metrics"].items():
                self.note(f"         {metric} {entry['value']:.2f}  {result['signatures'][metric]}")

    def evaluating(self, names):
        """The final evaluations begin."""
        self._close()
        self.note(f"  evaluating: {', '.join(names)}")

    def scoring(self, name):
        """An evaluation begins. Returns what to call with the number of examples done so far."""
        self._close()
        self._open(f"evaluating {name}", None, 0)
        begun = shown = time.monotonic()

        def done(examples):
            nonlocal shown
            now = time.monotonic()
            values, speed = f"{examples:,} examples", f"{examples / max(now - begun, 1e-9):,.1f} a second"
            if self._bar:
                self._bar.update(self._task, values=values, speed=speed)
            elif now - shown > PLAIN_SECONDS:
                shown = now
                self.note(f"  {name:>6}: {values}, {speed}")

        return done

    def _open(self, what, total, done):
        if not self._console.is_terminal:
            return
        from rich import progress

        self._bar = progress.Progress(
            progress.TextColumn("  {task.description}"),
            progress.BarColumn(bar_width=30),
            progress.TaskProgressColumn(),
            progress.TextColumn("{task.fields[values]}"),
            progress.TextColumn("{task.fields[speed]}"),
            *((progress.TimeRemainingColumn(compact=True), progress.TextColumn("left")) if total else ()),
            console=self._console,
            transient=True,
        )
        self._task = self._bar.add_task(what, total=total, completed=done, values="", speed="")
        self._bar.start()

    def _close(self):
        if self._bar:
            self._bar.stop()
            self._bar = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._close()


def _clock(seconds):
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def console(heard=True):
    """The console of this process, silent if not `heard`. Plain and unwrapped when standard output is no terminal."""
    from rich.console import Console

    return Console(file=sys.stdout, quiet=not heard, width=None if sys.stdout.isatty() else 200)
