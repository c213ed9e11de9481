"""Figures of connector and loader: totals, the latency of each step, and since when data wait."""

from feed_assets.kafka.messages import Message
from feed_assets.kafka.offset_range import PartitionOfTopic
from feed_assets.kafka.read_progress import ReadProgress
from feed_assets.kafka.signal_message import Signal
from feed_assets.warehouse.load_groups import LoadGroup, Signalled
from feed_assets.warehouse.load_progress import LoadProgress

PLACES = PartitionOfTopic("t", 0), PartitionOfTopic("t", 1)


def signal(first: int, last: int, partition: int = 0) -> Signal:
    return Signal("t", partition, first, last, last - first, 1, "feed_assets/1", None, 0, None, None)


def test_a_connector_says_how_long_the_first_message_of_a_chunk_waited_and_since_when_others_do():
    clock = iter([20.0, 31.0, 40.0])
    progress = ReadProgress(lambda: next(clock))
    for offset, at in ((0, 10.0), (1, 12.0), (2, 15.0)):
        progress.take(PLACES[0], Message(offset, None, b"", timestamp=int(at * 1000)))
    progress.take(PLACES[1], Message(7, None, b"", timestamp=11_000))
    assert progress.figures["unsignalled_since_timestamp_seconds"] == 10
    progress.add(PLACES[0], signal(0, 1))  # The message at offset 2 has another schema, so it ended the chunk.
    told = progress.figures
    assert (told["signal_latency_seconds"], told["unsignalled_since_timestamp_seconds"]) == (10, 11)
    progress.drop(PLACES[1])
    assert progress.figures["unsignalled_since_timestamp_seconds"] == 15
    progress.add(PLACES[0], signal(2, 2))
    told = progress.figures
    assert (told["signal_latency_seconds"], told["unsignalled_since_timestamp_seconds"]) == (16, 0)
    assert (told["messages_total"], told["chunks_total"], told["dead_letters_total"]) == (4, 2, 2)
    progress.add(PLACES[0], signal(3, 3))  # Nobody wrote there: ends of transactions alone.
    assert progress.figures["signal_latency_seconds"] == 0
    assert progress.figures["last_signal_timestamp_seconds"] == 40


def test_a_loader_says_how_long_the_oldest_signal_of_a_load_waited_and_since_when_others_do():
    progress = LoadProgress(lambda: 50.0)
    signals = [Signalled(signal(0, 9), 1), Signalled(signal(10, 19), 2), Signalled(signal(0, 4, 1), 1)]
    for each, at in zip(signals, (30.0, 40.0, 20.0), strict=True):
        progress.add(each, at)
    assert progress.since == 20
    progress.commit([LoadGroup(1, (signals[0],)), LoadGroup(None, (signals[2],))])
    assert (progress.latency, progress.records, progress.loaded_at, progress.since) == (30, 13, 50, 40)
    progress.clear()
    assert progress.since == 0
