{{/* The reference of an image: repository@digest if a digest is set, otherwise repository:tag with the release's tag as default. */}}
{{- define "tessera.image" -}}
{{- $image := index .root.Values.images .name -}}
{{- if not $image.repository -}}
{{- else if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .root.Values.images.tag }}
{{- end -}}
{{- end -}}

{{/* The minor version of the API server, such as 1.37. Providers append text of their own, such as v1.37.2-eks-abc or 1.37+. */}}
{{- define "tessera.kubernetes" -}}
{{- regexFind "[0-9]+[.][0-9]+" .Capabilities.KubeVersion.Version | default "0.0" -}}
{{- end -}}

{{/*
The image of the scheduler. Of several, the newest that Kubernetes' version skew policy permits: a scheduler is not newer than the API server and at most one
minor version older. Empty if the release has none.
*/}}
{{- define "tessera.schedulerImage" -}}
{{- $image := .Values.images.scheduler -}}
{{- if $image.kubernetes -}}
{{- $server := include "tessera.kubernetes" . -}}
{{- $parts := splitList "." $server -}}
{{- $previous := printf "%s.%d" (first $parts) (sub (last $parts | int) 1) -}}
{{- $minor := ternary $server $previous (hasKey $image.kubernetes $server) -}}
{{- if hasKey $image.kubernetes $minor -}}
{{- $built := index $image.kubernetes $minor | default dict -}}
{{- $tag := $built.tag | default (printf "%s-kubernetes-%s" .Values.images.tag $minor) -}}
{{- $built.repository | default $image.repository -}}
{{- if $built.digest -}}@{{ $built.digest }}{{- else -}}:{{ $tag }}{{- end -}}
{{- end -}}
{{- else -}}
{{- include "tessera.image" (dict "root" . "name" "scheduler") -}}
{{- end -}}
{{- end -}}

{{/* The reason why the release has no scheduler for the API server. Empty if there is one, and if the ClusterPolicy has an image. */}}
{{- define "tessera.noScheduler" -}}
{{- $scheduler := (.Values.clusterPolicy | default dict).scheduler | default dict -}}
{{- if not (or $scheduler.image (include "tessera.schedulerImage" .)) -}}
the API server had version {{ .Capabilities.KubeVersion.Version }} when the chart was applied, and the release has tessera-scheduler of Kubernetes {{ keys .Values.images.scheduler.kubernetes | sortAlpha | join ", " }} only
{{- end -}}
{{- end -}}

{{/*
Non-empty if the ClusterPolicy enables the scheduler and the cluster can run it. null has the default, which is enabled. The installer deploys it where
DeviceTaintRules are served, as from Kubernetes 1.37 on; without a connection to the cluster, helm has only the version.
*/}}
{{- define "tessera.scheduler" -}}
{{- $scheduler := (.Values.clusterPolicy | default dict).scheduler | default dict -}}
{{- $served := or (.Capabilities.APIVersions.Has "resource.k8s.io/v1/DeviceTaintRule") (semverCompare ">=1.37" (include "tessera.kubernetes" .)) -}}
{{- if and $served (not (include "tessera.noScheduler" .)) (ne (toString $scheduler.enabled) "false") }}yes{{ end -}}
{{- end -}}

{{/* Non-empty if the scheduler runs in mode Additional. */}}
{{- define "tessera.additionalScheduler" -}}
{{- $scheduler := (.Values.clusterPolicy | default dict).scheduler | default dict -}}
{{- if and (include "tessera.scheduler" .) (eq ($scheduler.mode | default "Additional") "Additional") }}yes{{ end -}}
{{- end -}}

{{/* The security context of every container of the chart. */}}
{{- define "tessera.unprivileged" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{/* The common fields of every pod of the chart. */}}
{{- define "tessera.pod" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The common fields of the pods that need no GPU. */}}
{{- define "tessera.podWithoutGPU" -}}
{{- include "tessera.pod" . }}
{{- with .Values.installer.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.installer.tolerations }}
tolerations: {{- toYaml . | nindent 0 }}
{{- end }}
{{- end -}}

{{/* The node affinity of pods with the release's images. Empty if images exist for all architectures. */}}
{{- define "tessera.built" -}}
{{- with .Values.images.architectures -}}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
    - matchExpressions:
      - {key: kubernetes.io/arch, operator: In, values: {{ toJson . }}}
{{- end }}
{{- end -}}

{{/* The pull secrets of the node agent's pods, as a list of the Common Expression Language. */}}
{{- define "tessera.pullSecrets" -}}
{{- $policy := .Values.clusterPolicy | default dict -}}
{{- $sets := ($policy.daemonSets | default dict).imagePullSecrets | default .Values.imagePullSecrets | default list -}}
{{- $agent := ($policy.nodeAgent | default dict).imagePullSecrets | default list -}}
[{{- range $i, $name := concat $sets $agent | uniq }}{{ if $i }}, {{ end }}'{{ $name }}'{{ end -}}]
{{- end -}}

{{/* The name of the DRA driver. */}}
{{- define "tessera.driver" -}}
{{- (((.Values.clusterPolicy | default dict).nodeAgent | default dict).config | default dict).driverName | default "gpu.tessera.dev" -}}
{{- end -}}

{{/* Empty unless the driver has the name of NVIDIA's. */}}
{{- define "tessera.nvidia" -}}
{{- if eq (include "tessera.driver" .) "gpu.nvidia.com" }}yes{{ end -}}
{{- end -}}

{{/* Fails for values that the chart does not support. */}}
{{- define "tessera.check" -}}
{{- $driver := include "tessera.driver" . -}}
{{- if not (has $driver (list "gpu.tessera.dev" "gpu.nvidia.com")) -}}
{{- fail (printf "clusterPolicy.nodeAgent.config.driverName is %s: the chart's permissions, policies and DeviceClasses are for gpu.tessera.dev or gpu.nvidia.com" $driver) -}}
{{- end -}}
{{- $agent := (.Values.clusterPolicy | default dict).nodeAgent | default dict -}}
{{- range $i, $pool := $agent.pools | default list -}}
{{- with ($pool | default dict).config -}}
{{- $name := .driverName | default "gpu.tessera.dev" -}}
{{- if ne $name $driver -}}
{{- fail (printf "clusterPolicy.nodeAgent.pools[%d].config.driverName is %s, and that of clusterPolicy.nodeAgent.config %s: all nodes have one driver" $i $name $driver) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The standard labels of every object of the chart, except those of pod templates, which would restart pods. */}}
{{- define "tessera.labels" -}}
app.kubernetes.io/part-of: tessera
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The labels of objects for Prometheus and Grafana, which select objects by label. */}}
{{- define "tessera.monitoringLabels" -}}
{{- include "tessera.labels" . }}
{{- with .Values.monitoring.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Non-empty if Prometheus shall scrape Tessera. */}}
{{- define "tessera.podMonitors" -}}
{{- if .Values.monitoring.podMonitors }}yes{{ end -}}
{{- end -}}

{{/* Non-empty if the alerts and recording rules are installed. */}}
{{- define "tessera.rules" -}}
{{- if .Values.monitoring.rules }}yes{{ end -}}
{{- end -}}
