//go:build tools

// Package tools pins upstream's three binaries, so that `go build` takes them at the version of go.mod.
// (`go install` refuses them: that module's go.mod has exclude directives.)
package tools

import (
	_ "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/admission-controller"
	_ "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender"
	_ "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/updater"
)
