package bridge

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "gpusched/kube/api/v1"
	"gpusched/kube/engine"
	"gpusched/kube/engine/pb"
)

func TestAPlaceInLineChangesSeldomFarBehind(t *testing.T) {
	for place, want := range map[int64]int64{0: 0, 1: 1, 20: 20, 21: 20, 29: 20, 199: 190, 200: 200, 1999: 1900, 9999: 9000} {
		if got := coarse(place); got != want {
			t.Errorf("%d: %d", place, got)
		}
	}
}

func TestAPodIsToldReasonRefusalPlaceAndTime(t *testing.T) {
	j := &job{id: "job-7", message: "no GPU is free"}
	if got := j.text(); got != "job-7: no GPU is free" {
		t.Error(got)
	}
	j.refusal, j.place = "node n: taint", 30
	j.start = time.Date(2026, 5, 4, 3, 2, 31, 0, time.UTC)
	if got := j.text(); got != "job-7: no GPU is free; not started before: node n: taint; place in line: about 30; "+
		"expected to start about 2026-05-04 03:03 UTC" {
		t.Error(got)
	}
	if got := j.reason(); got != "job-7: no GPU is free; not started before: node n: taint" {
		t.Error(got)
	}
}

func TestAWatchEventChangesTheJobThatItNamesAndWakesItsPod(t *testing.T) {
	b, _ := newBridge(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "uid",
		Annotations: map[string]string{v1.AnnotationClaim: "claim"}}, Spec: corev1.PodSpec{SchedulerName: v1.SchedulerName}}
	if err := b.pods.GetStore().Add(pod); err != nil {
		t.Fatal(err)
	}
	j := &job{id: "job-7", pod: "uid", state: pb.JobState_JOB_STATE_PENDING, message: "waits"}
	b.jobs["uid"], b.listed = j, time.Now()
	told := func(id, uid string) *pb.WatchEvent {
		return &pb.WatchEvent{Event: &pb.WatchEvent_Job{Job: &pb.Job{JobId: id, State: pb.JobState_JOB_STATE_CANCELLED,
			Message: "was cancelled", Spec: &pb.JobSpec{Executor: engine.Executor, Labels: map[string]string{
				engine.LabelPod: "ns/pod", engine.LabelPodUID: uid}}}}}
	}
	b.onEvent(told("job-6", "uid")) // An older one of the pod.
	b.onEvent(told("job-7", "other"))
	if j.state != pb.JobState_JOB_STATE_PENDING || b.podQueue.Len() != 0 {
		t.Error(j.state, b.podQueue.Len())
	}
	b.onEvent(told("job-7", "uid"))
	if j.state != pb.JobState_JOB_STATE_CANCELLED || j.message != "was cancelled" || b.podQueue.Len() != 1 {
		t.Error(j.state, j.message, b.podQueue.Len())
	}
	b.onEvent(&pb.WatchEvent{Event: &pb.WatchEvent_Overflow{}})
	if !b.listed.IsZero() {
		t.Error("after an overflow the jobs are not listed")
	}
}
