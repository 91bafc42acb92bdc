package mps

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

const (
	// serverName is the name of the daemon's only server.
	serverName = "gpu"
	// defaultNamespace is the namespace of clients that connect to the socket of the daemon or of the server.
	defaultNamespace = "default"
	// claimsName is the folder, among those of the sockets, with a folder for each claim.
	claimsName = "claims"
	socketName = "control"
)

// strayLimits are the limits of clients that are of no claim.
var strayLimits = prepare.Namespace{Name: defaultNamespace, ActiveThreadPercentage: 1, PinnedMemoryBytes: mebibyte}

// named are the commands of MPS version 3: nvidia-cuda-mps-control MODULE VERB ARGUMENTS. The daemon has one server, with a namespace for each claim.
//
// A client gets the limits of the namespace through whose socket it connects. The daemon makes the folder of that socket, and may replace it when it starts
// again. So a container has another folder mounted, with a hard link of the socket: it outlives the daemon, and has the link only while the limits of the
// namespace are in effect. The folder of the daemon stays closed.
//
// Source: NVIDIA Multi-Process Service, release 615, MPS v3 Interface and MPS v3 Namespaces.
type named struct{ *control }

func (d named) respond(ctx context.Context) error {
	_, err := d.call(ctx, "", "server", "list")
	return err
}

func (d named) stop(ctx context.Context) error {
	_, err := d.call(ctx, "", "--quit")
	return err
}

func (d named) reaches(was, c configuration) bool { return c.Visible == was.Visible }

func (d named) begin(ctx context.Context, c configuration) error {
	if err := d.startServer(ctx, c.Visible); err != nil {
		return err
	}
	return d.change(ctx, configuration{}, c)
}

// startServer creates the server and waits until it has the devices. A server that cannot use one ends, and its clients would run without MPS.
func (d named) startServer(ctx context.Context, devices string) error {
	ctx, cancel := context.WithTimeout(ctx, d.timeouts.start)
	defer cancel()
	answer, err := d.call(ctx, "", "server", "create", serverName, "--uid=0", "--allowed-devices="+devices)
	if err != nil {
		return err
	}
	for pause := firstPause; ; pause = min(2*pause, configPeriod) {
		servers, err := d.list(ctx, "server")
		if err != nil {
			return err
		}
		i := slices.IndexFunc(servers, func(row map[string]string) bool { return row["name"] == serverName })
		switch {
		case i < 0:
			return fmt.Errorf("check whether all devices exist and another program uses one: %w%s", errNoServer, formatOutput(answer+" "+d.output.last()))
		case strings.EqualFold(servers[i]["status"], "ready"):
			return nil
		}
		select {
		case <-d.done:
			return d.exitError()
		case <-ctx.Done():
			return fmt.Errorf("the daemon's server is not ready, but %q: %w", servers[i]["status"], ctx.Err())
		case <-time.After(pause):
		}
	}
}

// change makes the namespaces those of c. A namespace is created before its limits are set, and its socket is linked after they were read back. An agent of a
// release before namespaces configures none: then those of claims stay, and other clients get the limits of version 2.
func (d named) change(ctx context.Context, _, c configuration) error {
	present, err := d.namespaces(ctx)
	if err != nil {
		return err
	}
	wanted := append(slices.Clone(c.Namespaces), strayLimits)
	if len(c.Namespaces) == 0 {
		wanted = []prepare.Namespace{{Name: defaultNamespace, ActiveThreadPercentage: c.ActiveThreadPercentage, PinnedMemoryBytes: slices.Max(c.memory())}}
	} else if err := d.removeOthers(ctx, present, c.Namespaces); err != nil {
		return err
	}
	for _, n := range wanted {
		if err := d.limit(ctx, n, present); err != nil {
			return err
		}
	}
	if present, err = d.namespaces(ctx); err != nil {
		return err
	}
	for _, n := range wanted {
		if err := verifyNamespace(n, present[n.Name]); err != nil {
			return err
		}
		if n.Name != defaultNamespace {
			err = d.link(n.Name)
		}
		if err != nil {
			return fmt.Errorf("admit the clients of namespace %s: %w", n.Name, err)
		}
	}
	if len(c.Namespaces) == 0 {
		return os.Chmod(d.pipe, openMode)
	}
	return nil
}

// limit creates the namespace unless it is present, and sets its limits unless it has them.
func (d named) limit(ctx context.Context, n prepare.Namespace, present map[string]map[string]string) error {
	shown, exists := present[n.Name]
	if !exists {
		if _, err := d.call(ctx, "", "namespace", "create", n.Name, "--server="+serverName); err != nil {
			return err
		}
	} else if verifyNamespace(n, shown) == nil {
		return nil
	}
	// Without a percentage, the daemon's environment determines that of a namespace, and a client's environment that of the client.
	arguments := []string{"namespace", "set", n.Name, "--server=" + serverName, "--active-thread-percentage=" + strconv.Itoa(cmp.Or(n.ActiveThreadPercentage, 100))}
	if n.Name == defaultNamespace {
		arguments = []string{"server", "set", serverName, arguments[4]}
	}
	if n.PinnedMemoryBytes > 0 {
		arguments = append(arguments, "--pinned-memory-limit="+formatMemory(n.PinnedMemoryBytes))
	}
	_, err := d.call(ctx, "", arguments...)
	return err
}

// verifyNamespace returns an error unless the namespace has the limits, as the daemon lists it.
func verifyNamespace(n prepare.Namespace, shown map[string]string) error {
	percentage, err := strconv.ParseFloat(shown["active-thread-percentage"], 64)
	if err != nil || percentage != float64(cmp.Or(n.ActiveThreadPercentage, 100)) {
		return fmt.Errorf("namespace %s: the daemon has %q instead of an active thread percentage of %d",
			n.Name, shown["active-thread-percentage"], cmp.Or(n.ActiveThreadPercentage, 100))
	}
	memory := shown["pinned-memory-limit"]
	if n.PinnedMemoryBytes > 0 && memory != formatMemory(n.PinnedMemoryBytes) && memory != shownMemory(n.PinnedMemoryBytes) {
		return fmt.Errorf("namespace %s: the daemon has %q instead of a memory limit of %s", n.Name, memory, formatMemory(n.PinnedMemoryBytes))
	}
	return nil
}

// removeOthers removes the folders and the namespaces of claims that are not wanted. A namespace with clients stays, without a socket, until it has none: their
// claim may be one whose record was damaged.
func (d named) removeOthers(ctx context.Context, present map[string]map[string]string, wanted []prepare.Namespace) error {
	keeps := func(name string) bool {
		return name == defaultNamespace || slices.ContainsFunc(wanted, func(n prepare.Namespace) bool { return n.Name == name })
	}
	folders, err := os.ReadDir(filepath.Join(d.pipe, claimsName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, folder := range folders {
		if keeps(folder.Name()) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(d.pipe, claimsName, folder.Name())); err != nil {
			return err
		}
	}
	for name := range present {
		if keeps(name) {
			continue
		}
		if _, err := d.call(ctx, "", "namespace", "delete", name, "--server="+serverName); err != nil {
			klog.FromContext(ctx).Info("A namespace without a claim stays until the next change: it may have clients", "namespace", name, "err", err)
		}
	}
	return nil
}

// link puts a hard link of the namespace's socket into the folder of the claim, in place of that of an earlier daemon.
func (d named) link(name string) error {
	socket, folder := filepath.Join(d.pipe, serverName, name, socketName), filepath.Join(d.pipe, claimsName, name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	there, err := os.Stat(socket)
	if err != nil {
		return err
	}
	linked := filepath.Join(folder, socketName)
	if here, err := os.Stat(linked); err == nil {
		if os.SameFile(there, here) {
			return nil
		}
		if err := os.Remove(linked); err != nil {
			return err
		}
	}
	return os.Link(socket, linked)
}

// namespaces returns the namespaces of the server by name, with their fields.
func (d named) namespaces(ctx context.Context) (map[string]map[string]string, error) {
	rows, err := d.list(ctx, "namespace", "--server="+serverName)
	if err != nil {
		return nil, err
	}
	byName := map[string]map[string]string{}
	for _, row := range rows {
		byName[row["name"]] = row
	}
	return byName, nil
}

// list returns the rows that the module lists, with their fields by the names that its verb get has for them.
func (d named) list(ctx context.Context, module string, arguments ...string) ([]map[string]string, error) {
	answer, err := d.call(ctx, "", append([]string{module, "list", "--format=csv"}, arguments...)...)
	if err != nil {
		return nil, err
	}
	table, err := csv.NewReader(strings.NewReader(answer)).ReadAll()
	if err != nil || len(table) == 0 {
		return nil, fmt.Errorf("%s list: not a table%s: %w", module, formatOutput(answer), cmp.Or(err, errors.New("it has no header")))
	}
	var rows []map[string]string
	for _, fields := range table[1:] {
		row := map[string]string{}
		for i, column := range table[0] {
			row[strings.NewReplacer(" ", "-", "_", "-").Replace(strings.ToLower(strings.TrimSpace(column)))] = strings.TrimSpace(fields[i])
		}
		rows = append(rows, row)
	}
	return rows, nil
}
