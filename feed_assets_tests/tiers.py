"""Tiers: how much machinery a test needs, and so how often it runs."""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


class Tier(IntEnum):
    """Machinery that a test starts, from little to much."""

    FAST = 0
    """This process and small commands: no server, no JVM."""
    SERVERS = 1
    """PostgreSQL, S3, Kafka, a schema registry, a receiver over HTTP, a warehouse, runs in warm processes."""
    SPARK = 2
    """Spark, and the demo."""
    SLOW = 3
    """Kills, faults and histories by chance, Chromium, the tutorials: many seconds or many cases."""

    @property
    def mark(self) -> str:
        """Return the pytest mark of the tier."""
        return self.name.lower()


PLACES: dict[Tier, tuple[str, ...]] = {
    Tier.FAST: (
        "alerts",
        "cli",
        "core",
        "declare",
        "defs",
        "feeds",
        "infer",
        "intake",
        "kafka",
        "ledger",
        "orchestration",
        "reading",
        "runs",
        "sources",
        "spark",
        "test_audit.py",
        "test_calls.py",
        "test_consumers_page.py",
        "test_docs.py",
        "test_events_page.py",
        "test_home.py",
        "test_increments_page.py",
        "test_reading_page.py",
        "test_circles.py",
        "test_security_page.py",
        "test_language.py",
        "test_licences.py",
        "test_readme.py",
        "test_settings.py",
        "test_setup.py",
        "test_states_page.py",
        "test_support.py",
        "test_tiers.py",
        "testing",
        "launcher/test_forkable.py",
        "warehouse/test_migrations.py",
        "warehouse/test_shapes.py",
    ),
    Tier.SERVERS: (
        "alerts/test_mail.py",
        "alerts/test_slow_servers.py",
        "cli/test_code_servers.py",
        "cli/test_doctor.py",
        "cli/test_live.py",
        "cli/test_publish.py::test_a_link_that_replaces_a_checked_part_of_a_tree_is_not_followed",
        "cli/test_ready_check.py",
        "cli/test_rights.py",
        "deploy",
        "core/test_allotment.py",
        "compaction",
        "replication",
        "deliveries",
        "core/test_learned_needs.py",
        "feeds/test_blackboard.py::test_a_server_that_is_down_is_unavailable_and_not_empty",
        "feeds/test_hostile_stores.py",
        "feeds/test_shell_ends.py",
        "intake/test_connections.py",
        "intake/test_event_calls.py::test_a_source_cannot_report_events_of_a_table_that_another_location_declares",
        "intake/test_http.py",
        "intake/test_key_limits.py",
        "intake/test_waiting.py",
        "launcher",
        "kafka/test_hostile_schemas.py::test_a_message_whose_arrays_may_take_too_much_memory_is_a_dead_letter_before_it_is_decoded",
        "kafka/test_hostile_schemas.py::test_the_memory_of_a_byte_is_that_of_the_largest_repeated_value",
        "kafka/test_masks.py",
        "ledger/test_database.py::test_a_database_that_cannot_store_every_text_is_refused",
        "ledger/test_database.py::test_a_reader_beside_concurrent_writers_sees_every_change_once_and_in_order",
        "ledger/test_database.py::test_processes_that_open_a_new_ledger_at_once_all_find_it_ready",
        "ledger/test_event_owners.py",
        "ledger/test_locks.py::test_silent_ledger_server_is_unavailable",
        "orchestration/test_broken_sources.py::test_silent_servers_are_each_tried_and_given_up_soon_when_time_is_over",
        "orchestration/test_lineage_events.py::test_an_endpoint_that_answers_a_byte_at_a_time_holds_up_no_run",
        "orchestration/test_emr_runs.py",
        "orchestration/test_own_blackboards.py",
        "orchestration/test_resources.py",
        "orchestration/test_resources_shown.py",
        "orchestration/test_targets_by_hand.py",
        "orchestration/test_topic_patterns.py",
        "faults/test_shared_discovery.py",
        "orchestration/test_storage.py",
        "sources/test_silent_databases.py",
        "test_secret_stores.py",
        "test_setup.py::test_a_server_group_for_a_test_is_fetched_completely",
        "test_log_lines.py",
        "runs/test_late_workers.py",
        "runs/test_remote_making.py",
        "runs/test_target_watch.py",
        "targets",
        "test_shared.py",
        "test_calls.py::test_each_use_of_a_blackboard_of_the_services_names_its_feed",
        "test_tiers.py::test_a_fast_test_that_gets_a_server_while_it_runs_fails",
        "warehouse",
    ),
    Tier.SPARK: (
        "compaction/test_spark.py",
        "integration/test_demo.py",
        "integration/test_on_s3.py::test_raw_files_on_s3_are_published_and_late_ones_published_again",
        "integration/test_on_s3.py::test_spark_leaves_only_parts_and_a_manifest_on_s3",
        "launcher/test_compute_logs.py::test_output_of_runs_is_read_from_the_bucket_without_secrets",
        "orchestration/test_run_blocks.py::test_only_one_of_several_partitions_starts_spark",
        "spark/test_connect.py",
        "spark/test_connect_token.py",
        "spark/test_jvm.py",
        "spark/test_out_of_memory.py",
        "spark/test_run_profile.py::test_a_process_of_its_own_starts_spark_with_the_whole_profile",
        "spark/test_scratch.py::test_shuffle_files_are_private_and_published_parts_keep_permissions",
        "spark/test_scratch.py::test_scratch_folders_on_a_user_s_disk_are_private_and_swept_after_a_kill",
        "spark/test_session.py::test_a_session_without_java_names_the_found_version_and_the_remedy",
    ),
    Tier.SLOW: (
        "compaction/test_by_chance.py",
        "replication/test_by_chance.py",
        "replication/test_killed.py",
        "cli/test_as_of_now.py",
        "cli/test_deadlines_said.py",
        "cli/test_ends_of_processes.py",
        "cli/test_event_commands.py::test_our_events_are_published_besides_where_the_settings_say",
        "cli/test_event_commands.py::test_reconcile_publishes_events_that_were_lost",
        "cli/test_first_start.py",
        "cli/test_init.py::test_a_new_project_passes_pyright_in_strict_mode",
        "cli/test_stopped_while_waiting.py",
        "cli/test_stopping.py",
        "core/test_update_choice.py::test_reports_never_mix_inputs_and_end_with_the_newest",
        "core/test_update_choice.py::test_reports_never_mix_inputs_under_other_consumer_options",
        "core/test_windows.py::test_each_instant_is_in_one_window",
        "declare/test_clock_changes.py::test_an_output_needs_what_affects_it_and_nothing_else",
        "declare/test_clock_changes.py::test_mappings_by_spans_agree_too_from_and_to_utc_and_each_window_has_one_before",
        "declare/test_clock_changes.py::test_without_clock_changes_mappings_are_those_of_dagster",
        "declare/test_clock_changes.py::test_windows_follow_each_other_without_a_gap_and_keys_are_dagsters_own",
        "declare/test_lost_windows.py::test_windows_are_accepted_if_dagster_knows_each_partition",
        "deploy/test_installation.py",
        "faults",
        "feeds/test_plain_readers.py",
        "feeds/test_processes.py",
        "intake/test_killed.py",
        "intake/test_processes.py",
        "intake/test_pull_killed.py",
        "integration",
        "kafka/test_killed.py",
        "kafka/test_outages.py",
        "ledger/test_allocations.py",
        "ledger/test_counted_feeds.py::test_cost_of_counting_does_not_grow_with_history",
        "ledger/test_event_machine.py",
        "ledger/test_quality_machine.py",
        "ledger/test_old_rows.py::test_pruned_ledger_gives_the_same_answers_as_a_whole_one",
        "ledger/test_state_order.py",
        "ledger/test_states_at_once.py",
        "orchestration/test_append_machine.py",
        "orchestration/test_appended.py",
        "orchestration/test_attempts.py",
        "orchestration/test_catch_up_job.py",
        "orchestration/test_clock_changes.py",
        "orchestration/test_compact.py",
        "orchestration/test_dataset_tables.py",
        "orchestration/test_event_ticks.py",
        "orchestration/test_expected.py::test_an_old_hole_costs_no_more_statements_than_one_of_yesterday",
        "orchestration/test_expected.py::test_after_a_pause_every_partition_is_checked_over_several_ticks",
        "orchestration/test_expected_by_chance.py",
        "orchestration/test_gates.py",
        "orchestration/test_history.py",
        "orchestration/test_increment_machine.py",
        "orchestration/test_increments.py",
        "orchestration/test_joint_runs.py::test_a_run_with_an_invalid_range_holds_up_no_partition",
        "orchestration/test_late_policies.py",
        "orchestration/test_marks_stay.py",
        "orchestration/test_mended.py::test_a_given_up_partition_is_built_when_its_declaration_changes",
        "orchestration/test_never_mixed.py",
        "orchestration/test_overlapping_windows.py",
        "orchestration/test_partners_in_yaml.py",
        "orchestration/test_profiles.py",
        "orchestration/test_published_pipelines.py",
        "orchestration/test_quality_campaign.py",
        "orchestration/test_rebuild_location.py",
        "orchestration/test_runner.py::test_a_run_whose_driver_was_killed_is_failed_and_its_partition_built",
        "orchestration/test_scale.py",
        "orchestration/test_spreading.py::test_our_refusal_ends_with_good_data_and_foreign_checks_stay",
        "orchestration/test_spreading.py::test_marking_killed_after_any_transaction_is_finished_by_the_next",
        "orchestration/test_second_story.py",
        "orchestration/test_status_at_scale.py",
        "orchestration/test_vanished.py",
        "orchestration/test_what_yaml_refuses.py",
        "reading/test_races.py",
        "reliability",
        "runs/test_discovery_by_chance.py",
        "runs/test_killed.py",
        "runs/test_killed_by_events.py",
        "runs/test_notified_partitions.py",
        "runs/test_orphan_sweep.py::test_a_sweep_that_is_interrupted_anywhere_is_finished_by_the_next",
        "runs/test_reconcile.py::test_a_reconcile_that_is_interrupted_anywhere_is_finished_by_the_next",
        "soak",
        "sources/test_cells.py::test_a_read_of_a_table_gives_no_more_rows_than_fit",
        "sources/test_every_source.py::test_readers_that_die_at_any_moment_lose_nothing",
        "sources/test_jdbc.py",
        "sources/test_row_groups.py",
        "sources/test_too_large.py::test_a_read_gives_rows_of_so_many_bytes",
        "test_bench_gate.py",
        "test_claims.py",
        "test_how_to.py",
        "test_tutorials.py",
        "warehouse/test_chain.py",
        "warehouse/test_conflicts.py",
        "warehouse/test_command_datasets.py::test_a_single_load_waits_half_a_minute_for_a_file_open_elsewhere",
        "warehouse/test_datasets_killed.py",
        "warehouse/test_flat_tables.py::test_a_load_of_flat_columns_may_be_killed_at_any_statement",
        "warehouse/test_flat_tables.py::test_random_nested_values_make_the_table_of_the_oracle",
        "warehouse/test_history.py::test_a_kill_between_the_view_and_the_columns_leaves_both_as_they_were",
        "warehouse/test_history.py::test_a_load_into_a_history_may_be_killed_at_any_statement",
        "warehouse/test_history.py::test_any_order_of_loads_makes_the_history_and_the_versions_of_the_oracle",
        "warehouse/test_killed.py",
        "warehouse/test_newest_by.py::test_a_load_by_newest_may_be_killed_at_any_statement",
        "warehouse/test_newest_by.py::test_any_order_of_loads_makes_the_table_of_the_oracle",
        "warehouse/test_outages.py",
        "warehouse/test_snapshots.py::test_a_load_with_snapshots_may_be_killed_at_any_statement",
        "warehouse/test_snapshots.py::test_any_groups_of_loads_make_the_table_of_the_oracle",
        "warehouse/test_unions.py::test_a_load_of_a_union_may_be_killed_at_any_statement",
        "warehouse/test_unions.py::test_any_order_of_loads_makes_the_union_of_the_topics",
        "warehouse/test_volume.py",
        "warehouse/test_wire.py",
        "test_tiers.py::test_each_promise_names_existing_tests",
        "test_tiers.py::test_make_test_stays_below_its_limit_of_tests",
    ),
}
"""Folders, files and functions of each tier. The narrowest entry applies; fixtures and parameters can only raise it."""
TIERS = {place: tier for tier, places in PLACES.items() for place in places}
FIXTURES = {
    "broker": Tier.SERVERS,
    "postgresql": Tier.SERVERS,
    "registry": Tier.SERVERS,
    "seaweedfs": Tier.SERVERS,
    "spark": Tier.SPARK,
    "forker": Tier.SLOW,
}
PARAMETERS = {
    **dict.fromkeys(("by", "csv", "files", "local", "on", "parquet", "sqlite", "table"), Tier.FAST),
    **dict.fromkeys(("S3", "kafka", "postgresql", "s3"), Tier.SERVERS),
    **dict.fromkeys(("jsonl", "marker", "memory"), Tier.SLOW),
}
"""Words of a parameter that chooses an implementation and nothing else, such as `s3`, or `csv on s3`.

A behaviour suite runs over every implementation. `FAST` has it whole for one without a server (a folder, SQLite, CSV
files). Repetitions over a second implementation without a server are `SLOW`.
"""

PROMISES: dict[str, tuple[str, ...]] = {
    "a partition is built from complete inputs, again for late data, and published if its checks pass": (
        "defs/test_effectiveness.py",
        "runs/test_build.py",
        "runs/test_build_fails.py",
        "runs/test_checks.py",
        "orchestration/test_assets.py",
        "orchestration/test_gates.py::test_a_partition_is_built_at_its_earliest_time_and_not_before",
        "orchestration/test_gates.py::test_a_waiver_unblocks_consumers_of_one_partition_until_its_next_problem",
        "orchestration/test_gates.py::test_a_day_built_without_an_hour_records_the_missing_hour",
        "orchestration/test_gates.py::test_a_closed_partition_is_not_built_until_it_is_reopened",
        "orchestration/test_gates.py::test_an_input_with_a_named_check_waits_for_that_check_alone",
        "orchestration/test_late_policies.py::test_late_data_above_the_threshold_cause_one_rerun",
        "orchestration/test_late_policies.py::test_combine_all_waits_for_every_threshold",
        "orchestration/test_late_policies.py::test_late_data_after_the_cut_off_are_skipped",
        "orchestration/test_profiles.py::test_an_anomaly_with_passed_deep_checks_warns_and_stops_no_consumer",
    ),
    "windows are complete by counts and offsets, of topics and of what we make ourselves": (
        "kafka/test_message_counts.py",
        "ledger/test_counted_feeds.py::test_cost_of_counting_does_not_grow_with_history[sqlite]",
        "orchestration/test_marks_stay.py::test_marks_stay_while_the_source_counts_more_than_the_hour_has",
        "orchestration/test_own_counts.py::test_a_declaration_alone_makes_a_run_count_its_rows",
        "sources/test_topic_counts.py::test_a_window_of_a_counted_topic_stays_open_while_its_parts_miss_offsets",
    ),
    "what a topic or a table cannot take waits, is counted, and can be corrected": (
        "cli/test_kafka_commands.py::test_dead_letters_are_listed_and_replayed_only_after_confirmation",
        "cli/test_kafka_commands.py::test_lag_is_printed_by_partition_for_one_or_all_declared_topics",
        "kafka/test_catch_up.py::test_a_catch_up_makes_the_same_chunks_as_the_service",
        "kafka/test_compacted.py::test_the_ranges_of_chunks_cover_what_was_removed_and_records_count_what_was_left",
        "kafka/test_spark_job.py::test_a_job_fenced_while_executors_cut_signals_nothing",
        "orchestration/test_topics_watched.py::test_a_dead_letter_and_its_receipt_are_one_transaction",
        "orchestration/test_topics_watched.py::test_dead_letters_are_counted_once_and_alert_until_they_are_settled",
        "orchestration/test_topics_watched.py::test_dead_letters_are_produced_again_unchanged_and_once",
        "orchestration/test_topics_watched.py::test_lag_above_the_limit_is_an_alert_until_the_topic_has_caught_up",
        "warehouse/test_command.py::test_a_reset_table_restarts_where_a_schema_stopped_it",
        "warehouse/test_command.py::test_plan_load_and_state",
        "warehouse/test_redshift.py::test_a_key_grows_in_table_and_state",
        "warehouse/test_redshift.py::test_a_load_that_breaks_off_at_any_statement_is_whole_or_nothing[0-redshift]",
        "warehouse/test_redshift.py::test_a_row_that_redshift_cannot_hold_is_left_out_with_its_reason",
    ),
    "the status page is as of now, and `doctor` names what is missing": (
        "cli/test_doctor.py::test_doctor_prints_one_line_for_each_failure_and_continues",
        "cli/test_doctor.py::test_doctor_warns_of_a_wrong_clock_and_a_full_disk",
        "cli/test_live.py::test_the_page_is_as_of_now_and_leads_to_the_assets_and_to_other_days",
    ),
    "a store's queue says at once what is new": (
        "orchestration/test_store_queues.py::test_a_tick_requests_notified_updates_without_a_listing",
        "orchestration/test_store_queues.py::test_an_update_without_a_notification_is_found_by_the_listing",
    ),
    "a message is signalled, and its row loaded, within a few steps": (
        "kafka/test_chunk_latency.py",
        "warehouse/test_row_latency.py",
    ),
    "CSV, JSON and Parquet are read as they are, and what does not parse is rejected with its reason": (
        "intake/test_as_runs_read.py",
        "runs/test_whole_inputs.py",
        "spark/test_whole_files.py",
        "spark/test_parse.py",
        "spark/test_read_csv.py",
        "spark/test_read_json.py",
        "spark/test_read_parquet.py",
        "spark/test_rejects.py",
    ),
    "what Spark writes is counted, digested and sealed": (
        "runs/test_one_pass.py::test_a_function_that_is_not_deterministic_loses_no_record",
        "runs/test_one_pass.py::test_a_run_is_a_job_that_writes_and_one_for_rejects[csv-20000-True-20-jobs1]",
        "runs/test_one_pass.py::test_measures_that_cannot_be_observed_take_one_job",
        "runs/test_profiling.py::test_a_profile_is_shown_beside_its_baseline",
        "runs/test_profiling.py::test_an_aggregate_that_cannot_be_computed_is_named_with_what_it_is_of",
        "runs/test_profiling.py::test_findings_of_an_unpublished_update_are_dropped",
        "runs/test_profiling.py::test_rows_that_cannot_be_read_are_nobodys_mistake_in_sql",
        "spark/test_digest.py::test_a_version_is_the_same_in_every_release_and_engine_mode",
        "spark/test_digest.py::test_the_order_and_the_layout_of_rows_do_not_matter",
        "spark/test_written_frame.py::test_a_write_that_fails_leaves_nothing_that_is_counted",
        "spark/test_written_frame.py::test_an_update_is_valid_once_its_manifest_counts_the_parts",
        "spark/test_written_frame.py::test_the_reported_write_result_matches_the_written_files",
    ),
    "increments are merged, and batches put together": (
        "orchestration/test_appended.py::test_each_increment_is_a_batch_and_readers_get_all_batches",
        "orchestration/test_appended.py::test_late_rows_rebuild_the_batch_of_their_slice_and_appear_once",
        "orchestration/test_compact.py::test_a_compacted_range_is_compacted_again_with_newer_batches",
        "orchestration/test_compact.py::test_a_dry_compaction_reports_and_changes_nothing",
        "orchestration/test_compact.py::test_a_read_as_of_a_time_after_the_compaction_needs_no_pruned_batch",
        "orchestration/test_compact.py::test_compaction_replaces_all_batches_by_one_and_starts_no_run",
        "orchestration/test_compact.py::test_invalidating_a_compacted_range_brings_its_batches_back",
        "spark/test_merge.py::test_a_merge_keeps_the_newest_row",
        "spark/test_merge.py::test_a_row_takes_the_place_of_the_one_with_its_key_and_others_stay",
    ),
    "`run`, `build` and `explain` work in a project": (
        "cli/test_as_of_now.py::test_an_unreadable_source_is_named_with_the_reason_and_its_last_read",
        "cli/test_as_of_now.py::test_explain_includes_events_that_no_tick_has_read",
        "cli/test_as_of_now.py::test_explain_line_names_the_last_read_of_an_unreadable_source",
        "cli/test_build.py::test_build_repeats_a_failed_partition_by_its_ui_key_and_records_the_person",
        "cli/test_run.py::test_a_failed_run_is_retried_later_and_explain_keeps_its_error",
        "cli/test_run.py::test_explain_names_ready_and_waiting_partitions_and_run_builds_the_ready_ones",
    ),
    "feeds are on S3, and the ledger on PostgreSQL": (
        "feeds/test_blackboard.py",
        "integration/test_on_s3.py::test_raw_files_on_s3_are_published_and_late_ones_published_again",
        "integration/test_on_s3.py::test_spark_leaves_only_parts_and_a_manifest_on_s3",
        "ledger/test_database.py::test_a_reader_beside_concurrent_writers_sees_every_change_once_and_in_order[sqlite]",
        "ledger/test_database.py::test_processes_that_open_a_new_ledger_at_once_all_find_it_ready[sqlite]",
        "ledger/test_least_privilege.py",
        "ledger/test_locks.py",
        "ledger/test_statements.py",
    ),
    "a feed is written and read by a shell, and read from Python": (
        "feeds/test_shell_ends.py::test_an_update_published_by_the_shell_script_is_readable",
        "reading/test_to_spark.py::test_spark_and_arrow_read_the_same_rows",
    ),
    "Kafka topics and datasets become warehouse tables exactly once": (
        "kafka/test_service.py::test_a_new_schema_is_a_new_chunk",
        "kafka/test_service.py::test_poison_goes_to_the_dead_letters_with_its_reason",
        "kafka/test_service.py::test_produced_messages_become_chunks_on_the_grid",
        "warehouse/test_datasets.py::test_a_late_run_reloads_its_partition_and_no_other",
        "warehouse/test_datasets.py::test_a_new_ledger_is_compared_without_reloading_existing_updates[postgresql]",
        "warehouse/test_datasets.py::test_a_second_dataset_loader_is_refused[duckdb]",
        "warehouse/test_datasets.py::test_a_table_has_the_rows_of_each_partitions_newest_update",
        "warehouse/test_load.py::test_a_chunk_that_is_not_as_signalled_fails_the_load[csv-duckdb-<lambda>-the digest]",
        "warehouse/test_load.py::test_a_hole_between_signals_is_an_error[csv-duckdb]",
        "warehouse/test_load.py::test_a_key_from_another_partition_is_an_error_and_nothing_is_loaded[csv-duckdb-before1]",
        "warehouse/test_load.py::test_an_older_offset_never_replaces_a_newer_one_without_positions[csv-duckdb]",
        "warehouse/test_load.py::test_an_older_offset_never_replaces_a_newer_one_without_positions[csv-postgresql]",
        "warehouse/test_load.py::test_a_table_has_the_newest_row_of_each_key[csv-duckdb]",
        "warehouse/test_load.py::test_a_table_has_the_newest_row_of_each_key[parquet-postgresql]",
        "warehouse/test_load.py::test_a_table_has_the_newest_row_of_each_key[csv-redshift]",
        "warehouse/test_loader.py::test_a_table_follows_its_topic",
        "warehouse/test_wide.py::test_a_table_has_a_limited_number_of_columns",
    ),
    "masked columns are in no file in plain text, and topics that match a pattern become tables": (
        "kafka/test_masks.py::test_a_dead_letter_has_place_reason_size_and_digest_and_nothing_of_its_message",
        "kafka/test_masks.py::test_a_masked_key_has_the_same_hash_in_rows_and_tombstones_wherever_it_is_read",
        "kafka/test_masks.py::test_masked_columns_have_exact_values_and_types",
        "kafka/test_masks.py::test_without_a_key_a_topic_with_masks_is_not_read",
        "orchestration/test_topic_patterns.py::test_topics_of_ours_internal_ones_and_names_in_use_do_not_match",
    ),
    "other data centers have a copy of each update, and damage there is found": (
        "replication/test_copies.py::test_a_place_gets_each_update_under_its_id_and_follows_invalidation_and_prunes[local-local]",
        "replication/test_copies.py::test_a_revalidated_update_is_visible_again_and_no_byte_is_sent_twice[local-local]",
        "replication/test_copies.py::test_an_update_invalidated_while_it_is_copied_is_not_published_or_taken_back",
        "replication/test_copy_events.py::test_a_killed_copy_has_its_event_once_and_not_before_its_manifest",
        "replication/test_damage.py::test_bits_that_change_at_rest_in_the_place_are_repaired",
        "replication/test_damage.py::test_bytes_that_change_on_the_way_are_not_published_and_sent_again[local-local-small]",
        "replication/test_place_health.py::test_a_place_is_down_after_failures_for_two_minutes_and_up_after_as_many_good_probes",
        "replication/test_place_marks.py",
        "replication/test_slow_links.py::test_the_bandwidth_is_shared_by_all_files_and_the_turn_is_kept_while_waiting",
        "replication/test_two_replicators.py::test_one_process_at_a_time_copies_and_another_one_goes_on_after_it_died",
    ),
    "subscribers get each change in order": ("deliveries/test_changes.py",),
    "other teams' event tables are read, each event once": (
        "sources/test_commits.py::test_an_event_that_commits_after_a_later_one_is_waited_for",
        "sources/test_every_source.py::test_events_after_the_position_are_read_exactly_once",
        "orchestration/test_published_pipelines.py::test_published_pipelines_give_the_same_needs_as_the_asset_graph",
        "test_events_page.py",
    ),
    "partners push events": (
        "intake/test_http.py::test_a_key_is_for_its_feeds_alone",
        "intake/test_http.py::test_accepted_events_are_published_on_each_kind_of_store",
    ),
    "the web UI shows it, and its runs begin warm": (
        "integration/test_web_ui.py::test_the_graph_leads_from_the_raw_feeds_to_the_result",
        "launcher/test_warm.py::test_runs_are_forks_of_one_loaded_process_without_open_connections",
    ),
    "alerts are sent": ("alerts/test_mail.py::test_mails_report_the_opening_and_the_resolution_of_an_alert",),
    "a server that is silent or down is an outage, and holds up nothing else": (
        "orchestration/test_broken_sources.py",
        "orchestration/test_lineage_events.py::test_an_endpoint_that_answers_a_byte_at_a_time_holds_up_no_run",
        "sources/test_silent_databases.py::test_silent_database_server_is_unavailable",
    ),
    "others on the machine read no secret": (
        "spark/test_jvm.py::test_local_masters_bind_to_loopback_unless_somebody_says_otherwise",
        "spark/test_jvm.py::test_only_the_owner_may_read_the_properties_file",
    ),
    "each process may be killed at any moment": (
        "cli/test_init.py::test_a_killed_init_leaves_all_or_nothing_and_the_next_one_succeeds",
        "faults/test_killed.py",
        "feeds/test_processes.py::test_a_publisher_killed_at_any_step_keeps_the_previous_update[local]",
        "feeds/test_processes.py::test_a_reader_never_sees_a_torn_update_while_two_processes_publish[local]",
        "intake/test_killed.py::test_each_acknowledged_event_is_there_once_whenever_the_receiver_is_killed[3 seeds]",
        "kafka/test_killed.py::test_a_connector_killed_at_any_step_resumes_where_it_stopped",
        "launcher/test_warm.py::test_a_parent_that_was_killed_is_followed_by_another",
        "orchestration/test_runner.py::test_a_run_whose_driver_was_killed_is_failed_and_its_partition_built",
        "orchestration/test_resources.py::test_only_as_many_runs_are_requested_as_have_room_and_all_are_built_in_the_end",
        "warehouse/test_killed.py::test_load_of_a_topic_may_be_killed_at_any_statement",
    ),
}
"""Promises of the README, and the tests with real parts that prove them in `make test`: files, functions or cases."""
PROMISED = frozenset(name for names in PROMISES.values() for name in names)


def place_of(path: Path, function: str = "") -> str | None:
    """Return the entry of `PLACES` for a test: its function, or else its file or folder. None if it has none."""
    file = path.relative_to(TESTS).as_posix()
    return next((place for place in (f"{file}::{function}", file, file.partition("/")[0]) if place in TIERS), None)


def tier_of(item: pytest.Item) -> Tier:
    """Return the tier of a test. Raise UsageError if neither its file nor its folder is in `PLACES`."""
    place = place_of(item.path, getattr(item, "originalname", item.name))
    if place is None:
        raise pytest.UsageError(f"{item.path}: no tier; add the file or its folder to PLACES in {__file__}")
    fixtures = (FIXTURES[name] for name in getattr(item, "fixturenames", ()) if name in FIXTURES)
    return max([TIERS[place], *fixtures, *tiers_of_parameters(item)])


def servers_of(item: pytest.Item) -> list[str]:
    """Return the fixtures of `FIXTURES` that a test got, also by `getfixturevalue` while it ran."""
    return sorted(FIXTURES.keys() & item._request._fixture_defs.keys())


def tiers_of_parameters(item: pytest.Item) -> Iterator[Tier]:
    """Yield the tiers of a test's parameters that choose implementations."""
    callspec = getattr(item, "callspec", None)
    for value in callspec.params.values() if callspec else ():
        words = value.split() if isinstance(value, str) else ()
        if all(word in PARAMETERS for word in words):
            yield from (PARAMETERS[word] for word in words)


def mark(items: Iterable[pytest.Item]) -> None:
    """Mark each test with its tier, and those that `PROMISES` names with `promise`."""
    for item in items:
        item.add_marker(tier_of(item).mark)
        if not PROMISED.isdisjoint(_names_of(item)):
            item.add_marker("promise")


IN_MAKE_TEST = pytest.StashKey[list[str]]()
"""The names of the tests that `make test` runs, in a run that has collected all tests."""


def in_make_test(items: Iterable[pytest.Item]) -> list[str]:
    """Return the names of the marked tests that `make test` runs."""
    of_make_test = {Tier.FAST.mark, "promise"}
    marks = {item: {mark.name for mark in item.iter_markers()} for item in items}
    return [
        item.nodeid.removeprefix(f"{TESTS.name}/")
        for item, names in marks.items()
        if of_make_test & names and "soak" not in names
    ]


def _names_of(item: pytest.Item) -> set[str]:
    """Return the names by which `PROMISES` may mean a test: its file, its function, this one case."""
    file = item.path.relative_to(TESTS).as_posix()
    function = f"{file}::{getattr(item, 'originalname', item.name)}"
    return {file, function, f"{file}::{item.name}"}
