{{/* Flags of each role from its values, as a YAML list that may be empty. Takes the root. */}}

{{- define "plimsoll.flags.recommender" -}}
{{- with .Values.recommender -}}
- --leader-elect-resource-namespace={{ $.Values.leases.namespace }}
{{- if ne .name "default" }}
- --recommender-name={{ .name }}
{{- end }}
{{- if ne .storage "checkpoint" }}
- --storage={{ .storage }}
- --prometheus-address={{ required "recommender.storage=prometheus needs prometheus.address" $.Values.prometheus.address }}
{{- end }}
{{- if .checkpointFallback }}
- --checkpoint-fallback
{{- end }}
{{- if .capToLargestNode }}
- --cap-to-largest-node
{{- end }}
{{- if or .externalMetrics.cpu .externalMetrics.memory }}
- --use-external-metrics
{{- end }}
{{- with .externalMetrics.cpu }}
- --external-metrics-cpu-metric={{ . }}
{{- end }}
{{- with .externalMetrics.memory }}
- --external-metrics-memory-metric={{ . }}
{{- end }}
{{- end -}}
{{- end }}

{{- define "plimsoll.flags.updater" -}}
{{- with .Values.updater -}}
- --leader-elect-resource-namespace={{ $.Values.leases.namespace }}
- --recommender-heartbeat-namespace={{ $.Values.leases.namespace }}
- --horizontal-lease-namespace={{ $.Values.leases.namespace }}
{{- if .dryRun }}
- --dry-run
{{- end }}
{{- if .surge }}
- --surge
{{- end }}
{{- if .retargetHpas }}
- --retarget-hpas
{{- end }}
{{- end -}}
{{- end }}

{{- define "plimsoll.flags.admission-controller" -}}
{{- with .Values.admissionController -}}
{{- if ne (int .port) 8000 }}
- --port={{ .port }}
{{- end }}
- --horizontal-lease-namespace={{ $.Values.leases.namespace }}
{{- if $.Values.updater.retargetHpas }}
- --retarget-hpas
{{- end }}
- --webhook-service={{ include "plimsoll.fullname" $ }}-webhook
- --webhook-timeout-seconds={{ .timeoutSeconds }}
{{- if eq .failurePolicy "Fail" }}
- --webhook-failure-policy-fail
{{- end }}
{{- if not .register }}
- --register-webhook=false
{{- end }}
{{- if .certificates.existingSecret }}
- --client-ca-file=/etc/tls-certs/ca.crt
- --tls-cert-file=/etc/tls-certs/tls.crt
- --tls-private-key=/etc/tls-certs/tls.key
{{- else }}
- --certificate-secret={{ include "plimsoll.fullname" $ }}-webhook-tls
{{- end }}
{{- end -}}
{{- end }}

{{- define "plimsoll.flags.watermark" -}}
{{- with .Values.watermark -}}
{{- if .dryRun }}
- --dry-run
{{- end }}
{{- with $.Values.prometheus.address }}
- --prometheus-address={{ . }}
- --prometheus-namespace-label={{ $.Values.prometheus.namespaceLabel }}
{{- with $.Values.prometheus.unrestrictedNamespaces }}
- --prometheus-unrestricted-namespaces={{ join "," . }}
{{- end }}
{{- end }}
{{- end -}}
{{- end }}

{{- define "plimsoll.flags.horizontal" -}}
{{- with .Values.horizontal -}}
- --mode={{ .mode }}
- --leader-elect-resource-namespace={{ $.Values.leases.namespace }}
{{- if .namespaces }}
- --namespaces={{ join "," .namespaces }}
{{- end }}
{{- with $.Values.prometheus.address }}
- --prometheus-address={{ . }}
- --prometheus-namespace-label={{ $.Values.prometheus.namespaceLabel }}
{{- with $.Values.prometheus.unrestrictedNamespaces }}
- --prometheus-unrestricted-namespaces={{ join "," . }}
{{- end }}
{{- end }}
{{- end -}}
{{- end }}

{{- define "plimsoll.flags.ui" -}}
{{- with .Values.ui -}}
- --address=:8950
- --auth={{ .auth }}
{{- if $.Values.prometheus.address }}
- --prometheus-address={{ $.Values.prometheus.address }}
{{- else }}
- --via=direct
{{- end }}
{{- with .basePath }}
- --base-path={{ . }}
{{- end }}
{{- end -}}
{{- end }}

{{/*
All flags of a component. With several roles in one process, flags are prefixed by the role: --updater.surge is --surge of
the updater.
*/}}
{{- define "plimsoll.args" -}}
{{- $root := .root -}}
{{- $several := eq .component "all-in-one" -}}
{{- $keys := dict "recommender" "recommender" "updater" "updater" "admission-controller" "admissionController" "watermark" "watermark" "horizontal" "horizontal" "ui" "ui" -}}
{{- $args := list -}}
{{- if $several -}}
{{- $args = append $args (printf "--roles=%s" (join "," .roles)) -}}
{{- end -}}
{{- if ne $root.Values.compat "plimsoll" -}}
{{- $args = append $args (printf "--compat=%s" $root.Values.compat) -}}
{{- end -}}
{{- range $role := .roles -}}
{{- $own := include (printf "plimsoll.flags.%s" $role) $root | fromYamlArray -}}
{{- $own = concat $own (get $root.Values (get $keys $role)).args -}}
{{- range $own -}}
{{- $args = append $args (ternary (regexReplaceAll "^--?" . (printf "--%s." $role)) . $several) -}}
{{- end -}}
{{- end -}}
{{- if $several -}}
{{- $args = concat $args $root.Values.allInOne.args -}}
{{- end -}}
{{- with $args -}}
{{ toYaml . }}
{{- end -}}
{{- end }}

{{/* Environment of a component: variables of its roles, then those from values. Takes the root, its roles and its key. */}}
{{- define "plimsoll.env" -}}
- name: NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
{{- if has "watermark" .roles }}
- name: WATCH_NAMESPACE
  value: {{ join "," .root.Values.watermark.namespaces | quote }}
{{- with .root.Values.watermark.labelsAsTags }}
- name: DD_LABELS_AS_TAGS
  value: {{ join " " . | quote }}
{{- end }}
{{- with .root.Values.watermark.clusterName }}
- name: K8S_CLUSTER_NAME
  value: {{ quote . }}
{{- end }}
{{- end }}
{{- if eq .root.Values.logging.format "json" }}
- name: PLIMSOLL_FLAG_LOG_FORMAT
  value: json
{{- else if has "watermark" .roles }}
- name: PLIMSOLL_FLAG_LOGENCODER
  value: console
{{- end }}
{{- with .root.Values.logging.filter }}
- name: PLIMSOLL_LOG
  value: {{ quote . }}
{{- end }}
{{- with (get .root.Values .key).env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Ports of a component by name, as JSON. Takes the root and the component. */}}
{{- define "plimsoll.ports" -}}
{{- $webhook := .root.Values.admissionController.port -}}
{{- if eq .component "recommender" -}}
{{ dict "prometheus" 8942 | toJson }}
{{- else if eq .component "updater" -}}
{{ dict "prometheus" 8943 | toJson }}
{{- else if eq .component "admission-controller" -}}
{{ dict "prometheus" 8944 "webhook" $webhook | toJson }}
{{- else if eq .component "watermark" -}}
{{ dict "metrics" 8383 "health" 9440 | toJson }}
{{- else if eq .component "horizontal" -}}
{{ dict "metrics" 8945 | toJson }}
{{- else -}}
{{- $ports := dict "prometheus" 8942 -}}
{{- if .root.Values.admissionController.enabled -}}
{{- $ports = set $ports "webhook" $webhook -}}
{{- end -}}
{{- if include "plimsoll.uiInProcess" .root -}}
{{- $ports = set $ports "http" 8950 -}}
{{- end -}}
{{ $ports | toJson }}
{{- end -}}
{{- end }}
