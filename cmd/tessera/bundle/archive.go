package bundle

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"
)

// archive writes a compressed tar file.
type archive struct {
	// folder is the folder of all files in the archive, at their modification time.
	folder string
	at     time.Time
	zip    *gzip.Writer
	tar    *tar.Writer
	// failed are the lines of errors.txt, names the files written so far.
	failed []string
	names  []string
}

func newArchive(out io.Writer, folder string, at time.Time) *archive {
	zip := gzip.NewWriter(out)
	return &archive{folder: folder, at: at, zip: zip, tar: tar.NewWriter(zip)}
}

// add writes a file. The name may contain names of the cluster's objects; it is cleaned so that the file stays in the folder.
func (a *archive) add(name string, data []byte) error {
	name = path.Join(a.folder, path.Clean("/"+name))
	header := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(data)), ModTime: a.at, Format: tar.FormatPAX}
	if err := a.tar.WriteHeader(header); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if _, err := a.tar.Write(data); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	a.names = append(a.names, name)
	return nil
}

// fail records an error for errors.txt.
func (a *archive) fail(what string, err error) {
	a.failed = append(a.failed, fmt.Sprintf("%s: %v", what, err))
}

// close writes errors.txt, unless it is empty, and ends the archive.
func (a *archive) close() error {
	var err error
	if len(a.failed) > 0 {
		err = a.add("errors.txt", []byte(strings.Join(a.failed, "\n")+"\n"))
	}
	return errors.Join(err, a.tar.Close(), a.zip.Close())
}
