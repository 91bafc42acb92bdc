// Package host implements `tessera-node host <verb>`, which init containers and short-lived pods of the installer run on a host. Each verb writes a
// Result to the container's termination message; the installer reads it from the pod and writes it to the GPUNode, so a verb needs no access to the
// API server.
package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"unicode/utf8"
)

// Result is the outcome of a verb. It is JSON in the termination message, limited to 4 KiB.
type Result struct {
	// Verb is preflight, unload, network-driver, toolkit or mig-mode.
	Verb string `json:"verb"`
	// Done reports success; Changed reports whether the verb changed the host.
	Done    bool `json:"done"`
	Changed bool `json:"changed,omitempty"`
	// Reason is a one-word reason of a failure, such as ModuleInUse or DiskFull. Message is for people: what, where, what to do.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Failure is an error with the reason for a Result.
type Failure struct {
	// Reason is one word.
	Reason string
	// Message is for people: what, where, what to do.
	Message string
	// Cause is the wrapped error, if any; the message does not repeat it.
	Cause error
}

// Error returns the message with its cause.
func (f *Failure) Error() string {
	if f.Cause != nil {
		return fmt.Sprintf("%s: %v", f.Message, f.Cause)
	}
	return f.Message
}

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Cause }

// Fail returns a failure without a cause.
func Fail(reason, format string, arguments ...any) error {
	return &Failure{Reason: reason, Message: fmt.Sprintf(format, arguments...)}
}

// Outcome returns the result of a verb, with the message about the host, or with the error. An error that is no Failure has the reason Error.
func Outcome(verb string, changed Changed, message string, err error) Result {
	result := Result{Verb: verb, Done: err == nil, Changed: bool(changed), Message: message}
	if err == nil {
		return result
	}
	result.Reason, result.Message = "Error", err.Error()
	var failure *Failure
	if errors.As(err, &failure) {
		result.Reason = failure.Reason
	}
	return result
}

// Changed reports whether a verb changed the host.
type Changed bool

// limit is the maximum size in bytes of a termination message in kubelet.
const limit = 4096

// Report prints the result and writes it to the termination message file. A failure to write that file is no error, because the output has the same
// content. An empty path means no file.
func (r Result) Report(out io.Writer, terminationLog string) error {
	text, err := r.text()
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "%s\n", text); err != nil {
		return err
	}
	return WriteTerminationMessage(terminationLog, text)
}

// WriteTerminationMessage writes the termination message of the container to its file. Without a file, or outside of a container, it does nothing.
func WriteTerminationMessage(file string, text []byte) error {
	if file == "" {
		return nil
	}
	err := os.WriteFile(file, text, 0o644)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

// text returns the JSON, with the message truncated to kubelet's limit.
func (r Result) text() ([]byte, error) {
	text, err := json.Marshal(r)
	for err == nil && len(text) > limit {
		const longest = 6 // maximum bytes in JSON for one byte
		cut := max(len(r.Message)-(len(text)-limit)/longest-2*len("…"), 0)
		for cut > 0 && !utf8.RuneStart(r.Message[cut]) {
			cut--
		}
		r.Message = strings.TrimSuffix(r.Message[:cut], "…") + "…"
		text, err = json.Marshal(r)
	}
	return text, err
}
