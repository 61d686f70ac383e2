package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "gpusched/kube/api/v1"
)

const (
	priorityMax = 1_000_000
	messageMax  = 1024

	conditionBound = "Bound"
)

// Why a claim cannot be met by this version; empty: it can.
func unsupported(claim *v1.GpuClaim) string {
	spec := &claim.Spec
	not := func(what string) string {
		return fmt.Sprintf("gpu claim %q waits: %s is not supported yet", claim.Name, what)
	}
	switch {
	case spec.Devices.Exclusivity == v1.Shared, spec.Devices.Exclusivity == v1.MIG:
		return not("exclusivity " + string(spec.Devices.Exclusivity))
	case spec.Devices.Policy == v1.PolicyPreferIDs && len(spec.Devices.PreferIDs) < int(spec.Devices.Count):
		return fmt.Sprintf("gpu claim %q waits: preferIds names %d devices, and count is %d", claim.Name,
			len(spec.Devices.PreferIDs), spec.Devices.Count)
	case spec.Topology != nil && spec.Topology.Mode == v1.TopologyRequired && spec.Topology.MinBandwidthGBps <= 0:
		return fmt.Sprintf("gpu claim %q waits: topology.mode Required needs minBandwidthGBps", claim.Name)
	case spec.Devices.Count > devicesMax:
		return fmt.Sprintf("%d devices are asked for: a node has at most %d", spec.Devices.Count, devicesMax)
	case spec.Devices.Count <= 0:
		return fmt.Sprintf("gpu claim %q asks for %d devices: count must be 1 or more", claim.Name, spec.Devices.Count)
	}
	return ""
}

// claimOf is the pod's claim: the one that it names, or for a pod that names none what it asks for in nvidia.com/gpu.
// Nil: there is none.
func (b *Bridge) claimOf(pod *corev1.Pod) *v1.GpuClaim {
	if name := pod.Annotations[v1.AnnotationClaim]; name != "" {
		return b.claim(pod.Namespace, name)
	}
	count := resourceOf(pod)
	if count <= 0 {
		return nil
	}
	// It has no object, and its version changes with what it asks for.
	claim := &v1.GpuClaim{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, UID: "implicit", Generation: count}}
	claim.Spec.Devices = v1.DeviceRequest{Count: int32(min(count, math.MaxInt32)), Policy: v1.PolicyContiguous,
		Exclusivity: v1.Exclusive}
	return claim
}

// Whether the pod asks for devices at all.
func asks(pod *corev1.Pod) bool {
	return pod.Annotations[v1.AnnotationClaim] != "" || resourceOf(pod) > 0
}

// How many devices the pod's limits name: all its containers together, or the init container with the most.
func resourceOf(pod *corev1.Pod) int64 {
	of := func(c *corev1.Container) int64 {
		quantity := c.Resources.Limits[v1.ResourceGPU]
		return quantity.Value()
	}
	count, most := int64(0), int64(0)
	for i := range pod.Spec.Containers {
		count += of(&pod.Spec.Containers[i])
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			count += of(c) // It runs beside the others.
		} else {
			most = max(most, of(c))
		}
	}
	return max(count, most)
}

// The ids of the devices that the claim names; empty: any.
func idsOf(claim *v1.GpuClaim) []string {
	if claim.Spec.Devices.Policy != v1.PolicyPreferIDs {
		return nil
	}
	var ids []string
	for _, id := range claim.Spec.Devices.PreferIDs[:claim.Spec.Devices.Count] {
		ids = append(ids, strconv.Itoa(int(id)))
	}
	return ids
}

// How several devices lie; empty: wherever they are, by the best links.
func layoutOf(claim *v1.GpuClaim) string {
	if claim.Spec.Devices.Policy == v1.PolicyPreferIDs {
		return ""
	}
	return string(claim.Spec.Devices.Policy)
}

// The bandwidth that each link must have in one direction, as the engine counts; the claim counts both together.
func bandwidthOf(claim *v1.GpuClaim) int64 {
	if t := claim.Spec.Topology; t != nil && t.Mode == v1.TopologyRequired {
		return (int64(t.MinBandwidthGBps) + 1) / 2
	}
	return 0
}

func priorityOf(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return min(max(*pod.Spec.Priority, -priorityMax), priorityMax)
}

// "key=value", in the order of keys.
func sortedLabels(labels map[string]string) []string {
	words := make([]string, 0, len(labels))
	for key, value := range labels {
		words = append(words, key+"="+value)
	}
	slices.Sort(words)
	return words
}

// Writes what became of a claim, when that is something else than it says.
func (b *Bridge) syncClaim(ctx context.Context, name types.NamespacedName) error {
	claim := b.claim(name.Namespace, name.Name)
	if claim == nil {
		return nil
	}
	wanted := b.statusOf(claim)
	if equality.Semantic.DeepEqual(wanted, claim.Status) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": claim.UID}, "status": asPatch(&wanted)})
	if err != nil {
		return err
	}
	_, err = b.options.Dynamic.Resource(claimsResource).Namespace(name.Namespace).Patch(ctx, name.Name,
		types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// A merge patch says with null what is no more.
func asPatch(status *v1.GpuClaimStatus) map[string]any {
	patch := map[string]any{"phase": status.Phase, "message": status.Message, "conditions": status.Conditions}
	for key, value := range map[string]string{"nodeName": status.NodeName, "allocated": status.Allocated,
		"podName": status.PodName, "podUID": status.PodUID, "job": status.Job} {
		patch[key] = nil
		if value != "" {
			patch[key] = value
		}
	}
	patch["gpuIds"] = nil
	if len(status.GpuIDs) > 0 {
		patch["gpuIds"] = status.GpuIDs
	}
	return patch
}

func (b *Bridge) statusOf(claim *v1.GpuClaim) v1.GpuClaimStatus {
	if claim.Spec.GangRef != "" {
		return b.statusOfShared(claim)
	}
	status := v1.GpuClaimStatus{Phase: v1.PhasePending, Conditions: slices.Clone(claim.Status.Conditions)}
	reason := "NoPod"
	status.Message = "no pod uses the claim"
	pod := b.ownerOf(claim)
	if problem := unsupported(claim); problem != "" && (pod == nil || pod.Spec.NodeName == "") {
		reason, status.Message = "NotSupported", problem
	}
	if pod != nil {
		status.PodName, status.PodUID = pod.Name, string(pod.UID)
		b.mutex.Lock()
		a, j, refusal := b.attempts[pod.UID], b.jobs[pod.UID], b.refusals[pod.UID]
		trouble := b.troubles[engineName]
		switch {
		case a != nil && a.stage != leaving:
			status.NodeName, status.GpuIDs, status.Job = a.Node, a.ids(), a.job()
			status.Allocated = a.Node + ":" + a.list()
			status.Phase, reason, status.Message = v1.PhaseReserved, "Reserved", "the pod is about to be bound"
			if a.stage == bound {
				status.Phase, reason, status.Message = v1.PhaseBound, "Bound", "the pod has its devices"
			}
		case pod.Spec.NodeName != "" && !b.recovered:
			b.mutex.Unlock()
			return claim.Status // Not known yet.
		case pod.Spec.NodeName != "" && bindingOf(pod) != nil:
			r := bindingOf(pod)
			status.NodeName, status.GpuIDs, status.Allocated = r.Node, r.ids(), r.Node+":"+r.list()
			status.Phase, reason = v1.PhaseBound, "UnknownToEngine"
			status.Message = "the pod has its devices, and the engine no longer knows the pod's job"
		case pod.Spec.NodeName != "":
			reason, status.Message = "BoundElsewhere", "the pod was bound by somebody else, without devices"
		case trouble != "":
			reason, status.Message = "EngineAway", trouble
		case len(pod.Spec.SchedulingGates) > 0:
			status.Message = "its pod has scheduling gates"
			reason = "Gated"
		case refusal != "":
			if reason != "NotSupported" {
				status.Phase, reason = v1.PhaseFailed, "Refused"
			}
			status.Message = refusal
		case j != nil:
			status.Job, reason, status.Message = j.id, "Waiting", j.text()
		default:
			reason, status.Message = "Waiting", "the pod is about to be submitted"
		}
		b.mutex.Unlock()
	}
	return withCondition(claim, status, reason)
}

// The status of a claim of a gang, which all pods that name it have at once.
func (b *Bridge) statusOfShared(claim *v1.GpuClaim) v1.GpuClaimStatus {
	status := v1.GpuClaimStatus{Phase: v1.PhasePending, Conditions: slices.Clone(claim.Status.Conditions)}
	reason, pods := "NoPod", 0
	status.Message = "no pod uses the claim"
	b.mutex.Lock()
	defer b.mutex.Unlock()
	var places []string
	unbound := 0
	for _, pod := range b.podsOf(claim.Namespace, claim.Name) {
		if over(pod) {
			continue
		}
		if pods++; pods == 1 {
			status.PodName, status.PodUID = pod.Name, string(pod.UID)
		}
		if j := b.jobs[pod.UID]; j != nil {
			status.Job, reason, status.Message = j.id, "Waiting", j.text()
		}
		a := b.attempts[pod.UID]
		if a == nil && pod.Spec.NodeName != "" && !b.recovered {
			return claim.Status // Not known yet.
		}
		if a == nil || a.stage == leaving {
			unbound++
			continue
		}
		if a.stage != bound {
			unbound++
		}
		places = append(places, a.Node+":"+a.list())
		status.NodeName, status.GpuIDs = a.Node, a.ids()
	}
	if pods != 1 { // These would be one pod's.
		status.PodName, status.PodUID, status.NodeName, status.GpuIDs = "", "", "", nil
	}
	status.Allocated = cut(strings.Join(places, " "))
	told := b.gangTold[types.NamespacedName{Namespace: claim.Namespace, Name: claim.Spec.GangRef}]
	switch {
	case pods == 0:
	case pods == len(places) && unbound == 0:
		status.Phase, reason, status.Message = v1.PhaseBound, "Bound", "the pods have their devices"
	case pods == len(places):
		status.Phase, reason, status.Message = v1.PhaseReserved, "Reserved", "the pods are about to be bound"
	case b.troubles[engineName] != "":
		reason, status.Message = "EngineAway", b.troubles[engineName]
	case unsupported(claim) != "":
		reason, status.Message = "NotSupported", unsupported(claim)
	case status.Job == "":
		reason, status.Message = "Waiting", told
	}
	return withCondition(claim, status, reason)
}

func withCondition(claim *v1.GpuClaim, status v1.GpuClaimStatus, reason string) v1.GpuClaimStatus {
	status.Message = cut(status.Message)
	condition := metav1.Condition{Type: conditionBound, Status: metav1.ConditionFalse, Reason: reason,
		Message: status.Message, ObservedGeneration: claim.Generation}
	if status.Phase == v1.PhaseBound {
		condition.Status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&status.Conditions, condition)
	return status
}

func cut(text string) string {
	if len(text) <= messageMax {
		return text
	}
	return strings.ToValidUTF8(text[:messageMax], "")
}

// Says in the pod's condition why it waits, when it does not say so already, and in an event.
func (b *Bridge) tell(ctx context.Context, pod *corev1.Pod, message string) error {
	return b.say(ctx, pod, message, message)
}

// Likewise of a pod that waits for its job. Its place and time, which change often, are in the condition alone.
func (b *Bridge) tellOf(ctx context.Context, pod *corev1.Pod, j *job) error {
	return b.say(ctx, pod, j.text(), j.reason())
}

func (b *Bridge) say(ctx context.Context, pod *corev1.Pod, message, event string) error {
	message = cut(message)
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Message == message {
			return nil
		}
	}
	condition := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
		Reason: corev1.PodReasonUnschedulable, Message: message, LastTransitionTime: metav1.Now()}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID},
		"status": map[string]any{"conditions": []corev1.PodCondition{condition}}})
	if err != nil {
		return err
	}
	_, err = b.options.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err == nil {
		b.addEvent(pod, corev1.EventTypeNormal, "WaitsForGPUs", "Scheduling", event)
	}
	return err
}

// An event for each other message.
func (b *Bridge) addEvent(pod *corev1.Pod, kind, reason, action, message string) {
	b.mutex.Lock()
	changed := b.eventTold[pod.UID] != message
	b.eventTold[pod.UID] = message
	b.mutex.Unlock()
	if changed && b.options.Events != nil {
		b.options.Events.Eventf(pod, nil, kind, reason, action, "%s", cut(message))
	}
}
