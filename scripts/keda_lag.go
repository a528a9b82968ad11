// Print what KEDA's scaler for NATS JetStream says of a trigger: the lag and the replicas that the
// horizontal pod autoscaler starts for it. The trigger's metadata is JSON on stdin.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/kedacore/keda/v2/pkg/scalers/scalersconfig"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	config := scalersconfig.ScalerConfig{GlobalHTTPTimeout: 30 * time.Second}
	if err := json.NewDecoder(os.Stdin).Decode(&config.TriggerMetadata); err != nil {
		return err
	}
	scaler, err := NewNATSJetStreamScaler(&config)
	if err != nil {
		return err
	}
	ctx := context.Background()
	metric := scaler.GetMetricSpecForScaling(ctx)[0].External
	values, isActive, err := scaler.GetMetricsAndActivity(ctx, metric.Metric.Name)
	if err != nil {
		return err
	}
	lag := values[0].Value.AsApproximateFloat64()
	target := metric.Target.AverageValue.AsApproximateFloat64()
	fmt.Printf("{\"lag\": %g, \"replicas\": %g, \"active\": %t}\n", lag, math.Ceil(lag/target), isActive)
	return nil
}
