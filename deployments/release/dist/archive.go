package dist

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"time"
)

// entry is a file of an archive.
type entry struct {
	name       string
	content    []byte
	executable bool
}

func (e entry) mode() fs.FileMode {
	if e.executable {
		return 0o755
	}
	return 0o644
}

// tarGz packs files in their order, which belong to root and have one time.
func tarGz(files []entry, modified time.Time) ([]byte, error) {
	var buffer bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&buffer, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	writer := tar.NewWriter(compressed)
	for _, file := range files {
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: file.name, Size: int64(len(file.content)), Mode: int64(file.mode()), ModTime: modified, Format: tar.FormatUSTAR,
		}
		if err := writer.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := writer.Write(file.content); err != nil {
			return nil, err
		}
	}
	err = errors.Join(writer.Close(), compressed.Close())
	return buffer.Bytes(), err
}

// zipped packs files in their order, with one time.
func zipped(files []entry, modified time.Time) ([]byte, error) {
	var buffer bytes.Buffer
	writer := zip.NewWriter(&buffer)
	for _, file := range files {
		header := &zip.FileHeader{Name: file.name, Method: zip.Deflate, Modified: modified.UTC()}
		header.SetMode(file.mode())
		to, err := writer.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := to.Write(file.content); err != nil {
			return nil, err
		}
	}
	err := writer.Close()
	return buffer.Bytes(), err
}
