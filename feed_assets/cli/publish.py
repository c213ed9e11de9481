"""`feed-assets feed publish`: publish files as new updates, after checking them against the feed's declaration."""

from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from feed_assets.cli.feed import AsJson, Board, FeedName, open_board, report
from feed_assets.cli.loaded_location import Module, dynamic_partitions, load_graph, partition_of
from feed_assets.cli.project import has_module
from feed_assets.cli.show import show
from feed_assets.cli.views import UpdateView
from feed_assets.core.errors import InvalidName
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.limits import check_partition, check_version

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from feed_assets.feeds.local_disk import FileBelow

Key = Annotated[str, typer.Argument(metavar="[PARTITION]", help="Partition key: 2019-11-24/men; '' if none.")]
Files = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[FILE]...", exists=True, dir_okay=False, readable=True, help="The parts."),
]
Tree = Annotated[
    Path | None,
    typer.Option(
        "--tree",
        metavar="DIR",
        exists=True,
        file_okay=False,
        help="One update for each folder below DIR that has files.",
    ),
]


def publish(
    feed: FeedName,
    partition: Key = "",
    files: Files = None,
    tree: Tree = None,
    module: Module = None,
    blackboard: Board = None,
    as_json: AsJson = False,
) -> None:
    """Publish files as a new update of a partition, or with --tree one update for each folder DIR/2019-11-24/men.

    First, partitions, format and header are checked against the feed's declaration in the given module, or in the
    project. With --blackboard, the files are checked only if a module is given.
    """
    from feed_assets.feeds import write

    if bool(files) == bool(tree) or (tree and partition):
        raise InvalidName("nothing to publish is named: expected FEED PARTITION FILE..., or FEED --tree DIR.")
    check_version(Feed.parse(feed))
    parts = _below(Feed.parse(feed), tree) if tree else {partition_of(feed, partition, module): _regular(files or [])}
    named = {check_partition(at): _by_name(paths, tree) for at, paths in parts.items()}
    if module or (blackboard is None and has_module()):
        _check(Feed.parse(feed), parts, module)
    board, views = open_board(blackboard, makes=True), list[UpdateView]()
    for at, paths in named.items():
        update = write.publish(board, at, paths, datetime.now(UTC))
        report("published", board, at, update.id)
        views.append(UpdateView.model_validate(update))
    show(views if tree else views[0], as_json)


def _below(feed: Feed, tree: Path) -> "Mapping[Partition, Sequence[Path]]":
    files_by_partition: dict[Partition, list[Path]] = defaultdict(list)
    for file in sorted(path for path in tree.rglob("*") if path.is_symlink() or not path.is_dir()):
        if file.is_symlink() or not file.is_file():  # A tree made by somebody else may link to private files.
            obstacle = "a link" if file.is_symlink() else "no regular file"
            raise InvalidName(f"{file} is {obstacle}: expected files. Remove it, or put a copy in its place.")
        key = file.parent.relative_to(tree).as_posix()
        files_by_partition[Partition(feed, "" if key == "." else key)].append(file)
    if not files_by_partition:
        raise InvalidName(f"{tree} holds no file: expected a folder for each partition, such as 2019-11-24/men.")
    return files_by_partition


def _regular(files: list[Path]) -> list[Path]:
    for file in files:
        if not file.is_file():  # A FIFO would wait for a writer.
            raise InvalidName(f"{file} is no regular file: expected files. Copy its content to a file.")
    return files


def _by_name(files: "Sequence[Path]", tree: Path | None) -> "dict[str, bytes | Path | FileBelow]":
    """Return files by the names of their parts.

    Somebody else may replace a file of a tree by a link at any time, so such a file is opened without following links.
    """
    from feed_assets.feeds import write
    from feed_assets.feeds.local_disk import FileBelow

    parts: dict[str, bytes | Path | FileBelow] = {
        file.name: FileBelow(tree, file.relative_to(tree).as_posix()) if tree else file for file in files
    }
    if len(parts) < len(files):
        raise InvalidName("Two of the files have the same name: expected a different name for each part. Rename one.")
    for file in files:
        try:
            write.check_part(file.name)
        except InvalidName as error:
            raise InvalidName(f"{file}: {error} Nothing is published.") from None
    return parts


def _check(feed: Feed, parts: "Mapping[Partition, Sequence[Path]]", module: str | None) -> None:
    """Raise InvalidName or UnreadableUpdate for a partition or file that no run could read."""
    from feed_assets.core.csv_dialect import RFC_4180
    from feed_assets.orchestration.decide.undeclared import unknown_partitions
    from feed_assets.orchestration.declare.declarations import Foreign
    from feed_assets.runs.file_schema import check_file

    graph = load_graph(module)
    node = graph.node(feed)
    declared = node.declaration
    if not isinstance(declared, Foreign):
        raise InvalidName(f"{feed} is a {node.role} feed, and only a run may publish it: expected a foreign feed.")
    with dynamic_partitions(graph):
        strange = unknown_partitions(node, [at.key for at in parts], datetime.now(UTC))
    if strange:
        raise InvalidName(f"nothing is published: {next(iter(strange.values()))}")
    for file in (file for paths in parts.values() for file in paths):
        check_file(file, declared.format, declared.schema, declared.dialect or RFC_4180)
