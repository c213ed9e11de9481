CREATE SCHEMA IF NOT EXISTS feed_assets;
CREATE SCHEMA IF NOT EXISTS feed_assets_deleted;
CREATE TABLE feed_assets.tables (topic varchar(65535) PRIMARY KEY, schema_id bigint, shape varchar(65535), problem varchar(65535), topic_id varchar(65535));
CREATE TABLE feed_assets.positions (topic varchar(65535), topic_partition integer, next_offset bigint NOT NULL, signal_offset bigint NOT NULL, loaded_at timestamptz NOT NULL, PRIMARY KEY (topic, topic_partition));
CREATE TABLE feed_assets.lease (id integer PRIMARY KEY, holder varchar(65535) NOT NULL, seen_at timestamptz NOT NULL);
INSERT INTO feed_assets.lease SELECT 1, '', GETDATE() WHERE NOT EXISTS (SELECT 1 FROM feed_assets.lease);
CREATE TABLE feed_assets.refused (topic varchar(65535), topic_partition integer, topic_offset bigint, reason varchar(65535) NOT NULL, refused_at timestamptz NOT NULL, row_json varchar(65535), PRIMARY KEY (topic, topic_partition, topic_offset));
