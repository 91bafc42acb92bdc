package dist

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// chartFile is the archive with the chart.
func chartFile(version string) string { return "tessera-" + version + ".tgz" }

// writeChart writes the chart with the version of the release and the digests of its images, and returns the reference of its artifact.
func (r *release) writeChart(built images) (string, error) {
	files, err := chartFiles(filepath.Join(r.Source, "deployments", "helm", "tessera"))
	if err != nil {
		return "", fmt.Errorf("write the chart: %w", err)
	}
	for i := range files {
		switch files[i].name {
		case "tessera/Chart.yaml":
			files[i].content, err = replaceOnce(files[i].content, [][2]string{
				{"\nversion: 0.1.0\n", "\nversion: " + r.chartVersion() + "\n"}, {"\nappVersion: dev\n", "\nappVersion: " + r.Version + "\n"},
			})
		case "tessera/values.yaml":
			files[i].content, err = replaceOnce(files[i].content, r.imageValues(built))
		}
		if err != nil {
			return "", fmt.Errorf("write the chart: %s: %w", files[i].name, err)
		}
	}
	packed, err := tarGz(files, r.time)
	if err != nil {
		return "", fmt.Errorf("write the chart: %w", err)
	}
	if err := r.write(chartFile(r.chartVersion()), packed); err != nil {
		return "", err
	}
	artifact, err := newChartArtifact(packed)
	if err != nil {
		return "", fmt.Errorf("write the chart: %w", err)
	}
	digest, err := artifact.Digest()
	if err != nil {
		return "", fmt.Errorf("write the chart: %w", err)
	}
	return r.Registry + "/charts/tessera:" + r.chartVersion() + "@" + digest.String(), nil
}

// imageValues returns the texts of the chart's values that name images, and those that replace them.
func (r *release) imageValues(built images) [][2]string {
	replaced := [][2]string{
		{"\n  tag: dev\n", "\n  tag: " + r.Version + "\n"},
		{"\n  architectures: []\n", "\n  architectures: [" + strings.Join(architectures, ", ") + "]\n"},
	}
	for _, one := range built {
		before := fmt.Sprintf("\n  %s: {repository: localhost/tessera/%s", one.component, one.component)
		after := fmt.Sprintf("\n  %s: {repository: %s", one.component, one.repository)
		if one.kubernetes != "" {
			replaced = append(replaced, [2]string{before + ", kubernetes: {}}\n", fmt.Sprintf("%s, kubernetes: {%q: {digest: %q}}}\n", after, one.kubernetes, one.digest)})
			continue
		}
		replaced = append(replaced, [2]string{before + "}\n", fmt.Sprintf("%s, digest: %q}\n", after, one.digest)})
	}
	return replaced
}

// replaceOnce replaces texts that a file must contain once.
func replaceOnce(content []byte, pairs [][2]string) ([]byte, error) {
	for _, pair := range pairs {
		if found := bytes.Count(content, []byte(pair[0])); found != 1 {
			return nil, fmt.Errorf("contains %q %d times, want once", strings.TrimSpace(pair[0]), found)
		}
		content = bytes.Replace(content, []byte(pair[0]), []byte(pair[1]), 1)
	}
	return content, nil
}

// chartFiles returns the files of a chart in order, below a folder with the name of the chart.
func chartFiles(folder string) ([]entry, error) {
	var files []entry
	err := filepath.WalkDir(folder, func(file string, info fs.DirEntry, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		relative, err := filepath.Rel(folder, file)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(file)
		files = append(files, entry{name: path.Join(filepath.Base(folder), filepath.ToSlash(relative)), content: content})
		return err
	})
	return files, err
}

// chartMetadata returns Chart.yaml of a chart as JSON, with its name and version.
func chartMetadata(chartYAML []byte) (text []byte, name, version string, err error) {
	if text, err = yaml.YAMLToJSON(chartYAML); err != nil {
		return nil, "", "", err
	}
	var chart struct{ Name, Version string }
	err = json.Unmarshal(text, &chart)
	return text, chart.Name, chart.Version, err
}
