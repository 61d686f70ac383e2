package engine

import (
	"encoding/hex"
	"strings"
	"testing"

	"gpusched/kube/engine/pb"
)

// The digests are Python's: hashlib.blake2b(label + nonces, key=..., digest_size=32).
func TestProofIsThatOfTheProtocol(t *testing.T) {
	for _, one := range []struct{ name, token, want string }{
		{"a short token is the key", "token", "2fef06ff100d87bbce051fbb8fd87962bb89ed8f281b125380be92dc2a3c44a7"},
		{"the digest of a long token is the key", strings.Repeat("long ", 20), "1ddda253f3487a98661bf7aa4816e0eb8c7c3931da121ccde9e13bfcdf677cfc"},
	} {
		got, err := proof(one.token, "gpusched-agent-2", []byte("nonce-a"), []byte("nonce-b"))
		if err != nil || hex.EncodeToString(got) != one.want {
			t.Errorf("%s: %x %v", one.name, got, err)
		}
	}
}

func TestAnEmptyTokenProvesNothing(t *testing.T) {
	if got, err := proof("", "gpusched-agent-2", []byte("nonce")); err == nil || got != nil {
		t.Errorf("%x %v", got, err)
	}
}

func ended(job uint64) *pb.Report {
	return &pb.Report{What: &pb.Report_Ended{Ended: &pb.Ended{Key: &pb.AttemptKey{Job: job}}}}
}

func condition(index uint32, now pb.DeviceCondition) *pb.Report {
	return &pb.Report{What: &pb.Report_Condition{Condition: &pb.ConditionChanged{Index: index, Condition: now}}}
}

func TestReportsAreRepeatedInTheOrderOfWhatHappened(t *testing.T) {
	node := (&Client{}).NewNode("n", nil)
	for job := uint64(1); job <= 50; job++ {
		node.Report(ended(job))
		node.Report(Released(uint32(job), 1))
	}
	node.Report(ended(7)) // Known already.
	messages := node.unacknowledged()
	if len(messages) != 100 {
		t.Fatalf("%d reports", len(messages))
	}
	for i, message := range messages {
		if report := message.GetReport(); report.Id != uint64(i+1) || (report.GetEnded() == nil) == (i%2 == 0) {
			t.Errorf("report %d: %v", i, report)
		}
	}
}

func TestAnEndThatIsNotAcknowledgedIsToldAtTheNextRegistration(t *testing.T) {
	node := (&Client{}).NewNode("n", nil)
	node.Report(ended(7))
	node.Report(ended(8))
	node.obey(&pb.SchedulerMessage{Body: &pb.SchedulerMessage_Ack{Ack: &pb.Ack{ReportIds: []uint64{1}}}})
	if told := node.ended(); len(told) != 1 || told[0].Key.Job != 8 || !told[0].Ended {
		t.Errorf("%v", told)
	}
}

func TestAnAttemptHasEndedUntilTheEngineKnows(t *testing.T) {
	node := (&Client{}).NewNode("n", nil)
	node.Report(ended(7))
	if !node.HasEnded(&pb.AttemptKey{Job: 7}, 0) {
		t.Error("the end is under way")
	}
	if node.HasEnded(&pb.AttemptKey{Job: 7, Attempt: 1}, 0) || node.HasEnded(&pb.AttemptKey{Job: 7}, 1) {
		t.Error("another attempt has not ended")
	}
	node.obey(&pb.SchedulerMessage{Body: &pb.SchedulerMessage_Ack{Ack: &pb.Ack{ReportIds: []uint64{1}}}})
	if node.HasEnded(&pb.AttemptKey{Job: 7}, 0) {
		t.Error("the engine knows: what it orders now is new")
	}
}

func TestTheNewestConditionOfADeviceCounts(t *testing.T) {
	node := (&Client{}).NewNode("n", nil)
	for _, now := range []pb.DeviceCondition{1, 2, 1} {
		node.Report(condition(0, now))
	}
	node.Report(condition(1, 2))
	messages := node.unacknowledged()
	if len(messages) != 2 || messages[0].GetReport().GetCondition().Condition != 1 ||
		messages[1].GetReport().GetCondition().Index != 1 {
		t.Errorf("%v", messages)
	}
}
