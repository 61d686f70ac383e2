package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

const (
	lifetimeMin   = 10 * time.Second
	namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	endTimeout    = 10 * time.Second
)

type options struct {
	kubeconfig    string
	listen        string
	namespace     string
	service       string
	secret        string
	configuration string
	lifetime      time.Duration
	drain         time.Duration
	manage        bool
}

// NewCommand makes the command that serves the webhook until it gets SIGTERM or its context ends.
func NewCommand() *cobra.Command {
	var o options
	command := &cobra.Command{
		Use:   "gpu-scheduler-webhook",
		Short: "Give pods with a GPU claim the variable CUDA_VISIBLE_DEVICES",
		Long: "A mutating admission webhook for Kubernetes. Each container of a new pod with the annotation " +
			AnnotationClaim + " gets CUDA_VISIBLE_DEVICES with the devices that the scheduler chooses later.\n\n" +
			"The program makes the certificate that it serves with, keeps it in a Secret that all replicas share, renews it " +
			"when a third of its time is left, and writes its authority into the webhook's configuration.",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(command *cobra.Command, _ []string) error { return o.run(command.Context()) },
	}
	flags := command.Flags()
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "file that says how to reach the API server; none: as a pod does")
	flags.StringVar(&o.listen, "listen", "127.0.0.1:9443", "address and port to serve on, by TLS")
	flags.StringVar(&o.namespace, "namespace", "", "namespace of the Service and the Secret; none: that of the pod")
	flags.StringVar(&o.service, "service", "gpu-scheduler-webhook", "Service by which API servers call")
	flags.StringVar(&o.secret, "secret", "gpu-scheduler-webhook-cert", "Secret that holds the certificate and its key")
	flags.StringVar(&o.configuration, "configuration", "gpu-scheduler-webhook",
		"MutatingWebhookConfiguration that gets the authority")
	flags.DurationVar(&o.lifetime, "certificate-lifetime", 90*24*time.Hour, "how long a certificate is valid; 10s or more")
	flags.DurationVar(&o.drain, "drain", 5*time.Second, "how long to go on serving after SIGTERM, until no call comes")
	flags.BoolVar(&o.manage, "manage-certificate", true,
		"false: only serve what the Secret holds; somebody else makes it and writes the authority into the configuration")
	return command
}

func (o *options) run(ctx context.Context) error {
	if o.lifetime < lifetimeMin {
		return fmt.Errorf("--certificate-lifetime is %s; it must be %s or more", o.lifetime, lifetimeMin)
	}
	if o.namespace == "" {
		text, err := os.ReadFile(namespaceFile)
		if err != nil {
			return errors.New("no namespace: outside a pod, name it with --namespace")
		}
		o.namespace = strings.TrimSpace(string(text))
	}
	config, err := clientConfig(o.kubeconfig)
	if err != nil {
		return fmt.Errorf("cannot tell how to reach the API server: %w; outside a pod, name a file with --kubeconfig", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	certificates := &keeper{client: client, namespace: o.namespace, secret: o.secret, configuration: o.configuration,
		names: serviceNames(o.service, o.namespace), lifetime: o.lifetime, readOnly: !o.manage}
	keeping, stopKeeping := context.WithCancel(context.WithoutCancel(ctx))
	defer stopKeeping()
	go certificates.run(keeping)
	return o.serve(ctx, certificates)
}

func clientConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.BuildConfigFromFlags("", kubeconfig)
}

// serviceNames are the DNS names under which API servers and other programs call a Service.
func serviceNames(service, namespace string) []string {
	return []string{service + "." + namespace + ".svc", service + "." + namespace + ".svc.cluster.local"}
}

func (o *options) serve(ctx context.Context, certificates *keeper) error {
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	routes := http.NewServeMux()
	routes.HandleFunc("/mutate", mutate)
	// Without a certificate no handshake ends well: whoever reads this has met the one that the configuration believes.
	routes.HandleFunc("/readyz", func(writer http.ResponseWriter, _ *http.Request) { fmt.Fprintln(writer, "ok") })
	server := &http.Server{Handler: routes, ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout,
		WriteTimeout: readTimeout, IdleTimeout: idleTimeout,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificates.certificate}}
	ended := make(chan error, 1)
	go func() { ended <- server.ServeTLS(listener, "", "") }()
	klog.InfoS("Serving", "address", listener.Addr().String(), "namespace", o.namespace)
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	// API servers learn a little later that this replica is going away.
	time.Sleep(o.drain)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	return server.Shutdown(ending)
}
