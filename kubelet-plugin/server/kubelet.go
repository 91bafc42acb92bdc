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
	stored, err := k.stores(claim)
	if err != nil {
		return false, fmt.Errorf("read kubelet's claims: %w", err)
	}
	if stored {
		return true, nil
	}
	listed, err := k.lists(ctx, claim)
	if err != nil {
		return false, fmt.Errorf("list the containers of kubelet: %w", err)
	}
	return listed, nil
}

// lists reports whether a container of the pod resources API has the claim, whose UID the API does not contain.
func (k Kubelet) lists(ctx context.Context, claim prepare.Ref) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, kubeletTimeout)
	defer cancel()
	pods, err := podresources.List(ctx, k.Socket)
	if err != nil {
		return false, err
	}
	for _, pod := range pods {
		for _, container := range pod.GetContainers() {
			for _, resource := range container.GetDynamicResources() {
				if resource.GetClaimNamespace() == claim.Namespace && resource.GetClaimName() == claim.Name {
					return true, nil
				}
			}
		}
	}
	return false, nil
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
		ClaimInfoStateList []struct{ ClaimUID string }
	}
)

// stores reports whether the state file has the claim. A file of another format is an error.
func (k Kubelet) stores(claim prepare.Ref) (bool, error) {
	text, err := os.ReadFile(k.State)
	if err != nil {
		return false, err
	}
	var file stateFile
	var data stateData
	if err := json.Unmarshal(text, &file); err != nil {
		return false, fmt.Errorf("%s: %w", k.State, err)
	}
	if crc32.ChecksumIEEE([]byte(file.Data)) != file.Checksum {
		return false, fmt.Errorf("%s: the checksum does not match", k.State)
	}
	if err := json.Unmarshal([]byte(file.Data), &data); err != nil {
		return false, fmt.Errorf("%s: %w", k.State, err)
	}
	if data.APIVersion != stateVersion {
		return false, fmt.Errorf("%s: version %q is not supported, only %s", k.State, data.APIVersion, stateVersion)
	}
	for _, stored := range data.ClaimInfoStateList {
		if stored.ClaimUID == claim.UID {
			return true, nil
		}
	}
	return false, nil
}
