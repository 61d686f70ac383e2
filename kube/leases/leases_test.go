package leases

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/validation"
)

func TestALeaseIsNamedAfterNodeAndDevice(t *testing.T) {
	if got := Name("node-a", 7); got != "gpu-node-a-7" {
		t.Error(got)
	}
}

func TestALongNodeNameGivesAValidNameOfItsOwn(t *testing.T) {
	a, b := strings.Repeat("a.b-", 62)+"node1", strings.Repeat("a.b-", 62)+"node2"
	if len(a) != 253 {
		t.Fatal(len(a))
	}
	names := map[string]bool{}
	for _, node := range []string{a, b} {
		for _, id := range []int32{0, 63} {
			name := Name(node, id)
			if problems := validation.NameIsDNSSubdomain(name, false); len(problems) != 0 {
				t.Error(name, problems)
			}
			names[name] = true
		}
	}
	if len(names) != 4 {
		t.Error(names)
	}
}
