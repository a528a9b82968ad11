// Decodes the payload on stdin again and again, token by token, with InfluxData's line-protocol/v2,
// and prints a name and the lines per second of CPU time: see benchmarks/peers/README.md.
package main

import (
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/influxdata/line-protocol/v2/lineprotocol"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(65)
	}
}

func decode(payload []byte) (lines int) {
	decoder := lineprotocol.NewDecoderWithBytes(payload)
	for decoder.Next() {
		_, err := decoder.Measurement()
		check(err)
		for {
			key, _, err := decoder.NextTag()
			check(err)
			if key == nil {
				break
			}
		}
		for {
			key, _, err := decoder.NextField()
			check(err)
			if key == nil {
				break
			}
		}
		_, err = decoder.Time(lineprotocol.Second, time.Time{})
		check(err)
		lines++
	}
	return lines
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

func main() {
	payload, err := io.ReadAll(os.Stdin)
	check(err)
	lines := decode(payload)
	repeat := 1 + 400_000/lines
	best := 0.0
	for round := 0; round < 6; round++ { // the first warms up
		begin := cpuSeconds()
		for n := 0; n < repeat; n++ {
			decode(payload)
		}
		rate := float64(lines*repeat) / (cpuSeconds() - begin)
		if round > 0 && rate > best {
			best = rate
		}
	}
	fmt.Printf("Go line-protocol/v2, tokens\t%.0f\n", best)
}
