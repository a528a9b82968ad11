// The CPU time that others take for a Sonar sample, in microseconds: `sonar FILE`, with a sample on
// each line of the file, prints one JSON object.
//
// Jobanalyzer's sonalyze checks each message by unmarshaling it, and appends its bytes to a file;
// here only the check is timed. Telegraf makes a metric of each process.
package main

import (
	"bytes"
	"encoding/json"
	"os"
	"syscall"

	"github.com/NordicHPC/sonar/util/formats/newfmt"
	"github.com/influxdata/telegraf"
	jsonparser "github.com/influxdata/telegraf/plugins/parsers/json"
	"github.com/influxdata/telegraf/plugins/parsers/json_v2"
)

const processes = "data.attributes.jobs.#.processes|@flatten"

func main() {
	raw, err := os.ReadFile(os.Args[1])
	check(err)
	samples := bytes.Split(bytes.TrimSpace(raw), []byte("\n"))
	v1 := &jsonparser.Parser{MetricName: "sonar", Query: processes, TagKeys: []string{"pid", "cmd"}}
	check(v1.Init())
	v2 := &json_v2.Parser{Configs: []json_v2.Config{{
		MeasurementName: "sonar",
		JSONObjects:     []json_v2.Object{{Path: processes, Tags: []string{"pid", "cmd"}}},
	}}}
	check(v2.Init())
	check(json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"sonalyze": timed(samples, func(sample []byte) int {
			envelope := new(newfmt.SampleEnvelope)
			check(json.Unmarshal(sample, envelope))
			count := 0
			for _, job := range envelope.Data.Attributes.Jobs {
				count += len(job.Processes)
			}
			return count
		}),
		"telegraf_json":    timed(samples, parsed(v1)),
		"telegraf_json_v2": timed(samples, parsed(v2)),
	}))
}

func parsed(parser telegraf.Parser) func([]byte) int {
	return func(sample []byte) int {
		metrics, err := parser.Parse(sample)
		check(err)
		return len(metrics)
	}
}

// Return the least CPU time of a sample in three rounds; `work` returns the number of processes.
func timed(samples [][]byte, work func([]byte) int) float64 {
	least := 0.0
	for round := 0; round < 3; round++ {
		begin, count := cpu(), 0
		for _, sample := range samples {
			count += work(sample)
		}
		if count < len(samples) {
			panic("samples without processes")
		}
		if taken := (cpu() - begin) / float64(len(samples)) * 1e6; round == 0 || taken < least {
			least = taken
		}
	}
	return least
}

func cpu() float64 {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	seconds := usage.Utime.Sec + usage.Stime.Sec
	return float64(seconds) + float64(usage.Utime.Usec+usage.Stime.Usec)/1e6
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
