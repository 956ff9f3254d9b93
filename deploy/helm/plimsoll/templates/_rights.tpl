{{/*
A Role or ClusterRole with its binding, for the account of a component. Takes the root, `role`, `key` (of its values),
`name` (a suffix), `namespace` (empty for a ClusterRole) and `rules` (YAML).
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

{{/* Rules for VPA targets of other than built-in kinds, such as Rollouts, and controllers of their pods. Takes the root. */}}
{{- define "plimsoll.rules.scales" -}}
{{- if .Values.targets.any }}
# Targets of other kinds, such as Rollouts, and controllers of their pods.
- apiGroups: ["*"]
  resources: ["*/scale"]
  verbs: [get]
{{- else }}
{{- range .Values.targets.kinds }}
# Targets of a listed kind.
- apiGroups: [{{ .group | quote }}]
  resources: ["{{ .resource }}/scale"]
  verbs: [get]
{{- end }}
{{- end }}
{{- end }}
