{{/* Names, labels and accounts. */}}

{{- define "plimsoll.name" -}}
{{ .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "plimsoll.fullname" -}}
{{- $name := include "plimsoll.name" . -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains $name .Release.Name -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{/* Selector labels of a component. Takes the root and the component's name. */}}
{{- define "plimsoll.selector" -}}
app.kubernetes.io/name: {{ include "plimsoll.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Labels of every object of a component. */}}
{{- define "plimsoll.labels" -}}
{{ include "plimsoll.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "plimsoll.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{/*
The installed components, as a JSON list with `name`, `key` (of its values) and `roles`. A component is one role, or all
enabled roles.
*/}}
{{- define "plimsoll.components" -}}
{{- $keys := dict "recommender" "recommender" "updater" "updater" "admission-controller" "admissionController" "watermark" "watermark" "horizontal" "horizontal" -}}
{{- $roles := list -}}
{{- range $role := list "recommender" "updater" "admission-controller" "watermark" "horizontal" -}}
{{- if (get $.Values (get $keys $role)).enabled -}}
{{- $roles = append $roles (dict "name" $role "key" (get $keys $role) "roles" (list $role)) -}}
{{- end -}}
{{- end -}}
{{- if not $roles -}}
{{- fail "no role is enabled: set recommender.enabled, updater.enabled, admissionController.enabled, watermark.enabled or horizontal.enabled" -}}
{{- end -}}
{{- if .Values.allInOne.enabled -}}
{{- $names := list -}}
{{- range $roles -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- if include "plimsoll.uiInProcess" . -}}
{{- $names = append $names "ui" -}}
{{- end -}}
{{- $roles = list (dict "name" "all-in-one" "key" "allInOne" "roles" $names) -}}
{{- end -}}
{{ $roles | toJson }}
{{- end }}

{{/* Whether the web page is served by the pod of all roles. */}}
{{- define "plimsoll.uiInProcess" -}}
{{- if and .Values.ui.enabled .Values.ui.inAllInOne -}}
{{- if not .Values.allInOne.enabled -}}
{{- fail "ui.inAllInOne needs allInOne.enabled" -}}
{{- end -}}
true
{{- end -}}
{{- end }}

{{/* The component that contains a role. */}}
{{- define "plimsoll.component" -}}
{{ if .root.Values.allInOne.enabled }}all-in-one{{ else }}{{ .role }}{{ end }}
{{- end }}

{{/* The account of a component, from its name and the key of its values. */}}
{{- define "plimsoll.account" -}}
{{- $account := (get .root.Values .key).serviceAccount -}}
{{- $account.name | default (printf "%s-%s" (include "plimsoll.fullname" .root) .component) -}}
{{- end }}

{{/* The subject of a role's bindings. Takes the root, the role and the key of its values. */}}
{{- define "plimsoll.subject" -}}
- kind: ServiceAccount
{{- if .root.Values.allInOne.enabled }}
  name: {{ include "plimsoll.account" (dict "root" .root "component" "all-in-one" "key" "allInOne") }}
{{- else }}
  name: {{ include "plimsoll.account" (dict "root" .root "component" .role "key" .key) }}
{{- end }}
  namespace: {{ .root.Release.Namespace }}
{{- end }}

{{/* The user name of a role's account. Takes the root, the role and the key of its values. */}}
{{- define "plimsoll.user" -}}
{{- $subject := first (include "plimsoll.subject" . | fromYamlArray) -}}
system:serviceaccount:{{ $subject.namespace }}:{{ $subject.name }}
{{- end }}

{{/*
Whether this release creates an object: it does not exist, or belongs to this release. Objects of others, such as Leases
of upstream, are used and not deleted.
*/}}
{{- define "plimsoll.isOurs" -}}
{{- $found := lookup .apiVersion .kind .namespace .name -}}
{{- $notes := dig "metadata" "annotations" dict ($found | default dict) | default dict -}}
{{- if not $found -}}
true
{{- else if and (eq (get $notes "meta.helm.sh/release-name") .root.Release.Name) (eq (get $notes "meta.helm.sh/release-namespace") .root.Release.Namespace) -}}
true
{{- end -}}
{{- end }}

{{/* Whether the watermark controller watches the release's own namespace. */}}
{{- define "plimsoll.testsWatermark" -}}
{{- with .Values.watermark -}}
{{- if and .enabled (or (not .namespaces) (has $.Release.Namespace .namespaces)) -}}
true
{{- end -}}
{{- end -}}
{{- end }}
