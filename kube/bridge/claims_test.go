package bridge

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	v1 "gpusched/kube/api/v1"
)

func containerWith(gpus int64) corev1.Container {
	return corev1.Container{Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{
		v1.ResourceGPU: *resource.NewQuantity(gpus, resource.DecimalSI)}}}
}

func TestAPodAsksForWhatItsContainersNeedAtOnce(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	beside := containerWith(4)
	beside.RestartPolicy = &always
	for name, one := range map[string]struct {
		init, main []corev1.Container
		want       int64
	}{
		"none":              {nil, []corev1.Container{{}}, 0},
		"containers add up": {nil, []corev1.Container{containerWith(1), containerWith(2)}, 3},
		"init before them":  {[]corev1.Container{containerWith(2), containerWith(1)}, []corev1.Container{containerWith(1)}, 2},
		"a sidecar":         {[]corev1.Container{beside}, []corev1.Container{containerWith(1)}, 5},
	} {
		if got := resourceOf(&corev1.Pod{Spec: corev1.PodSpec{InitContainers: one.init, Containers: one.main}}); got != one.want {
			t.Errorf("%s: %d", name, got)
		}
	}
}

func TestLinksAreKnownWithinIslandsAndCountOneDirection(t *testing.T) {
	devices := map[int]*v1.NodeDevice{0: {Island: "a", BandwidthGBps: 600}, 1: {Island: "a", BandwidthGBps: 400},
		2: {Island: "b", BandwidthGBps: 600}}
	far := int64(10*16 + 1)
	if got := linksOf(devices, 3); !slices.Equal(got, []int64{200*16 + 6, far, far}) {
		t.Error(got)
	}
	if got := linksOf(map[int]*v1.NodeDevice{0: {}, 1: {}}, 2); got != nil {
		t.Error("nothing is known without islands:", got)
	}
	claim := &v1.GpuClaim{Spec: v1.GpuClaimSpec{Topology: &v1.Topology{Mode: v1.TopologyRequired, MinBandwidthGBps: 601}}}
	if got := bandwidthOf(claim); got != 301 {
		t.Error(got)
	}
	claim.Spec.Topology.Mode = v1.TopologyPreferred
	if got := bandwidthOf(claim); got != 0 {
		t.Error(got)
	}
}
