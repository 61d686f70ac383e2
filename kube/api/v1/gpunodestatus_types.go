package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Health says whether a device takes work.
// +kubebuilder:validation:Enum=Healthy;Unhealthy;Unknown
type Health string

const (
	Healthy   Health = "Healthy"
	Unhealthy Health = "Unhealthy"
	Unknown   Health = "Unknown"
)

// GpuNodeStatusSpec names the node.
type GpuNodeStatusSpec struct {
	// nodeName is the Kubernetes node; the object has the same name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName"`
}

// NodeDevice is one GPU of the node.
type NodeDevice struct {
	// id is the device's number on the node, as CUDA_VISIBLE_DEVICES counts.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1023
	ID int32 `json:"id"`
	// uuid is the driver's name for the device.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	UUID string `json:"uuid,omitempty"`
	// inUseBy lists the uids of pods that use the device.
	// +listType=set
	// +optional
	InUseBy []string `json:"inUseBy,omitempty"`
	// health: a device that is not Healthy takes no new work.
	// +kubebuilder:default=Unknown
	// +optional
	Health Health `json:"health,omitempty"`
	// bandwidthGBps is that of the device's best link, both directions together.
	// +kubebuilder:validation:Minimum=0
	// +optional
	BandwidthGBps int32 `json:"bandwidthGBps,omitempty"`
	// island names the devices that are linked with it at full bandwidth.
	// +optional
	Island string `json:"island,omitempty"`
	// model is the device's product name.
	// +optional
	Model string `json:"model,omitempty"`
	// memoryMB is the device's memory in MiB.
	// +kubebuilder:validation:Minimum=0
	// +optional
	MemoryMB int64 `json:"memoryMB,omitempty"`
	// message says why the device is not Healthy.
	// +optional
	Message string `json:"message,omitempty"`
}

// NodeHCA is one RDMA adapter of the node.
type NodeHCA struct {
	// name is the adapter's name in the kernel, "mlx5_0".
	Name string `json:"name"`
	// ports is the number of its ports that are active.
	// +optional
	Ports int32 `json:"ports,omitempty"`
	// gbps is the rate of its fastest active port, in Gbit/s.
	// +optional
	Gbps int32 `json:"gbps,omitempty"`
}

// GpuNodeStatusStatus is what the node has. The node's agent alone writes it.
type GpuNodeStatusStatus struct {
	// total is the number of devices.
	// +optional
	Total int32 `json:"total,omitempty"`
	// devices are the node's GPUs.
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Devices []NodeDevice `json:"devices,omitempty"`
	// driver is the version of the GPU driver.
	// +optional
	Driver string `json:"driver,omitempty"`
	// hcas are the node's RDMA adapters.
	// +listType=map
	// +listMapKey=name
	// +optional
	HCAs []NodeHCA `json:"hcas,omitempty"`
	// rdma: GPUs can use the adapters directly.
	// +optional
	RDMA bool `json:"rdma,omitempty"`
	// cuFile: GPUs can read storage directly.
	// +optional
	CuFile bool `json:"cuFile,omitempty"`
	// message says what is wrong with the node.
	// +optional
	Message string `json:"message,omitempty"`
}

// GpuNodeStatus is what one Kubernetes node has.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=gns,path=gpunodestatuses
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=GPUs,type=integer,JSONPath=.status.total
// +kubebuilder:printcolumn:name=Model,type=string,JSONPath=.status.devices[0].model
// +kubebuilder:printcolumn:name=Driver,type=string,JSONPath=.status.driver
// +kubebuilder:printcolumn:name=Message,type=string,JSONPath=.status.message
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=.metadata.creationTimestamp
// +kubebuilder:validation:XValidation:rule="self.spec.nodeName == self.metadata.name",message="spec.nodeName must be the object's name"
type GpuNodeStatus struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              GpuNodeStatusSpec `json:"spec"`
	// +optional
	Status GpuNodeStatusStatus `json:"status,omitempty"`
}

// GpuNodeStatusList is a page of nodes.
// +kubebuilder:object:root=true
type GpuNodeStatusList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GpuNodeStatus `json:"items"`
}
