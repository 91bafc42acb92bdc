package cluster

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/tessera-gpu/tessera/deployments/images/bundle"
	"github.com/tessera-gpu/tessera/deployments/images/oci"
)

// The public images of the examples. A lab has no access to registries: it loads images of the same names, with the programs that the examples use.
const (
	// CUDAImage is NVIDIA's base image for CUDA programs: Ubuntu with the CUDA runtime. It contains no nvidia-smi, which CDI adds to a container.
	CUDAImage = "nvcr.io/nvidia/cuda:12.6.3-base-ubuntu24.04"
	// VectorAddImage is the CUDA sample vectorAdd, which the image starts.
	VectorAddImage = "nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0"
	// VLLMImage is vLLM's server. Its counterpart in the lab computes once and then answers for its health.
	VLLMImage = "docker.io/vllm/vllm-openai:v0.11.0"
	// BusyboxImage contains no C library.
	BusyboxImage = "docker.io/library/busybox:1.37-musl"
)

// vectorAdd is the path of the sample in VectorAddImage.
const vectorAdd = "/cuda-samples/vectorAdd"

// vllm is the program of VLLMImage in the lab.
const vllm = "#!/bin/sh\nset -e\nprobe vectoradd\nmkdir -p /tmp/www\ntouch /tmp/www/health\nexec httpd -f -p 8000 -h /tmp/www\n"

// cudaEnv are the variables of NVIDIA's images that its container runtime interprets. They must have no effect with CDI.
var cudaEnv = []string{"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"}

// publicImages writes the images of the examples into an archive in the folder. The sample is the given probe, which adds vectors with the driver's API.
func publicImages(ctx context.Context, folder, probe string) (string, error) {
	base, err := bundle.NewBase(ctx)
	if err != nil {
		return "", err
	}
	cuda := base.Image(CUDAImage)
	cuda.Env = slices.Concat(cuda.Env, cudaEnv)
	sample := base.Image(VectorAddImage,
		oci.File{Path: "/usr/bin/probe", Source: probe},
		oci.File{Path: vectorAdd, Content: []byte("#!/bin/sh\nexec probe vectoradd\n"), Mode: 0o755},
	)
	sample.Env, sample.Entrypoint = slices.Concat(sample.Env, cudaEnv), []string{vectorAdd}
	server := base.Image(VLLMImage, oci.File{Path: "/usr/bin/probe", Source: probe}, oci.File{Path: "/usr/bin/vllm", Content: []byte(vllm), Mode: 0o755})
	server.Env, server.Entrypoint = slices.Concat(server.Env, cudaEnv), []string{"vllm", "serve"}
	static, err := bundle.Static(ctx, BusyboxImage)
	if err != nil {
		return "", err
	}
	archive := filepath.Join(folder, "public.tar")
	return archive, oci.WriteArchive(archive, cuda, sample, server, static)
}
