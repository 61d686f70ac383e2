package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Policy says which devices of a node belong together.
// +kubebuilder:validation:Enum=contiguous;spread;preferIds
type Policy string

// Exclusivity says whether others may use the device too.
// +kubebuilder:validation:Enum=Exclusive;Shared;MIG
type Exclusivity string

// TopologyMode says how much the links between the devices matter.
// +kubebuilder:validation:Enum=Required;Preferred;Ignore
type TopologyMode string

// Phase sums a claim's state up.
// +kubebuilder:validation:Enum=Pending;Reserved;Bound;Failed
type Phase string

const (
	PolicyContiguous Policy = "contiguous"
	PolicySpread     Policy = "spread"
	PolicyPreferIDs  Policy = "preferIds"

	Exclusive Exclusivity = "Exclusive"
	Shared    Exclusivity = "Shared"
	MIG       Exclusivity = "MIG"

	TopologyRequired  TopologyMode = "Required"
	TopologyPreferred TopologyMode = "Preferred"
	TopologyIgnore    TopologyMode = "Ignore"

	// PhasePending: no devices are chosen.
	PhasePending Phase = "Pending"
	// PhaseReserved: devices are chosen, the pod is not bound yet.
	PhaseReserved Phase = "Reserved"
	// PhaseBound: the pod is bound and holds the devices.
	PhaseBound Phase = "Bound"
	// PhaseFailed: the claim cannot be met as it is written.
	PhaseFailed Phase = "Failed"
)

// DeviceRequest says how many devices, and which.
// +kubebuilder:validation:XValidation:rule="!has(self.policy) || self.policy != 'preferIds' || (has(self.preferIds) && size(self.preferIds) > 0)",message="policy preferIds needs preferIds"
type DeviceRequest struct {
	// count is the number of devices, all on one node.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	// +optional
	Count int32 `json:"count,omitempty"`
	// policy: contiguous takes neighbours by id, spread takes devices far apart, preferIds the first of those named.
	// +kubebuilder:default=contiguous
	// +optional
	Policy Policy `json:"policy,omitempty"`
	// preferIds names devices by their ids on the node: the first count of them are taken, and no others.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Minimum=0
	// +listType=set
	// +optional
	PreferIDs []int32 `json:"preferIds,omitempty"`
	// exclusivity: Exclusive devices are the pod's alone.
	// +kubebuilder:default=Exclusive
	// +optional
	Exclusivity Exclusivity `json:"exclusivity,omitempty"`
}

// NodeSelector names labels that the node must have.
type NodeSelector struct {
	// matchLabels are labels of the node, all of which it must have.
	// +kubebuilder:validation:MaxProperties=16
	// +optional
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
}

// Topology says how the devices must be linked.
type Topology struct {
	// mode: Required refuses worse links, Preferred takes them when nothing better is free, Ignore does not look.
	// +kubebuilder:default=Ignore
	// +optional
	Mode TopologyMode `json:"mode,omitempty"`
	// minBandwidthGBps counts both directions of the link between two of the devices. Required needs it.
	// +kubebuilder:validation:Minimum=0
	// +optional
	MinBandwidthGBps int32 `json:"minBandwidthGBps,omitempty"`
}

// GpuClaimSpec is what a pod asks for.
type GpuClaimSpec struct {
	// devices says how many devices, and which.
	// +kubebuilder:default={}
	// +optional
	Devices DeviceRequest `json:"devices,omitempty"`
	// selector names labels that the node must have.
	// +optional
	Selector *NodeSelector `json:"selector,omitempty"`
	// topology says how the devices must be linked.
	// +optional
	Topology *Topology `json:"topology,omitempty"`
	// gangRef names the GpuGang whose member the pod is.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	GangRef string `json:"gangRef,omitempty"`
}

// GpuClaimStatus is what became of the claim. The scheduler alone writes it.
type GpuClaimStatus struct {
	// phase sums the claim's state up.
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// nodeName is the node of the devices.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// gpuIds are the devices' ids on the node.
	// +listType=atomic
	// +optional
	GpuIDs []int32 `json:"gpuIds,omitempty"`
	// allocated is node and ids in one line: "node-a:0,1".
	// +optional
	Allocated string `json:"allocated,omitempty"`
	// message says why the claim waits or cannot be met.
	// +optional
	Message string `json:"message,omitempty"`
	// podName is the pod that has the claim.
	// +optional
	PodName string `json:"podName,omitempty"`
	// podUID is that pod's uid.
	// +optional
	PodUID string `json:"podUID,omitempty"`
	// job is the pod's job in the engine, "job-12": what gpu-cli shows.
	// +optional
	Job string `json:"job,omitempty"`
	// conditions: Bound is True while the pod is bound with its devices.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// GpuClaim asks for devices of one node for one pod, which names it in its annotation gpu.scheduling/claim.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=gclaim,path=gpuclaims
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Req,type=integer,JSONPath=.spec.devices.count
// +kubebuilder:printcolumn:name=Policy,type=string,JSONPath=.spec.devices.policy
// +kubebuilder:printcolumn:name=Topology,type=string,JSONPath=.spec.topology.mode
// +kubebuilder:printcolumn:name=Allocated,type=string,JSONPath=.status.allocated
// +kubebuilder:printcolumn:name=Phase,type=string,JSONPath=.status.phase
// +kubebuilder:printcolumn:name=Node,type=string,JSONPath=.status.nodeName
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=.metadata.creationTimestamp
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.phase) || oldSelf.status.phase != 'Bound' || self.spec == oldSelf.spec",message="the claim is bound to a pod: its spec cannot change until the pod has ended"
type GpuClaim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +kubebuilder:default={}
	// +optional
	Spec GpuClaimSpec `json:"spec,omitempty"`
	// +optional
	Status GpuClaimStatus `json:"status,omitempty"`
}

// GpuClaimList is a page of claims.
// +kubebuilder:object:root=true
type GpuClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GpuClaim `json:"items"`
}
