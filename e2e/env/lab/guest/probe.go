package guest

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/tessera-gpu/tessera/e2e/env/lab/machine"
)

const probeTimeout = 2 * time.Second

// Probe returns when a service is ready. text is a machine.Probe as JSON.
func Probe(text string) error {
	var p machine.Probe
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return fmt.Errorf("read the probe: %w", err)
	}
	for !probe(p) {
		time.Sleep(probePause)
	}
	return nil
}

// probe checks once whether a service is ready.
func probe(p machine.Probe) bool {
	if p.Socket != "" {
		return accepts(p.Socket)
	}
	return answers(p.URL)
}

func accepts(socket string) bool {
	conn, err := net.DialTimeout("unix", socket, probeTimeout)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

func answers(url string) bool {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true} //nolint:gosec // the guest asks itself
	client := http.Client{Transport: transport, Timeout: probeTimeout}
	response, err := client.Get(url)
	if err != nil {
		return false
	}
	return response.Body.Close() == nil && response.StatusCode == http.StatusOK
}
