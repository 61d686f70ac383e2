// Package plugin is the GPU part of a kube-scheduler: it lets a pod into the scheduling queue when the engine has placed
// it, on the one node that the engine chose, and binds it with its devices. All other rules stay upstream's.
package plugin

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"gpusched/kube/bridge"
	"gpusched/kube/engine"
)

// Name is the plug-in's name in the scheduler's configuration.
const Name = "GpuScheduler"

// Args are the plug-in's arguments in the scheduler's configuration (pluginConfig).
type Args struct {
	// Engine says where the engine is.
	Engine engine.Options `json:"engine"`
	// Tenant of pods whose namespace has no label gpu.scheduling/tenant. Not given: "default"; "": the namespace's name.
	Tenant *string `json:"tenant,omitempty"`
}

const defaultTenant = "default"

// GpuScheduler implements the extension points of upstream's framework.
type GpuScheduler struct {
	bridge *bridge.Bridge
}

var (
	_ fwk.PreEnqueuePlugin  = &GpuScheduler{}
	_ fwk.EnqueueExtensions = &GpuScheduler{}
	_ fwk.PreFilterPlugin   = &GpuScheduler{}
	_ fwk.FilterPlugin      = &GpuScheduler{}
	_ fwk.PostFilterPlugin  = &GpuScheduler{}
	_ fwk.ReservePlugin     = &GpuScheduler{}
	_ fwk.PermitPlugin      = &GpuScheduler{}
	_ fwk.PreBindPlugin     = &GpuScheduler{}
	_ fwk.BindPlugin        = &GpuScheduler{}
)

// New makes the plug-in and starts the bridge, which works when this scheduler is the leader.
func New(ctx context.Context, object runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	var args Args
	if err := frameworkruntime.DecodeInto(object, &args); err != nil {
		return nil, fmt.Errorf("pluginConfig of %s: %w", Name, err)
	}
	client, err := engine.Dial(args.Engine)
	if err != nil {
		return nil, fmt.Errorf("pluginConfig of %s: %w", Name, err)
	}
	tenant := defaultTenant
	if args.Tenant != nil {
		tenant = *args.Tenant
	}
	objects, err := dynamic.NewForConfig(handle.KubeConfig())
	if err != nil {
		return nil, err
	}
	b, err := bridge.New(bridge.Options{Engine: client, Client: handle.ClientSet(), Dynamic: objects,
		Shared: handle.SharedInformerFactory(), Queue: queue{handle}, Events: handle.EventRecorder(),
		Tenant: tenant})
	if err != nil {
		return nil, err
	}
	go b.Run(ctx)
	return &GpuScheduler{bridge: b}, nil
}

// queue is the framework as the bridge uses it.
type queue struct{ fwk.Handle }

// Allow implements bridge.Queue.
func (q queue) Allow(uid types.UID) {
	if waiting := q.GetWaitingPod(uid); waiting != nil {
		waiting.Allow(Name)
	}
}

// Reject implements bridge.Queue.
func (q queue) Reject(uid types.UID, reason string) {
	if waiting := q.GetWaitingPod(uid); waiting != nil {
		waiting.Reject(Name, reason)
	}
}

// cycle is the decision of the engine that a scheduling cycle carries out, and its node.
type cycle struct{ decision, node string }

// Clone implements fwk.StateData.
func (c cycle) Clone() fwk.StateData { return c }

func cycleOf(state fwk.CycleState) cycle {
	if data, err := state.Read(Name); err == nil {
		return data.(cycle)
	}
	return cycle{}
}

func decisionOf(state fwk.CycleState) string { return cycleOf(state).decision }

// Name implements fwk.Plugin.
func (*GpuScheduler) Name() string { return Name }

// PreEnqueue holds a pod until the engine has placed it.
func (g *GpuScheduler) PreEnqueue(_ context.Context, pod *corev1.Pod) *fwk.Status {
	if reason := g.bridge.Held(pod); reason != "" {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, reason)
	}
	return nil
}

// EventsToRegister names none: the bridge wakes pods itself.
func (*GpuScheduler) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return nil, nil
}

// PreFilter leaves the engine's node alone to upstream's filters.
func (g *GpuScheduler) PreFilter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) (
	*fwk.PreFilterResult, *fwk.Status) {
	node, decision, ok := g.bridge.Place(pod.UID)
	if !ok {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "waits for the GPU engine")
	}
	state.Write(Name, cycle{decision, node})
	return &fwk.PreFilterResult{NodeNames: sets.New(node)}, nil
}

// Filter refuses every node but the engine's. Upstream tries the node that a pod's status nominates before those that
// PreFilter leaves, and what it nominated there for an earlier decision may have stayed.
func (*GpuScheduler) Filter(_ context.Context, state fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	if node.Node().Name != cycleOf(state).node {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "the GPU engine chose another node")
	}
	return nil
}

// PreFilterExtensions implements fwk.PreFilterPlugin: another pod on the node changes nothing.
func (*GpuScheduler) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// PostFilter tells the engine in upstream's words why the pod does not fit on its node.
func (g *GpuScheduler) PostFilter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, seen fwk.NodeToStatusReader) (
	*fwk.PostFilterResult, *fwk.Status) {
	if node, decision, ok := g.bridge.Place(pod.UID); ok && decision == decisionOf(state) {
		reason := seen.Get(node).Message()
		if reason == "" {
			reason = "the scheduler of Kubernetes does not know the node"
		}
		g.bridge.Refused(pod.UID, decision, fmt.Sprintf("node %s: %s", node, reason))
	}
	return nil, fwk.NewStatus(fwk.Unschedulable)
}

// Reserve implements fwk.ReservePlugin: the engine has reserved already.
func (*GpuScheduler) Reserve(context.Context, fwk.CycleState, *corev1.Pod, string) *fwk.Status {
	return nil
}

// Unreserve gives the place back to the engine.
func (g *GpuScheduler) Unreserve(_ context.Context, state fwk.CycleState, pod *corev1.Pod, node string) {
	g.bridge.Refused(pod.UID, decisionOf(state), fmt.Sprintf("node %s: the scheduler of Kubernetes did not bind the pod; see its events", node))
}

// Permit holds a member of a gang until the engine says that all members are held.
func (g *GpuScheduler) Permit(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, node string) (*fwk.Status,
	time.Duration) {
	limit, err := g.bridge.Hold(pod.UID, node)
	switch {
	case err != nil:
		return fwk.NewStatus(fwk.Unschedulable, err.Error()), 0
	case limit > 0:
		return fwk.NewStatus(fwk.Wait, "waits for the other members of its gang"), limit
	}
	return nil, 0
}

// PreBindPreFlight implements fwk.PreBindPlugin.
func (*GpuScheduler) PreBindPreFlight(context.Context, fwk.CycleState, *corev1.Pod, string) (*fwk.PreBindPreFlightResult,
	*fwk.Status) {
	return nil, nil
}

// PreBind makes the decision durable and takes the devices' leases.
func (g *GpuScheduler) PreBind(ctx context.Context, _ fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	if err := g.bridge.Prepare(ctx, pod, node); err != nil {
		return fwk.NewStatus(fwk.Unschedulable, err.Error())
	}
	return nil
}

// Bind binds the pod.
func (g *GpuScheduler) Bind(ctx context.Context, _ fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	return fwk.AsStatus(g.bridge.Bind(ctx, pod, node))
}
