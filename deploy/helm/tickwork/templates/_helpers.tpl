{{- define "tickwork.name" -}}
{{- printf "%s-tickwork" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "tickwork.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}

{{- define "tickwork.labels" -}}
app.kubernetes.io/name: tickwork
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}
