package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tessera-gpu/tessera/e2e/env/cluster"
	"github.com/tessera-gpu/tessera/e2e/env/lab"
)

// hardware returns the simulator that creates the GPUs of this lab's nodes.
func hardware() lab.Hardware { return cluster.Hardware{} }

// parseNode parses NAME or NAME=GPU-SPEC.
func parseNode(text string) lab.NodeSpec {
	name, gpu, _ := strings.Cut(text, "=")
	return lab.NodeSpec{Name: name, GPU: gpu}
}

func newNode(p *place) *cobra.Command {
	cmd := &cobra.Command{Use: "node", Short: "Power and cable of a node"}
	for _, verb := range []struct {
		name, short string
		do          func(*lab.Node, context.Context) error
	}{
		{"kill", "Cut the power: everything on the node ends at once", (*lab.Node).Kill},
		{"stop", "Shut the node down in order", (*lab.Node).Stop},
		{"start", "Boot a node that is down and wait until it is Ready", (*lab.Node).Start},
		{"reboot", "Stop and start the node", (*lab.Node).Reboot},
		{"partition", "Pull the node's cable", (*lab.Node).Partition},
		{"heal", "Plug the cable in again", (*lab.Node).Heal},
	} {
		cmd.AddCommand(&cobra.Command{
			Use:   verb.name + " NODE",
			Short: verb.short,
			Args:  cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				l, err := lab.Open(p.dir(), hardware())
				if err != nil {
					return err
				}
				node, err := l.Node(args[0])
				if err != nil {
					return err
				}
				return verb.do(node, cmd.Context())
			},
		})
	}
	cmd.AddCommand(newExec(p))
	return cmd
}

func newExec(p *place) *cobra.Command {
	return &cobra.Command{
		Use:   "exec NODE -- PROGRAM [ARGUMENT…]",
		Short: "Run a program inside a node, or inside control-plane",
		Args:  cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			computer, err := openComputer(p, args[0])
			if err != nil {
				return err
			}
			inside, err := computer.Command(cmd.Context(), args[1:]...)
			if err != nil {
				return err
			}
			inside.Stdin, inside.Stdout, inside.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
			return inside.Run()
		},
	}
}

// newService returns the command that stops, starts and kills services of a machine.
func newService(p *place) *cobra.Command {
	cmd := &cobra.Command{Use: "service", Short: "Stop, start or crash a program of a node or of control-plane"}
	for _, verb := range []struct {
		name, short string
		do          func(*lab.Computer, context.Context, string) error
	}{
		{"stop", "Stop it until it is started", (*lab.Computer).StopService},
		{"start", "Start it and wait until it is ready", (*lab.Computer).StartService},
		{"restart", "Stop and start it", (*lab.Computer).RestartService},
		{"kill", "Crash it; it is started again by itself", (*lab.Computer).KillService},
	} {
		cmd.AddCommand(&cobra.Command{
			Use:   verb.name + " COMPUTER SERVICE",
			Short: verb.short,
			Args:  cobra.ExactArgs(2),
			RunE: func(cmd *cobra.Command, args []string) error {
				computer, err := openComputer(p, args[0])
				if err != nil {
					return err
				}
				return verb.do(computer, cmd.Context(), args[1])
			},
		})
	}
	return cmd
}

// openComputer returns a node, or the control plane, by its name.
func openComputer(p *place, name string) (*lab.Computer, error) {
	l, err := lab.Open(p.dir(), hardware())
	if err != nil {
		return nil, err
	}
	if plane := l.ControlPlane(); plane.Name() == name {
		return plane, nil
	}
	node, err := l.Node(name)
	if err != nil {
		return nil, fmt.Errorf("%w; the others are %s", err, names(l))
	}
	return &node.Computer, nil
}

func names(l *lab.Lab) string {
	list := []string{l.ControlPlane().Name()}
	for _, node := range l.Nodes() {
		list = append(list, node.Name())
	}
	return strings.Join(list, ", ")
}
