{{/*
A role with its binding, for the account of one of the program's roles. Takes the root, `role`, `key` (of its values), `name`
(what comes behind the release's), `namespace` (empty for all of the cluster) and `rules` (YAML).
*/}}
{{- define "plimsoll.rights" -}}
{{- $kind := ternary "Role" "ClusterRole" (ne .namespace "") -}}
{{- $name := printf "%s-%s" (include "plimsoll.fullname" .root) .name -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  name: {{ $name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "plimsoll.labels" (dict "root" .root "component" .role) | nindent 4 }}
rules:
  {{- .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  name: {{ $name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "plimsoll.labels" (dict "root" .root "component" .role) | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ $name }}
subjects:
  {{- include "plimsoll.subject" . | nindent 2 }}
{{ end }}

{{/* Targets of VPAs that are of no kind of Kubernetes, such as Rollouts, and what their pods belong to. Takes the root. */}}
{{- define "plimsoll.rules.scales" -}}
{{- if .Values.targets.any }}
# Targets of every other kind, such as Rollouts, and what their pods belong to.
- apiGroups: ["*"]
  resources: ["*/scale"]
  verbs: [get]
{{- else }}
{{- range .Values.targets.kinds }}
# Targets of a kind that is listed.
- apiGroups: [{{ .group | quote }}]
  resources: ["{{ .resource }}/scale"]
  verbs: [get]
{{- end }}
{{- end }}
{{- end }}
