// Package listingtest runs verbs with --watch in tests.
package listingtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tessera-gpu/tessera/cmd/tessera/output/outputtest"
)

// Step is a change of the cluster during a watch.
type Step struct {
	// Name describes the change in the golden file.
	Name   string
	Change func() error
	// Wait is the time after the change; zero: long enough for the output.
	Wait time.Duration
}

// settled is longer than the time between a change and its output.
const settled = 2 * time.Second

// Watch runs the verb and makes the changes one after another. It returns the output after each of them, errors included, and the verb's error after an
// interrupt. The clients of the verb must be created in the same bubble of synctest.
func Watch(tb testing.TB, run func(ctx context.Context, out, errOut io.Writer) error, steps ...Step) (outputs []string, err error) {
	tb.Helper()
	ctx, interrupt := context.WithCancel(tb.Context())
	defer interrupt()
	var out buffer
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, &out, &out) }()
	for _, step := range append([]Step{{}}, steps...) {
		if step.Change != nil {
			if err := step.Change(); err != nil {
				tb.Fatalf("%s: %v", step.Name, err)
			}
		}
		time.Sleep(max(step.Wait, settled))
		synctest.Wait()
		outputs = append(outputs, out.take())
	}
	interrupt()
	err = <-ended
	return append(outputs[:len(outputs)-1], outputs[len(outputs)-1]+out.take()), err
}

// buffer is a buffer that can be taken while it is written.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (b *buffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(text)
}

// take returns the content and empties the buffer.
func (b *buffer) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.text.Reset()
	return b.text.String()
}

// Golden compares the output of a watch after each change with a golden file.
func Golden(tb testing.TB, file string, run func(ctx context.Context, out, errOut io.Writer) error, steps ...Step) {
	tb.Helper()
	outputs, err := Watch(tb, run, steps...)
	if err != nil {
		tb.Errorf("%s: %v", file, err)
	}
	var text strings.Builder
	for i, output := range outputs {
		if i > 0 {
			fmt.Fprintf(&text, "# %s\n", steps[i-1].Name)
		}
		text.WriteString(output)
	}
	outputtest.Golden(tb, file, text.String())
}
