package cluster

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
)

// AddSelector defines the flag of a label selector. what are the objects that it selects.
func AddSelector(cmd *cobra.Command, selector *string, what string) {
	cmd.Flags().StringVarP(selector, "selector", "l", "", "label selector of the "+what+", such as zone=a or 'zone in (a,b)'")
}

// Validate returns an error for an invalid label selector, and that of the other flags.
func Validate(others interface{ Validate() error }, selector string) error {
	if _, err := labels.Parse(selector); err != nil {
		return fmt.Errorf("--selector %q: %w", selector, err)
	}
	return others.Validate()
}
