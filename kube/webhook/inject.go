// Package webhook gives pods with a claim the variable by which CUDA finds their devices.
//
// A pod's devices are known when it is bound, which is after it was admitted. So each container gets
// CUDA_VISIBLE_DEVICES as a reference to the annotation that the scheduler writes before it binds the pod.
package webhook

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Annotations of pods. Users write the first; the scheduler writes the others when it binds the pod.
const (
	AnnotationClaim         = "gpu.scheduling/claim"
	AnnotationAllocated     = "gpu.scheduling/allocated"
	AnnotationAllocatedNode = "gpu.scheduling/allocated-node"
	AnnotationAttempt       = "gpu.scheduling/attempt"
)

const (
	schedulerName   = "gpu-scheduler"
	resourceGPU     = "nvidia.com/gpu"
	devicesVariable = "CUDA_VISIBLE_DEVICES"
	allocatedField  = "metadata.annotations['" + AnnotationAllocated + "']"
)

// operation is one step of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// patchPod returns what changes a new pod, given as JSON, so that its containers see the devices that the scheduler
// chooses; nothing for a pod that asks for none and for one that is as it should be. Fields that this program does not know
// stay as they are.
func patchPod(object []byte) ([]operation, error) {
	var pod corev1.Pod
	if err := json.Unmarshal(object, &pod); err != nil {
		return nil, fmt.Errorf("the object is no pod: %w", err)
	}
	if !asks(&pod) {
		return nil, nil
	}
	var patch []operation
	// Only the scheduler chooses devices: what a user wrote there would reach the containers of a pod that the user binds.
	for _, name := range []string{AnnotationAllocated, AnnotationAllocatedNode, AnnotationAttempt} {
		if _, written := pod.Annotations[name]; written {
			patch = append(patch, operation{Op: "remove", Path: "/metadata/annotations/" + escape(name)})
		}
	}
	for i, container := range pod.Spec.InitContainers {
		patch = append(patch, patchVariables(fmt.Sprintf("/spec/initContainers/%d/env", i), container.Env)...)
	}
	for i, container := range pod.Spec.Containers {
		patch = append(patch, patchVariables(fmt.Sprintf("/spec/containers/%d/env", i), container.Env)...)
	}
	return patch, nil
}

// Whether the scheduler gives the pod devices: it names a claim, or names the scheduler and asks for nvidia.com/gpu.
func asks(pod *corev1.Pod) bool {
	if _, claims := pod.Annotations[AnnotationClaim]; claims {
		return true
	}
	return pod.Spec.SchedulerName == schedulerName && slices.ContainsFunc(
		slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(c corev1.Container) bool {
			_, limited := c.Resources.Limits[resourceGPU]
			return limited
		})
}

// patchVariables leaves one variable of the name in the list at `path`, with our reference.
func patchVariables(path string, variables []corev1.EnvVar) []operation {
	wanted := corev1.EnvVar{Name: devicesVariable, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: allocatedField}}}
	var places []int
	for i, variable := range variables {
		if variable.Name == devicesVariable {
			places = append(places, i)
		}
	}
	switch {
	case variables == nil:
		return []operation{{Op: "add", Path: path, Value: []corev1.EnvVar{wanted}}}
	case len(places) == 0:
		return []operation{{Op: "add", Path: path + "/-", Value: wanted}}
	}
	var patch []operation
	if !isWanted(variables[places[0]]) {
		patch = append(patch, operation{Op: "replace", Path: fmt.Sprintf("%s/%d", path, places[0]), Value: wanted})
	}
	// The last of a name counts, so that no other one may stay. From the end, so that indices stay true.
	for _, place := range slices.Backward(places[1:]) {
		patch = append(patch, operation{Op: "remove", Path: fmt.Sprintf("%s/%d", path, place)})
	}
	return patch
}

func isWanted(variable corev1.EnvVar) bool {
	source := variable.ValueFrom
	return variable.Value == "" && source != nil && source.FieldRef != nil && source.FieldRef.FieldPath == allocatedField
}

// escape makes one step of a JSON pointer (RFC 6901) of a name.
func escape(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}
