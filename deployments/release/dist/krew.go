package dist

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/tessera-gpu/tessera/deployments/images/bundle"
)

// krewPlugin is the manifest of a plugin, kind Plugin of krew.googlecontainertools.github.com/v1alpha2.
type krewPlugin struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]string `json:"metadata"`
	Spec       krewSpec          `json:"spec"`
}

type krewSpec struct {
	Version          string         `json:"version"`
	Homepage         string         `json:"homepage"`
	ShortDescription string         `json:"shortDescription"`
	Description      string         `json:"description"`
	Platforms        []krewPlatform `json:"platforms"`
}

type krewPlatform struct {
	Selector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	} `json:"selector"`
	URI    string `json:"uri"`
	SHA256 string `json:"sha256"`
	Bin    string `json:"bin"`
}

// writeKrew writes the manifest that krew's index has of the CLI.
func (r *release) writeKrew(archives []cliArchive) error {
	plugin := krewPlugin{APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin", Metadata: map[string]string{"name": "tessera"}, Spec: krewSpec{
		Version: r.Version, Homepage: bundle.Source, ShortDescription: "Show and diagnose GPUs of Tessera",
		Description: "Shows the GPUs of a cluster with their claims and faults, explains why pods wait for GPUs,\nand plans upgrades of GPU drivers. Requires Tessera in the cluster.\n",
	}}
	for _, archive := range archives {
		digest, err := sum(filepath.Join(r.Out, archive.file))
		if err != nil {
			return err
		}
		p := krewPlatform{URI: bundle.Source + "/releases/download/" + r.Version + "/" + archive.file, SHA256: digest, Bin: archive.program()}
		p.Selector.MatchLabels = map[string]string{"os": archive.system, "arch": archive.architecture}
		plugin.Spec.Platforms = append(plugin.Spec.Platforms, p)
	}
	text, err := yaml.Marshal(plugin)
	if err != nil {
		return fmt.Errorf("write %s: %w", KrewFile, err)
	}
	return r.write(KrewFile, text)
}

// writeSums writes the digests of all files that the release has so far, in the format of sha256sum.
func (r *release) writeSums() error {
	files, err := os.ReadDir(r.Out) // sorted
	if err != nil {
		return fmt.Errorf("write %s: %w", SumsFile, err)
	}
	var lines []string
	for _, file := range files {
		digest, err := sum(filepath.Join(r.Out, file.Name()))
		if err != nil {
			return err
		}
		lines = append(lines, digest+"  "+file.Name()+"\n")
	}
	return r.write(SumsFile, []byte(strings.Join(lines, "")))
}

// writeReferences writes the images and the chart by tag and digest.
func (r *release) writeReferences(references []string) error {
	slices.Sort(references)
	return r.write(ReferencesFile, []byte(strings.Join(references, "\n")+"\n"))
}

// sum returns the SHA-256 digest of a file.
func sum(file string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("compute the digest of a file: %w", err)
	}
	digest := sha256.Sum256(content)
	return hex.EncodeToString(digest[:]), nil
}
