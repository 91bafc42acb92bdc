package prepare

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tessera-gpu/tessera/internal/host/disk/disktest"
	"github.com/tessera-gpu/tessera/internal/host/lock"
)

// holderDir tells a copy of the test binary to hold a lock in the folder until it is killed.
const holderDir = "TESSERA_TEST_LOCKS"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holderDir); dir != "" {
		os.Exit(holdUntilKilled(dir))
	}
	os.Exit(m.Run())
}

func holdUntilKilled(dir string) int {
	l := locks{dir: dir}
	for _, take := range []func() error{
		func() error { _, err := l.acquireClaim(context.Background(), ref("dead")); return err },
		func() error {
			_, err := l.acquireGPUs(context.Background(), []string{"gpu-0"}, ref("dead"))
			return err
		},
	} {
		if err := take(); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	fmt.Println("held")
	select {}
}

// TestKilledHolder kills a process that holds a claim's and a GPU's lock, and takes both. It runs while no other test does: until the process
// that it starts executes its program, it has every file that is open here, and a lock that is given back meanwhile stays held.
func TestKilledHolder(t *testing.T) {
	dir := t.TempDir()
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), holderDir+"="+dir)
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("the output of the holder is %q, %v", line, err)
	}
	l := locks{dir: dir}
	if _, free, err := l.tryAcquireClaim(ref("dead")); free || err != nil {
		t.Fatalf("the claim's lock while its holder lives: %v, %v", free, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = l.acquireGPUs(ctx, []string{"gpu-0"}, ref("a"))
	if !has(err, "waiting for gpu-0, held by claim team/dead in another process") || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting: %v, want the holder", err)
	}
	if err := command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err == nil {
		t.Fatal("the holder ended by itself")
	}
	one, free, err := l.tryAcquireClaim(ref("dead"))
	if !free || err != nil {
		t.Fatalf("the claim's lock after its holder's death: %v, %v", free, err)
	}
	one.releaseAndRemove()
	release, err := l.acquireGPUs(t.Context(), []string{"gpu-0"}, ref("a"))
	if err != nil {
		t.Fatal(err)
	}
	release()
}

// TestLockExcludes lets goroutines of several processes fight for one claim's lock, whose file comes
// and goes: two of them never hold it together.
func TestLockExcludes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var inside atomic.Int32
	var group sync.WaitGroup
	for range 3 {
		process := &locks{dir: dir}
		for range 3 {
			group.Go(func() {
				for range 50 {
					one, err := process.acquireClaim(t.Context(), ref("a"))
					if err != nil {
						t.Error(err)
						return
					}
					if n := inside.Add(1); n != 1 {
						t.Errorf("%d hold the lock", n)
					}
					inside.Add(-1)
					one.releaseAndRemove()
				}
			})
		}
	}
	group.Wait()
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestRemovedLockFile lets three processes fight for a lock whose file every holder removes, without a
// pause between their tries: a process that locks a file that was removed by then does not hold the lock.
func TestRemovedLockFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(disktest.Folder(t), "claim.lock")
	var inside atomic.Int32
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			for held := 0; held < 2000; {
				file, err := lockFile(nil, path, "claim team/a")
				if errors.Is(err, lock.ErrHeld) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				held++
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d hold the lock", n)
				}
				runtime.Gosched()
				inside.Add(-1)
				(&heldLock{file: file, leave: func() {}}).releaseAndRemove()
			}
		})
	}
	group.Wait()
}

// TestQueueIsFair lets goroutines line up one after the other: they get their turns in that order.
func TestQueueIsFair(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var q queue
		first, err := q.enter(t.Context(), "gpu-0", "first")
		if err != nil {
			t.Fatal(err)
		}
		if _, free := q.tryEnter("gpu-0", "hasty"); free {
			t.Fatal("two have the turn")
		}
		var order []int
		for i := range 5 {
			go func() {
				leave, err := q.enter(t.Context(), "gpu-0", "next")
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i)
				leave()
			}()
			synctest.Wait()
		}
		first()
		synctest.Wait()
		if diff := cmp.Diff([]int{0, 1, 2, 3, 4}, order); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
		if leave, free := q.tryEnter("gpu-0", "last"); !free {
			t.Error("the queue is empty, and the lock is not free")
		} else {
			leave()
		}
		if len(q.lines) != 0 {
			t.Errorf("empty queues: %v", q.lines)
		}
	})
}

// TestQueueRemovesLeavers lets a waiter give up, and the one behind it get its turn.
func TestQueueRemovesLeavers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var q queue
		first, err := q.enter(t.Context(), "gpu-0", "claim team/a")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		served := false
		go func() {
			leave, err := q.enter(t.Context(), "gpu-0", "claim team/c")
			if err != nil {
				t.Error(err)
				return
			}
			served = true
			leave()
		}()
		_, err = q.enter(ctx, "gpu-0", "claim team/b")
		if !errors.Is(err, context.DeadlineExceeded) || !has(err, "held by claim team/a") {
			t.Errorf("waiting: %v, want the holder and the deadline", err)
		}
		if served {
			t.Error("served while the turn was taken")
		}
		first()
		synctest.Wait()
		if !served {
			t.Error("the waiter behind one that gave up never got the lock")
		}
	})
}

// TestQueueGrantsFreeTurnAfterCancel enters free queues with a canceled context: the turn is granted all the same.
func TestQueueGrantsFreeTurnAfterCancel(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var q queue
	for range 100 {
		leave, err := q.enter(ctx, "gpu-0", "claim team/a")
		if err != nil {
			t.Fatal(err)
		}
		leave()
	}
}

func TestLocksReleaseOnFailure(t *testing.T) {
	t.Parallel()
	l := locks{dir: t.TempDir()}
	if err := os.Mkdir(l.path("gpu-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := l.acquireGPUs(t.Context(), []string{"gpu-0", "gpu-1"}, ref("a")); !has(err, "gpu-1") {
		t.Errorf("a lock that is a folder: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	release, err := l.acquireGPUs(ctx, []string{"gpu-0"}, ref("b"))
	if err != nil {
		t.Fatal(err)
	}
	release()
	if len(l.queue.lines) != 0 {
		t.Errorf("still in line: %v", l.queue.lines)
	}
}
