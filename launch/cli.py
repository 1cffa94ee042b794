"""The ``repro`` command. Each subcommand imports what it needs when it runs: looking things up stays instant."""

import argparse
import os
import sys
from pathlib import Path

from launch import composition as files
from launch import hugepages
from launch.errors import ConfigError, UserError

PROGRAM = "repro"
COMPUTING = ("run", "eval", "sample", "inspect", "profile")
EPILOG = """\
examples:
  repro list reformer/table2                     what can be run, what has been measured
  repro show reformer/table2/lsh4 --scale cpu    one row: paper's figures, config with origins, records
  repro run reformer/table2/lsh4 --scale cpu     train and evaluate it; the same command resumes
  repro run reformer/table2 --scale cpu --seed 0,1,2    every row of the table, three seeds
  repro compare reformer/table2                  measured beside reported
exit status: 0 done, 1 failed, 2 wrong use, 128+n stopped by signal n with everything saved"""


def main(argv=None):
    """Runs one command line. Returns the exit status."""
    # Before anything imports TensorFlow, which else begins by talking.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    for word in sys.argv[1:] if argv is None else argv:
        if any("\udc80" <= character <= "\udcff" for character in word):  # how Python keeps bytes that are no text
            print(f"{PROGRAM}: {os.fsencode(word)!r} is not UTF-8, as all words must be; convert it", file=sys.stderr)
            return 2
    arguments = _parser().parse_args(argv)
    if argv is None and arguments.name in COMPUTING:
        hugepages.use()
    try:
        return arguments.command(arguments) or 0
    except UserError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        if getattr(arguments, "processes", None):
            from launch import processes

            processes.leave(error)
        return error.code
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # those of a run say more, and are UserErrors
        place = f"{error.filename}: " if error.filename else ""
        print(f"{PROGRAM}: {place}{error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted", file=sys.stderr)
        return 130
    except ValueError as error:
        import tasks

        if isinstance(error, tasks.DataError):
            print(f"{PROGRAM}: {str(error).splitlines()[0]}", file=sys.stderr)  # gin adds lines on how it got there
            return 1
        raise


def _parser():
    parser = argparse.ArgumentParser(
        PROGRAM,
        description="Reproduce, check and extend Reformer (2001.04451) and Memorizing Transformers (2203.08913).",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(title="commands", dest="name", required=True, metavar="COMMAND")

    def command(function, name, help, *arguments):
        sub = commands.add_parser(
            name, help=help, description=function.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        for names, options in arguments:
            sub.add_argument(*names, **options)
        sub.set_defaults(command=function)
        return sub

    def option(*names, **options):
        return names, options

    stem = option("stem", metavar="STEM", help="an experiment of `repro list`, a folder of them, or a gin file")
    scale = option("--scale", default=files.FULL_SCALE, help="'paper' (default) or a named reduction; see `repro show`")
    seed = option("--seed", "--seeds", dest="seeds", type=_seeds, default=(None,), metavar="N[,N...]",
                  help="one seed or several, such as 0,1,2 (default: the config's SEED)")  # fmt: skip
    sets = option("--set", dest="overrides", action="append", default=[], metavar="'NAME = VALUE'",
                  help="a gin assignment, over all files; may be repeated, such as --set 'STEPS = 200'")  # fmt: skip
    workdir = option("--workdir", type=Path, default=Path(os.environ.get("REPRO_RUNS", "runs")), metavar="DIR",
                     help="where runs live (default: $REPRO_RUNS or ./runs); each has its own folder")  # fmt: skip
    records = option("--records", type=Path, default=None, metavar="DIR",
                     help="where records are read and written (default: results/records of this checkout)")  # fmt: skip
    many = option("--processes", default=os.environ.get("REPRO_PROCESSES"), metavar="WHO",
                  help="one of several processes: 'auto', or NUMBER/COUNT@HOST:PORT ($REPRO_PROCESSES)")  # fmt: skip
    profiling = option("--profile", action="store_true", help="profile a few steps for TensorBoard, through clu")
    pattern = option("pattern", nargs="?", default="", metavar="STEM", help="only experiments that begin so")
    stems = option("stems", nargs="*", metavar="STEM", help="experiments or folders (default: all)")
    table = option("table", nargs="?", metavar="TABLE", help="such as reformer/table2 (default: every table)")
    markdown = option("--markdown", action="store_true", help="print Markdown instead of a drawn table")
    out = option("--out", type=Path, default=Path("runs/report"), metavar="DIR", help="where the page is written")
    draws = option("--draws", type=_draws, metavar="N", help="draws of the hash rotations, over the config's")
    split = option("--split", choices=("validation", "test"), help="over the config's")

    command(_list, "list", "experiments with table, scales, cost and state", pattern, records)
    command(_show, "show", "one experiment: config, reported figures, records", stem, scale, seed, sets, records)
    command(_run, "run", "train, evaluate, record; resumes what was stopped",
            stem, scale, seed, sets, workdir, records, profiling, many)  # fmt: skip
    command(_eval, "eval", "evaluate the newest checkpoint of a run again",
            stem, scale, seed, sets, workdir, draws, split, many)  # fmt: skip
    command(_compare, "compare", "measured beside reported", table, markdown, records)
    command(_report, "report", "the same as a page with plots; renews results/README.md", records, out)
    command(_check, "check", "parse and shape-evaluate gin files, or compile them for TPUs; needs no data", stems,
            option("--tpu", action="store_true", help="compile each row's training step for its paper's TPUs (libtpu)"),
            option("--topology", metavar="NAME", help="with --tpu: other devices, such as v3:4x4, v4:2x2x4, cpu:8"),
            option("--again", action="store_true", help="with --tpu: also rows that are recorded already"),
            option("--out", type=Path, metavar="DIR", help="with --tpu: where records go (default: results/compiled)"),
            sets)  # fmt: skip
    command(_doctor, "doctor", "versions, devices, clobbered packages, disk")
    from launch import data, inspect, profile, sample  # argparse only; JAX is imported when a measurement starts

    sample.add_arguments(
        command(
            sample.run, "sample", "text, pictures or translations of a trained model", stem, scale, seed, sets, workdir
        )
    )
    inspect.add_arguments(
        command(inspect.run, "inspect", "what a memory gave: a page per document", stem, scale, seed, sets, workdir)
    )
    data.add_arguments(commands.add_parser("data", help="make what a task's data needs before a run: its vocabulary"))
    profile.add_arguments(
        command(profile.run, "profile", "time and memory, measured: attention, training steps, models")
    )
    return parser


def _seeds(text):
    try:
        seeds = tuple(int(part) for part in text.split(","))
    except ValueError:
        seeds = (-1,)
    if min(seeds) < 0:
        raise argparse.ArgumentTypeError(
            f"got {text!r}; wants whole numbers from 0, separated by commas, such as 0,1,2"
        )
    return seeds


def _draws(text):
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}; wants a whole number of at least 1")
    return int(text)


def _records_dir(arguments, reading=True):
    from launch.run import RECORDS

    if reading and arguments.records and not arguments.records.is_dir():
        raise ConfigError(f"--records: {arguments.records} is no directory")
    return arguments.records or RECORDS


def _list(arguments):
    """All experiments: where each stands in its paper, what it costs, at which scales it was measured."""
    from launch import pages

    return pages.list_experiments(arguments.pattern, _records_dir(arguments))


def _show(arguments):
    """One experiment: what it is, the paper's figures, the composed config with the origin of each line, records."""
    from launch import pages

    for stem in files.select(arguments.stem):
        for seed in arguments.seeds:
            composition = files.compose(stem, arguments.scale, seed, arguments.overrides)
            pages.show_experiment(composition, files.path_of(stem), _records_dir(arguments))


def _run(arguments):
    """Trains and evaluates, and writes a record. The same command continues a stopped run, or says it is done."""
    from launch.monitor import Monitor, console
    from launch.run import run

    heard = _join(arguments)
    jobs = [
        files.compose(stem, arguments.scale, seed, arguments.overrides)
        for stem in files.select(arguments.stem)
        for seed in arguments.seeds
    ]
    screen = console(heard)
    for number, job in enumerate(jobs, 1):
        count = f"[{number}/{len(jobs)}] " if len(jobs) > 1 else ""
        with Monitor(screen, f"{count}{job.stem}, scale {job.scale}, seed {job.seed}") as monitor:
            path = run(job, arguments.workdir, _records_dir(arguments, reading=False), monitor, arguments.profile)
            if path:
                monitor.note(f"  record: {path}")


def _join(arguments):
    """Becomes one of several processes if the command line says so. Returns whether this one is to be heard."""
    if not arguments.processes:
        return True
    from launch import processes

    processes.join(arguments.processes)
    return processes.first()


def _eval(arguments):
    """Evaluates the newest checkpoint of a run with its config's evaluations, and prints the results."""
    import dataclasses

    heard = _join(arguments)
    jobs = [
        files.compose(stem, arguments.scale, seed, arguments.overrides)
        for stem in files.select(arguments.stem)
        for seed in arguments.seeds
    ]
    from launch import config
    from launch.evaluate import evaluate
    from launch.monitor import Monitor, console
    from launch.train import restore_params

    screen = console(heard)
    for job in jobs:
        experiment = config.build(job)
        step, params = restore_params(experiment, arguments.workdir / job.run_name)
        with Monitor(screen, job.run_name) as monitor:
            monitor.note(f"{job.run_name}, step {step}")
            for name, evaluation in experiment.evaluations.items():
                changed = {"draws": arguments.draws, "split": arguments.split}
                changed = {k: v for k, v in changed.items() if v is not None and hasattr(evaluation, k)}
                evaluation, on_batch = dataclasses.replace(evaluation, **changed), monitor.scoring(name)
                monitor.evaluated(name, evaluate(params, evaluation, seed=experiment.seed, on_batch=on_batch))


def _compare(arguments):
    """Each cell of a table: reported, measured at each scale, difference, seeds and spread."""
    import results.compare

    return results.compare.show(arguments.table, _records_dir(arguments), markdown=arguments.markdown)


def _report(arguments):
    """Writes a self-contained page with tables, plots and provenance, and renews results/README.md."""
    import results.report

    for path in results.report.write(_records_dir(arguments), arguments.out):
        print(path)


def _check(arguments):
    """Builds each experiment at every scale and traces its models at full size. Nothing is trained or downloaded.

    With --tpu: compiles the training step at scale paper, for TPUs that need not be there, and records what it needs.
    """
    names = [stem for name in arguments.stems for stem in files.select(name)] or files.stems()
    if arguments.tpu:
        from launch import tpu

        folder = arguments.out or tpu.compilations.COMPILED
        return tpu.check(names, arguments.topology, folder, arguments.again, arguments.overrides)
    if arguments.topology or arguments.again or arguments.out:
        raise ConfigError("--topology, --again and --out belong to --tpu; add it, or leave them away")
    from launch import check

    failed = 0
    for stem in names:
        for scale in files.scales(stem):
            try:
                made = files.compose(stem, scale, overrides=arguments.overrides)
                parameters, tokens, evaluations = check.check(made)
                print(f"ok    {stem:32} {scale:8} {parameters:>12,} parameters  {tokens:>9,} tokens a step  "
                      f"evaluations: {', '.join(evaluations)}")  # fmt: skip
            except (UserError, ValueError, TypeError) as error:
                failed += 1
                print(f"FAIL  {stem:32} {scale:8} {error}")
    print(f"{failed} of the above failed" if failed else "all good")
    return 1 if failed else 0


def _doctor(arguments):
    """Looks at everything a run depends on, and says what to do about what is wrong."""
    del arguments
    from launch import doctor

    return doctor.doctor(print)


__all__ = ["ConfigError", "main"]
