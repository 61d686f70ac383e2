package bridge

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "gpusched/kube/api/v1"
	"gpusched/kube/engine/pb"
)

func TestARecordIsReadAsItWasWritten(t *testing.T) {
	r := recordOf("node-a", &pb.StartAttempt{Key: &pb.AttemptKey{Job: 12, Attempt: 2}, PlacedAtNs: 1 << 60,
		Devices: []*pb.GrantedDevice{{Index: 10, Uuid: "GPU-b", Generation: 4}, {Index: 2, Uuid: "GPU-a", Generation: 3}}})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1.AnnotationAttempt: r.text()}}}
	if got := readRecord(pod); got == nil || !reflect.DeepEqual(*got, r) {
		t.Errorf("%v", got)
	}
	if r.list() != "2,10" || r.job() != "job-12" {
		t.Error(r.list(), r.job())
	}
}

func TestAnAnnotationThatIsNoRecordIsNone(t *testing.T) {
	for _, text := range []string{"", "{", "[]", `{"job":0}`} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1.AnnotationAttempt: text}}}
		if got := readRecord(pod); got != nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestAPriorityIsCutToWhatTheEngineTakes(t *testing.T) {
	for given, want := range map[int32]int32{2_000_001_000: 1_000_000, -2_000_000_000: -1_000_000, 7: 7} {
		if got := priorityOf(&corev1.Pod{Spec: corev1.PodSpec{Priority: &given}}); got != want {
			t.Error(given, got)
		}
	}
}
