package mps

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

var histories = flag.Int("histories", 50, "how many histories TestHistories runs")

// history is a random history of a daemon's claims. The daemon is a model of MPS version 3 that can be killed before and after each command; the fake driver's
// daemon, a process, would be too slow for many histories.
type history struct {
	t      *testing.T
	seed   uint64
	random *rand.Rand
	pipe   string
	daemon *modelDaemon
	// serving is what is in effect, wanted what is requested, from claims.
	serving, wanted configuration
	count           int
	// changes and kills count what has happened.
	changes, kills, kept int
}

// modelDaemon is one daemon, with the server gpu.
type modelDaemon struct {
	pipe string
	// namespaces are nil before the server exists.
	namespaces map[string]*modelNamespace
	clients    map[string]int
	killed     bool
	// left is the number of steps until it is killed; each command has two.
	left int
	// step is called before and after each command.
	step func()
}

// modelNamespace is a namespace with its limits as commands set them, and its socket.
type modelNamespace struct {
	percentage, memory string
	socket             fs.FileInfo
}

// TestHistories checks at every command that a container can connect only through a namespace with the limits of its claim, while claims come, change and go, and the
// daemon is killed; and that no namespace and no socket remains of a claim that was released.
func TestHistories(t *testing.T) {
	t.Parallel()
	var changes, kills, kept int
	for seed := range uint64(*histories) {
		folder, err := os.MkdirTemp("", "history")
		if err != nil {
			t.Fatal(err)
		}
		h := &history{t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 0)), pipe: filepath.Join(folder, pipeName)}
		h.run()
		if err := os.RemoveAll(folder); err != nil {
			t.Fatal(err)
		}
		changes, kills, kept = changes+h.changes, kills+h.kills, kept+h.kept
		if t.Failed() {
			return
		}
	}
	t.Logf("%d changes, %d daemons killed, %d namespaces kept for their clients", changes, kills, kept)
	if changes == 0 || kills == 0 || kept == 0 {
		t.Error("something did not happen")
	}
}

func (h *history) run() {
	h.addClaim()
	for range 30 {
		events := []func(){h.addClaim, h.removeClaim, h.changeClaim, h.connect, h.disconnect, func() { h.daemon.kill() }}
		if h.daemon != nil {
			events[h.random.IntN(len(events))]()
		}
		h.apply()
	}
	// The last change, of a daemon without clients.
	clear(h.daemon.clients)
	h.wanted.Namespaces = slices.Clone(h.wanted.Namespaces[:1])
	h.wanted.Namespaces[0].ActiveThreadPercentage = 77
	h.apply()
	if names := h.namesOf(h.daemon.namespaces); len(names) != 2 {
		h.errorf("namespaces %v remain", names)
	}
}

func (h *history) errorf(format string, args ...any) {
	h.t.Helper()
	h.t.Errorf("seed %d: "+format, append([]any{h.seed}, args...)...)
}

func (h *history) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatalf("seed %d: %v", h.seed, err)
	}
}

func (h *history) namesOf(all map[string]*modelNamespace) []string {
	return slices.Sorted(maps.Keys(all))
}

func (h *history) randomLimits(name string) prepare.Namespace {
	return prepare.Namespace{Name: name, ActiveThreadPercentage: 10 * h.random.IntN(6), PinnedMemoryBytes: int64(h.random.IntN(9)) << 30}
}

func (h *history) addClaim() {
	if len(h.wanted.Namespaces) < 4 {
		h.count++
		h.wanted.Namespaces = append(slices.Clone(h.wanted.Namespaces), h.randomLimits("c_"+strconv.Itoa(h.count)))
	}
}

// removeClaim releases a claim; with the last one, the daemon ends, which is not a history of it.
func (h *history) removeClaim() {
	if n := len(h.wanted.Namespaces); n > 1 {
		i := h.random.IntN(n)
		h.wanted.Namespaces = slices.Delete(slices.Clone(h.wanted.Namespaces), i, i+1)
	}
}

func (h *history) changeClaim() {
	list := slices.Clone(h.wanted.Namespaces)
	i := h.random.IntN(len(list))
	list[i] = h.randomLimits(list[i].Name)
	h.wanted.Namespaces = list
}

func (h *history) connect() {
	name := h.wanted.Namespaces[h.random.IntN(len(h.wanted.Namespaces))].Name
	if h.daemon.namespaces[name] != nil {
		h.daemon.clients[name]++
	}
}

func (h *history) disconnect() {
	for name := range h.daemon.clients {
		if h.random.IntN(2) == 0 {
			delete(h.daemon.clients, name)
		}
	}
}

// apply does what the supervisor does until the wanted configuration is in effect: it changes a daemon that runs, and starts another one after its end.
func (h *history) apply() {
	for attempt := 0; ; attempt++ {
		if h.daemon != nil && attempt == 0 && h.random.IntN(3) == 0 {
			h.daemon.left = 1 + h.random.IntN(12)
		}
		if h.daemon == nil || h.daemon.killed {
			h.must(clearFolder(h.pipe))
			h.must(os.Chmod(h.pipe, closedMode))
			h.daemon = &modelDaemon{pipe: h.pipe, clients: map[string]int{}, step: h.check}
			if h.random.IntN(4) == 0 {
				h.daemon.left = 1 + h.random.IntN(20)
			}
			h.serving = configuration{}
		}
		d := named{&control{pipe: h.pipe, timeouts: longTimeouts(), output: &tail{}, done: make(chan struct{}), execute: h.daemon.execute}}
		quiet := klog.NewContext(h.t.Context(), logr.Discard())
		var err error
		if h.daemon.namespaces == nil {
			err = d.begin(quiet, h.wanted)
		} else {
			err = d.change(quiet, h.serving, h.wanted)
		}
		if err == nil {
			break
		}
		if !h.daemon.killed {
			h.t.Fatalf("seed %d: %v", h.seed, err)
		}
		h.kills++
	}
	h.daemon.left = 0
	h.changes++
	h.serving = h.wanted
	h.checkServing()
}

// check is called before and after each command: the containers of a claim reach its namespace with its limits, those in effect before or those that are wanted,
// or nothing.
func (h *history) check() {
	for name, socket := range h.links() {
		n := h.daemon.namespaces[name]
		if h.daemon.killed || n == nil || !os.SameFile(socket, n.socket) {
			if !h.daemon.killed {
				h.errorf("the folder of %s has a socket of an earlier daemon", name)
			}
			continue
		}
		fits := func(c configuration) bool {
			return slices.ContainsFunc(c.Namespaces, func(w prepare.Namespace) bool { return w.Name == name && verifyNamespace(w, n.shown()) == nil })
		}
		if !fits(h.serving) && !fits(h.wanted) {
			h.errorf("the containers of %s reach a namespace with %v; in effect: %v, wanted: %v", name, n.shown(), h.serving.Namespaces, h.wanted.Namespaces)
		}
	}
}

// checkServing checks a daemon whose configuration is in effect.
func (h *history) checkServing() {
	h.check()
	links := h.links()
	names := map[string]bool{}
	for _, w := range append(slices.Clone(h.serving.Namespaces), strayLimits) {
		names[w.Name] = true
		n := h.daemon.namespaces[w.Name]
		if n == nil {
			h.errorf("no namespace %s", w.Name)
			continue
		}
		if err := verifyNamespace(w, n.shown()); err != nil {
			h.errorf("%v", err)
		}
		if links[w.Name] == nil && w.Name != defaultNamespace {
			h.errorf("the containers of %s have no socket", w.Name)
		}
	}
	for name := range h.daemon.namespaces {
		switch {
		case names[name]:
		case h.daemon.clients[name] > 0:
			h.kept++
		default:
			h.errorf("namespace %s remains", name)
		}
	}
	for name := range links {
		if !names[name] {
			h.errorf("a socket of %s remains", name)
		}
	}
	if info, err := os.Stat(h.pipe); err != nil || info.Mode().Perm() != closedMode {
		h.errorf("the folder of all sockets: %v, %v", info.Mode(), err)
	}
}

// links returns the sockets in the folders of claims, by their names.
func (h *history) links() map[string]fs.FileInfo {
	folders, err := os.ReadDir(filepath.Join(h.pipe, claimsName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.must(err)
	}
	all := map[string]fs.FileInfo{}
	for _, folder := range folders {
		info, err := os.Stat(filepath.Join(h.pipe, claimsName, folder.Name(), socketName))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		h.must(err)
		all[folder.Name()] = info
	}
	return all
}

// shown are the limits as the daemon lists them.
func (n *modelNamespace) shown() map[string]string {
	return map[string]string{"active-thread-percentage": n.percentage, "pinned-memory-limit": n.memory}
}

func (d *modelDaemon) kill() { d.killed = true }

var errModelKilled = errors.New("cannot find MPS control daemon process")

// execute is one command. The daemon can be killed before and after its effect.
func (d *modelDaemon) execute(_ context.Context, _ string, arguments []string) (string, error) {
	if d.passes() != nil {
		return "", errModelKilled
	}
	answer, err := d.respond(arguments)
	return answer, errors.Join(err, d.passes())
}

func (d *modelDaemon) passes() error {
	if d.left--; d.left == 0 {
		d.kill()
	}
	d.step()
	if d.killed {
		return errModelKilled
	}
	return nil
}

func (d *modelDaemon) respond(arguments []string) (string, error) {
	flags := map[string]string{}
	var words []string
	for _, a := range arguments {
		if name, value, isFlag := strings.Cut(a, "="); isFlag && strings.HasPrefix(a, "--") {
			flags[name] = value
		} else {
			words = append(words, a)
		}
	}
	line, name := strings.Join(words[:2], " "), strings.Join(words[2:], " ")
	switch n := d.namespaces[name]; {
	case line == "server create" && d.namespaces == nil:
		d.namespaces = map[string]*modelNamespace{}
		return "", d.create(defaultNamespace)
	case line == "server list":
		return "name,status\n" + serverName + ",ready\n", nil
	case line == "server set" && name == serverName:
		d.namespaces[defaultNamespace].set(flags)
	case line == "namespace list":
		text := "name,active-thread-percentage,pinned-memory-limit\n"
		for name, n := range d.namespaces {
			text += fmt.Sprintf("%s,%s,%s\n", name, n.percentage, n.memory)
		}
		return text, nil
	case line == "namespace create" && n == nil:
		return "", d.create(name)
	case line == "namespace set" && n != nil:
		n.set(flags)
	case line == "namespace delete" && n != nil && d.clients[name] == 0:
		delete(d.namespaces, name)
		return "", os.RemoveAll(filepath.Join(d.pipe, serverName, name))
	default:
		return "", fmt.Errorf("refused: %s", strings.Join(arguments, " "))
	}
	return "", nil
}

// create makes a namespace, which has the whole GPU, with its socket.
func (d *modelDaemon) create(name string) error {
	path := filepath.Join(d.pipe, serverName, name, socketName)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o600)); err != nil {
		return err
	}
	// The number of a removed file's inode is used again, its time is not.
	now := time.Now()
	if err := os.Chtimes(path, now, now); err != nil {
		return err
	}
	info, err := os.Stat(path)
	d.namespaces[name] = &modelNamespace{percentage: "100.0", memory: "", socket: info}
	return err
}

// set changes the limits that the command has.
func (n *modelNamespace) set(flags map[string]string) {
	if value, has := flags["--active-thread-percentage"]; has {
		n.percentage = value + ".0"
	}
	if value, has := flags["--pinned-memory-limit"]; has {
		n.memory = value
	}
}
