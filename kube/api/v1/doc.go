// Package v1 holds the API types of group gpu.scheduling: GpuClaim, what a pod asks for, GpuGang, which pods begin
// together, and GpuNodeStatus, what a node has. The custom resource definitions in config/crd and the deep copies are generated from them (make -C kube generate).
//
// +kubebuilder:object:generate=true
// +groupName=gpu.scheduling
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion names the API.
var GroupVersion = schema.GroupVersion{Group: "gpu.scheduling", Version: "v1"}

// AddToScheme makes the types known to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &GpuClaim{}, &GpuClaimList{}, &GpuGang{}, &GpuGangList{}, &GpuNodeStatus{}, &GpuNodeStatusList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// Names on pods, namespaces and leases.
const (
	// SchedulerName is the schedulerName of pods that this system schedules.
	SchedulerName = "gpu-scheduler"
	// ResourceGPU in the limits of a pod that names no claim is its claim.
	ResourceGPU = "nvidia.com/gpu"
	// AnnotationClaim names the pod's GpuClaim in the pod's namespace. The user sets it.
	AnnotationClaim = "gpu.scheduling/claim"
	// AnnotationAllocated holds the ids of the pod's devices on its node, "0,1".
	AnnotationAllocated = "gpu.scheduling/allocated"
	// AnnotationAllocatedNode names the node that these ids count on.
	AnnotationAllocatedNode = "gpu.scheduling/allocated-node"
	// AnnotationAttempt is the record of the engine's decision, as JSON; only the scheduler reads and writes it.
	AnnotationAttempt = "gpu.scheduling/attempt"
	// LabelTenant on a namespace names the tenant whose quota its pods use.
	LabelTenant = "gpu.scheduling/tenant"
	// LabelManaged is "true" on the leases of this system.
	LabelManaged = "gpu.scheduling/managed"
	// LabelPod on a lease names its pod.
	LabelPod = "gpu.scheduling/pod"
)
