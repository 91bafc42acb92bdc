package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/installer/controller"
	"github.com/tessera-gpu/tessera/installer/crds"
	"github.com/tessera-gpu/tessera/installer/render"
	"github.com/tessera-gpu/tessera/internal/logs"
	"github.com/tessera-gpu/tessera/internal/version"
)

// options are the values of the flags.
type options struct {
	kubeconfig, namespace, images, metricsAddress, healthAddress, pprofAddress string
	leaderElect                                                                bool
}

// command returns the root command, which runs the installer.
func command() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:           "tessera-installer",
		Short:         "Install and upgrade GPU drivers, node agents and other operands as defined by the ClusterPolicy",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return run(cmd, o) },
	}
	all := cmd.PersistentFlags()
	all.StringVar(&o.kubeconfig, "kubeconfig", "", "path of the kubeconfig file; empty for the in-cluster configuration")
	all.StringVar(&o.namespace, "namespace", "tessera-system", "namespace of the installer and its operands")
	logs.Add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.images, "images", "", "YAML file with the images of the release")
	flags.StringVar(&o.metricsAddress, "metrics-address", ":8080", "address of the metrics endpoint; 0 disables it")
	flags.StringVar(&o.healthAddress, "health-address", "0", "address of /healthz, which fails if the installer hangs; 0 disables it")
	flags.StringVar(&o.pprofAddress, "pprof-address", "0", "address of net/http/pprof, which requires no token: use 127.0.0.1:6060 and kubectl port-forward; 0 disables it")
	flags.BoolVar(&o.leaderElect, "leader-elect", false, "reconcile only while holding the lease "+controller.Lease+" of the namespace")
	cmd.AddCommand(crdsCommand(o), cleanupCommand(o), &cobra.Command{
		Use: "version", Short: "Print the version of this program", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionText(debug.ReadBuildInfo()))
			return err
		},
	})
	return cmd
}

// versionText returns the version and the Go version from the build information.
func versionText(info *debug.BuildInfo, ok bool) string {
	if !ok {
		return "tessera-installer unknown"
	}
	return fmt.Sprintf("tessera-installer %s %s", version.Release(info), info.GoVersion)
}

// access returns the client configuration.
func (o *options) access() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("load the in-cluster configuration: %w", err)
	}
	config.UserAgent = controller.UserAgent
	return config, nil
}

// readImages reads the images of the release. Unknown keys are an error.
func readImages(path string) (render.Images, error) {
	if path == "" {
		return render.Images{}, errors.New("--images is not set: set it to the file with the images of the release")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return render.Images{}, fmt.Errorf("read images: %w", err)
	}
	var images render.Images
	if err := yaml.UnmarshalStrict(text, &images); err != nil {
		return render.Images{}, fmt.Errorf("read images from %s: %w", path, err)
	}
	return images, nil
}

// run runs the installer until ctx ends.
func run(cmd *cobra.Command, o *options) error {
	access, err := o.access()
	if err != nil {
		return err
	}
	images, err := readImages(o.images)
	if err != nil {
		return err
	}
	released, err := schemas()
	if err != nil {
		return err
	}
	logger := klog.Background()
	ctrl.SetLogger(logger)
	return controller.Run(klog.NewContext(cmd.Context(), logger), controller.Config{
		Access: access, Namespace: o.namespace, Images: images, Schemas: released, Lacks: lacks, LeaderElect: o.leaderElect, MetricsAddress: o.metricsAddress,
		HealthAddress: o.healthAddress, PprofAddress: o.pprofAddress,
	})
}

// schemas are the hashes of the CRDs' schemas of this release by the CRDs' names.
func schemas() (map[string]string, error) {
	list, err := crds.Load()
	if err != nil {
		return nil, err
	}
	hashes := map[string]string{}
	for _, crd := range list {
		hashes[crd.Name] = crd.Annotations[crds.HashAnnotation]
	}
	return hashes, nil
}
