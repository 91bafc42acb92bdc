package lab

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/tessera-gpu/tessera/e2e/env/lab/address"
	"github.com/tessera-gpu/tessera/e2e/env/lab/machine"
)

// state is the persistent state by which another process can use and stop a lab. It is written before the named
// resources are created.
type state struct {
	ID    string       `json:"id"` // random; part of every name that the lab uses on the host
	Plan  address.Plan `json:"plan"`
	Nodes []NodeSpec   `json:"nodes"`
	// Cache is the folder of the built programs.
	Cache string `json:"cache"`
	// Kubernetes is the minor version of the control plane, such as 1.37.
	Kubernetes string `json:"kubernetes"`
}

var (
	// ErrExists is returned if the folder already has a lab.
	ErrExists = errors.New("this folder already has a lab; remove it first")
	// ErrNoLab is returned if the folder has no lab.
	ErrNoLab = errors.New("there is no lab")
)

func newState(nodes []NodeSpec, kubernetes string) (state, error) {
	var id [4]byte
	if _, err := rand.Read(id[:]); err != nil {
		return state{}, fmt.Errorf("draw the lab's id: %w", err)
	}
	return state{ID: hex.EncodeToString(id[:]), Nodes: nodes, Kubernetes: kubernetes}, nil
}

// hostLink returns the name of the host's end of the link into the lab.
func (s state) hostLink() string { return "tl" + s.ID }

// cgroup returns the name of the control group tree of a machine, or, for an empty name, of all machines.
func (s state) cgroup(machine string) string {
	return filepath.Join("tessera-lab-"+s.ID, machine)
}

func (s state) machine(folder, name string) machine.Machine {
	return machine.At(filepath.Join(folder, "machines", name), s.cgroup(name))
}

// node returns the index of a node, which determines its addresses.
func (s state) node(name string) (int, error) {
	index := slices.IndexFunc(s.Nodes, func(n NodeSpec) bool { return n.Name == name })
	if index < 0 {
		return 0, fmt.Errorf("the lab has no node %q", name)
	}
	return index, nil
}

func stateFile(folder string) string { return filepath.Join(folder, "lab.json") }

// claim writes the first state of a lab into a folder that is absent or empty.
func (s state) claim(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("make the lab's folder: %w", err)
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("look into the lab's folder: %w", err)
	}
	if _, err := os.Stat(stateFile(folder)); err == nil {
		return fmt.Errorf("%s: %w", folder, ErrExists)
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s is not empty and holds no lab: choose another folder", folder)
	}
	return s.save(folder)
}

// save replaces the state on disk.
func (s state) save(folder string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("write the lab's state: %w", err)
	}
	next := stateFile(folder) + ".next"
	if err := os.WriteFile(next, text, 0o644); err != nil {
		return fmt.Errorf("write the lab's state: %w", err)
	}
	if err := os.Rename(next, stateFile(folder)); err != nil {
		return fmt.Errorf("write the lab's state: %w", err)
	}
	return nil
}

func load(folder string) (state, error) {
	text, err := os.ReadFile(stateFile(folder))
	if errors.Is(err, fs.ErrNotExist) {
		return state{}, fmt.Errorf("%s: %w", folder, ErrNoLab)
	}
	if err != nil {
		return state{}, fmt.Errorf("read the lab's state: %w", err)
	}
	var s state
	if err := json.Unmarshal(text, &s); err != nil {
		return state{}, fmt.Errorf("read the lab's state: %w", err)
	}
	return s, nil
}
