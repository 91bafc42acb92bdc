// Command tessera-scheduler is kube-scheduler with the plugin that chooses GPUs.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // the log format json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // metrics of the client
	_ "k8s.io/component-base/metrics/prometheus/version"  // the metric of the version
)

func main() { os.Exit(cli.Run(command())) }
