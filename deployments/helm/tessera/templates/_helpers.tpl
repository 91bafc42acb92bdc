{{/* The reference of an image: repository@digest, else repository:tag with the tag of the release as default. */}}
{{- define "tessera.image" -}}
{{- $image := index .root.Values.images .name -}}
{{- if not $image.repository -}}
{{- else if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .root.Values.images.tag }}
{{- end -}}
{{- end -}}

{{/* Whether the ClusterPolicy has the scheduler on: text, empty for no. What is null there is not decided. */}}
{{- define "tessera.scheduler" -}}
{{- $scheduler := (.Values.clusterPolicy | default dict).scheduler | default dict -}}
{{- if ne (toString $scheduler.enabled) "false" }}yes{{ end -}}
{{- end -}}

{{/* Non-empty if the scheduler runs in mode Additional. */}}
{{- define "tessera.additionalScheduler" -}}
{{- $scheduler := (.Values.clusterPolicy | default dict).scheduler | default dict -}}
{{- if and (include "tessera.scheduler" .) (eq ($scheduler.mode | default "Additional") "Additional") }}yes{{ end -}}
{{- end -}}

{{/* Every container of the chart. */}}
{{- define "tessera.unprivileged" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{/* Every pod of the chart. */}}
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
{{- with .Values.installer.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.installer.tolerations }}
tolerations: {{- toYaml . | nindent 0 }}
{{- end }}
{{- end -}}

{{/* What is refused before anything is installed. */}}
{{- define "tessera.check" -}}
{{- $agent := (.Values.clusterPolicy | default dict).nodeAgent | default dict -}}
{{- $driver := ($agent.config | default dict).driverName | default "gpu.tessera.dev" -}}
{{- if ne $driver "gpu.tessera.dev" -}}
{{- fail (printf "clusterPolicy.nodeAgent.config.driverName is %s: the chart's rights, policies and DeviceClasses are for gpu.tessera.dev; to take the place of another driver, use the manifests in deployments/nvidia" $driver) -}}
{{- end -}}
{{- end -}}
