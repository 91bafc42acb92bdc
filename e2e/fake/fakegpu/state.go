package fakegpu

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// stateLock is LOCK_STATE of engine/shared/lock.h: the byte that a writer locks.
const stateLock = 1<<28 - 1

// openLock is LOCK_OPEN there: the byte that every process which has the driver open shares.
const openLock = stateLock - 1

// session is a state file that is mapped for reading and changing.
type session struct {
	file *os.File
	data []byte
}

// createState writes a new state file.
func createState(path string, h hardware, l live) error {
	_, version := layoutHeader()
	state := &stateFile{Magic: magic, Version: version, Size: uint64(unsafe.Sizeof(stateFile{})), Hardware: h}
	state.Live[0] = l
	// Libraries map it with the permissions of the file: every user may read, root may write.
	return os.WriteFile(path, unsafe.Slice((*byte)(unsafe.Pointer(state)), unsafe.Sizeof(*state)), 0o644)
}

// openState maps a state file; a file of another layout version is an error.
func openState(path string) (*session, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	size := int(unsafe.Sizeof(stateFile{}))
	info, err := file.Stat()
	if err == nil && info.Size() != int64(size) {
		err = errForeign
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	data, err := unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	s := &session{file: file, data: data}
	if _, version := layoutHeader(); s.state().Magic != magic || s.state().Version != version {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, errForeign), s.Close())
	}
	return s, nil
}

var errForeign = errors.New("made by another version of the fake: install again")

// Close unmaps the file.
func (s *session) Close() error {
	return errors.Join(unix.Munmap(s.data), s.file.Close())
}

func (s *session) state() *stateFile { return (*stateFile)(unsafe.Pointer(&s.data[0])) }

// current returns a copy of the live part.
func (s *session) current() live {
	state := s.state()
	for {
		generation := atomic.LoadUint32(&state.Generation)
		l := state.Live[generation%2]
		if atomic.LoadUint32(&state.Generation) == generation {
			return l
		}
		runtime.Gosched()
	}
}

// change applies f to the live part; an error of f leaves it unchanged.
func (s *session) change(f func(*live) error) error {
	return s.locked(func() error {
		state := s.state()
		generation := atomic.LoadUint32(&state.Generation)
		next := &state.Live[(generation+1)%2]
		*next = state.Live[generation%2]
		if err := f(next); err != nil {
			return err
		}
		atomic.AddUint32(&state.Generation, 1)
		return nil
	})
}

// post appends an event and wakes all waiters.
func (s *session) post(e event) error {
	return s.locked(func() error {
		state := s.state()
		count := atomic.LoadUint32(&state.EventCount)
		state.Events[count%maxEvents] = e
		atomic.AddUint32(&state.EventCount, 1)
		_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&state.EventCount)), futexWake, 1<<30, 0, 0, 0)
		if errno != 0 {
			return fmt.Errorf("wake waiters: %w", errno)
		}
		return nil
	})
}

const futexWake = 1 // FUTEX_WAKE

// locked runs f while holding the lock for changes of the state.
func (s *session) locked(f func() error) error {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: stateLock, Len: 1}
	if err := s.lock(unix.F_OFD_SETLKW, &lock); err != nil {
		return fmt.Errorf("lock the state: %w", err)
	}
	err := f()
	lock = unix.Flock_t{Type: unix.F_UNLCK, Start: stateLock, Len: 1}
	return errors.Join(err, s.lock(unix.F_OFD_SETLK, &lock))
}

func (s *session) lock(command int, lock *unix.Flock_t) error {
	for {
		if err := unix.FcntlFlock(s.file.Fd(), command, lock); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
