// Promql answers queries as a Prometheus does that scraped a target some times, and finds the targets of
// a configuration file in a cluster. It reads a task as JSON from its standard input and writes the
// answer to its standard output. It is a program of a module of
// its own, so that Prometheus' engine is no dependency of the product.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "promql:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var t task
	if err := json.NewDecoder(os.Stdin).Decode(&t); err != nil {
		return fmt.Errorf("read the task: %w", err)
	}
	a, err := t.answer(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(a)
}
