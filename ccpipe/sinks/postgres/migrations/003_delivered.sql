-- Which messages are stored, as runs of consecutive numbers: bridges keep the latest ones here, in
-- the transaction that stores their rows, so that a message that is delivered again is not.

CREATE TABLE delivered (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer text NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    since bigint NOT NULL,  -- nanoseconds since the epoch: when the broker stored the earliest
    until bigint NOT NULL
);

CREATE INDEX delivered_last ON delivered (consumer, last);
