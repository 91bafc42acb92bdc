package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tessera-gpu/tessera/e2e/env/lab"
	"github.com/tessera-gpu/tessera/e2e/env/lab/machine"
)

func newStatus(p *place) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show every computer and its programs",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := lab.Open(p.dir(), nil)
			if err != nil {
				return err
			}
			return printStatus(cmd, l)
		},
	}
}

func printStatus(cmd *cobra.Command, l *lab.Lab) error {
	cmd.Printf("Kubernetes %s\n", l.Kubernetes())
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	row(table, "COMPUTER", "SERVICE", "STATE", "RESTARTS", "LOGS")
	computers := []*lab.Computer{l.ControlPlane()}
	for _, node := range l.Nodes() {
		computers = append(computers, &node.Computer)
	}
	for _, computer := range computers {
		services, err := computer.Services(cmd.Context())
		if errors.Is(err, machine.ErrDown) {
			row(table, computer.Name(), "-", "down", "", computer.Logs())
			continue
		}
		if err != nil {
			return err
		}
		for _, service := range services {
			row(table, computer.Name(), service.Name, string(service.State), fmt.Sprint(service.Restarts), computer.Logs()+"/"+service.Name+".log")
		}
	}
	return table.Flush()
}

func row(table io.Writer, cells ...string) {
	for _, cell := range cells {
		fmt.Fprintf(table, "%s\t", cell) //nolint:errcheck // Flush reports it
	}
	fmt.Fprintln(table) //nolint:errcheck // Flush reports it
}

func newKubeconfig(p *place) *cobra.Command {
	return &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print the path of the cluster's kubeconfig",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := lab.Open(p.dir(), nil)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), l.Kubeconfig()) //nolint:errcheck // standard output
			return nil
		},
	}
}

func newImages(p *place) *cobra.Command {
	cmd := &cobra.Command{Use: "images", Short: "Container images of the nodes"}
	cmd.AddCommand(&cobra.Command{
		Use:   "load ARCHIVE…",
		Short: "Import archives on every node",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := lab.Open(p.dir(), nil)
			if err != nil {
				return err
			}
			for _, archive := range args {
				if err := l.LoadImage(cmd.Context(), archive); err != nil {
					return err
				}
			}
			return nil
		},
	})
	return cmd
}
