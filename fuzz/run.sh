#!/bin/sh
# Fuzz line protocol, accounting, Sonar's JSON, the protocol of NATS, dead letters, files of rows, pages of
# exporters, HTTP requests, OpenTelemetry and the spool for a bounded time each, then run the kernels' tests
# with sanitizers.
# Usage: fuzz/run.sh [seconds [python]]; what atheris finds stays in build/fuzz, and small inputs
# in fuzz/corpus too, to be committed.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-60}
python=${2:-.venv/bin/python}
"$python" scripts/fuzz_corpus.py unpack

corpus=build/fuzz/lines
mkdir -p "$corpus"
cp tests/data/slurm_influx/*.lp tests/data/clustercockpit_samples.txt "$corpus"
PYTHONPATH=. "$python" fuzz/lines.py -max_total_time="$seconds" -max_len=2048 -print_final_stats=1 \
    -dict=fuzz/lines.dict -artifact_prefix=build/fuzz/ "$corpus"

corpus=build/fuzz/gridengine
mkdir -p "$corpus"
for kind in accounting derived.jsonl reporting.head; do
    grep -v '^#' "tests/data/gridengine/$kind" | head -n 40 | split -l 1 - "$corpus/$kind."
done
PYTHONPATH=. "$python" fuzz/gridengine.py -max_total_time="$seconds" -max_len=4096 \
    -print_final_stats=1 -artifact_prefix=build/fuzz/ "$corpus"

corpus=build/fuzz/sonar
mkdir -p "$corpus"
PYTHONPATH=. "$python" fuzz/sonar.py -max_total_time="$seconds" -max_len=2048 \
    -print_final_stats=1 -artifact_prefix=build/fuzz/ "$corpus"

corpus=build/fuzz/frames
mkdir -p "$corpus"
printf '\005MSG a.b 1 5\r\nhello\r\nHMSG a 2 r 12 14\r\nNATS/1.0\r\n\r\nhi\r\nPING\r\n' >"$corpus/usual"
PYTHONPATH=. "$python" fuzz/frames.py -max_total_time="$seconds" -max_len=512 -print_final_stats=1 \
    -dict=fuzz/frames.dict -artifact_prefix=build/fuzz/ "$corpus"

corpus=build/fuzz/dead_letters
mkdir -p "$corpus"
printf '# dead letter {"time":5,"reason":"no","size":9,"sum":"e8b4"}\nm value=1\n' > "$corpus/letter"
PYTHONPATH=. "$python" fuzz/dead_letters.py -max_total_time="$seconds" -max_len=4096 \
    -print_final_stats=1 -artifact_prefix=build/fuzz/ "$corpus"

corpus=build/fuzz/rows
mkdir -p "$corpus"
printf '\001,m,value,,,,,,,a=b,1\n,job,event,,,,,,,,"a\nb"\n' >"$corpus/csv"
printf '\000{"name":"m","tags":{},"field":"value","value":1,"time":null}\n' >"$corpus/json"
PYTHONPATH=. "$python" fuzz/rows.py -max_total_time="$seconds" -max_len=1024 -print_final_stats=1 \
    -artifact_prefix=build/fuzz/ "$corpus"

corpus=build/fuzz/exposition
mkdir -p "$corpus"
PYTHONPATH=. "$python" fuzz/exposition.py -max_total_time="$seconds" -max_len=1024 -print_final_stats=1 \
    -artifact_prefix=build/fuzz/ "$corpus"

corpus=build/fuzz/http_requests
mkdir -p "$corpus"
printf '\377\n{"topic":"a.sample","key":"n","sasl-user":"a","sasl-password":"p","data-size":3}\nabc\n' \
    >"$corpus/stream"
PYTHONPATH=. "$python" fuzz/http_requests.py -max_total_time="$seconds" -max_len=1024 -print_final_stats=1 \
    -artifact_prefix=build/fuzz/ "$corpus"

corpus=build/fuzz/otlp
mkdir -p "$corpus"
PYTHONPATH=. "$python" fuzz/otlp.py -max_total_time="$seconds" -max_len=1024 -print_final_stats=1 \
    -artifact_prefix=build/fuzz/ "$corpus"

corpus=build/fuzz/spool
mkdir -p "$corpus"
PYTHONPATH=. "$python" fuzz/spool.py -max_total_time="$seconds" -max_len=1024 -print_final_stats=1 \
    -artifact_prefix=build/fuzz/ "$corpus"
"$python" scripts/fuzz_corpus.py keep
fuzz/sanitize.sh "$python"
