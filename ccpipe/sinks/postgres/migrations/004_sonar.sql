-- Sonar's envelopes: a table for each type of its specification, with the names that it has there.
-- Times of a list's elements are those of their envelope. Integers beyond 63 bits are null.

CREATE TABLE sonar_samples (
    time timestamptz NOT NULL, cluster text NOT NULL, node text NOT NULL,
    used_memory bigint, load1 double precision, load5 double precision, load15 double precision,
    runnable_entities bigint, existing_entities bigint, boot timestamptz,
    cpus bigint[]  -- seconds of each core
);

CREATE TABLE sonar_gpus (
    time timestamptz NOT NULL, cluster text NOT NULL, node text NOT NULL,
    index bigint, uuid text, failing bigint, fan bigint, compute_mode text,
    performance_state double precision,  -- null where it is not known
    memory bigint, ce_util bigint, memory_util bigint, temperature bigint,
    power bigint, power_limit bigint, ce_clock bigint, memory_clock bigint
);

CREATE TABLE sonar_disks (
    time timestamptz NOT NULL, cluster text NOT NULL, node text NOT NULL,
    name text, major bigint, minor bigint, stats bigint[]
);

CREATE TABLE sonar_processes (
    time timestamptz NOT NULL, cluster text NOT NULL, node text NOT NULL,
    job bigint, epoch bigint, "user" text,
    resident_memory bigint, virtual_memory bigint, cmd text, pid bigint, ppid bigint,
    num_threads bigint, cpu_avg double precision, cpu_util double precision, cpu_time bigint,
    data_read bigint, data_written bigint, data_cancelled bigint, rolledup bigint,
    in_container boolean
);

CREATE TABLE sonar_process_gpus (
    time timestamptz NOT NULL, cluster text NOT NULL, node text NOT NULL,
    job bigint, epoch bigint, "user" text, pid bigint, cmd text,
    index bigint, uuid text,
    gpu_util double precision, gpu_memory bigint, gpu_memory_util double precision
);

CREATE TABLE sonar_sysinfo (
    time timestamptz NOT NULL, cluster text NOT NULL, node text NOT NULL,
    os_name text, os_release text, architecture text,
    sockets bigint, cores_per_socket bigint, threads_per_core bigint, cpu_model text,
    memory bigint, topo_svg text, topo_text text, numa_nodes bigint,
    distances bigint[]  -- row by row
);

CREATE TABLE sonar_cards (
    time timestamptz NOT NULL, cluster text NOT NULL, node text NOT NULL,
    index bigint, uuid text, address text, manufacturer text, model text, architecture text,
    driver text, firmware text, memory bigint,
    power_limit bigint, max_power_limit bigint, min_power_limit bigint,
    max_ce_clock bigint, max_memory_clock bigint
);

CREATE TABLE sonar_jobs (
    time timestamptz NOT NULL, cluster text NOT NULL,
    job_id bigint, job_step text, job_name text, job_state text,
    array_job_id bigint, array_task_id bigint, het_job_id bigint, het_job_offset bigint,
    user_name text, account text, submit_time timestamptz,
    time_limit double precision,  -- minutes; Infinity for no limit, null where it is not known
    partition text, reservation text, nodes text[],
    priority double precision, distribution text, gres_detail text[],
    requested_cpus bigint, minimum_cpus_per_node bigint, requested_memory_per_node bigint,
    requested_node_count bigint, start_time timestamptz, suspend_time bigint,
    end_time timestamptz, exit_code bigint, requested_resources text, allocated_resources text,
    sacct jsonb
);

CREATE TABLE sonar_partitions (
    time timestamptz NOT NULL, cluster text NOT NULL, name text, nodes text[]
);

CREATE TABLE sonar_nodes (
    time timestamptz NOT NULL, cluster text NOT NULL, names text[], states text[]
);

CREATE TABLE sonar_errors (
    time timestamptz NOT NULL, cluster text NOT NULL, node text, detail text
);

CREATE INDEX sonar_samples_time ON sonar_samples USING brin (time);
CREATE INDEX sonar_gpus_time ON sonar_gpus USING brin (time);
CREATE INDEX sonar_disks_time ON sonar_disks USING brin (time);
CREATE INDEX sonar_processes_time ON sonar_processes USING brin (time);
CREATE INDEX sonar_process_gpus_time ON sonar_process_gpus USING brin (time);
CREATE INDEX sonar_process_gpus_job ON sonar_process_gpus (cluster, job);
CREATE INDEX sonar_jobs_job ON sonar_jobs (cluster, job_id);
