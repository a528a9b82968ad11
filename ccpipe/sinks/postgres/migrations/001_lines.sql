-- Lines: a row of `samples` for each value, which names its series by number.

CREATE TABLE series (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key bytea NOT NULL UNIQUE,  -- BLAKE2b of all that follows: an index takes no long texts
    name text NOT NULL,
    field text NOT NULL,
    cluster text, hostname text, type text, type_id text, stype text, stype_id text,
    tags jsonb NOT NULL
);

CREATE TABLE samples (
    time timestamptz NOT NULL,
    value double precision,
    series integer NOT NULL,  -- no foreign key: it would be looked up for each row
    ns smallint NOT NULL,
    "int" bigint, uint numeric(20), bool boolean, text text
);

CREATE INDEX samples_time ON samples USING brin (time);

CREATE VIEW messages AS
    SELECT time, ns, name, field, cluster, hostname, type, type_id, stype, stype_id, tags,
           value, "int", uint, bool, text
    FROM samples JOIN series ON series.id = samples.series;
