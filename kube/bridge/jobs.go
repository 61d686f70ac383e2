package bridge

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"gpusched/kube/engine"
	"gpusched/kube/engine/pb"
)

// Reports of the engine about jobs. Its orders come by the nodes' connections; this is for what is told nowhere else:
// that a job is over without ever having been placed, why it waits, and where it stands in line. Changes of a job's
// state come by the engine's watch at once. Why it waits is no change of its state, so it is asked for at times.

const (
	refreshEvery = 15 * time.Second
	askedAtOnce  = 100 // Jobs asked one by one in one round; more are listed.
	watchAgain   = time.Second
	// The engine looks ahead for each estimate: only the first in line have one. A pod is told of another time when it is
	// so much or a quarter of the wait off.
	estimated   = 5
	estimateOff = 2 * time.Minute
)

// watchJobs follows the engine's jobs until the context ends.
func (b *Bridge) watchJobs(ctx context.Context) {
	for ctx.Err() == nil {
		err := b.options.Engine.Watch(ctx, b.onEvent)
		b.mutex.Lock()
		b.watching = false
		b.mutex.Unlock()
		if ctx.Err() == nil {
			klog.V(2).InfoS("The watch of the engine's jobs ended; beginning again", "reason", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchAgain):
		}
	}
}

func (b *Bridge) onEvent(event *pb.WatchEvent) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	switch what := event.Event.(type) {
	case *pb.WatchEvent_Begin:
		b.watching, b.listed = true, time.Time{} // What changed until now is not told.
	case *pb.WatchEvent_Resync, *pb.WatchEvent_Overflow:
		b.listed = time.Time{}
	case *pb.WatchEvent_Job:
		ref, isGang, ok := refOfJob(what.Job)
		if !ok {
			return
		}
		if j := b.known(ref.UID, isGang); j != nil && j.id == what.Job.JobId {
			b.note(j, what.Job)
		}
	}
}

// The job of this pod or gang. With the mutex held.
func (b *Bridge) known(uid types.UID, isGang bool) *job {
	if isGang {
		return b.gangJobs[uid]
	}
	if j := b.jobs[uid]; j != nil && j.gang.UID == "" {
		return j
	}
	return nil
}

// Notes what the engine says of a job. With the mutex held.
func (b *Bridge) note(j *job, now *pb.Job) {
	place := coarse(now.QueuePosition)
	j.asked = true
	if j.state == now.State && j.message == now.Message && j.place == place {
		return
	}
	j.state, j.message, j.place, j.preempted = now.State, now.Message, place, engine.Preempted(now)
	if place == 0 || place > estimated {
		j.start = time.Time{}
	}
	b.touch(b.waitingOf(j))
}

// lookAtJobs asks whether the engine answers, and how the jobs of waiting pods are as far as the watch does not tell.
func (b *Bridge) lookAtJobs(ctx context.Context) error {
	if err := b.options.Engine.Ping(ctx); err != nil {
		return err
	}
	b.mutex.Lock()
	due := !b.watching || time.Since(b.listed) > refreshEvery
	var fresh []*job
	if !due {
		for j := range b.waitingJobs() {
			if !j.asked {
				fresh = append(fresh, j)
			}
		}
	}
	b.mutex.Unlock()
	if due || len(fresh) > askedAtOnce {
		return b.listJobs(ctx)
	}
	for _, j := range fresh {
		if err := b.askJob(ctx, j); err != nil {
			return err
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	return b.estimate(ctx)
}

func (b *Bridge) listJobs(ctx context.Context) error {
	began := time.Now()
	pending, err := b.options.Engine.JobsOfPods(ctx, pb.JobState_JOB_STATE_PENDING)
	if err != nil {
		return err
	}
	seen := map[string]*pb.Job{}
	for _, one := range pending {
		seen[one.JobId] = one
	}
	b.mutex.Lock()
	b.listed = began
	var unseen []*job
	for j := range b.waitingJobs() {
		if one := seen[j.id]; one != nil {
			b.note(j, one)
		} else {
			unseen = append(unseen, j)
		}
	}
	b.mutex.Unlock()
	for _, j := range unseen {
		if err := b.askJob(ctx, j); err != nil {
			return err
		}
	}
	return b.estimate(ctx)
}

// Asks when the first in line are expected to start.
func (b *Bridge) estimate(ctx context.Context) error {
	b.mutex.Lock()
	var first []*job
	for j := range b.waitingJobs() {
		if j.place > 0 && j.place <= estimated {
			first = append(first, j)
		}
	}
	b.mutex.Unlock()
	for _, j := range first {
		start, err := b.options.Engine.Start(ctx, j.id)
		if engine.Away(err) {
			return err
		}
		b.mutex.Lock()
		if start.IsZero() != j.start.IsZero() || start.Sub(j.start).Abs() > max(estimateOff, time.Until(start)/4) {
			j.start = start
			b.touch(b.waitingOf(j))
		}
		b.mutex.Unlock()
	}
	return nil
}

// A place in line that does not change with every job that starts: the first twenty exactly, others in tens, hundreds and
// thousands.
func coarse(place int64) int64 {
	for step := int64(1000); step > 1; step /= 10 {
		if place > 2*step {
			return place - place%step
		}
	}
	return place
}

// The jobs of pods that have no devices yet. With the mutex held.
func (b *Bridge) waitingJobs() map[*job]bool {
	found := map[*job]bool{}
	for uid, j := range b.jobs {
		if ref, _ := b.waiting(uid); ref.UID != "" && b.attempts[uid] == nil {
			found[j] = true
		}
	}
	return found
}

// The job's pods that have no devices yet. With the mutex held.
func (b *Bridge) waitingOf(j *job) []PodRef {
	var refs []PodRef
	for _, uid := range j.pods() {
		if ref, _ := b.waiting(uid); ref.UID != "" && b.jobs[uid] == j && b.attempts[uid] == nil {
			refs = append(refs, ref)
		}
	}
	return refs
}

func (b *Bridge) askJob(ctx context.Context, j *job) error {
	one, err := b.options.Engine.Job(ctx, j.id)
	if engine.Away(err) {
		return err
	}
	if err != nil { // The engine does not know it, perhaps restored from an older copy.
		one = &pb.Job{State: pb.JobState_JOB_STATE_FAILED, Message: engine.Reason(err)}
	}
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.note(j, one)
	return nil
}

func (b *Bridge) touch(refs []PodRef) {
	for _, ref := range refs {
		b.podQueue.Add(ref)
		if pod, err := b.podLister.Pods(ref.Namespace).Get(ref.Name); err == nil {
			b.touchClaim(pod)
		}
	}
}

func (j *job) pods() []types.UID {
	if j.gang.UID == "" {
		return []types.UID{j.pod}
	}
	uids := make([]types.UID, 0, len(j.members))
	for _, m := range j.members {
		uids = append(uids, m.ref.UID)
	}
	return uids
}

// ended says whether somebody with a right to it said in the engine that this work is to end. A job that lost its place
// to another one before its pod was bound is over as well, and its pod waits again.
func (j *job) ended() bool { return j.state == pb.JobState_JOB_STATE_CANCELLED && !j.preempted }

// reason says why the job waits.
func (j *job) reason() string {
	if j.refusal == "" {
		return fmt.Sprintf("%s: %s", j.id, j.message)
	}
	return fmt.Sprintf("%s: %s; not started before: %s", j.id, j.message, j.refusal)
}

// text is the same with its place in line and the time at which it is expected to start.
func (j *job) text() string {
	text := j.reason()
	if j.place > 0 {
		about := ""
		if j.place > 2*10 {
			about = "about "
		}
		text += fmt.Sprintf("; place in line: %s%d", about, j.place)
	}
	if !j.start.IsZero() {
		text += "; expected to start about " + j.start.UTC().Round(time.Minute).Format("2006-01-02 15:04 UTC")
	}
	return text
}
