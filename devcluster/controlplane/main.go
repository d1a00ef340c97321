// Command controlplane is every Kubernetes control plane program in one binary.
//
// The program to run is chosen by the name the binary was started under (a link
// called kube-apiserver, say) or, failing that, by the first argument. One binary
// links the shared libraries once, which is what makes the build affordable.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// Each command is built only when asked for: constructing one registers flags and
// feature gates in process-wide state.
var commands = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kube-proxy":              proxy.NewProxyCommand,
	// kubelet installs the signal handler itself, and a second one panics.
	"kubelet": func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	"kubectl": kubectl.NewDefaultKubectlCommand,
}

func main() {
	name, arguments := program(os.Args)
	os.Args = append([]string{name}, arguments...)
	if name == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	build, known := commands[name]
	if !known {
		fmt.Fprintf(os.Stderr, "controlplane: no program %q; known: etcd, %s\n", name, strings.Join(names(), ", "))
		os.Exit(2)
	}
	os.Exit(cli.Run(build()))
}

// program splits the arguments into the program's name and its own arguments.
func program(arguments []string) (string, []string) {
	name := filepath.Base(arguments[0])
	if _, known := commands[name]; known || name == "etcd" {
		return name, arguments[1:]
	}
	if len(arguments) < 2 {
		return "", nil
	}
	return arguments[1], arguments[2:]
}

func names() []string {
	result := make([]string, 0, len(commands))
	for name := range commands {
		result = append(result, name)
	}
	sort.Strings(result)
	return result
}
