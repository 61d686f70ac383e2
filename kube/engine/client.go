// Package engine speaks the scheduler's gRPC API: jobs for pods, and the node protocol for Kubernetes nodes.
package engine

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"gpusched/kube/engine/pb"
)

const (
	// LabelPodUID is the label of a pod's job that holds the pod's uid.
	LabelPodUID = "gpu.scheduling/pod-uid"
	// LabelPod is the label that holds namespace/name.
	LabelPod = "gpu.scheduling/pod"
	// LabelClaim is the label that holds the claim's uid and generation; of a gang's job a digest of all its members'.
	LabelClaim = "gpu.scheduling/claim"
	// LabelGangUID is the label of a gang's job that holds the gang's uid.
	LabelGangUID = "gpu.scheduling/gang-uid"
	// LabelGang is the label that holds namespace/name of the gang.
	LabelGang = "gpu.scheduling/gang"
	// Executor names who starts pods' jobs; it is also the feature of the nodes that take them.
	Executor = "external"

	// reasonPreempted is why a job is cancelled that was ended for another one.
	reasonPreempted = "preempted"

	callTimeout    = 5 * time.Second
	pageSize       = 1000
	messageMaxSize = 16 << 20
)

// Options says where the engine is and how this program proves who it is.
type Options struct {
	// Address is host:port of the engine's gRPC listener, or unix:/path of its socket.
	Address string `json:"address"`
	// KeyFile holds the API key, or the shared token, for calls about jobs.
	KeyFile string `json:"keyFile"`
	// TokenFile holds the shared token for the node protocol; empty: KeyFile.
	TokenFile string `json:"tokenFile,omitempty"`
	// CAFile holds the certificates, PEM, that sign the engine's. Empty: the connection is not encrypted.
	CAFile string `json:"caFile,omitempty"`
}

// Client holds one connection to the engine. Its methods may be called from any goroutine.
type Client struct {
	options Options
	conn    *grpc.ClientConn
	jobs    pb.SchedulerClient
	nodes   pb.NodeProtocolClient
}

// Dial makes a client. It does not wait for the engine.
func Dial(options Options) (*Client, error) {
	if options.Address == "" || options.KeyFile == "" {
		return nil, errors.New("engine.address and engine.keyFile must be set")
	}
	if options.TokenFile == "" {
		options.TokenFile = options.KeyFile
	}
	transport := insecure.NewCredentials()
	if options.CAFile != "" {
		pem, err := os.ReadFile(options.CAFile)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate in PEM form", options.CAFile)
		}
		transport = credentials.NewTLS(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})
	}
	conn, err := grpc.NewClient(options.Address, grpc.WithTransportCredentials(transport),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageMaxSize)))
	if err != nil {
		return nil, err
	}
	return &Client{options: options, conn: conn, jobs: pb.NewSchedulerClient(conn), nodes: pb.NewNodeProtocolClient(conn)},
		nil
}

// Away says whether an error means that the engine did not answer: what was asked may or may not have happened.
func Away(err error) bool {
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded || code == codes.Canceled
}

// Reason is an error's sentence for people.
func Reason(err error) string {
	if told, ok := status.FromError(err); ok && told.Message() != "" {
		return told.Message()
	}
	return err.Error()
}

func secret(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	trimmed := strings.TrimSpace(string(text))
	if trimmed == "" {
		return "", fmt.Errorf("%s is empty: it must hold a key or a token", file)
	}
	return trimmed, nil
}

// The key is read at each call: a new one in the file needs no restart.
func (c *Client) call(ctx context.Context) (context.Context, context.CancelFunc, error) {
	key, err := secret(c.options.KeyFile)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+key), cancel, nil
}

// PartsMax is how many parts a job can have.
const PartsMax = 16

// Part is what some members of a gang have alike.
type Part struct {
	Devices int32 // Of each member.
	Members int32
}

// Request is what a pod asks of the engine, or a gang.
type Request struct {
	Tenant    string
	Key       string // Makes a repeated submission one.
	Namespace string
	Name      string // The pod's, or the gang's.
	UID       string
	Claim     string // uid/generation, or a gang's digest.
	Devices   int32
	Gang      bool
	Parts     []Part   // Of a gang, instead of Devices.
	Domain    string   // Of a gang: all members in one; empty: anywhere.
	Layout    string   // "contiguous", "spread"
	DeviceIDs []string // Exactly these, by index; empty: any.
	// BandwidthGBps is what each link between two devices must have in one direction; 0: anything.
	BandwidthGBps int64
	NodeLabels    []string // "key=value"
	Priority      int32
}

func (r *Request) message() *pb.SubmitJobsRequest {
	processor, memory := int32(0), int64(0) // Kubernetes' own filters look after both.
	name := r.Namespace + "/" + r.Name
	labels := map[string]string{LabelPodUID: r.UID, LabelPod: name, LabelClaim: r.Claim}
	resources := &pb.Resources{GpuLayout: r.Layout, GpuIds: r.DeviceIDs, NodeLabels: r.NodeLabels,
		GpuBandwidthGbs: r.BandwidthGBps, CpuMilli: &processor,
		MemoryMb: &memory}
	var parts []*pb.Part
	if r.Gang {
		labels = map[string]string{LabelGangUID: r.UID, LabelGang: name, LabelClaim: r.Claim}
		resources.Domain, resources.DomainRequired = r.Domain, r.Domain != ""
		for _, part := range r.Parts {
			parts = append(parts, &pb.Part{Members: part.Members,
				Resources: &pb.Resources{GpuCount: part.Devices, CpuMilli: &processor, MemoryMb: &memory}})
		}
	} else {
		resources.GpuCount = r.Devices
	}
	return &pb.SubmitJobsRequest{TenantId: r.Tenant, RequestKey: r.Key, Jobs: []*pb.JobRequest{{
		Spec:      &pb.JobSpec{Name: name, Executor: Executor, Labels: labels},
		Resources: resources,
		Parts:     parts,
		Priority:  &r.Priority,
		// A pod is bound once: the engine never starts its job a second time.
		Retry:          &pb.RetryPolicy{SystemRetries: -1},
		PreemptionMode: "cancel",
	}}}
}

// Submit makes a job of a pod, or of a gang, and returns the job's id, "job-12".
func (c *Client) Submit(ctx context.Context, request *Request) (string, error) {
	ctx, cancel, err := c.call(ctx)
	if err != nil {
		return "", err
	}
	defer cancel()
	answer, err := c.jobs.SubmitJobs(ctx, request.message())
	if err != nil {
		return "", err
	}
	if len(answer.JobIds) != 1 {
		return "", fmt.Errorf("the engine answered with %d jobs for one", len(answer.JobIds))
	}
	return answer.JobIds[0], nil
}

// Check asks, and changes nothing, whether the engine answers and knows external jobs: an older one takes the job for one
// without a command.
func (c *Client) Check(ctx context.Context, tenant string) error {
	ctx, cancel, err := c.call(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	request := &Request{Tenant: tenant, Namespace: "kube-system", Name: "check", UID: "check", Devices: 1}
	_, err = c.jobs.PlanJob(ctx, request.message())
	if status.Code(err) == codes.InvalidArgument {
		return fmt.Errorf("the engine does not take jobs of pods; it may be older than this program (%s)", Reason(err))
	}
	return err
}

// Cancel ends a job. A job that is over already, or that the engine does not know, is no error.
func (c *Client) Cancel(ctx context.Context, job string) error {
	ctx, cancel, err := c.call(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	_, err = c.jobs.CancelJobs(ctx, &pb.CancelJobsRequest{JobIds: []string{job}})
	if code := status.Code(err); code == codes.NotFound || code == codes.FailedPrecondition {
		return nil
	}
	return err
}

// Job returns what the engine says of a job.
func (c *Client) Job(ctx context.Context, job string) (*pb.Job, error) {
	ctx, cancel, err := c.call(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	return c.jobs.GetJob(ctx, &pb.GetJobRequest{JobId: job})
}

// JobsOfPods returns all jobs in these states that were made for pods or gangs.
func (c *Client) JobsOfPods(ctx context.Context, states ...pb.JobState) ([]*pb.Job, error) {
	var found []*pb.Job
	for _, state := range states {
		for token := ""; ; {
			callCtx, cancel, err := c.call(ctx)
			if err != nil {
				return nil, err
			}
			page, err := c.jobs.ListJobs(callCtx, &pb.ListJobsRequest{State: state, Labels: []string{LabelClaim},
				PageSize: pageSize, PageToken: token})
			cancel()
			if err != nil {
				return nil, err
			}
			found = append(found, page.Jobs...)
			if token = page.NextPageToken; token == "" {
				break
			}
		}
	}
	return found, nil
}

// Ping asks whether the engine answers.
func (c *Client) Ping(ctx context.Context) error {
	ctx, cancel, err := c.call(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	_, err = c.jobs.GetCluster(ctx, &pb.GetClusterRequest{})
	return err
}

// Watch tells of each job of a pod or gang that changes, until the stream ends, which it does with an error.
func (c *Client) Watch(ctx context.Context, tell func(*pb.WatchEvent)) error {
	key, err := secret(c.options.KeyFile)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+key))
	defer cancel()
	stream, err := c.jobs.Watch(ctx, &pb.WatchRequest{Labels: []string{LabelClaim}})
	if err != nil {
		return err
	}
	for {
		event, err := stream.Recv()
		if err != nil {
			return err
		}
		tell(event)
	}
}

// Start is when the engine expects a waiting job to start, as likely as not; zero: it cannot say.
func (c *Client) Start(ctx context.Context, job string) (time.Time, error) {
	ctx, cancel, err := c.call(ctx)
	if err != nil {
		return time.Time{}, err
	}
	defer cancel()
	told, err := c.jobs.ExplainJob(ctx, &pb.GetJobRequest{JobId: job})
	if err != nil || told.GetEstimate().GetP50() == nil {
		return time.Time{}, err
	}
	return told.Estimate.P50.AsTime(), nil
}

// JobNumber is the number in a job's id; 0: it is none.
func JobNumber(id string) uint64 {
	number, err := strconv.ParseUint(strings.TrimPrefix(id, "job-"), 10, 64)
	if err != nil {
		return 0
	}
	return number
}

// Preempted says whether a job is ended for another one, or was.
func Preempted(one *pb.Job) bool {
	return one.State == pb.JobState_JOB_STATE_PREEMPTED ||
		(one.State == pb.JobState_JOB_STATE_CANCELLED && one.Reason == reasonPreempted)
}

// Final says whether a job in this state is over.
func Final(state pb.JobState) bool {
	return state == pb.JobState_JOB_STATE_COMPLETED || state == pb.JobState_JOB_STATE_FAILED ||
		state == pb.JobState_JOB_STATE_CANCELLED
}
