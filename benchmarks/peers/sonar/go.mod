module ccpipe/benchmarks/peers/sonar

go 1.25.0

require (
	github.com/NordicHPC/sonar/util/formats v0.18.3
	github.com/influxdata/telegraf v1.37.2
)
