//go:build tools

// Package tools pins the server and promtool, so that `go build` takes them at the version of go.mod.
package tools

import (
	_ "github.com/prometheus/prometheus/cmd/prometheus"
	_ "github.com/prometheus/prometheus/cmd/promtool"
)
