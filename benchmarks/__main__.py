"""`python -m benchmarks [CASE…] [--full] [--rounds N]`: run the benchmarks, or those named, and print the table."""

import warnings
from argparse import ArgumentParser
from os import environ
from tempfile import gettempdir

from benchmarks import HEADER, Benchmark, row, run, tail
from benchmarks.catalogue import BENCHMARKS
from feed_assets.cli import collect_rarely
from feed_assets.spark.scratch import LOCAL_DIRS


def main() -> None:
    """Run the benchmarks; print each line as soon as it is measured."""
    parser = ArgumentParser(prog="python -m benchmarks", description="Each case against its floor, medians of rounds.")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(each.name for each in BENCHMARKS))
    parser.add_argument(
        "--full",
        action="store_true",
        help="As many rounds as a figure to be written down takes, and the cases that take long to prepare.",
    )
    parser.add_argument("--rounds", type=int, help="So many rounds of each case, 2 at least.")
    options = parser.parse_args()
    if unknown := {*options.cases} - {each.name for each in BENCHMARKS}:
        parser.error(f"there is no case {', '.join(sorted(unknown))}: see --help.")
    warnings.simplefilter("ignore")
    collect_rarely()  # As every command of feed_assets does.
    environ.setdefault(LOCAL_DIRS, gettempdir())  # The JVM outlives the home of a benchmark.
    print(HEADER)
    asked = options.cases or [each.name for each in BENCHMARKS if options.full or not each.large]
    for benchmark in (each for each in BENCHMARKS if each.name in asked):
        _measure(benchmark, options.rounds or (benchmark.rounds if options.full else benchmark.few))


def _measure(benchmark: Benchmark, rounds: int) -> None:
    with benchmark.prepare() as pair:
        result = run(pair, max(rounds, 2), benchmark.clock)
    print(row(benchmark, result), flush=True)
    if benchmark.tail:
        print(tail(benchmark, result), flush=True)


main()
