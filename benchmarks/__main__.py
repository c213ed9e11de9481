"""`python -m benchmarks [rounds]`: run every benchmark and print the table."""

import sys

from benchmarks import HEADER, feeds, row, run

BENCHMARKS = feeds.BENCHMARKS


def main(arguments: list[str]) -> None:
    """Print a line as soon as it is measured."""
    rounds = int(arguments[0]) if arguments else 30
    print(f"{rounds} rounds, case and floor in turn; medians\n{HEADER}")
    for benchmark in BENCHMARKS:
        with benchmark.prepare() as pair:
            print(row(benchmark, run(pair, rounds)), flush=True)


main(sys.argv[1:])
