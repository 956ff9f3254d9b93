//go:build tools

// Package tools pins the program, so that `go build` takes it at the version of go.mod.
package tools

import _ "github.com/google/go-jsonnet/cmd/jsonnet"
