{{- define "gpu-scheduler.fullname" -}}
{{- if eq .Release.Name "gpu-scheduler" }}gpu-scheduler{{ else }}{{ printf "%s-gpu-scheduler" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* Labels of an object: (dict "root" $ "part" "webhook") */}}
{{- define "gpu-scheduler.labels" -}}
{{ include "gpu-scheduler.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{/* Labels by which a part's pods are found; they never change. */}}
{{- define "gpu-scheduler.selector" -}}
app.kubernetes.io/name: gpu-scheduler
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{/* An image: (dict "root" $ "image" .Values.webhook.image); without a repository that of the scheduler */}}
{{- define "gpu-scheduler.image" -}}
{{- $image := .image }}
{{- if not $image.repository }}{{ $image = .root.Values.image }}{{ end }}
{{- printf "%s:%s" $image.repository (default .root.Chart.AppVersion $image.tag) }}
{{- end }}

{{- define "gpu-scheduler.tokenSecret" -}}
{{- default (printf "%s-token" (include "gpu-scheduler.fullname" .)) .Values.engine.tokenSecret }}
{{- end }}

{{- define "gpu-scheduler.tlsSecret" -}}
{{- default (printf "%s-engine-tls" (include "gpu-scheduler.fullname" .)) .Values.engine.tlsSecret }}
{{- end }}

{{/* Security context of containers that need no privilege at all */}}
{{- define "gpu-scheduler.unprivileged" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
