// Package toy has points for mutants of every kind.
package toy

import "errors"

// Find returns the position of an element.
func Find(in []int, what int) (at int, err error) {
	defer count()
	for i := 0; i < len(in); i++ {
		if in[i] == what && what > 0 {
			at = i
			return at, nil
		}
	}
	switch {
	case what < 0:
		return 0, errors.New("negative")
	}
	return 0, errAbsent
}

var (
	errAbsent = errors.New("absent")
	calls     int
)

func count() { add(1) }

func add(n int) { calls += n }
