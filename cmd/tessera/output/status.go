package output

import "errors"

// Exit is an error with an exit status. Any other error has exit status 1.
type Exit struct {
	Status int
	Err    error
}

// Error returns the message of the wrapped error.
func (e Exit) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e Exit) Unwrap() error { return e.Err }

// Status returns the exit status for the error, 0 for nil.
func Status(err error) int {
	var exit Exit
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.Status
	}
	return 1
}
