-- `samples` becomes a table of partitions, one for each day in UTC, which the bridges make.
-- What was written before stays one partition, with its indexes.

ALTER TABLE samples RENAME TO samples_before;
ALTER INDEX samples_time RENAME TO samples_before_time;

CREATE TABLE samples (LIKE samples_before) PARTITION BY RANGE (time);
CREATE INDEX samples_time ON samples USING brin (time);

-- Rows without a time, and of days that no bridge makes a partition for: far from today.
CREATE TABLE samples_other PARTITION OF samples DEFAULT;

CREATE OR REPLACE VIEW messages AS
    SELECT time, ns, name, field, cluster, hostname, type, type_id, stype, stype_id, tags,
           value, "int", uint, bool, text
    FROM samples JOIN series ON series.id = samples.series;

DO $$
DECLARE
    latest timestamp;
    given record;
BEGIN
    FOR given IN
        SELECT grantee, privilege_type FROM information_schema.role_table_grants
        WHERE table_schema = current_schema() AND table_name = 'samples_before'
          AND grantee <> current_user
    LOOP
        EXECUTE format('GRANT %s ON samples TO %s', given.privilege_type,
            CASE given.grantee WHEN 'PUBLIC' THEN 'PUBLIC' ELSE quote_ident(given.grantee) END);
    END LOOP;

    SELECT date_trunc('day', max(time) AT TIME ZONE 'UTC') + interval '1 day'
        INTO latest FROM samples_before;
    IF latest IS NULL THEN
        DROP TABLE samples_before;
    ELSE
        IF NOT isfinite(latest) THEN  -- lines without a time, and nothing else
            latest = '1970-01-01';
        END IF;
        EXECUTE format('ALTER TABLE samples ATTACH PARTITION samples_before '
            'FOR VALUES FROM (MINVALUE) TO (%L)', latest AT TIME ZONE 'UTC');
    END IF;
END $$;
