package webhook

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

const (
	name     = "webhook.namespace.svc"
	lifetime = 90 * 24 * time.Hour
)

var now = time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)

func issued(t *testing.T, at time.Time, before []byte) material {
	t.Helper()
	made, err := issue([]string{name}, at, lifetime, before)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func TestCertificateIsGoodUntilAThirdOfItsTimeIsLeft(t *testing.T) {
	made := issued(t, now, nil)
	for _, at := range []time.Time{now.Add(-clockSkew), now, now.Add(lifetime * 2 / 3)} {
		if err := made.check([]string{name}, at, lifetime/3); err != nil {
			t.Errorf("at %s: %v", at, err)
		}
	}
	err := made.check([]string{name}, now.Add(lifetime*2/3+time.Second), lifetime/3)
	if err == nil || !strings.Contains(err.Error(), "it ends at 2027-04-01T00:00:00Z") {
		t.Errorf("a second later: %v", err)
	}
}

func TestCertificateOfAnotherNameOrAuthorityIsNotGood(t *testing.T) {
	made, other := issued(t, now, nil), issued(t, now, nil)
	if err := made.check([]string{name, "other.namespace.svc"}, now, 0); err == nil {
		t.Error("it is taken for another name's")
	}
	if err := (material{other.authorities, made.certificate, made.key}).check([]string{name}, now, 0); err == nil {
		t.Error("another authority vouches for it")
	}
	if err := (material{made.authorities, made.certificate, other.key}).check([]string{name}, now, 0); err == nil {
		t.Error("it is served with another key")
	}
	if err := (material{}).check([]string{name}, now, 0); err == nil {
		t.Error("an empty Secret is good")
	}
}

func TestAuthorityBeforeStaysBelievedWhileItIsValid(t *testing.T) {
	first := issued(t, now, nil)
	second := issued(t, now.Add(lifetime/2), first.authorities)
	if !bytes.HasSuffix(second.authorities, first.authorities) {
		t.Error("the first authority is not believed any more")
	}
	if err := (material{second.authorities, first.certificate, first.key}).check([]string{name}, now, 0); err != nil {
		t.Errorf("a replica that serves with the first certificate: %v", err)
	}
	third := issued(t, now.Add(lifetime/2), second.authorities)
	if count := bytes.Count(third.authorities, []byte("BEGIN")); count != 2 || bytes.Contains(third.authorities, first.authorities) {
		t.Errorf("the third believes %d authorities", count)
	}
	late := issued(t, now.Add(lifetime), first.authorities)
	if bytes.Count(late.authorities, []byte("BEGIN")) != 1 {
		t.Error("an authority that has expired is believed")
	}
}
