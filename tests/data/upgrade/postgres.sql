SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE public.ccpipe_migrations (
    number integer NOT NULL,
    name text NOT NULL,
    applied timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE public.delivered (
    id bigint NOT NULL,
    consumer text NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    since bigint NOT NULL,
    until bigint NOT NULL
);
ALTER TABLE public.delivered ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.delivered_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.samples (
    "time" timestamp with time zone NOT NULL,
    value double precision,
    series integer NOT NULL,
    ns smallint NOT NULL,
    "int" bigint,
    uint numeric(20,0),
    bool boolean,
    text text
)
PARTITION BY RANGE ("time");
CREATE TABLE public.series (
    id integer NOT NULL,
    key bytea NOT NULL,
    name text NOT NULL,
    field text NOT NULL,
    cluster text,
    hostname text,
    type text,
    type_id text,
    stype text,
    stype_id text,
    tags jsonb NOT NULL
);
CREATE VIEW public.messages AS
 SELECT samples."time",
    samples.ns,
    series.name,
    series.field,
    series.cluster,
    series.hostname,
    series.type,
    series.type_id,
    series.stype,
    series.stype_id,
    series.tags,
    samples.value,
    samples."int",
    samples.uint,
    samples.bool,
    samples.text
   FROM (public.samples
     JOIN public.series ON ((series.id = samples.series)));
CREATE TABLE public.samples_20261128 (
    "time" timestamp with time zone NOT NULL,
    value double precision,
    series integer NOT NULL,
    ns smallint NOT NULL,
    "int" bigint,
    uint numeric(20,0),
    bool boolean,
    text text
);
CREATE TABLE public.samples_other (
    "time" timestamp with time zone NOT NULL,
    value double precision,
    series integer NOT NULL,
    ns smallint NOT NULL,
    "int" bigint,
    uint numeric(20,0),
    bool boolean,
    text text
);
ALTER TABLE public.series ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.series_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.sonar_cards (
    "time" timestamp with time zone NOT NULL,
    cluster text NOT NULL,
    node text NOT NULL,
    index bigint,
    uuid text,
    address text,
    manufacturer text,
    model text,
    architecture text,
    driver text,
    firmware text,
    memory bigint,
    power_limit bigint,
    max_power_limit bigint,
    min_power_limit bigint,
    max_ce_clock bigint,
    max_memory_clock bigint
);
CREATE TABLE public.sonar_disks (
    "time" timestamp with time zone NOT NULL,
    cluster text NOT NULL,
    node text NOT NULL,
    name text,
    major bigint,
    minor bigint,
    stats bigint[]
);
CREATE TABLE public.sonar_errors (
    "time" timestamp with time zone NOT NULL,
    cluster text NOT NULL,
    node text,
    detail text
);
CREATE TABLE public.sonar_gpus (
    "time" timestamp with time zone NOT NULL,
    cluster text NOT NULL,
    node text NOT NULL,
    index bigint,
    uuid text,
    failing bigint,
    fan bigint,
    compute_mode text,
    performance_state double precision,
    memory bigint,
    ce_util bigint,
    memory_util bigint,
    temperature bigint,
    power bigint,
    power_limit bigint,
    ce_clock bigint,
    memory_clock bigint
);
CREATE TABLE public.sonar_jobs (
    "time" timestamp with time zone NOT NULL,
    cluster text NOT NULL,
    job_id bigint,
    job_step text,
    job_name text,
    job_state text,
    array_job_id bigint,
    array_task_id bigint,
    het_job_id bigint,
    het_job_offset bigint,
    user_name text,
    account text,
    submit_time timestamp with time zone,
    time_limit double precision,
    partition text,
    reservation text,
    nodes text[],
    priority double precision,
    distribution text,
    gres_detail text[],
    requested_cpus bigint,
    minimum_cpus_per_node bigint,
    requested_memory_per_node bigint,
    requested_node_count bigint,
    start_time timestamp with time zone,
    suspend_time bigint,
    end_time timestamp with time zone,
    exit_code bigint,
    requested_resources text,
    allocated_resources text,
    sacct jsonb
);
CREATE TABLE public.sonar_nodes (
    "time" timestamp with time zone NOT NULL,
    cluster text NOT NULL,
    names text[],
    states text[]
);
CREATE TABLE public.sonar_partitions (
    "time" timestamp with time zone NOT NULL,
    cluster text NOT NULL,
    name text,
    nodes text[]
);
CREATE TABLE public.sonar_process_gpus (
    "time" timestamp with time zone NOT NULL,
    cluster text NOT NULL,
    node text NOT NULL,
    job bigint,
    epoch bigint,
    "user" text,
    pid bigint,
    cmd text,
    index bigint,
    uuid text,
    gpu_util double precision,
    gpu_memory bigint,
    gpu_memory_util double precision
);
CREATE TABLE public.sonar_processes (
    "time" timestamp with time zone NOT NULL,
    cluster text NOT NULL,
    node text NOT NULL,
    job bigint,
    epoch bigint,
    "user" text,
    resident_memory bigint,
    virtual_memory bigint,
    cmd text,
    pid bigint,
    ppid bigint,
    num_threads bigint,
    cpu_avg double precision,
    cpu_util double precision,
    cpu_time bigint,
    data_read bigint,
    data_written bigint,
    data_cancelled bigint,
    rolledup bigint,
    in_container boolean
);
CREATE TABLE public.sonar_samples (
    "time" timestamp with time zone NOT NULL,
    cluster text NOT NULL,
    node text NOT NULL,
    used_memory bigint,
    load1 double precision,
    load5 double precision,
    load15 double precision,
    runnable_entities bigint,
    existing_entities bigint,
    boot timestamp with time zone,
    cpus bigint[]
);
CREATE TABLE public.sonar_sysinfo (
    "time" timestamp with time zone NOT NULL,
    cluster text NOT NULL,
    node text NOT NULL,
    os_name text,
    os_release text,
    architecture text,
    sockets bigint,
    cores_per_socket bigint,
    threads_per_core bigint,
    cpu_model text,
    memory bigint,
    topo_svg text,
    topo_text text,
    numa_nodes bigint,
    distances bigint[]
);
ALTER TABLE ONLY public.samples ATTACH PARTITION public.samples_20261128 FOR VALUES FROM ('2026-11-28 00:00:00+00') TO ('2026-11-29 00:00:00+00');
ALTER TABLE ONLY public.samples ATTACH PARTITION public.samples_other DEFAULT;
INSERT INTO public.ccpipe_migrations VALUES
	(1, 'lines', '2026-11-28 20:19:25.172436+00'),
	(2, 'partitions', '2026-11-28 20:19:25.172436+00'),
	(3, 'delivered', '2026-11-28 20:19:25.172436+00'),
	(4, 'sonar', '2026-11-28 20:19:25.172436+00');
INSERT INTO public.delivered OVERRIDING SYSTEM VALUE VALUES
	(1, 'ccpipe-fritz postgres 2026-11-28T20:19:25.463527Z', 1, 10, 1795897168183629490, 1795897168222269304),
	(2, 'ccpipe-fritz postgres 2026-11-28T20:19:25.463527Z', 12, 21, 1795897171176316096, 1795897171227075286);
INSERT INTO public.samples_20261128 VALUES
	('2026-11-28 11:00:00+00', 0, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:01+00', 1, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:02+00', 2, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:03+00', 3, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:04+00', 4, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:05+00', 5, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:06+00', 6, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:07+00', 7, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:08+00', 8, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:09+00', 9, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:10+00', 10, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:11+00', 11, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:12+00', 12, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:13+00', 13, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:14+00', 14, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:15+00', 15, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:16+00', 16, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:17+00', 17, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:18+00', 18, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:19+00', 19, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:20+00', 20, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:21+00', 21, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:22+00', 22, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:23+00', 23, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:24+00', 24, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:25+00', 25, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:26+00', 26, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:27+00', 27, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:28+00', 28, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:29+00', 29, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:30+00', 30, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:31+00', 31, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:32+00', 32, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:33+00', 33, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:34+00', 34, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:35+00', 35, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:36+00', 36, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:37+00', 37, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:38+00', 38, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:39+00', 39, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:40+00', 40, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:41+00', 41, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:42+00', 42, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:43+00', 43, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:44+00', 44, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:45+00', 45, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:46+00', 46, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:47+00', 47, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:48+00', 48, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:49+00', 49, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:50+00', 50, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:51+00', 51, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:52+00', 52, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:53+00', 53, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:54+00', 54, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:55+00', 55, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:56+00', 56, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:57+00', 57, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:58+00', 58, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:00:59+00', 59, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:00+00', 60, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:01+00', 61, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:02+00', 62, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:03+00', 63, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:04+00', 64, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:05+00', 65, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:06+00', 66, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:07+00', 67, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:08+00', 68, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:09+00', 69, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:10+00', 70, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:11+00', 71, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:12+00', 72, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:13+00', 73, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:14+00', 74, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:15+00', 75, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:16+00', 76, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:17+00', 77, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:18+00', 78, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:19+00', 79, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:20+00', 80, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:21+00', 81, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:22+00', 82, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:23+00', 83, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:24+00', 84, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:25+00', 85, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:26+00', 86, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:27+00', 87, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:28+00', 88, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:29+00', 89, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:30+00', 90, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:31+00', 91, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:32+00', 92, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:33+00', 93, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:34+00', 94, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:35+00', 95, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:36+00', 96, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:37+00', 97, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:38+00', 98, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:39+00', 99, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:40+00', 100, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:41+00', 101, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:42+00', 102, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:43+00', 103, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:44+00', 104, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:45+00', 105, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:46+00', 106, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:47+00', 107, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:48+00', 108, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:49+00', 109, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:50+00', 110, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:51+00', 111, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:52+00', 112, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:53+00', 113, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:54+00', 114, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:55+00', 115, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:56+00', 116, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:57+00', 117, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:58+00', 118, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:01:59+00', 119, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:00+00', 120, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:01+00', 121, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:02+00', 122, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:03+00', 123, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:04+00', 124, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:05+00', 125, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:06+00', 126, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:07+00', 127, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:08+00', 128, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:09+00', 129, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:10+00', 130, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:11+00', 131, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:12+00', 132, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:13+00', 133, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:14+00', 134, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:15+00', 135, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:16+00', 136, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:17+00', 137, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:18+00', 138, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:19+00', 139, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:20+00', 140, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:21+00', 141, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:22+00', 142, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:23+00', 143, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:24+00', 144, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:25+00', 145, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:26+00', 146, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:27+00', 147, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:28+00', 148, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:29+00', 149, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:30+00', 150, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:31+00', 151, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:32+00', 152, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:33+00', 153, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:34+00', 154, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:35+00', 155, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:36+00', 156, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:37+00', 157, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:38+00', 158, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:39+00', 159, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:40+00', 160, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:41+00', 161, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:42+00', 162, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:43+00', 163, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:44+00', 164, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:45+00', 165, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:46+00', 166, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:47+00', 167, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:48+00', 168, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:49+00', 169, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:50+00', 170, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:51+00', 171, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:52+00', 172, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:53+00', 173, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:54+00', 174, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:55+00', 175, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:56+00', 176, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:57+00', 177, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:58+00', 178, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:02:59+00', 179, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:03:00+00', 180, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:03:01+00', 181, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:03:02+00', 182, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:03:03+00', 183, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:03:04+00', 184, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:03:05+00', 185, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:03:06+00', 186, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:03:07+00', 187, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:03:08+00', 188, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:03:09+00', 189, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:03:10+00', 190, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:03:11+00', 191, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:03:12+00', 192, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:03:13+00', 193, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:03:14+00', 194, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:03:15+00', 195, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:03:16+00', 196, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:03:17+00', 197, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:03:18+00', 198, 1, 0, NULL, NULL, NULL, NULL),
	('2026-11-28 11:03:19+00', 199, 1, 0, NULL, NULL, NULL, NULL);
INSERT INTO public.series OVERRIDING SYSTEM VALUE VALUES
	(1, '\xdc976f895b5973d2f423a404c3d222fe', 'sent', 'value', 'fritz', 'n1', 'node', NULL, NULL, NULL, '{}');
SELECT pg_catalog.setval('public.delivered_id_seq', 2, true);
SELECT pg_catalog.setval('public.series_id_seq', 1, true);
ALTER TABLE ONLY public.ccpipe_migrations
    ADD CONSTRAINT ccpipe_migrations_pkey PRIMARY KEY (number);
ALTER TABLE ONLY public.delivered
    ADD CONSTRAINT delivered_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.series
    ADD CONSTRAINT series_key_key UNIQUE (key);
ALTER TABLE ONLY public.series
    ADD CONSTRAINT series_pkey PRIMARY KEY (id);
CREATE INDEX delivered_last ON public.delivered USING btree (consumer, last);
CREATE INDEX samples_time ON ONLY public.samples USING brin ("time");
CREATE INDEX samples_20261128_time_idx ON public.samples_20261128 USING brin ("time");
CREATE INDEX samples_other_time_idx ON public.samples_other USING brin ("time");
CREATE INDEX sonar_disks_time ON public.sonar_disks USING brin ("time");
CREATE INDEX sonar_gpus_time ON public.sonar_gpus USING brin ("time");
CREATE INDEX sonar_jobs_job ON public.sonar_jobs USING btree (cluster, job_id);
CREATE INDEX sonar_process_gpus_job ON public.sonar_process_gpus USING btree (cluster, job);
CREATE INDEX sonar_process_gpus_time ON public.sonar_process_gpus USING brin ("time");
CREATE INDEX sonar_processes_time ON public.sonar_processes USING brin ("time");
CREATE INDEX sonar_samples_time ON public.sonar_samples USING brin ("time");
ALTER INDEX public.samples_time ATTACH PARTITION public.samples_20261128_time_idx;
ALTER INDEX public.samples_time ATTACH PARTITION public.samples_other_time_idx;
GRANT SELECT ON TABLE public.ccpipe_migrations TO PUBLIC;
