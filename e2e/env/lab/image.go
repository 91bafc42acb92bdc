package lab

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sync/errgroup"
)

// LoadImage imports an archive of images, in OCI or Docker layout, on every node. A node that is down is an error.
func (l *Lab) LoadImage(ctx context.Context, archive string) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, node := range l.Nodes() {
		group.Go(func() error { return node.loadImage(ctx, archive) })
	}
	return group.Wait()
}

func (n *Node) loadImage(ctx context.Context, archive string) error {
	file, err := os.Open(archive)
	if err != nil {
		return fmt.Errorf("load images: %w", err)
	}
	defer file.Close() //nolint:errcheck // opened for reading
	cmd, err := n.Command(ctx, "ctr", "--namespace", "k8s.io", "images", "import", "-")
	if err != nil {
		return err
	}
	cmd.Stdin = file
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("load images from %s on %s: %w: %s", archive, n.name, err, output)
	}
	return nil
}
