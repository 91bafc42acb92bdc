package containerd

import "maps"

// CRIRuntime is the name of the plugin of containerd 2 that has the CDI settings, in the configuration format 3.
const CRIRuntime = "io.containerd.cri.v1.runtime"

// LoadMigrated reads the configuration of containerd 2: Section is that of CRIRuntime, with the default enable_cdi = true. Load describes the files.
//
// It follows containerd 2.2 (cmd/containerd/server/config/config.go, plugins/cri/runtime/plugin.go): keys of a section are merged over all files, files
// without a version have that of the files before them and the first one 3, and if the last version is 2, the keys of the section CRI are added to those
// that CRIRuntime lacks. The same holds for the keys of the table "containerd" in the two sections, but not for deeper tables: "runtimes" is that of one
// section. In format 3 the settings of CRI have no effect. As containerd, it reads no folder that the imports do not list.
func LoadMigrated(files Files, path string) (Config, error) {
	config := Config{Version: 3}
	current, former := map[string]any{}, map[string]any{}
	err := walk(files, path, func(file string, d document) {
		config.Loaded = append(config.Loaded, file)
		if d.Version > 1 {
			config.Version = d.Version
		} else {
			merge(former, d.Plugins["cri"])
		}
		merge(former, d.Plugins[CRI])
		merge(current, d.Plugins[CRIRuntime])
	})
	if err != nil {
		return Config{}, err
	}
	if config.Version > 2 {
		former = nil
	}
	settings := map[string]any{}
	config.Section = map[string]any{"enable_cdi": true}
	for _, section := range []map[string]any{former, current} {
		maps.Copy(config.Section, section)
		maps.Copy(settings, table(section, "containerd"))
	}
	config.Section["containerd"] = settings
	return config, nil
}

// merge adds the keys of a table to another one, those of nested tables one by one.
func merge(to, from map[string]any) {
	for key, value := range from {
		inner, isTable := value.(map[string]any)
		if outer, both := to[key].(map[string]any); both && isTable {
			merge(outer, inner)
			continue
		}
		to[key] = value
	}
}
