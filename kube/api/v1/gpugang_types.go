package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Domain is a group of nodes that are near each other.
// +kubebuilder:validation:Enum=node;rack;block;zone
type Domain string

// GangTimeoutMax is the longest time in seconds for which members wait for each other.
const GangTimeoutMax = 900

// GpuGangSpec says which pods begin together.
type GpuGangSpec struct {
	// minimum is the number of pods that the gang needs: with fewer it waits.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16384
	Minimum int32 `json:"minimum"`
	// domain: all members are placed in one node, rack, block or zone, by the labels of nodes. If omitted, the engine takes
	// the smallest that holds them.
	// +optional
	Domain Domain `json:"domain,omitempty"`
	// timeoutSeconds is how long a member that passed Kubernetes' own rules waits for the others, with its devices held.
	// +kubebuilder:default=900
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=900
	// +optional
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
}

// GpuGangStatus is what became of the gang. The scheduler alone writes it.
type GpuGangStatus struct {
	// phase sums the gang's state up: Bound when all its members are.
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// members is how many pods belong to the gang now.
	// +optional
	Members int32 `json:"members,omitempty"`
	// bound is how many of them are bound.
	// +optional
	Bound int32 `json:"bound,omitempty"`
	// job is the gang's job in the engine.
	// +optional
	Job string `json:"job,omitempty"`
	// message says why the gang waits.
	// +optional
	Message string `json:"message,omitempty"`
}

// GpuGang makes the pods whose claims name it in gangRef begin together, or none of them.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=ggang,path=gpugangs
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Minimum,type=integer,JSONPath=.spec.minimum
// +kubebuilder:printcolumn:name=Members,type=integer,JSONPath=.status.members
// +kubebuilder:printcolumn:name=Bound,type=integer,JSONPath=.status.bound
// +kubebuilder:printcolumn:name=Phase,type=string,JSONPath=.status.phase
// +kubebuilder:printcolumn:name=Job,type=string,JSONPath=.status.job
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=.metadata.creationTimestamp
type GpuGang struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              GpuGangSpec `json:"spec"`
	// +optional
	Status GpuGangStatus `json:"status,omitempty"`
}

// GpuGangList is a page of gangs.
// +kubebuilder:object:root=true
type GpuGangList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GpuGang `json:"items"`
}
