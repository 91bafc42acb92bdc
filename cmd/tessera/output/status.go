package output

import "errors"

// Exit is an error with which the program ends with a status of its own choice. Any other error ends it with 1.
type Exit struct {
	Status int
	Err    error
}

// Error returns what the error says.
func (e Exit) Error() string { return e.Err.Error() }

// Unwrap returns the error.
func (e Exit) Unwrap() error { return e.Err }

// Status returns the status with which the program ends.
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
