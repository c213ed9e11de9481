"""Publication of pipelines by several code locations."""

from feed_assets.core.pipelines import PipelineTable, together

OURS = [PipelineTable("raw", "raw", "", "a"), PipelineTable("raw", "a/v1.0", "1", "a")]
THEIRS = [PipelineTable("raw", "raw", "", "z"), PipelineTable("raw", "z/v1.0", "1", "z")]


def test_pipelines_of_others_are_kept_and_our_earlier_ones_replaced():
    gone = PipelineTable("raw", "gone/v1.0", "1", "a")
    assert together([*OURS, gone, *THEIRS], OURS) == tuple(sorted([*OURS, *THEIRS]))


def test_a_publisher_is_recognized_by_any_feed_that_it_makes():
    before = [PipelineTable("raw", "0/v1.0", "1", "0"), PipelineTable("raw", "a/v1.0", "0", "0")]
    assert together([*before, *THEIRS], OURS) == tuple(sorted([*OURS, *THEIRS]))


def test_the_maker_of_another_feed_version_is_another_publisher():
    newer = [PipelineTable("raw", "a/v2.0", "1", "a/v2.0")]
    assert together(newer, OURS) == together(OURS, newer) == tuple(sorted([*OURS, *newer]))


def test_publishers_that_share_a_foreign_feed_stay_distinct():
    both = PipelineTable("raw", "z/v1.0", "", "a")
    assert together(THEIRS, [*OURS, both]) == tuple(sorted([*OURS, both, *THEIRS]))


def test_a_code_location_without_datasets_replaces_its_own_pipelines():
    before, now = PipelineTable("b", "b", "", ""), PipelineTable("c", "c", "", "")
    assert together([before, *THEIRS], [now]) == tuple(sorted([now, *THEIRS]))
