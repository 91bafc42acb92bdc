package mps

import (
	"bytes"
	"os"
	"sync"
)

// tailSize is how many bytes of a daemon's output are kept for an error.
const tailSize = 1024

// tail passes output to the standard error and keeps its end. It is safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

// Write implements io.Writer.
func (t *tail) Write(text []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, text...)
	if excess := len(t.kept) - tailSize; excess > 0 {
		t.kept = t.kept[excess:]
	}
	return os.Stderr.Write(text)
}

// last returns the last line; the lines before it are for the log, not for an error message.
func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := bytes.TrimSpace(t.kept)
	return string(text[bytes.LastIndexByte(text, '\n')+1:])
}
