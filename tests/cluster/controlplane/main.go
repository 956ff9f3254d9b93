// The control plane of the test beds: etcd, kube-apiserver, kube-controller-manager and kube-scheduler in one
// binary, because package registries carry their sources and not their binaries. The first argument says which.
package main

import (
	"fmt"
	"os"
	"strings"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

var programs = map[string]func(args []string) int{
	"etcd":                    func(args []string) int { etcdmain.Main(args); return 0 },
	"kube-apiserver":          func([]string) int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func([]string) int { return cli.Run(controllermanager.NewControllerManagerCommand()) },
	"kube-scheduler":          func([]string) int { return cli.Run(scheduler.NewSchedulerCommand()) },
}

func main() {
	if len(os.Args) > 1 {
		if run, known := programs[os.Args[1]]; known {
			// The programs read os.Args themselves, so the name moves to the front.
			os.Args = os.Args[1:]
			os.Exit(run(os.Args))
		}
	}
	names := make([]string, 0, len(programs))
	for name := range programs {
		names = append(names, name)
	}
	fmt.Fprintf(os.Stderr, "say which program to run: %s\n", strings.Join(names, ", "))
	os.Exit(2)
}
