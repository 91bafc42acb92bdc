package oci

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// Tree returns the folders, files and links below a folder of the host, each at the path that rename returns for its path below the folder. Those for
// which it returns "" are left out. What is neither, such as a device, is left out as well: the container runtime provides it.
func Tree(root string, rename func(name string) string) ([]File, error) {
	var files []File
	err := filepath.WalkDir(root, func(source string, entry fs.DirEntry, err error) error {
		if err != nil || source == root {
			return err
		}
		name, err := filepath.Rel(root, source)
		if err != nil {
			return err
		}
		if name = rename(name); name == "" {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		file := File{Path: path.Join("/", name), Mode: info.Mode().Perm()}
		switch mode := info.Mode(); {
		case mode.IsDir():
			file.Path += "/"
		case mode.Type() == fs.ModeSymlink:
			if file.Link, err = os.Readlink(source); err != nil {
				return err
			}
		case mode.IsRegular():
			file.Source = source
		default:
			return nil
		}
		files = append(files, file)
		return nil
	})
	return files, err
}
