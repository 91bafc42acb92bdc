package server

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"time"

	"github.com/tessera-gpu/tessera/kubelet-plugin/podresources"
	"github.com/tessera-gpu/tessera/kubelet-plugin/prepare"
)

// Kubelet reads which claims kubelet has. A claim has to be missing in both sources: kubelet's pod resources API does not list pods that were deleted by
// force and are still ending, nor init containers (kubelet/apis/podresources/server_v1.go), and kubelet's state file is not a public API.
type Kubelet struct {
	// Socket is the path of the socket of the pod resources API.
	Socket string
	// State is the path of the file in which kubelet keeps the claims that it has prepared until they are unprepared (dra_manager_state).
	State string
}

// kubeletTimeout limits a call of kubelet.
const kubeletTimeout = 5 * time.Second

// Has reports whether kubelet lists a container with the claim or has not unprepared it. The error means that this cannot be determined: kubelet does
// not run, for example.
func (k Kubelet) Has(ctx context.Context, claim prepare.Ref) (bool, error) {
	prepared, err := k.prepared()
	if err != nil {
		return false, err
	}
	for _, p := range prepared {
		if p.UID == claim.UID {
			return true, nil
		}
	}
	listed, err := k.listed(ctx)
	return listed[nameOf(claim)], err
}

// Running returns the claims that kubelet has prepared and lists in a container.
func (k Kubelet) Running(ctx context.Context) (map[prepare.Ref]bool, error) {
	prepared, err := k.prepared()
	if err != nil {
		return nil, err
	}
	listed, err := k.listed(ctx)
	if err != nil {
		return nil, err
	}
	running := map[prepare.Ref]bool{}
	for _, claim := range prepared {
		if listed[nameOf(claim)] {
			running[claim] = true
		}
	}
	return running, nil
}

// nameOf returns the claim without its UID, which the pod resources API does not contain.
func nameOf(claim prepare.Ref) prepare.Ref {
	return prepare.Ref{Namespace: claim.Namespace, Name: claim.Name}
}

// listed returns the names of the claims of the containers in the pod resources API.
func (k Kubelet) listed(ctx context.Context) (map[prepare.Ref]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, kubeletTimeout)
	defer cancel()
	pods, err := podresources.List(ctx, k.Socket)
	if err != nil {
		return nil, fmt.Errorf("list the containers of kubelet: %w", err)
	}
	listed := map[prepare.Ref]bool{}
	for _, pod := range pods {
		for _, container := range pod.GetContainers() {
			for _, resource := range container.GetDynamicResources() {
				listed[prepare.Ref{Namespace: resource.GetClaimNamespace(), Name: resource.GetClaimName()}] = true
			}
		}
	}
	return listed, nil
}

// The format of the state file. Source: kubelet/cm/dra/state/checkpoint.go of Kubernetes 1.33 to 1.37.
const stateVersion = "checkpoint.dra.kubelet.k8s.io/v1"

type (
	stateFile struct {
		Data     string
		Checksum uint32
	}
	stateData struct {
		APIVersion         string `json:"apiVersion"`
		ClaimInfoStateList []struct{ ClaimUID, ClaimName, Namespace string }
	}
)

// prepared returns the claims of the state file. A file of another format is an error.
func (k Kubelet) prepared() ([]prepare.Ref, error) {
	claims, err := readState(k.State)
	if err != nil {
		return nil, fmt.Errorf("read kubelet's claims: %w", err)
	}
	return claims, nil
}

func readState(path string) ([]prepare.Ref, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file stateFile
	var data stateData
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if crc32.ChecksumIEEE([]byte(file.Data)) != file.Checksum {
		return nil, fmt.Errorf("%s: the checksum does not match", path)
	}
	if err := json.Unmarshal([]byte(file.Data), &data); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if data.APIVersion != stateVersion {
		return nil, fmt.Errorf("%s: version %q is not supported, only %s", path, data.APIVersion, stateVersion)
	}
	var claims []prepare.Ref
	for _, stored := range data.ClaimInfoStateList {
		claims = append(claims, prepare.Ref{UID: stored.ClaimUID, Namespace: stored.Namespace, Name: stored.ClaimName})
	}
	return claims, nil
}
