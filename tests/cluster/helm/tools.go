//go:build tools

// Package tools pins the program, so that `go build` takes it at the version of go.mod.
package tools

import _ "helm.sh/helm/v3/cmd/helm"
