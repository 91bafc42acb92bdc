package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tessera-gpu/tessera/api/gpu"
	"github.com/tessera-gpu/tessera/api/v1alpha1"
	"github.com/tessera-gpu/tessera/dra-driver/nvml"
)

// durations are those of one kind of call, in microseconds.
type durations struct {
	Calls  int   `json:"calls"`
	First  int64 `json:"firstMicros"`
	Median int64 `json:"medianMicros"`
	P99    int64 `json:"p99Micros"`
	Max    int64 `json:"maxMicros"`
}

func summarize(all []time.Duration) durations {
	if len(all) == 0 {
		return durations{}
	}
	d := durations{Calls: len(all), First: all[0].Microseconds()}
	slices.Sort(all)
	d.Median, d.P99, d.Max = all[len(all)/2].Microseconds(), all[len(all)*99/100].Microseconds(), all[len(all)-1].Microseconds()
	return d
}

// look is what the agent reads, and how long that takes.
type look struct {
	Read, Check, Measure durations
	Node                 gpu.Node
	Checkup              gpu.Checkup
	Measurement          gpu.Measurement
	MeasureError         string `json:",omitempty"`
}

func lookCommand(roots *v1alpha1.Roots) *cobra.Command {
	length := 10 * time.Second
	cmd := &cobra.Command{
		Use: "look", Short: "Read the first GPU as the agent does, again and again, and print the last result with the durations", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withSession(cmd.Context(), *roots, func(s *nvml.Session) error {
				l, err := lookFor(cmd.Context(), s, length)
				if err != nil {
					return err
				}
				return printJSON(l)
			})
		},
	}
	cmd.Flags().DurationVar(&length, "for", length, "how long to look")
	return cmd
}

func lookFor(ctx context.Context, s *nvml.Session, length time.Duration) (look, error) {
	var l look
	var reads, checks, measures []time.Duration
	timed := func(all *[]time.Duration, call func() error) error {
		began := time.Now()
		err := call()
		*all = append(*all, time.Since(began))
		return err
	}
	for end := time.Now().Add(length); time.Now().Before(end); {
		if err := timed(&reads, func() (err error) { l.Node, err = s.Read(ctx); return err }); err != nil {
			return l, err
		}
		if len(l.Node.GPUs) == 0 {
			return l, errNoGPU
		}
		name := l.Node.GPUs[0].Name()
		if err := timed(&checks, func() (err error) { l.Checkup, err = s.Check(ctx, name); return err }); err != nil {
			return l, err
		}
		if err := timed(&measures, func() (err error) { l.Measurement, err = s.Measure(ctx, name); return err }); err != nil {
			l.MeasureError = err.Error()
		}
	}
	l.Read, l.Check, l.Measure = summarize(reads), summarize(checks), summarize(measures)
	return l, nil
}

func eventsCommand(roots *v1alpha1.Roots) *cobra.Command {
	limit := 30 * time.Second
	cmd := &cobra.Command{
		Use: "events -- COMMAND...", Short: "Run the command, which causes an XID, until the first is received, and print the XIDs of all GPUs", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), limit)
			defer cancel()
			return withSession(ctx, *roots, func(s *nvml.Session) error { return awaitEvent(ctx, s, args) })
		},
	}
	cmd.Flags().DurationVar(&limit, "for", limit, "how long to listen at most")
	return cmd
}

// awaitEvent runs the command again and again until an XID is received, and a last time after that.
func awaitEvent(ctx context.Context, s *nvml.Session, command []string) error {
	if _, err := s.Read(ctx); err != nil {
		return err
	}
	events := make(chan gpu.Event, 1000)
	ended := make(chan error, 1)
	go func() { ended <- s.WatchEvents(ctx, func(e gpu.Event) { events <- e }) }()
	for runs, received := 1, 0; ; runs++ {
		began := time.Now()
		out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
		fmt.Fprintf(os.Stderr, "run %d, after %v: %v: %s", runs, time.Since(began), err, out)
		if received > 0 {
			return nil
		}
		for pause := time.After(3 * time.Second); ; {
			select {
			case e := <-events:
				received++
				if err := printJSON(map[string]any{"event": e, "millisAfterStart": e.At.Sub(began).Milliseconds()}); err != nil {
					return err
				}
				continue
			case err := <-ended:
				return err
			case <-pause:
			}
			break
		}
	}
}
