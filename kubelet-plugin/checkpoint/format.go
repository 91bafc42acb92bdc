package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// errDamaged means that the bytes are not a valid record.
var errDamaged = errors.New("damaged")

// newerError means that a newer agent wrote the record and that this version must not modify it.
type newerError struct{ version, readableBy int }

func (e *newerError) Error() string {
	return fmt.Sprintf("written in format %d, which agents of format %d and newer read, this one of format %d: upgrade the agent",
		e.version, e.readableBy, formatV1)
}

// envelope is the outer structure of a file.
type envelope struct {
	Checksum string          `json:"checksum"`
	Record   json.RawMessage `json:"record"`
}

// header has the fields that all formats share.
type header struct {
	Version    int `json:"version"`
	ReadableBy int `json:"readableBy"`
}

// decode returns the record in a file. The error wraps errDamaged or is a newerError.
func decode(data []byte) (prepare.Record, error) {
	body, err := unwrap(data)
	if err != nil {
		return prepare.Record{}, err
	}
	if body == nil {
		return decodeV0(data)
	}
	r, err := decodeV1(body)
	var h header
	if err != nil && json.Unmarshal(body, &h) == nil && h.Version > formatV1 {
		// The checksum is right and the record cannot be decoded: readableBy is too low. It is not damaged.
		return prepare.Record{}, &newerError{version: h.Version, readableBy: h.Version}
	}
	return r, err
}

// unwrap verifies checksum and header and returns the bytes of the record; nil for a file without an envelope.
func unwrap(data []byte) ([]byte, error) {
	var file envelope
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if file.Record == nil {
		return nil, nil
	}
	if sum := checksum(file.Record); file.Checksum != sum {
		return nil, fmt.Errorf("%w: its checksum is %s, the one of its bytes %s", errDamaged, file.Checksum, sum)
	}
	var h header
	if err := json.Unmarshal(file.Record, &h); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if h.ReadableBy > formatV1 {
		return nil, &newerError{version: h.Version, readableBy: h.ReadableBy}
	}
	return file.Record, nil
}

// encode returns the file content for the record. Fields of the present file that this version does not know are kept;
// old is nil if there is no file.
func encode(r prepare.Record, old []byte) ([]byte, error) {
	body, err := json.Marshal(encodeV1(r))
	if err != nil {
		return nil, err
	}
	return seal(body, old, carry)
}

// seal returns the file content for the body, with the fields that carry keeps from the present file. It returns a
// newerError for a file that only newer agents can read, so that it is not overwritten.
func seal(body, old []byte, carry func(fresh, old []byte) ([]byte, error)) ([]byte, error) {
	before, err := unwrap(old)
	var newer *newerError
	switch {
	case errors.As(err, &newer):
		return nil, err
	case err == nil && before != nil:
		if body, err = carry(body, before); err != nil {
			return nil, err
		}
	}
	var file bytes.Buffer
	fmt.Fprintf(&file, "{\"checksum\":%q,\"record\":%s}\n", checksum(body), body)
	return file.Bytes(), nil
}

func checksum(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}
