"""No file imports one that imports it, directly or through others, for types neither: each can be read alone."""

from graphlib import TopologicalSorter

import grimp


def test_no_circle_of_files():
    graph = grimp.build_graph("feed_assets", cache_dir=None)
    TopologicalSorter({each: graph.find_modules_directly_imported_by(each) for each in graph.modules}).prepare()
